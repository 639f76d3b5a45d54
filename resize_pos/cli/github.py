"""`--format github`: workflow commands that annotate a run, and its step summary."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from resize_pos.cli.terminal import say_command
from resize_pos.core.errors import OutputError, ResizePosError
from resize_pos.core.printable import printable
from resize_pos.core.system_errors import cause
from resize_pos.quality.checks import Check, Level

_LEVELS = {"ok": "notice", "warn": "warning", "fail": "error"}


def annotate(level: str, message: str, *, file: Path | None = None, title: str = "") -> None:
    """Print one annotation; `level` is ok, warn or fail."""
    say_command(annotation(level, message, file=file, title=title))


@contextlib.contextmanager
def annotated(file: Path, *, wanted: bool) -> Iterator[None]:
    """Annotate whatever could not be done, on its way to the place that ends the program."""
    try:
        yield
    except ResizePosError as error:
        if wanted:
            message = error.message if error.hint is None else f"{error.message}\n{error.hint}"
            annotate("fail", message, file=file, title="resize-pos")
        raise


def annotate_checks(checks: Iterable[Check], file: Path, otherwise: str) -> None:
    """Annotate every check that is not ok, once; or say that all are."""
    bad = {check.detail: check.level for check in checks if check.level is not Level.OK}
    for detail, level in bad.items():
        annotate(level.value, detail, file=file, title=f"resize-pos: {level.value}")
    if not bad:
        annotate("ok", otherwise, file=file, title="resize-pos")


def annotation(level: str, message: str, *, file: Path | None = None, title: str = "") -> str:
    """Write a workflow command; line breaks and the characters of its own syntax are escaped."""
    properties: Mapping[str, str] = {
        "file": "" if file is None else str(file),
        "title": title,
    }
    given = ",".join(f"{name}={_property(text)}" for name, text in properties.items() if text)
    return f"::{_LEVELS[level]}{' ' if given else ''}{given}::{_data(message)}"


def append_summary(markdown: str) -> None:
    """Append to the step's summary, where there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        try:
            with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(markdown.rstrip("\n") + "\n\n")
        except OSError as error:
            words, _ = cause(error)
            raise OutputError(f"the step summary {path}: cannot be written: {words}.") from error


def _data(text: str) -> str:
    text = re.sub(r"[^\r\n]+", lambda line: printable(line[0]), text)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
