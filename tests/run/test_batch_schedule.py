"""Jobs on executors: largest first, and a dead worker fails its own job alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from resize_pos.core.request import Request
from resize_pos.run.batch import schedule
from resize_pos.run.batch.pools import local_processes
from resize_pos.run.batch.schedule import Event, Started, largest_first, run_here, run_on
from resize_pos.run.batch.work import Outcome, Task
from resize_pos.run.job import Job
from tests.support.batch_workers import die_by_name


def tasks(names: Sequence[str], folder: Path) -> list[Task]:
    request = Request.make(to="96x128")
    return [
        Task(n, Job(Path(name), request, folder / name), bytes=n % 3)
        for n, name in enumerate(names, start=1)
    ]


def statuses(events: Iterable[Event]) -> dict[str, str]:
    ended = [event for event in events if isinstance(event, Outcome)]
    assert len({outcome.task.number for outcome in ended}) == len(ended)
    return {str(outcome.task.job.source): outcome.result.status for outcome in ended}


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "carry_out", die_by_name)


def test_the_largest_comes_first_and_ties_keep_their_order(tmp_path: Path) -> None:
    ordered = largest_first(tasks("abcdef", tmp_path))
    assert [task.bytes for task in ordered] == [2, 2, 1, 1, 0, 0]
    assert [task.number for task in ordered] == [2, 5, 1, 4, 3, 6]


@pytest.mark.parametrize(("deadly", "status"), [("doomed", "failed"), ("unlucky", "resized")])
def test_a_dead_worker_fails_its_job_alone(deadly: str, status: str, tmp_path: Path) -> None:
    names = ["a", "b", "c", deadly, "d", "e", "f"]
    events = run_on(lambda: local_processes(2), tasks(names, tmp_path), window=2, fail_fast=False)
    assert statuses(events) == dict.fromkeys(names, "resized") | {deadly: status}


def test_jobs_run_in_other_processes(tmp_path: Path) -> None:
    events = run_on(lambda: local_processes(2), tasks("ab", tmp_path), window=2, fail_fast=False)
    processes = [event.target_stamp for event in events if isinstance(event, Outcome)]
    assert str(os.getpid()) not in processes


def threads() -> AbstractContextManager[Executor]:
    return ThreadPoolExecutor(1)


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("fail_fast", [True, False])
def test_a_failure_stops_the_others_only_when_asked(
    here: bool, fail_fast: bool, tmp_path: Path
) -> None:
    # One is at work at a time, so what comes after the refused job is known.
    work = tasks(["a", "b", "c", "d", "refused", "e"], tmp_path)
    events = list(
        run_here(work, fail_fast=fail_fast)
        if here
        else run_on(threads, work, window=1, fail_fast=fail_fast)
    )
    ended = statuses(events)
    assert ended["refused"] == "failed"
    assert len(ended) == (2 if fail_fast else 6)
    assert sum(isinstance(event, Started) for event in events) == len(ended)


def test_an_executor_with_a_backlog_is_emptied_when_a_failure_stops_it(tmp_path: Path) -> None:
    work = tasks(["a", "refused", *(f"later{n}" for n in range(40))], tmp_path)
    ended = statuses(run_on(threads, work, window=len(work), fail_fast=True))
    assert ended["refused"] == "failed"
    assert "failed" not in {status for name, status in ended.items() if name != "refused"}
