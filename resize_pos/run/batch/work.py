"""One job, carried out wherever an executor puts it: plain values in, plain values out."""

from __future__ import annotations

import contextlib
import filecmp
import os
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from resize_pos._version import __version__
from resize_pos.containers.detect import open_container
from resize_pos.containers.io.stage_names import remove_stage, stage_path
from resize_pos.core.errors import OutputError, ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.system_errors import system_error
from resize_pos.planning.provenance import as_plain, recorded_request, request_record
from resize_pos.report.files import wants_pictures, write_reports
from resize_pos.report.json import SCHEMA, report_document, request_document
from resize_pos.report.report import Report
from resize_pos.run.batch.ledger import stamp
from resize_pos.run.job import Job, run

CURRENT, FAILED = "current", "failed"

# What a job is told about itself, not about the result.
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
    """What may be done to a target that exists and holds other bytes."""

    KEEP = "keep"  # it is somebody else's, or was changed since it was made
    ASK = "ask"  # it may be replaced if its own record names the same request
    REPLACE = "replace"  # it is ours, or --force was given


@dataclass(frozen=True, slots=True)
class Task:
    """A job of a batch, with what was decided about its target."""

    number: int  # from 1, in the order of the sources
    job: Job
    bytes: int  # of the source: what it costs
    exists: bool = False  # the target was there when the batch was planned
    rights: Rights = Rights.ASK
    reports: tuple[Path, ...] = ()  # of its own
    version: str = __version__  # of whoever planned it

    @property
    def target(self) -> Path:
        """Where its output belongs."""
        assert self.job.output is not None
        return self.job.output


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    task: Task
    document: Mapping[str, Any]  # the report's, or status `failed` with `error` and `hint`
    target_stamp: str = ""

    @property
    def status(self) -> str:
        """One of planned, resized, unchanged, current, failed."""
        return str(self.document["status"])

    @property
    def verdict(self) -> str:
        """What its report concluded; ok when there was nothing to judge."""
        return str(self.document.get("verdict") or "ok")

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it failed, or what its report warns of."""
        if self.status == FAILED:
            return (str(self.document["error"]),)
        checks = self.document.get("checks") or ()
        return tuple(dict.fromkeys(c["detail"] for c in checks if c["level"] != "ok"))

    def exit_code(self, *, strict: bool) -> int:
        """Give the exit code that this job alone would have."""
        if self.status == FAILED:
            return 1
        return 3 if self.verdict == "fail" or (strict and self.verdict == "warn") else 0


def order(job: Job) -> Mapping[str, Any]:
    """Describe what is asked for, so that two orders can be compared; paths are no part of it."""
    extra = {name: value for name, value in as_plain(job).items() if name not in _NO_ORDER}
    return {
        "version": __version__,
        "request": request_record(job.request),
        "options": extra,
        "judged": as_plain(getattr(job, "limits", ())),
    }


def carry_out(task: Task) -> Outcome:
    """Do a job, and never raise because of it."""
    try:
        if task.version != __version__:
            raise OutputError(
                f"this worker runs resize-pos {__version__}, but the batch was planned by "
                f"{task.version}.",
                hint="install the same version everywhere.",
            )
        report, status = _convert(task)
        for path in task.reports:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_reports(report, task.reports)
        document = {**report_document(report), "status": status}
        return Outcome(task, document, stamp(task.target))
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


def plan_only(task: Task) -> Outcome:
    """Plan a job and write nothing; the folders of its target need not exist."""
    nearest = next(parent for parent in task.target.parents if parent.exists())
    probe = stage_path(nearest / task.target.name).with_suffix(task.target.suffix)
    try:
        report = run(replace(task.job, output=probe, dry_run=True))
        if task.exists and not _may_replace(task):
            _refuse(task.target)
    except ResizePosError as error:
        return failed(task, error.message.replace(str(probe), str(task.target)), error.hint)
    return Outcome(task, report_document(replace(report, output=task.target)))


def failed(task: Task, error: str, hint: str | None) -> Outcome:
    """Describe a job that could not be done."""
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "source": str(task.job.source),
        "output": str(task.target),
        "status": FAILED,
        "request": request_document(task.job.request),
        "error": error,
        "hint": hint,
    }
    return Outcome(task, document)


def _convert(task: Task) -> tuple[Report, str]:
    target, job = task.target, replace(task.job, draw=wants_pictures(task.reports))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(target):
        report = run(job)
        return report, report.status.value
    # Something is there: an earlier run's output, or that of a worker that died after its last
    # step. The job is done aside; equal bytes need no replacing, and foreign ones stay.
    aside = stage_path(target)
    try:
        aside.mkdir()
        report = run(replace(job, output=aside / target.name))
        report = replace(report, output=target)
        if _same(aside / target.name, target):
            return report, CURRENT if task.exists else report.status.value
    except ResizePosError as error:
        error.message = error.message.replace(str(aside / target.name), str(target))
        raise
    finally:
        remove_stage(aside)
    if not _may_replace(task):
        _refuse(target)
    report = run(replace(job, force=True))
    return report, report.status.value


def _refuse(target: Path) -> NoReturn:
    raise OutputError(
        f"{target}: already exists, and is not what this job would write.",
        "Pass --force to replace it, or name another folder with --output-dir.",
    )


def _may_replace(task: Task) -> bool:
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
