"""A whole batch: what is left to do, in which order, and with what result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resize_pos.containers.io.atomic_output import require_space
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.stage_names import remove_abandoned
from resize_pos.core.errors import UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.report.batch_result import JobStatus
from resize_pos.run.batch.discover import Discovery, size_of
from resize_pos.run.batch.ledger import AnyLedger, Ledger, PastJob, stamp
from resize_pos.run.batch.pools import dask_cluster, local_processes
from resize_pos.run.batch.schedule import Event, Started, run_here, run_on
from resize_pos.run.batch.work import (
    Outcome,
    Rights,
    Task,
    failed,
    order,
    plan_only,
    result_of,
)
from resize_pos.run.job import Job

# So few jobs, with so few bytes, finish before worker processes would have started.
_FEW, _LITTLE = 3, 16_000_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Every job: those that need no work, and those that are left to do."""

    output_dir: Path
    settled: tuple[Outcome, ...]  # up to date, or refused
    left: tuple[Task, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the checkpoints that are left to convert."""
        return sum(task.bytes for task in self.left)


def prepare(
    jobs: Sequence[Job],
    output_dir: Path,
    ledger: AnyLedger,
    own_reports: Sequence[tuple[Path, str]] = (),
    search: Discovery | None = None,
) -> Batch:
    """Decide from names, sizes and times what is left to do; no checkpoint is opened.

    `own_reports` are pairs of folder and suffix. Every job writes one report into each folder.
    `search` is what the listings of stores say of the sources.
    """
    word = os.urandom(8).hex()
    settled: list[Outcome] = []
    left: list[Task] = []
    for number, job in enumerate(jobs, start=1):
        task = Task(number, replace(job, force=False), bytes=0, batch=word)
        task = _described(task, search)
        key = _key(task, output_dir)
        own = tuple(folder / f"{key}{suffix}" for folder, suffix in own_reports)
        task = replace(task, reports=own, entry_version=ledger.version(key))
        if isinstance(output_dir, RemotePath):
            task = replace(task, ledger=output_dir)
        outcome = _settle(task, job.force, ledger, ledger.entries.get(key))
        if isinstance(outcome, Outcome):
            settled.append(outcome)
        else:
            left.append(outcome)
    return Batch(output_dir, tuple(settled), tuple(left))


def _described(task: Task, search: Discovery | None) -> Task:
    """Add the size of a source, and what the listing of its store says of it."""
    source = task.job.source
    if not isinstance(source, RemotePath):
        return replace(task, bytes=size_of(source))
    seen = None if search is None else search.seen.get(source)
    if search is None or seen is None:
        return task
    return replace(task, bytes=seen.bytes, source_stamp=seen.stamp, beside=search.beside(source))


def _settle(task: Task, force: bool, ledger: AnyLedger, entry: PastJob | None) -> Outcome | Task:
    if not ledger.exists(task.target):
        return task
    task = replace(task, exists=True, rights=Rights.REPLACE if force else Rights.ASK)
    if entry is None:
        return task
    wanted = order(task.job)
    untouched = not entry.done or entry.target_stamp == ledger.stamp(task.target)
    changed = [part for part in ("request", "options") if entry.order.get(part) != wanted[part]]
    if changed and untouched and not force:
        return failed(
            task,
            f"{task.target}: was made for another request ({_describe(entry.order)}).",
            "Pass --force to replace it, or name another folder with --output-dir.",
        )
    if not untouched:
        return replace(task, rights=Rights.REPLACE if force else Rights.KEEP)
    if entry.done and entry.order == wanted and _same_source(entry, task):
        return _current(task, entry)
    return replace(task, rights=Rights.REPLACE)


def _same_source(entry: PastJob, task: Task) -> bool:
    source = task.job.source
    return (
        entry.source == str(source.absolute())
        and bool(entry.source_stamp)
        and entry.source_stamp == _source_stamp(task)
    )


def _source_stamp(task: Task) -> str:
    source = task.job.source
    return task.source_stamp if isinstance(source, RemotePath) else stamp(source, beside=True)


def _describe(earlier: Any) -> str:
    request = earlier.get("request")
    words: list[str] = []
    if not isinstance(request, dict):
        return "with other options"
    for name, value in request.items():
        if isinstance(value, dict) and {"height", "width"} == value.keys():
            value = Size(value["height"], value["width"])
        words.append(f"{name.removesuffix('_size').replace('_', '-')} {value}")
    return ", ".join(words) or "with other options"


def _current(task: Task, entry: PastJob) -> Outcome:
    result = result_of(task, JobStatus.CURRENT, judgement=entry.judgement)
    return Outcome(task, result, entry.target_stamp)


def plan_all(batch: Batch, ledger: AnyLedger, search: Discovery) -> Iterator[Outcome]:
    """Plan what is left, in this process, and write nothing.

    A target that the real run would refuse to replace is planned, too, with a note.
    """
    yield from (outcome for outcome in batch.settled if not outcome.failed)
    tasks = [outcome.task for outcome in batch.settled if outcome.failed] + list(batch.left)
    if search.seen or isinstance(batch.output_dir, RemotePath):
        from resize_pos.run.batch.store_run import plan_in_threads

        yield from plan_in_threads(tasks, ledger, search)
    else:
        yield from map(plan_only, tasks)


def run_all(
    batch: Batch, ledger: AnyLedger, *, workers: int, dask: str | None, fail_fast: bool
) -> Generator[Event, None, None]:
    """Run a batch. Every event is written to the ledger before it is yielded."""
    if dask is not None:
        require_no_secrets(batch.left)

    def events(tasks: Sequence[Task]) -> Iterator[Event]:
        return _events(tasks, workers, dask, fail_fast)

    if isinstance(ledger, Ledger):
        yield from _run_on_disk(batch, ledger, events, fail_fast=fail_fast)
        return
    from resize_pos.run.batch.store_run import run_in_store

    yield from batch.settled
    if not (fail_fast and any(outcome.failed for outcome in batch.settled)):
        yield from run_in_store(batch.left, ledger, events)


def require_no_secrets(tasks: Sequence[Task]) -> None:
    """Refuse to send signed URLs to a cluster, where others may read them."""
    for task in tasks:
        source = task.job.source
        if isinstance(source, RemotePath) and source.secrets != ("", ""):
            raise UsageError(
                f"{source}: the password or signature of this URL is not sent to a cluster.",
                hint="leave out --dask, or use a store that each worker has credentials for.",
            )


def _run_on_disk(
    batch: Batch,
    ledger: Ledger,
    events: Callable[[Sequence[Task]], Iterator[Event]],
    *,
    fail_fast: bool,
) -> Generator[Event, None, None]:
    folders = {task.target.parent for task in batch.left}
    everywhere = sorted({*folders, *(it.task.target.parent for it in batch.settled)})
    remove_abandoned(everywhere)
    require_space(batch.output_dir, batch.bytes)
    created = _missing_folders(folders)
    try:
        for settled in batch.settled:
            yield settled
            if fail_fast and settled.failed:
                return
        stamps: dict[int, str] = {}
        for event in events(batch.left):
            if isinstance(event, Started):
                job = event.task.job
                stamps[event.task.number] = _source_stamp(event.task)
                if _will_own(event.task):
                    ledger.add(PastJob(_key(event.task, batch.output_dir), order(job), done=False))
            elif not event.failed:
                ledger.add(_entry(event, batch.output_dir, stamps[event.task.number]))
            elif not event.task.exists:
                ledger.forget(_key(event.task, batch.output_dir))
            yield event
    finally:
        # A worker of a killed run may still have been running at the first removal.
        remove_abandoned(everywhere)
        for folder in created:  # folders of failed jobs are empty
            with contextlib.suppress(OSError):
                folder.rmdir()


def _will_own(task: Task) -> bool:
    """Whether any file that is at the target from now on was written by this batch."""
    return not task.exists or task.rights is Rights.REPLACE


def _events(
    tasks: Sequence[Task], workers: int, dask: str | None, fail_fast: bool
) -> Iterator[Event]:
    if dask is not None and tasks:
        # Workers elsewhere have another working directory.
        there = [replace(task, job=_absolute(task.job)) for task in tasks]
        return run_on(lambda: dask_cluster(dask), there, window=len(there), fail_fast=fail_fast)
    count = min(workers, len(tasks))
    little = len(tasks) <= _FEW and sum(task.bytes for task in tasks) <= _LITTLE
    if count <= 1 or little:
        return run_here(tasks, fail_fast=fail_fast)
    return run_on(lambda: local_processes(count), tasks, window=count, fail_fast=fail_fast)


def _absolute(job: Job) -> Job:
    assert job.output is not None
    return replace(job, source=job.source.absolute(), output=job.output.absolute())


def _entry(outcome: Outcome, output_dir: Path, source_stamp: str) -> PastJob:
    task = outcome.task
    return PastJob(
        _key(task, output_dir),
        order(task.job),
        done=True,
        source=str(task.job.source.absolute()),
        source_stamp=source_stamp,
        target_stamp=outcome.target_stamp,
        judgement=outcome.result.judgement,
    )


def _key(task: Task, output_dir: Path) -> str:
    return "/".join(task.target.absolute().parts[len(output_dir.absolute().parts) :])


def _missing_folders(folders: set[Path]) -> list[Path]:
    """List the folders that must be created, deepest first."""
    missing = {f for folder in folders for f in (folder, *folder.parents) if not f.exists()}
    return sorted(missing, key=lambda folder: -len(folder.parts))
