"""Run one job whose target is in a store: claim it, write it, enter it into the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.remote.outputs import completion_turn
from resize_pos.containers.remote.small_objects import abort_uploads, delete_all, listed_now
from resize_pos.containers.remote.store import Listing, ObjectInfo, store_of
from resize_pos.containers.remote.tree import forget, sharing
from resize_pos.core.errors import OutputError
from resize_pos.report.batch_result import JobStatus
from resize_pos.report.files import wants_pictures
from resize_pos.report.report import Report
from resize_pos.run.batch.ledger import PastJob, stamp
from resize_pos.run.batch.store_claims import Claim, Wish, entry_path, gone_claim, take
from resize_pos.run.batch.store_search import stored_stamp
from resize_pos.run.batch.work import (
    Outcome,
    Rights,
    Task,
    failed,
    may_replace,
    order,
    refuse,
    reported,
    result_of,
    write_own_reports,
)
from resize_pos.run.job import run

_CLOCKS = 300.0  # seconds by which the clocks of a machine and of a store may differ
_BLOCK = 4 << 20


@contextlib.contextmanager
def source_listing(task: Task) -> Iterator[None]:
    """Use what the listing said of the source; forget the bytes that were read of it."""
    source = task.job.source
    if not isinstance(source, RemotePath):
        yield
        return
    folder = source.parent
    known = {} if task.beside is None else {folder: Listing((), dict(task.beside))}
    try:
        with sharing(known):
            yield
    finally:
        forget(source)


def convert_in_store(task: Task) -> Outcome:
    """Run a job, unless another machine has done so or is at it."""
    source, target, seen = task.job.source, task.target, task.source_stamp
    assert isinstance(task.ledger, RemotePath) and isinstance(target, RemotePath)
    wanted = PastJob(
        "/".join(target.parts[len(task.ledger.parts) :]),
        order(task.job),
        done=False,
        source=str(source.absolute()),
        source_stamp=seen if isinstance(source, RemotePath) else stamp(source, beside=True),
    )
    path = entry_path(task.ledger, wanted.target)
    known, claimed = task.entry_version
    claim = take(Wish(path, wanted, task.batch, not task.exists, known, claimed))
    if claim is None:
        return replace(failed(task, "another machine is converting it.", None), busy=True)
    if isinstance(claim, PastJob):
        result = result_of(task, JobStatus.CURRENT, judgement=claim.judgement)
        return Outcome(task, result, claim.target_stamp)
    try:
        with claim.renewed():
            report, status = _convert(task, claim)
        write_own_reports(task, report)
        done = reported(task, report, status)
        entry = replace(wanted, done=True, target_stamp=_stamp(target), judgement=done.judgement)
        version = claim.finish(entry)
    except BaseException:
        with contextlib.suppress(Exception):
            if claim.fresh and claim.is_held():
                _remove_folder(target)
        claim.release()
        raise
    finally:
        forget(target)
    return Outcome(task, done, entry.target_stamp, entry=entry, version=version)


def clean_up(task: Task) -> None:
    """Remove what a worker that is gone has left of a job, and its claim."""
    assert isinstance(task.ledger, RemotePath) and isinstance(task.target, RemotePath)
    key = "/".join(task.target.parts[len(task.ledger.parts) :])
    claim = gone_claim(entry_path(task.ledger, key))
    if claim is not None:
        _recover(task.target, claim)
        claim.release()


def _convert(task: Task, claim: Claim) -> tuple[Report, JobStatus]:
    target, exists, rights = task.target, task.exists, task.rights
    assert isinstance(target, RemotePath)
    job = replace(task.job, draw=wants_pictures(task.reports))
    if claim.inherited:
        _recover(target, claim)
        exists = _info(target) is not None
        rights = Rights.REPLACE if claim.fresh else rights
    if not exists:
        try:
            report = run(job)
            return report, JobStatus(report.status.value)
        except OutputError:
            # The target has appeared: the answer to our last request was lost, or another machine
            # believed that we are gone.
            if _info(target) is None:
                raise
            rights = Rights.ASK
    forget(target)
    if rights is not Rights.REPLACE and not (rights is Rights.ASK and may_replace(task)):
        report = run(replace(job, force=True, dry_run=True))
        if report.status.value == JobStatus.UNCHANGED.value and _same_bytes(task):
            return report, JobStatus.CURRENT
        refuse(target)
    report = run(replace(job, force=True))
    return report, JobStatus(report.status.value)


def _recover(target: RemotePath, claim: Claim) -> None:
    """Abort the uploads of the process that had the claim, and remove half of a folder."""
    abort_uploads(target, claim.began - _CLOCKS)
    if claim.fresh:
        _remove_folder(target)


def _remove_folder(target: RemotePath) -> None:
    """Remove the objects below a target that was not there before; what makes it loadable first."""
    names = [name for name, _ in store_of(target).walk(target)]
    delete_all(target, sorted(names, key=lambda name: completion_turn(target / name), reverse=True))


def _info(target: RemotePath) -> ObjectInfo | None:
    return store_of(target).info(target)


def _stamp(target: RemotePath) -> str:
    return stored_stamp(listed_now(target), store_of(target).walk(target))


def _same_bytes(task: Task) -> bool:
    """Compare a source that needs no change with the target, block by block."""
    if task.job.source.is_dir():
        return False
    first, second = SourceFile.of(task.job.source), SourceFile.of(task.target)
    if first.size != second.size:
        return False
    for offset in range(0, first.size, _BLOCK):
        length = min(_BLOCK, first.size - offset)
        if first.read(offset, length) != second.read(offset, length):
            return False
    return True
