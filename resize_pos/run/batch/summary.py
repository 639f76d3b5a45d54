"""What a batch came to: counts, the exit code, and one document over all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resize_pos._version import __version__
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.run.batch.work import CURRENT, FAILED, Outcome

SCHEMA = "resize-pos/batch/1"

_STATUSES = ("planned", "resized", "unchanged", CURRENT, FAILED)


@dataclass(frozen=True, slots=True)
class Summary:
    """Every outcome of a batch."""

    output_dir: Path
    outcomes: tuple[Outcome, ...]
    jobs: int  # more than outcomes when the batch was stopped
    seconds: float
    strict: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """How many jobs ended how; `warned` ones are counted among the others, too."""
        found = [outcome.status for outcome in self.outcomes]
        counts = {status: found.count(status) for status in _STATUSES}
        counts["warned"] = len(self.warned)
        counts["not_started"] = self.jobs - len(self.outcomes)
        return counts

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The jobs that could not be done."""
        return tuple(outcome for outcome in self.outcomes if outcome.status == FAILED)

    @property
    def warned(self) -> tuple[Outcome, ...]:
        """The jobs that were done, but whose result is doubtful."""
        return tuple(o for o in self.outcomes if o.status != FAILED and o.verdict != "ok")

    @property
    def exit_code(self) -> int:
        """1 when any job failed; 3 when a check did, or `strict` met a warning; else 0."""
        codes = {outcome.exit_code(strict=self.strict) for outcome in self.outcomes}
        return next((code for code in (1, 3) if code in codes), 0)


def job_document(outcome: Outcome, jobs: int) -> dict[str, Any]:
    """Give one job's report with its place in the batch."""
    task = outcome.task
    own = [str(path) for path in task.reports if path.exists()]
    job = {"number": task.number, "of": jobs, "bytes": task.bytes, "reports": own}
    return {**outcome.document, "job": job}


def batch_document(summary: Summary) -> dict[str, Any]:
    """Give the whole as plain data, in the order of the sources."""
    ordered: Sequence[Outcome] = sorted(summary.outcomes, key=lambda o: o.task.number)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "output_dir": str(summary.output_dir),
        "counts": dict(summary.counts),
        "bytes": sum(outcome.task.bytes for outcome in summary.outcomes),
        "seconds": round(summary.seconds, 3),
        "exit_code": summary.exit_code,
        "jobs": [job_document(outcome, summary.jobs) for outcome in ordered],
    }
