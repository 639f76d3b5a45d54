"""Time what a conversion computes, without reading headers, planning or writing; prints seconds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

from resize_pos.compute import measured, transformed
from resize_pos.containers import open_container
from resize_pos.convert import locate
from resize_pos.plan import make_plan
from resize_pos.request import Request


def main() -> None:
    path, to, *window = sys.argv[1:]
    request = Request.make(to=to, to_window=window[0] if window else None)
    container = open_container(Path(path))
    plan = make_plan(locate(container, request), request)
    started = time.perf_counter()
    tables = transformed(container, plan.changes, "cpu")
    measured(container, plan.steps, tables, (), draw=False)
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
