"""Write a report to files, in the format that each file's suffix names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from resize_pos.configs.keys import CONFIG_FILES
from resize_pos.containers.io.atomic_output import output_error, staged
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.stage_names import stage_path
from resize_pos.core.errors import OutputError, UsageError
from resize_pos.report.json import report_json
from resize_pos.report.report import Report

SUFFIXES = (".json", ".html", ".md")
_SPELLINGS = {".htm": ".html", ".markdown": ".md"}

# How a report is recognised, so that the next run may replace it.
_MARKDOWN_MARK = "<!-- report of resize-pos -->"
_MARKS = {
    ".json": b'{\n  "schema": "resize-pos/',
    ".html": b'<meta name="generator" content="resize-pos">',
    ".md": _MARKDOWN_MARK.encode(),
}
_SEARCHED = 4096  # bytes, of the beginning or the end of a file


def format_of(path: Path) -> str:
    """Return the report format for a file's suffix."""
    suffix = path.suffix.lower()
    return _SPELLINGS.get(suffix, suffix)


def wants_pictures(paths: Iterable[Path]) -> bool:
    """Return whether one of the reports contains pictures."""
    return any(format_of(path) == ".html" for path in paths)


def report_markdown(report: Report) -> str:
    """Write a report for a step summary."""
    return _markdown(report, None)


def require_report_targets(
    paths: Iterable[Path], *, force: bool = False, sources: Sequence[Path] = ()
) -> None:
    """Refuse, before any work is done, a report path that cannot or must not be written.

    An existing file is replaced only if we wrote it as a report, or with `force`. A file of a
    source, or a config beside it, is never replaced.
    """
    for path in paths:
        if str(path).startswith("-"):  # the name was forgotten, and the next option was taken
            raise UsageError(f"--report {path}: no file is named.", hint="--report report.html")
        if format_of(path) not in SUFFIXES:
            raise UsageError(
                f"--report {path}: a report is written as {', '.join(SUFFIXES)}.",
                hint=f"name it {path.stem or 'report'}.html",
            )
        _require_place(path, force=force, sources=sources)


def _require_place(path: Path, *, force: bool, sources: Sequence[Path]) -> None:
    try:
        if path.is_dir():
            raise OutputError(f"--report {path}: is a folder.")
        if not path.parent.is_dir():
            raise OutputError(
                f"--report {path}: the folder {path.parent} does not exist.",
                hint=f"Create it first: mkdir -p {shlex.quote(str(path.parent))}",
            )
        exists = os.path.lexists(path)
        if exists and not _is_report(path):
            if any(_belongs_to(path, source) for source in sources):
                raise OutputError(
                    f"--report {path}: is a file of the source, which is never modified.",
                    hint="name another file.",
                )
            if not force:
                raise OutputError(
                    f"--report {path}: exists and is not a report of resize-pos.",
                    hint="name another file, or pass --force to replace it.",
                )
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise OutputError(f"--report {path}: the folder {path.parent} is not writable.")
        # Only a real write shows that the name is valid and the disk is neither full nor read-only.
        probe = stage_path(path)
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _failed(path, error) from error


def _is_report(path: Path) -> bool:
    """Return whether a file contains our mark, so that it is a report we wrote."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if format_of(path) == ".md":  # its mark is the last line
                file.seek(max(0, path.stat().st_size - _SEARCHED))
            part = file.read(_SEARCHED)
    except OSError:
        return False
    return _MARKS[format_of(path)] in part


def _belongs_to(path: Path, source: Path) -> bool:
    """Return whether a file is a source, is inside one, or is a config beside one."""
    if isinstance(source, RemotePath):
        return False
    if not source.exists():  # it is on the hub, or another check reports it as missing
        return False
    real, target = source.resolve(), path.resolve()
    if target == real or (path.exists() and path.samefile(source)):
        return True
    if real.is_dir():
        return target.is_relative_to(real)
    return target.parent == real.parent and target.name in CONFIG_FILES


def _failed(path: Path, error: OSError) -> OutputError:
    words = output_error(path, error).message.removeprefix(f"{path}: ")
    return OutputError(f"--report {path}: {words}", hint="name another file for the report.")


def write_reports(report: Report, paths: Iterable[Path], command: str | None = None) -> None:
    """Write every requested report; `command` is the command line, if known."""
    write_files(
        {
            ".json": lambda: report_json(report),
            ".html": lambda: _html(report, command),
            ".md": lambda: _markdown(report, command),
        },
        paths,
    )


def write_files(writers: Mapping[str, Callable[[], str]], paths: Iterable[Path]) -> None:
    """Write each file atomically, with the writer for its format."""
    for path in paths:
        kind = format_of(path)
        text = writers[kind]()
        if kind == ".md":
            text = f"{text.rstrip()}\n\n{_MARKDOWN_MARK}"
        data = f"{text.rstrip()}\n".encode("utf-8", "backslashreplace")
        try:
            with staged(path, force=os.path.lexists(path)) as stage:
                stage.write_bytes(data)
        except OSError as error:
            raise _failed(path, error) from error
        except OutputError as error:
            words = error.message.removeprefix(f"{path}: ")
            raise OutputError(
                f"--report {path}: {words}", hint="name another file for the report."
            ) from error


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
