"""A batch in words: a line for each job, and the summary at the end."""

from __future__ import annotations

from resize_pos.cli.render import LEVEL_STYLES, show_traffic
from resize_pos.cli.terminal import say, tell
from resize_pos.core.printable import human_size
from resize_pos.quality.checks import Level
from resize_pos.report.batch import count_words
from resize_pos.report.batch_result import BatchResult, JobResult, JobStatus


def result_line(result: JobResult) -> str:
    """Say in one line how a job ended."""
    if result.failure is not None:
        return f"failed     {result.complaint}"
    words = [f"{result.status.value:<10} {result.source}", human_size(result.bytes)]
    if result.report is not None and result.report.needs_force:
        words.append(f"{result.output} exists: --force would replace it")
    if result.verdict is not Level.OK:
        words.append(f"{result.verdict.value}: {'; '.join(result.reasons)}")
    return "; note: ".join([", ".join(words), *result.notes])


def show_summary(summary: BatchResult) -> None:
    """Print how many jobs ended how, and every job that needs a look, with the reason."""
    rows = [("failed", Level.FAIL, result) for result in summary.failed]
    rows += [("warned", result.verdict, result) for result in summary.warned]
    for result in summary.results:
        for note in result.notes:
            say(("note", "yellow"), f"    {result.source}")
            tell(note, indent=4, hang=0)
    for word, level, result in rows:
        say((word, LEVEL_STYLES[level]), f"  {result.source}")
        tell("; ".join(result.reasons), indent=4, hang=0)
        if result.failure is not None and result.failure.hint:
            tell(result.failure.hint, indent=4, hang=2, lead=["hint: "])
    written = (JobStatus.RESIZED, JobStatus.UNCHANGED, JobStatus.CONVERTED)
    moved = sum(result.bytes for result in summary.results if result.status in written)
    size = f" ({human_size(moved)})" if moved else ""
    say(f"{count_words(summary.counts)}{size} in {summary.seconds:.1f} s")
    say(f"output: {summary.output_dir}")
    show_traffic(summary.traffic)
