"""A batch in words: a line for each job, and the table at the end."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from resize_pos.batch.summary import Summary
from resize_pos.batch.work import FAILED, Outcome
from resize_pos.cli._render import console_for_results, human_bytes, print_line
from resize_pos.report.batch_files import count_words

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def outcome_line(outcome: Outcome) -> str:
    """Say in one line how a job ended."""
    source = outcome.task.job.source
    if outcome.status == FAILED:
        return f"failed     {source}: {'; '.join(outcome.reasons)}"
    words = [f"{outcome.status:<10} {source}", human_bytes(outcome.task.bytes)]
    if outcome.verdict != "ok":
        words.append(f"{outcome.verdict}: {'; '.join(outcome.reasons)}")
    return ", ".join(words)


def show_summary(summary: Summary) -> None:
    """Print how many jobs ended how, and every job that needs a look, with the reason."""
    console = console_for_results()
    rows = [("failed", "fail", outcome) for outcome in summary.failed]
    rows += [("warned", outcome.verdict, outcome) for outcome in summary.warned]
    if rows:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for word, level, outcome in rows:
            reason = "; ".join(outcome.reasons)
            hint = outcome.document.get("hint")
            if hint:
                reason += f"\n{hint}"
            style = _COLOURS[level]
            table.add_row(Text(word, style=style), Text(str(outcome.task.job.source)), Text(reason))
        console.print(table)
    moved = sum(o.task.bytes for o in summary.outcomes if o.status in ("resized", "unchanged"))
    size = f" ({human_bytes(moved)})" if moved else ""
    print_line(console, f"{count_words(summary.counts)}{size} in {summary.seconds:.1f} s")
    print_line(console, f"output: {summary.output_dir}")
