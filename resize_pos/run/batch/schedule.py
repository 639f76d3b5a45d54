"""Run tasks on a `concurrent.futures.Executor`, largest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import AbstractContextManager

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.run.batch.work import Outcome, Task, carry_out, failed


@dataclass(frozen=True, slots=True)
class Started:
    """A task was submitted."""

    task: Task


Event = Started | Outcome
Pool = Callable[[], AbstractContextManager[Executor]]


def largest_first(tasks: Iterable[Task]) -> list[Task]:
    """Order tasks by size, so that no long task runs alone at the end."""
    return sorted(tasks, key=lambda task: (-task.bytes, task.number))


def run_here(tasks: Sequence[Task], *, fail_fast: bool) -> Iterator[Event]:
    """Run tasks one after the other, in this process."""
    for task in largest_first(tasks):
        yield Started(task)
        outcome = carry_out(task)
        yield outcome
        if fail_fast and outcome.failed:
            return


def run_on(pool: Pool, tasks: Sequence[Task], *, window: int, fail_fast: bool) -> Iterator[Event]:
    """Run tasks on an executor, `window` of them at a time.

    If a local worker dies, its executor breaks, and all tasks that were running on it are lost.
    Each of them then runs again, alone on a new executor. If that breaks too, only this task fails.
    """
    waiting: deque[Task] = deque(largest_first(tasks))
    suspects: deque[Task] = deque()
    stopped = False
    while (waiting or suspects) and not stopped:
        alone = bool(suspects)
        queue, limit = (suspects, 1) if alone else (waiting, window)
        lost: list[Task] = []
        with pool() as executor:
            running: dict[Future[Outcome], Task] = {}
            while running or (queue and not stopped and not lost):
                while queue and len(running) < limit and not stopped and not lost:
                    task = queue.popleft()
                    yield Started(task)
                    try:
                        running[executor.submit(carry_out, task)] = task
                    except BrokenExecutor:
                        lost.append(task)
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    if stopped and future.cancelled():
                        continue
                    outcome = _outcome(future, task)
                    if outcome is None:
                        lost.append(task)
                        continue
                    yield outcome
                    if fail_fast and outcome.failed and not stopped:
                        stopped = True
                        for pending in running:
                            pending.cancel()
        if not alone:
            suspects.extend(lost)
            continue
        for task in lost:
            yield _died(task)
            stopped = fail_fast


def _outcome(future: Future[Outcome], task: Task) -> Outcome | None:
    """Return the outcome of a task; None if the executor broke."""
    try:
        return future.result()
    except BrokenExecutor:
        return None
    except (Exception, CancelledError) as error:  # of the cluster: tasks never raise
        return failed(
            task,
            f"the cluster stopped trying: {type(error).__name__}: {error}",
            "look at the logs of the workers; each must have resize-pos and see the same files.",
        )


def _died(task: Task) -> Outcome:
    return failed(
        task,
        "the worker process died while it converted this file.",
        "it was killed, perhaps for lack of memory; run fewer jobs at a time with -j.",
    )
