"""The report over all jobs of a batch: JSON, Markdown, or a page with a sortable table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import quote

from resize_pos._version import __version__
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.families.tables import Action
from resize_pos.quality.checks import Level
from resize_pos.report.batch_result import BatchResult, JobResult, batch_document
from resize_pos.report.files import write_files
from resize_pos.report.groups import change_words
from resize_pos.report.json import json_text
from resize_pos.report.markdown import code, table, text
from resize_pos.report.traffic_words import traffic_words

_SORTED_BY_VERDICT = {Level.FAIL: 0, Level.WARN: 1, Level.OK: 2}
_COUNT_WORDS = {
    "planned": "planned",
    "resized": "done",
    "unchanged": "unchanged",
    "converted": "converted",
    "current": "current",
    "failed": "failed",
    "not_started": "not started",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A link from the page to a report of one job."""

    address: str
    word: str


@dataclass(frozen=True, slots=True)
class Row:
    """One job, as the page and the Markdown show it."""

    number: int
    source: str
    output: str
    status: str
    tables: str
    verdict: str
    rank: int  # sort key of the verdict, worst first
    reason: str
    bytes: int
    seconds: float | None
    links: tuple[Link, ...] = ()


def write_batch_reports(batch: BatchResult, paths: Iterable[Path]) -> None:
    """Write every requested report."""
    for path in paths:
        writers: dict[str, Callable[[], str]] = {
            ".json": lambda: json_text(batch_document(batch)),
            ".md": lambda: batch_markdown(batch),
            ".html": partial(_html, batch, path.parent),
        }
        write_files(writers, [path])


def batch_markdown(batch: BatchResult) -> str:
    """Write a table for a step summary or a pull request."""
    cells = [
        (code(row.source), row.status, text(row.tables), row.verdict, text(row.reason))
        for row in _rows(batch)
    ]
    lines = table(("checkpoint", "status", "tables", "verdict", ""), cells)
    head = ["## resize-pos batch", "", f"{count_words(batch.counts)}.", ""]
    if batch.traffic is not None:
        head += [f"Traffic: {traffic_words(batch.traffic)}.", ""]
    return "\n".join([*head, *lines]) + "\n"


def count_words(counts: Mapping[str, int]) -> str:
    """Say how many jobs ended how."""
    always = ("resized", "failed") if not counts.get("planned") else ("planned", "failed")
    parts = [f"{counts[k]} {w}" for k, w in _COUNT_WORDS.items() if counts.get(k) or k in always]
    warned = f"; {counts['warned']} of these warned" if counts.get("warned") else ""
    return ", ".join(parts) + warned


def _rows(batch: BatchResult, folder: Path | None = None) -> list[Row]:
    return [_row(result, folder) for result in batch.in_order]


def _row(result: JobResult, folder: Path | None) -> Row:
    report, failure = result.report, result.failure
    steps = () if report is None else (table.step for table in report.tables)
    changed = (change_words(step) for step in steps if step.action is not Action.KEEP)
    words = result.reasons
    if failure is not None and failure.hint:
        words = (f"{failure.error} {failure.hint}",)
    return Row(
        number=result.number,
        source=str(result.source),
        output=str(result.output),
        status=result.status.value,
        tables="; ".join(dict.fromkeys(changed)),
        verdict="" if failure is not None else result.verdict.value,
        rank=3 if failure is not None else _SORTED_BY_VERDICT[result.verdict],
        reason="; ".join([*words, *result.notes]),
        bytes=result.bytes,
        seconds=None if report is None else report.seconds,
        links=() if folder is None else tuple(_links(result.reports, folder)),
    )


def _links(reports: Iterable[Path], folder: Path) -> Iterable[Link]:
    for path in reports:
        if path.exists():
            relative = Path(os.path.relpath(path, folder)).as_posix()
            # Quoted as bytes: a name need not be valid Unicode.
            yield Link(quote(os.fsencode(relative)), path.suffix.removeprefix("."))


def _html(batch: BatchResult, folder: Path) -> str:
    from resize_pos.report.html import batch_html  # imports jinja2, which only a page needs

    verdicts = [Level.FAIL if result.failure else result.verdict for result in batch.results]
    level = min(verdicts, key=_SORTED_BY_VERDICT.__getitem__, default=Level.OK)
    return batch_html(
        batch=batch,
        rows=_rows(batch, folder),
        level=level.value,
        summary=f"{count_words(batch.counts)}.",
        traffic="" if batch.traffic is None else traffic_words(batch.traffic),
        version=__version__,
    )
