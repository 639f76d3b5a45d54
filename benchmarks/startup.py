"""What each command imports before it does anything, and what that costs."""

from __future__ import annotations

import argparse
import collections
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import data
from benchmarks.measure import TOOL, run

_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
_GROUPS = ("resize_pos", "click", "rich", "numpy", "ml_dtypes", "torch", "timm", "jinja2", "dask")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks startup", description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        source = data.write_safetensors(Path(folder) / "v.safetensors", data.Shape("tiny", 192, 12))
        commands = {
            "interpreter alone": [sys.executable, "-c", ""],
            "--help": [*TOOL, "--help"],
            "inspect": [*TOOL, "inspect", str(source)],
            "--dry-run": [*TOOL, str(source), "--to", "384", "-n"],
            "a conversion": [*TOOL, str(source), "--to", "384", "-q", "-f"],
        }
        print("| command | seconds | imports, ms (self time, by package) |\n|---|---|---|")
        for name, command in commands.items():
            run(command)
            seconds = [run(command).seconds for _ in range(options.repeats)]
            shares = ", ".join(f"{k} {v:.0f}" for k, v in _imports(command).items() if v >= 1)
            print(f"| {name} | {statistics.median(seconds):.3f} | {shares} |")


def _imports(command: list[str]) -> dict[str, float]:
    timed = [command[0], "-X", "importtime", *command[1:]]
    done = subprocess.run(timed, capture_output=True, text=True, check=True)
    total: collections.Counter[str] = collections.Counter()
    for microseconds, module in _LINE.findall(done.stderr):
        package = module.split(".")[0]
        total[package if package in _GROUPS else "standard library"] += int(microseconds)
    return {package: count / 1000 for package, count in total.most_common()}
