"""A promise is settled on every way out of the thread that owes it."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

import pytest

from resize_pos.core.background import Beside, NeverKept, Promise
from resize_pos.core.errors import ResizePosError

# What the work raises, and what whoever waits for it is told.
ERRORS: list[tuple[BaseException, type[BaseException], str]] = [
    (ValueError("planned"), ValueError, "planned"),
    (SystemExit(3), SystemExit, "3"),
    (MemoryError(), ResizePosError, "out of memory"),
    (ImportError("gone", name="numpy.core"), ResizePosError, "numpy cannot be imported: gone"),
    (OSError(5, "broken", "libopenblas.so"), ResizePosError, "libopenblas.so: input/output"),
]


@pytest.mark.parametrize(("error", "told", "words"), ERRORS)
@pytest.mark.parametrize("kept", [False, True])
def test_a_thread_that_fails_settles_every_promise_it_feeds(
    error: BaseException, told: type[BaseException], words: str, kept: bool
) -> None:
    first: Promise[int] = Promise()

    def work() -> None:
        if kept:
            first.keep(lambda: 3)
        raise error

    beside = Beside(work, feeds=[first])
    for _ in range(2):
        with pytest.raises(told, match=words):
            beside.result()
    if kept:
        assert first.result() == 3
        assert not first.failed
        return
    with pytest.raises(told, match=words):
        first.result()
    assert first.failed


def test_keeping_a_promise_raises_what_whoever_waits_is_told() -> None:
    promise: Promise[int] = Promise()

    def work() -> int:
        raise OSError(5, "broken", "libopenblas.so")

    with pytest.raises(ResizePosError, match="libopenblas"):
        promise.keep(work)
    with pytest.raises(ResizePosError, match="libopenblas"):
        promise.result()


def test_a_promise_that_the_work_forgot_fails() -> None:
    forgotten: Promise[int] = Promise()
    assert Beside(lambda: 3, feeds=[forgotten]).result() == 3
    with pytest.raises(NeverKept):
        forgotten.result()
    assert forgotten.failed


def test_a_thread_that_dies_before_its_first_line_settles_its_promises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: Promise[int] = Promise()

    def stillborn(run: Callable[..., None], arguments: tuple[Any, ...]) -> int:
        del run, arguments  # as the interpreter does when the thread has no memory for a frame
        return 0

    monkeypatch.setattr(_thread, "start_new_thread", stillborn)
    beside = Beside(lambda: 3, feeds=[fed])
    for promise in (beside, fed):
        with pytest.raises(NeverKept):
            promise.result()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_where_no_thread_can_be_started_the_caller_does_the_work(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise error

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    fed: Promise[int] = Promise()
    with Beside(lambda: fed.keep(lambda: 4) + 1, feeds=[fed]) as beside:
        assert beside.result() == 5
        assert fed.result() == 4


def test_an_interrupt_does_not_wait_for_the_work() -> None:
    gate = threading.Event()
    with pytest.raises(KeyboardInterrupt), Beside(gate.wait):
        raise KeyboardInterrupt
    gate.set()


def test_many_threads_may_wait_for_one_promise() -> None:
    gate, got = threading.Event(), list[int]()

    def work() -> int:
        gate.wait()
        return 7

    with Beside(work) as beside:
        waiting = [threading.Thread(target=lambda: got.append(beside.result())) for _ in range(8)]
        for thread in waiting:
            thread.start()
        gate.set()
        for thread in waiting:
            thread.join()
    assert got == [7] * 8
