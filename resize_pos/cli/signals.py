"""Signals that end a run: each raises an exception, so that unfinished outputs are removed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

# SIGQUIT ends the run like the others, without a core dump. Windows has neither it nor SIGHUP.
ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)

# GNU timeout, for one, signals a process and then its whole group: one request, two signals.
_SAME_REQUEST = 1.0  # seconds


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell reports for a process that this signal ended."""
        return 128 + self.number


def number_of(error: BaseException | None) -> int:
    """Find which signal ended a run; click wraps the exception in one of its own."""
    while error is not None:
        if isinstance(error, Interrupted):
            return error.number
        error = error.__cause__ or error.__context__
    return signal.SIGINT


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Raise `Interrupted` for every signal in `ENDING`, and restore the handlers at the end.

    A signal that the parent told this process to ignore (`nohup`, a background job) stays ignored.
    Outside of the main thread nothing is changed: signals are handled there alone.
    """
    last = float("-inf")

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal last
        repeated = time.monotonic() - last < _SAME_REQUEST
        last = time.monotonic()
        if not repeated:
            raise Interrupted(number)

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number in ENDING:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
