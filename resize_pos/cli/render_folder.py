"""What a report says about the files beside the weights."""

from __future__ import annotations

from resize_pos.cli.terminal import say, tell
from resize_pos.report.report import Report, Status


def show_configs(report: Report) -> None:
    """Print the config edits, what is left to the user, and the files that were not changed."""
    planned = report.status is Status.PLANNED
    for edit in report.plan.config_edits:
        tell(str(edit), indent=2)
    lead = ("still to change:", "yellow")
    if len(report.config_advice) == 1:
        say(lead, f" {report.config_advice[0]}")
    elif report.config_advice:
        say(lead)
        for advice in report.config_advice:
            say(f"  {advice}")
    for entry in report.left_out:
        verb = "is left out" if planned else "was left out"
        tell(f"{verb}: {entry.reason}", lead=[(entry.name, "yellow"), " "])
    if report.copied.linked:
        tell(
            f"{report.copied.linked} unchanged files are hard links to the source's; "
            "changing one in place also changes the source."
        )
