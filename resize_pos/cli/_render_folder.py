"""What a report says about the files beside the weights."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from resize_pos.report.value import Report, Status


def show_configs(console: Console, report: Report) -> None:
    """Print the config edits, what is left to the user, and the files that were not changed."""
    planned = report.status is Status.PLANNED
    for edit in report.plan.config_edits:
        _line(console, f"  {edit}")
    if report.config_advice:
        words = "; ".join(map(str, report.config_advice))
        _line(console, Text(f"still to change: {words}", style="yellow"))
    for entry in report.left_out:
        verb = "is left out" if planned else "was left out"
        _line(console, Text(f"{entry.name} {verb}: {entry.reason}", style="yellow"))
    copied = report.copied
    if copied.linked:
        _line(
            console,
            f"{copied.linked} unchanged files are hard links to the source's; "
            "pass --copy before changing them in place.",
        )


def _line(console: Console, text: str | Text) -> None:
    console.print(text, soft_wrap=True, markup=False)
