"""How far one conversion in a store is: a line on a terminal, after it has taken a moment."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TextIO

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.core.printable import human_size
from resize_pos.run.job import Job

_FIRST, _EVERY = 2.0, 0.5  # seconds until the line appears, and between two looks
_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def shown_underway(job: Job, stream: TextIO | None) -> Iterator[None]:
    """Show what was moved so far while a job uses a store, if this is a terminal."""
    if job.dry_run or stream is None or not stream.isatty():
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(job, stream, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(job: Job, stream: TextIO, over: threading.Event) -> None:
    if over.wait(_FIRST):
        return
    while not over.wait(_EVERY):
        _write(stream, f"{_CLEAR}{progress_words(upload=isinstance(job.output, RemotePath))}")
    _write(stream, _CLEAR)


def progress_words(*, upload: bool) -> str:
    """Say how much of the output is in the store, or how much of the source was read."""
    from resize_pos.containers.remote.traffic import planned, traffic

    so_far = traffic()
    if not upload:
        return f"{human_size(so_far.received)} received"
    done, total = so_far.copied + so_far.sent, planned()
    share = f" of {human_size(total)}, {min(done, total) / total:.0%}" if total else ""
    return f"{human_size(done)}{share} written"


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal is gone; the run is not
        stream.write(text)
        stream.flush()
