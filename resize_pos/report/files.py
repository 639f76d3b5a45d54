"""Write a report to files, in the format that each file's suffix names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from resize_pos.core.errors import OutputError, UsageError
from resize_pos.report.json import report_json
from resize_pos.report.report import Report

SUFFIXES = (".json", ".html", ".md")
_SPELLINGS = {".htm": ".html", ".markdown": ".md"}


def format_of(path: Path) -> str:
    """Give the format that a file's suffix names."""
    suffix = path.suffix.lower()
    return _SPELLINGS.get(suffix, suffix)


def wants_pictures(paths: Iterable[Path]) -> bool:
    """Tell whether one of the reports has pictures in it."""
    return any(format_of(path) == ".html" for path in paths)


def report_markdown(report: Report) -> str:
    """Write a report for a step summary."""
    return _markdown(report, None)


def require_report_targets(paths: Iterable[Path]) -> None:
    """Refuse an unknown suffix or a missing folder before any work is done."""
    for path in paths:
        if format_of(path) not in SUFFIXES:
            raise UsageError(
                f"--report {path}: a report is written as {', '.join(SUFFIXES)}.",
                hint=f"name it {path.stem or 'report'}.html",
            )
        if path.is_dir():
            raise OutputError(f"--report {path}: is a folder.")
        if not path.parent.is_dir():
            raise OutputError(f"--report {path}: the folder {path.parent} does not exist.")


def write_reports(report: Report, paths: Iterable[Path], command: str | None = None) -> None:
    """Write every report that was asked for; `command` is what the user typed, if that is known."""
    write_files(
        {
            ".json": lambda: report_json(report),
            ".html": lambda: _html(report, command),
            ".md": lambda: _markdown(report, command),
        },
        paths,
    )


def write_files(writers: Mapping[str, Callable[[], str]], paths: Iterable[Path]) -> None:
    """Write each file with the writer of its format."""
    for path in paths:
        text = writers[format_of(path)]()
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"--report {path}: {error.strerror}.") from error


def _html(report: Report, command: str | None) -> str:
    from resize_pos.report.figures import draw
    from resize_pos.report.html import page_html
    from resize_pos.report.page import resize_page

    figures = {
        table.step.name: draw(table.pictures, table.step.table.role)
        for table in report.tables
        if table.pictures is not None
    }
    return page_html(resize_page(report, command), figures)


def _markdown(report: Report, command: str | None) -> str:
    from resize_pos.report.markdown import page_markdown
    from resize_pos.report.page import resize_page

    return page_markdown(resize_page(report, command))
