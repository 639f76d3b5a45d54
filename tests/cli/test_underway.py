"""The line that shows how far a conversion in a store is."""

from __future__ import annotations

import io
import threading

import pytest

from resize_pos.cli import underway
from resize_pos.containers.io.remote_path import place
from resize_pos.containers.remote import traffic
from resize_pos.core.request import Request
from resize_pos.run.job import Job


class Terminal(io.StringIO):
    """A stream that says when something was written to it."""

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(underway, "_FIRST", 0.0)
    monkeypatch.setattr(underway, "_EVERY", 0.001)
    monkeypatch.setattr(traffic, "_total", traffic.Traffic(9, 3_000_000, 7_000_000, 143_000_000))
    monkeypatch.setattr(traffic, "_planned", 600_000_000)


def job(output: str, *, dry_run: bool = False) -> Job:
    source = place("s3://zoo/vit.safetensors")
    return Job(source, Request(), output=place(output), dry_run=dry_run)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("s3://zoo/wide.safetensors", "150.0 MB of 600.0 MB, 25% written"),
        ("wide.safetensors", "3.0 MB received"),
    ],
)
def test_a_terminal_shows_what_was_moved_and_is_left_clean(output: str, words: str) -> None:
    stream = Terminal()
    with underway.shown_underway(job(output), stream):
        assert stream.written.wait(30)
    shown = stream.getvalue()
    assert words in shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown


@pytest.mark.parametrize(("terminal", "dry_run"), [(False, False), (True, True)])
def test_a_pipe_and_a_dry_run_show_nothing(*, terminal: bool, dry_run: bool) -> None:
    stream = Terminal(terminal=terminal)
    before = threading.active_count()
    with underway.shown_underway(job("s3://zoo/wide.safetensors", dry_run=dry_run), stream):
        assert threading.active_count() == before
    assert not stream.getvalue()


def test_a_run_goes_on_without_its_terminal() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            super().write(text)
            raise OSError(5, "Input/output error")

    stream = Gone()
    with underway.shown_underway(job("s3://zoo/wide.safetensors"), stream):
        assert stream.written.wait(30)
