"""Run one job, in any process: values in, values out."""

from __future__ import annotations

import contextlib
import filecmp
import os
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from resize_pos._version import __version__
from resize_pos.containers.detect import open_container, split_suffix
from resize_pos.containers.io.atomic_output import staged
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.stage_names import remove_stage, stage_path, this_writer
from resize_pos.containers.metering import Meter
from resize_pos.core.errors import OutputError, ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.system_errors import system_error
from resize_pos.planning.provenance import as_plain, recorded_request, request_record
from resize_pos.report.batch_result import Failure, JobResult, JobStatus, Judgement
from resize_pos.report.files import wants_pictures, write_reports
from resize_pos.report.report import Report
from resize_pos.run.batch.ledger import PastJob, stamp
from resize_pos.run.job import Job, run

if TYPE_CHECKING:
    from resize_pos.containers.remote.store import ObjectInfo
    from resize_pos.containers.remote.traffic import Traffic

# Fields of a job that do not affect the result, or that `order` adds in another form.
_NO_ORDER = {
    "source",
    "request",
    "output",
    "force",
    "dry_run",
    "hash_output",
    "device",
    "limits",
    "draw",
    "durable",
}


class Rights(StrEnum):
    """What may be done with a target that exists and has different bytes."""

    KEEP = "keep"  # not written by a batch, or changed since
    ASK = "ask"  # replace it only if its own record has the same request
    REPLACE = "replace"  # written by an earlier batch, or --force was given


@dataclass(frozen=True, slots=True)
class Task:
    """A job of a batch, with the decisions about its target."""

    number: int  # from 1, in the order of the sources
    job: Job
    bytes: int  # of the source; estimates the run time
    exists: bool = False  # the target was there when the batch was planned
    rights: Rights = Rights.ASK
    reports: tuple[Path, ...] = ()  # of its own
    version: str = __version__  # of the resize-pos that planned it
    source_stamp: str = ""  # of a source in a store, from its listing
    beside: Mapping[str, ObjectInfo] | None = None  # the source and the configs in its folder
    ledger: Path | None = None  # the output folder, if it is in a store
    entry_version: tuple[str | None, bool] = (None, False)  # of its entry there; is it a claim?
    batch: str = ""  # a random word for this run of the batch

    @property
    def target(self) -> Path:
        """The path of its output."""
        assert self.job.output is not None
        return self.job.output


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task that has ended."""

    task: Task
    result: JobResult
    target_stamp: str = ""
    busy: bool = False  # another machine is at it, so it was not run
    entry: PastJob | None = None  # that the worker has written into the ledger of a store
    version: str = ""  # of that entry
    traffic: Traffic | None = None  # of the process that ran it
    worker: str = ""

    @property
    def failed(self) -> bool:
        """Whether the job could not be done."""
        return self.result.failure is not None


def result_of(task: Task, status: JobStatus, **more: Any) -> JobResult:
    """Describe how a task ended."""
    job = task.job
    return JobResult(
        task.number,
        job.source,
        task.target,
        task.bytes,
        job.request,
        status,
        **more,
        reports=task.reports,
    )


def reported(task: Task, report: Report, status: JobStatus) -> JobResult:
    """Describe a task that was planned or run; pictures are left out."""
    tables = tuple(replace(table, pictures=None) for table in report.tables)
    judgement = Judgement(report.verdict, report.checks, report.sha256)
    return result_of(task, status, judgement=judgement, report=replace(report, tables=tables))


def order(job: Job) -> Mapping[str, Any]:
    """Return a job's request and options without paths, so that two jobs can be compared."""
    extra = {name: value for name, value in as_plain(job).items() if name not in _NO_ORDER}
    return {
        "version": __version__,
        "request": request_record(job.request),
        "options": extra,
        "judged": as_plain(getattr(job, "limits", ())),
    }


def carry_out(task: Task) -> Outcome:
    """Run a job. Errors are returned as an outcome, never raised."""
    meter = Meter.of(task.job.source, task.target)
    outcome = _carry_out(task)
    if meter.before is None:
        return outcome
    return replace(outcome, traffic=meter.used(), worker=this_writer())


