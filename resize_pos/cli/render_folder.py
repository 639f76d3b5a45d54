"""What a report says about the files beside the weights, and what is left to the user."""

from __future__ import annotations

from resize_pos.cli.terminal import say, tell
from resize_pos.report.report import Report, Status
from resize_pos.report.to_do import loading_task, still_to_change


def show_to_do(report: Report) -> None:
    """Print what is left to the user: values to change, then code that is ready to paste.

    Code is not indented, so that a Python prompt accepts it as it is.
    """
    lead = ("still to change:", "yellow")
    advice = still_to_change(report)
    if len(advice) == 1:
        tell(str(advice[0]), lead=[lead, " "])
    elif advice:
        say(lead)
        for each in advice:
            tell(str(each), indent=2)
    task = loading_task(report)
    if task is not None:
        tell(f"{task.words[:1].lower()}{task.words[1:]}", style="yellow")
        for line in task.code.split("\n"):
            say(line)


def show_configs(report: Report) -> None:
    """Print the config edits, and the files that were not changed."""
    planned = report.status is Status.PLANNED
    for edit in report.config_edits:
        tell(str(edit), indent=2)
    for entry in report.left_out:
        verb = "is left out" if planned else "was left out"
        tell(f"{verb}: {entry.reason}", lead=[(entry.name, "yellow"), " "])
    if report.copied.linked:
        tell(
            f"{report.copied.linked} unchanged files are hard links to the source's; "
            "changing one in place also changes the source."
        )
