"""Work in a second thread: tables are computed while the kernel copies bytes."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, TypeVar

from resize_pos.core.system_errors import system_error

Result = TypeVar("Result")


class NeverKept(RuntimeError):
    """The thread ended without a result and without an error."""


class Promise(Generic[Result]):
    """A result that another thread is working on.

    It is settled exactly once, with a value or with an error. A bare lock is used to wait, because
    releasing one cannot fail: a thread that runs out of memory can still settle its promises.
    """

    def __init__(self) -> None:
        self._pending = threading.Lock()
        self._pending.acquire()
        self._settled = False
        self._kept = False
        self._error: BaseException | None = None

    def keep(self, work: Callable[[], Result]) -> Result:
        """Do the work. The caller and every waiting thread get its result or its error."""
        error: BaseException | None = None
        try:
            self._value = work()
            self._kept = True
        except BaseException as raised:
            error = _told(raised)
            raise error from raised.__cause__
        finally:
            self.settle(error)
        return self._value

    def settle(self, error: BaseException | None = None) -> None:
        """Wake the waiting threads, with `error` if there is no result; later calls change nothing.

        Only the working thread calls this. It allocates nothing, so that it cannot fail.
        """
        if self._settled:
            return
        self._error = error
        self._settled = True
        self._pending.release()

    @property
    def failed(self) -> bool:
        """Whether `result` would raise at once."""
        return self._settled and not self._kept

    def result(self) -> Result:
        """Wait until the promise is settled; return the value or raise the error."""
        self.wait()
        if not self._kept:
            raise self._error or NeverKept("the computing thread ended without a result.")
        return self._value

    def wait(self) -> None:
        """Wait for a result or an error; raise neither."""
        with self._pending:  # taken and given back, so that any number of threads may wait
            pass


def _told(error: BaseException) -> BaseException:
    """Translate an error of the system; the waiting thread would take it for one of its own.

    An `OSError` of a library that cannot be loaded must not end as "the output cannot be written".
    """
    known = system_error(error)
    if known is None:
        return error
    known.__cause__ = error
    return known


class _Guard:
    """Settles promises when it is deleted, which happens however its thread ends."""

    __slots__ = ("_promises",)

    def __init__(self, promises: tuple[Promise[Any], ...]) -> None:
        self._promises = promises

    def settle(self, error: BaseException | None = None) -> None:
        for promise in self._promises:
            promise.settle(error)

    def __del__(self) -> None:
        self.settle()


class Beside(Promise[Result]):
    """A function that runs in a thread of its own from now on.

    `feeds` are promises that the function keeps on its way. Those that are still open when it ends
    fail with its error, so that nobody waits for ever. Where no thread can be started, the function
    runs in the calling thread.

    Leaving the context waits for the function, unless the user interrupted: then the process ends.
    """

    def __init__(self, work: Callable[[], Result], feeds: Iterable[Promise[Any]] = ()) -> None:
        super().__init__()
        guard = _Guard((*feeds, self))
        # threading.Thread.start waits for a sign of life. A thread that runs out of memory before
        # it gives that sign would block us forever; this call returns at once.
        try:
            _thread.start_new_thread(self._run, (work, guard))
        except (RuntimeError, MemoryError):  # too many threads or processes, or no memory for one
            self._run(work, guard)

    def _run(self, work: Callable[[], Result], guard: _Guard) -> None:
        try:
            self._value = work()
            self._kept = True
        except BaseException as error:
            guard.settle(_told(error))  # every thread that asks for a result gets it
            if isinstance(error, KeyboardInterrupt):
                raise  # then this is the main thread: no other could be started
        guard.settle()

    def __enter__(self) -> Beside[Result]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):
            self.wait()
