"""A batch in words: a line for each job, and the table at the end."""

from __future__ import annotations

from resize_pos.cli.render import LEVEL_STYLES
from resize_pos.cli.terminal import human_bytes, say, tell
from resize_pos.quality.verdict import Level
from resize_pos.report.batch import count_words
from resize_pos.run.batch.summary import Summary
from resize_pos.run.batch.work import FAILED, Outcome


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
    rows = [("failed", "fail", outcome) for outcome in summary.failed]
    rows += [("warned", outcome.verdict, outcome) for outcome in summary.warned]
    for word, level, outcome in rows:
        say((word, LEVEL_STYLES[Level(level)]), f"  {outcome.task.job.source}")
        tell("; ".join(outcome.reasons), indent=4, hang=0)
        hint = outcome.document.get("hint")
        if hint:
            tell(str(hint), indent=4, hang=2, lead=["hint: "])
    moved = sum(o.task.bytes for o in summary.outcomes if o.status in ("resized", "unchanged"))
    size = f" ({human_bytes(moved)})" if moved else ""
    say(f"{count_words(summary.counts)}{size} in {summary.seconds:.1f} s")
    say(f"output: {summary.output_dir}")
