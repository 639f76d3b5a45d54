"""Work that is done beside the caller's: tables are computed while the kernel copies bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Promise(Generic[Result]):
    """A result that another thread is working on."""

    def __init__(self) -> None:
        self._settled = threading.Event()
        self._error: BaseException | None = None

    def keep(self, work: Callable[[], Result]) -> Result:
        """Do the work; what comes of it is for whoever waits, too."""
        try:
            self._value = work()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._settled.set()
        return self._value

    @property
    def failed(self) -> bool:
        """Whether `result` would raise at once."""
        return self._error is not None

    def result(self) -> Result:
        """Wait for the end, and give what the work gave, or raise what it raised."""
        self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Beside(Promise[Result]):
    """A function that runs in a thread of its own from now on.

    Left as a context, it is waited for: nothing goes on behind the caller's back.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Result]) -> None:
        try:
            self.keep(work)
        except BaseException:
            return  # whoever asks for the result is told

    def __enter__(self) -> Beside[Result]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.join()