def _carry_out(task: Task) -> Outcome:
    try:
        if task.version != __version__:
            raise OutputError(
                f"this worker runs resize-pos {__version__}, but the batch was planned by "
                f"{task.version}.",
                hint="install the same version everywhere.",
            )
        if isinstance(task.job.source, RemotePath) or task.ledger is not None:
            return _carry_out_remotely(task)
        return _carry_out_here(task)
    except ResizePosError as error:
        return failed(task, error.message, error.hint)
    except MemoryError:
        return failed(task, "out of memory.", "run fewer jobs at a time with -j.")
    except Exception as error:  # one job's bug must not stop the others
        known = system_error(error)
        if known is not None:
            return failed(task, known.message, known.hint)
        return failed(
            task,
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in resize-pos; convert this file alone with --debug and report it.",
        )


def _carry_out_here(task: Task) -> Outcome:
    report, status = _convert(task)
    write_own_reports(task, report)
    return Outcome(task, reported(task, report, status), stamp(task.target))


def _carry_out_remotely(task: Task) -> Outcome:
    from resize_pos.run.batch.store_work import convert_in_store, source_listing

    with source_listing(task):
        return _carry_out_here(task) if task.ledger is None else convert_in_store(task)


def write_own_reports(task: Task, report: Report) -> None:
    """Write the reports of one job."""
    for path in task.reports:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_reports(report, task.reports)


def plan_only(task: Task) -> Outcome:
    """Plan a job and write nothing; the folder of its target may be missing."""
    if isinstance(task.target, RemotePath):
        probe: Path = task.target
    else:
        nearest = next(parent for parent in task.target.parents if parent.exists())
        stage = stage_path(nearest / task.target.name)
        probe = stage.with_name(stage.stem + split_suffix(task.target)[1])
    try:
        report = run(replace(task.job, output=probe, dry_run=True))
    except ResizePosError as error:
        return failed(task, error.message.replace(str(probe), str(task.target)), error.hint)
    needs_force = task.exists and not may_replace(task)
    report = replace(report, output=task.target, needs_force=needs_force)
    return Outcome(task, reported(task, report, JobStatus(report.status.value)))


def failed(task: Task, error: str, hint: str | None) -> Outcome:
    """Describe a job that could not be done."""
    return Outcome(task, result_of(task, JobStatus.FAILED, failure=Failure(error, hint)))


def _convert(task: Task) -> tuple[Report, JobStatus]:
    target, job = task.target, replace(task.job, draw=wants_pictures(task.reports))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(target):
        report = run(job)
        return report, JobStatus(report.status.value)
    # The target exists: an earlier run wrote it, or a worker that died after its last step. Write
    # the result to another path first. If the bytes are equal, keep the target. If they differ,
    # replace the target with the result, if that is allowed.
    aside = stage_path(target)
    try:
        aside.mkdir()
        made = aside / target.name
        report = replace(run(replace(job, output=made)), output=target)
        if _same(made, target):
            return report, JobStatus.CURRENT if task.exists else JobStatus(report.status.value)
        if not may_replace(task):
            refuse(target)
        with staged(target, force=True, folder=made.is_dir()) as stage:
            made.rename(stage)
    except ResizePosError as error:
        error.message = error.message.replace(str(aside / target.name), str(target))
        raise
    finally:
        remove_stage(aside)
    return report, JobStatus(report.status.value)


def refuse(target: Path) -> NoReturn:
    """Refuse to replace a target."""
    raise OutputError(
        f"{target}: already exists, and is not what this job would write.",
        "Pass --force to replace it, or name another folder with --output-dir.",
    )


def may_replace(task: Task) -> bool:
    """Return whether an existing target may be replaced by another result."""
    if task.rights is not Rights.ASK:
        return task.rights is Rights.REPLACE
    with contextlib.suppress(ResizePosError):
        recorded = recorded_request(open_container(task.target).metadata)
        return recorded is not None and recorded[1] == request_record(task.job.request)
    return False


def _same(first: Path, second: Path) -> bool:
    """Compare two files, or two folders, byte by byte."""
    if first.is_dir() != second.is_dir():
        return False
    if not first.is_dir():
        return filecmp.cmp(first, second, shallow=False)
    names = {path.relative_to(first) for path in first.rglob("*") if path.is_file()}
    others = {path.relative_to(second) for path in second.rglob("*") if path.is_file()}
    return names == others and all(
        filecmp.cmp(first / name, second / name, shallow=False) for name in names
    )
