"""The result of a batch as values, and as JSON documents."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos._version import __version__
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.request import Request
from resize_pos.quality.checks import Check, Level
from resize_pos.report.json import (
    SCHEMA,
    checks_document,
    report_document,
    request_document,
    traffic_document,
)
from resize_pos.report.report import Report

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic

BATCH_SCHEMA = "resize-pos/batch/1"


class JobStatus(StrEnum):
    """How a job of a batch ended."""

    PLANNED = "planned"  # a dry run
    RESIZED = "resized"
    UNCHANGED = "unchanged"  # already at the target size, or a text model and no length was given
    CONVERTED = "converted"  # only the file format changed
    CURRENT = "current"  # an earlier run made the target, and it is up to date
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a conversion; stored for later runs that find the target current."""

    verdict: Level = Level.OK
    checks: tuple[Check, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, and how to fix it."""

    error: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job of a batch, and how it ended."""

    number: int  # from 1, in the order of the sources
    source: Path
    output: Path
    bytes: int  # of the source
    request: Request
    status: JobStatus
    judgement: Judgement = Judgement()
    failure: Failure | None = None  # if it failed
    report: Report | None = None  # if this run planned or converted it
    reports: tuple[Path, ...] = ()  # paths of its own reports

    @property
    def verdict(self) -> Level:
        """The verdict on the conversion; ok if there was nothing to judge."""
        return self.judgement.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it failed, or what its checks warn of."""
        if self.failure is not None:
            return (self.failure.error,)
        bad = (check.detail for check in self.judgement.checks if check.level is not Level.OK)
        return tuple(dict.fromkeys(bad))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the user should know and what is no warning."""
        notes = () if self.report is None else self.report.notes
        return tuple(note.text for note in notes if not note.warning)

    @property
    def complaint(self) -> str:
        """Why it failed, in one line that names the source by its path."""
        error = "" if self.failure is None else self.failure.error
        path = str(self.source)
        if error.startswith((f"{path}: ", f"{self.output}: ")):
            return error
        return f"{path}: {error.removeprefix(f'{self.source.name}: ')}"

    def exit_code(self, *, strict: bool) -> int:
        """Return the exit code that this job alone would have."""
        if self.failure is not None:
            return 1
        refused = (Level.WARN, Level.FAIL) if strict else (Level.FAIL,)
        return 3 if self.verdict in refused else 0


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Every job of a batch that ended."""

    output_dir: Path
    results: tuple[JobResult, ...]
    jobs: int  # larger than the number of results if the batch was stopped
    seconds: float
    strict: bool = False
    traffic: Traffic | None = None  # if a source or the output is in a store

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of jobs per status; `warned` jobs are also counted under their status."""
        found = [result.status for result in self.results]
        counts = {status.value: found.count(status) for status in JobStatus}
        counts["warned"] = len(self.warned)
        counts["not_started"] = self.jobs - len(self.results)
        return counts

    @property
    def failed(self) -> tuple[JobResult, ...]:
        """The jobs that could not be done."""
        return tuple(result for result in self.results if result.failure is not None)

    @property
    def warned(self) -> tuple[JobResult, ...]:
        """The jobs that were done, but with a warning or a failed check."""
        return tuple(
            result
            for result in self.results
            if result.failure is None and result.verdict is not Level.OK
        )

    @property
    def exit_code(self) -> int:
        """1: a job failed; 3: a check failed, or warned with `strict`; else 0."""
        codes = {result.exit_code(strict=self.strict) for result in self.results}
        return next((code for code in (1, 3) if code in codes), 0)

    @property
    def in_order(self) -> tuple[JobResult, ...]:
        """The results in the order of the sources."""
        return tuple(sorted(self.results, key=lambda result: result.number))


def job_document(result: JobResult, jobs: int) -> dict[str, Any]:
    """Return one job's report as plain data, with its place in the batch."""
    job = {
        "number": result.number,
        "of": jobs,
        "bytes": result.bytes,
        "reports": [str(path) for path in result.reports if path.exists()],
    }
    return {**_report(result), "job": job}


def _report(result: JobResult) -> dict[str, Any]:
    if result.report is not None:
        return {**report_document(result.report), "status": result.status.value}
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "source": str(result.source),
        "output": str(result.output),
        "status": result.status.value,
        "request": request_document(result.request),
    }
    if result.failure is not None:
        return {**document, "error": result.failure.error, "hint": result.failure.hint}
    judged = result.judgement
    return {
        **document,
        "verdict": judged.verdict.value,
        "checks": checks_document(judged.checks),
        "sha256": judged.sha256,
    }


def batch_document(batch: BatchResult) -> dict[str, Any]:
    """Return the whole batch as plain data, in the order of the sources."""
    return {
        "schema": BATCH_SCHEMA,
        "version": __version__,
        "output_dir": str(batch.output_dir),
        "counts": dict(batch.counts),
        "bytes": sum(result.bytes for result in batch.results),
        "seconds": round(batch.seconds, 3),
        "traffic": traffic_document(batch.traffic),
        "exit_code": batch.exit_code,
        "jobs": [job_document(result, batch.jobs) for result in batch.in_order],
    }
