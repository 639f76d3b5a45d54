"""`--format github`: workflow commands that annotate a run, and its step summary."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from resize_pos.core.errors import ResizePosError
from resize_pos.quality.verdict import Check, Level

_LEVELS = {"ok": "notice", "warn": "warning", "fail": "error"}


def annotate(level: str, message: str, *, file: Path | None = None, title: str = "") -> None:
    """Print one annotation; `level` is ok, warn or fail."""
    click.echo(annotation(level, message, file=file, title=title))


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
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown.rstrip("\n") + "\n\n")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
