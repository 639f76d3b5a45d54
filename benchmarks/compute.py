"""Time what a conversion computes, without headers, planning or writing.

Prints seconds: all, and those of the measures.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

from resize_pos.containers.detect import open_container
from resize_pos.core.request import Request
from resize_pos.planning.locate import locate_in
from resize_pos.planning.plan import make_plan
from resize_pos.run.compute import measured, transformed


def main() -> None:
    path, to, *window = sys.argv[1:]
    request = Request.make(to=to, to_window=window[0] if window else None)
    container = open_container(Path(path))
    plan = make_plan(locate_in(container, request), request)
    started = time.perf_counter()
    data = {
        name: container.peek(name, 0, container.tensors[name].nbytes)
        for name in (step.table.name for step in plan.changes)
    }
    tables = transformed(container, plan, data, "cpu")
    between = time.perf_counter()
    measured(container, plan.steps, tables, (), draw=False)
    ended = time.perf_counter()
    print(ended - started, ended - between)


if __name__ == "__main__":
    main()
