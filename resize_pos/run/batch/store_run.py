"""A batch whose sources or targets are in a store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.remote.s3_store import CONNECTIONS
from resize_pos.containers.remote.store import Listing
from resize_pos.containers.remote.traffic import count_by_thread
from resize_pos.containers.remote.tree import forget, sharing
from resize_pos.run.batch.discover import Discovery
from resize_pos.run.batch.ledger import AnyLedger
from resize_pos.run.batch.schedule import Event, Started
from resize_pos.run.batch.store_ledger import StoreLedger
from resize_pos.run.batch.store_work import clean_up
from resize_pos.run.batch.work import Outcome, Task, plan_only

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 15.0  # seconds until another machine is asked for again


def plan_in_threads(
    tasks: Sequence[Task], ledger: AnyLedger, search: Discovery
) -> Iterator[Outcome]:
    """Plan jobs while other threads wait for the store; nothing is written."""
    listings = dict(search.listings)
    if isinstance(ledger, StoreLedger):
        for task in tasks:
            assert isinstance(task.target, RemotePath)
            listings[task.target.parent] = Listing((), {})
        listings |= ledger.listings()
    with sharing(listings, fresh=True):
        yield from map(_plan, tasks[:1])  # modules are imported by one thread
        pool = ThreadPoolExecutor(CONNECTIONS, initializer=count_by_thread)
        try:
            yield from pool.map(_plan, tasks[1:])
        finally:
            pool.shutdown(cancel_futures=True)


def _plan(task: Task) -> Outcome:
    try:
        return plan_only(task)
    finally:  # the bytes that were read
        for path in (task.job.source, task.target):
            if isinstance(path, RemotePath):
                forget(path)


def run_in_store(
    left: Sequence[Task], ledger: AnyLedger, events: Callable[[Sequence[Task]], Iterator[Event]]
) -> Generator[Event, None, None]:
    """Run a batch whose targets are in a store; workers write the entries of the ledger.

    A job that another machine is at is asked for again, until that one has finished it or is gone.
    """
    assert isinstance(ledger, StoreLedger)
    running: dict[int, Task] = {}
    wait = _FIRST_WAIT
    try:
        while left:
            busy: list[Task] = []
            for event in events(left):
                if isinstance(event, Started):
                    running[event.task.number] = event.task
                elif event.busy:
                    busy.append(event.task)
                    del running[event.task.number]
                    continue
                else:
                    del running[event.task.number]
                    ledger.note(event)
                    if event.failed:
                        _clean_up(event.task)
                yield event
            wait = _FIRST_WAIT if len(busy) < len(left) else min(2 * wait, _LONGEST_WAIT)
            left = busy
            if busy:
                wait_for_others(wait)
    finally:  # interrupted: the workers of this machine are gone
        for task in running.values():
            _clean_up(task)


def wait_for_others(seconds: float) -> None:
    """Wait before jobs of other machines are asked for again."""
    time.sleep(seconds)


def _clean_up(task: Task) -> None:
    with contextlib.suppress(Exception):  # the next run does it
        clean_up(task)
