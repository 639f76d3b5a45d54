"""Work that is done beside the caller's: tables are computed while the kernel copies bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """A function that runs in a thread of its own from now on.

    Left as a context, it is waited for: nothing goes on behind the caller's back.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def failed(self) -> bool:
        """Whether `result` would raise at once."""
        return self._error is not None

    def result(self) -> Result:
        """Wait for the end, and give what the function gave, or raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Beside[Result]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.join()
