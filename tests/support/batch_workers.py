"""Stand-ins for the work of one job, importable by worker processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from resize_pos.report.batch_result import JobStatus
from resize_pos.run.batch.work import Outcome, Task, failed, result_of


def die_by_name(task: Task) -> Outcome:
    """Kill the worker for some names: `doomed` always, `unlucky` the first time only."""
    name = task.job.source.name
    marker = Path(task.target.parent, f"{name}.died")
    if name == "doomed" or (name == "unlucky" and not marker.exists()):
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "refused":
        return failed(task, "refused.", None)
    return Outcome(task, result_of(task, JobStatus.RESIZED), target_stamp=str(os.getpid()))
