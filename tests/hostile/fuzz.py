"""The recorded run: `python -m tests.hostile.fuzz --inputs 200000 --output figures.json`.

Counts, for every parser, the inputs, the exceptions that are not ours, and the inputs that took
more than five seconds; keeps the longest time and the largest growth of the process in memory. An
input that fails is saved if `--saved` names a folder.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import hashlib
import json
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from tests.hostile.parsers import PARSERS, Parser, attempt

LONGEST = 5.0  # seconds of processor time for one input
_LARGEST_OUTPUT = 64 << 20
_BATCH = 500  # inputs between two looks at the memory


class Hang(Exception):
    """An input took too long."""


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise Hang


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def run(parser: Parser, inputs: int, seed: int, saved: Path | None = None) -> dict[str, Any]:
    """Feed one parser mutated inputs; the figures of the run."""
    figures: dict[str, Any] = {
        "parser": parser.name,
        "inputs": 0,
        "foreign_exceptions": 0,
        "hangs": 0,
        "longest_seconds": 0.0,
        "largest_growth_mb": 0.0,
        "largest_input_bytes": 0,
        "kinds": {},
    }
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as name:
        folder = Path(name)
        signal.signal(signal.SIGALRM, _on_alarm)  # waits for something: a pipe, a lock
        signal.signal(signal.SIGPROF, _on_alarm)
        parser.make(Random(seed))  # makes the seeds
        gc.freeze()  # torch's objects are not looked at again in every collection
        before = 0
        for number in range(inputs):
            random = Random(f"{seed}:{parser.name}:{number}")
            data = parser.make(random)
            if number % _BATCH == 0:
                if number > _BATCH:  # the first inputs import what is needed
                    growth = (_memory("VmHWM") - before) / 2**20
                    figures["largest_growth_mb"] = max(figures["largest_growth_mb"], growth)
                _reset_peak()
                before = _memory("VmRSS")
            error: BaseException | None
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, LONGEST)
            signal.setitimer(signal.ITIMER_REAL, 30 * LONGEST)
            try:
                error = attempt(parser, data, folder, random)
            except Hang:
                error = Hang()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            took = time.process_time() - began
            figures["inputs"] += 1
            figures["longest_seconds"] = max(figures["longest_seconds"], took)
            figures["largest_input_bytes"] = max(figures["largest_input_bytes"], len(data))
            if error is not None:
                _note(figures, error, data, saved)
    return figures


def _note(figures: dict[str, Any], error: BaseException, data: bytes, saved: Path | None) -> None:
    figures["hangs" if isinstance(error, Hang) else "foreign_exceptions"] += 1
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "resize_pos" in frame.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    kind = f"{type(error).__name__} at {where}: {str(error)[:100]}"
    known = figures["kinds"]
    if kind not in known and saved is not None and len(known) < 200:
        saved.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(data).hexdigest()[:12]
        (saved / f"{figures['parser'].replace(' ', '_')}-{digest}").write_bytes(data)
    known[kind] = known.get(kind, 0) + 1


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(arguments: list[str]) -> int:
    """Run every parser, or those that are named."""
    options = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz")
    options.add_argument("--inputs", type=int, default=2000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parser", action="append", choices=[p.name for p in PARSERS])
    options.add_argument("--output", type=Path)
    options.add_argument("--saved", type=Path, help="folder for inputs that fail")
    chosen = options.parse_args(arguments)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_OUTPUT, _LARGEST_OUTPUT))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails with an error
    found = []
    for parser in PARSERS:
        if chosen.parser and parser.name not in chosen.parser:
            continue
        began = time.perf_counter()
        figures = run(parser, chosen.inputs, chosen.seed, chosen.saved)
        figures["seconds"] = round(time.perf_counter() - began, 1)
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
        sys.stdout.flush()
        found.append(figures)
        if chosen.output is not None:
            chosen.output.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(f["foreign_exceptions"] or f["hangs"] for f in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
