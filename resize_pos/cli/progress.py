"""Progress of a batch. rich is imported only if bars are drawn, which is on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from resize_pos.run.batch.run import Batch
from resize_pos.run.batch.work import Outcome, Task


class Progress:
    """Shows nothing; used if the output is not a terminal."""

    visible = False

    def begin(self, batch: Batch) -> None:
        """Learn how much there is to do."""

    def started(self, task: Task) -> None:
        """A job was handed out."""

    def finished(self, outcome: Outcome) -> None:
        """A job has ended."""


@contextlib.contextmanager
def open_progress(*, visible: bool) -> Iterator[Progress]:
    """Show progress if the output is a terminal."""
    if not visible:
        yield Progress()
        return
    from resize_pos.cli.progress_bars import TerminalProgress

    with TerminalProgress().shown() as progress:
        yield progress
