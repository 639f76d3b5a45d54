"""One bar for the whole batch, in bytes, and one line for each running job; on a terminal only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

from resize_pos.cli.progress import Progress
from resize_pos.containers.io.stage_names import staged_bytes
from resize_pos.core.printable import printable
from resize_pos.run.batch.run import Batch
from resize_pos.run.batch.work import Outcome, Task

_MOST_LINES = 8  # a cluster takes all jobs at once
_EVERY = 0.25  # seconds between looks at what is being written


class TerminalProgress(Progress):
    """Bars on stderr. How far a running job is shows in the size of the file it writes."""

    visible = True

    def __init__(self) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            transient=True,
        )
        self._whole: TaskID | None = None
        self._jobs = self._ended = self._bytes = 0
        self._running: dict[int, tuple[Task, TaskID | None]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    @contextlib.contextmanager
    def shown(self) -> Iterator[Progress]:
        """Draw until the batch is over."""
        watcher = threading.Thread(target=self._watch, daemon=True)
        with self._bars:
            watcher.start()
            try:
                yield self
            finally:
                self._over.set()
                watcher.join()

    def begin(self, batch: Batch) -> None:
        """Show the bar for the whole."""
        self._jobs = len(batch.left)
        self._whole = self._bars.add_task(self._words(), total=batch.bytes)

    def started(self, task: Task) -> None:
        """Show a line for a job."""
        with self._lock:
            shown = sum(line is not None for _, line in self._running.values())
            line = None
            if shown < _MOST_LINES:
                line = self._bars.add_task(f"  {printable(task.job.source.name)}", total=task.bytes)
            self._running[task.number] = (task, line)

    def finished(self, outcome: Outcome) -> None:
        """Take a job's line away."""
        with self._lock:
            task, line = self._running.pop(outcome.task.number, (None, None))
            if task is None:  # settled without work
                return
            if line is not None:
                self._bars.remove_task(line)
            self._ended += 1
            self._bytes += task.bytes
            self._show_whole(0)

    def _words(self) -> str:
        return f"{self._ended}/{self._jobs} checkpoints"

    def _show_whole(self, underway: int) -> None:
        if self._whole is not None:
            done = self._bytes + underway
            self._bars.update(self._whole, completed=done, description=self._words())

    def _watch(self) -> None:
        while not self._over.wait(_EVERY):
            with self._lock:
                lines = [(task, line) for task, line in self._running.values() if line is not None]
            written = [min(task.bytes, staged_bytes(task.target)) for task, _ in lines]
            with self._lock:
                for (task, line), count in zip(lines, written, strict=True):
                    if task.number in self._running:
                        self._bars.update(line, completed=count)
                self._show_whole(sum(written))
