"""Write a report to files, in the format that each file's suffix names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from resize_pos.errors import OutputError, UsageError
from resize_pos.report.as_json import report_document, report_json
from resize_pos.report.batch_files import job_markdown
from resize_pos.report.value import Report

_WRITERS: Mapping[str, Callable[[Report], str]] = {".json": report_json}


def is_written_as(suffix: str) -> bool:
    """Tell whether there is a writer for a file suffix."""
    return suffix in _WRITERS


def report_markdown(report: Report) -> str:
    """Write a report for a step summary: in full where there is a writer, else as one row."""
    writer = _WRITERS.get(".md")
    if writer is not None:
        return writer(report)
    job = {"number": 1, "bytes": 0, "reports": []}
    return job_markdown({**report_document(report), "job": job})


def require_report_targets(paths: Iterable[Path]) -> None:
    """Refuse an unknown suffix or a missing folder before any work is done."""
    for path in paths:
        if path.suffix.lower() not in _WRITERS:
            raise UsageError(
                f"--report {path}: a report is written as {', '.join(_WRITERS)}.",
                hint=f"name it {path.stem or 'report'}.json",
            )
        if not path.parent.is_dir():
            raise OutputError(f"--report {path}: the folder {path.parent} does not exist.")


def write_reports(report: Report, paths: Iterable[Path]) -> None:
    """Write every report that was asked for."""
    for path in paths:
        text = _WRITERS[path.suffix.lower()](report)
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"--report {path}: {error.strerror}.") from error
