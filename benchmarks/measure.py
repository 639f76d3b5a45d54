"""Run a command and take its wall time, peak memory and bytes moved."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOOL = [sys.executable, "-m", "resize_pos"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a command cost."""

    seconds: float
    peak_rss: int  # bytes
    read: int  # bytes handed to read-like calls, in-kernel copies included
    written: int


_SLOW_TURNS = 3


def environment() -> dict[str, str]:
    """Return the variables for a measured program.

    What is installed is compiled; a shell that forbids it would measure the compiler.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def run(command: Sequence[str]) -> Cost:
    """Run a command to its end; its output is thrown away, its failure is not."""
    started = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert child.stderr is not None
    with child.stderr:
        complaint = child.stderr.read()
    # The dead child keeps its counters until it is waited for.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.perf_counter() - started
    counters = dict(re.findall(r"(\w+): (\d+)", Path(f"/proc/{child.pid}/io").read_text()))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{complaint.decode()}")
    return Cost(seconds, usage.ru_maxrss * 1024, int(counters["rchar"]), int(counters["wchar"]))


@dataclass(frozen=True, slots=True)
class Summary:
    """Several runs of one command."""

    runs: tuple[Cost, ...]

    @property
    def median(self) -> float:
        return statistics.median(cost.seconds for cost in self.runs)

    @property
    def spread(self) -> float:
        """Half the range, as a share of the median."""
        seconds = [cost.seconds for cost in self.runs]
        return (max(seconds) - min(seconds)) / 2 / self.median

    @property
    def peak_rss(self) -> int:
        return max(cost.peak_rss for cost in self.runs)

    @property
    def read(self) -> int:
        return self.runs[-1].read

    @property
    def written(self) -> int:
        return self.runs[-1].written


def interleaved(
    commands: Mapping[str, Sequence[str]],
    outputs: Sequence[Path],
    repeats: int,
    slow: Collection[str] = (),
) -> dict[str, Summary]:
    """Run every command in turn, again and again, so that noise falls on all of them alike.

    Each turn begins with another command, since what one leaves behind the next one meets: free
    memory, and work for the kernel. Those that are slow take part three times only.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(repeats):
        quick = [name for name in commands if name not in slow or turn < _SLOW_TURNS]
        first = turn % len(quick)
        for name in quick[first:] + quick[:first]:
            remove(outputs)
            os.sync()  # nobody pays for what another command left to be written
            costs[name].append(run(commands[name]))
    remove(outputs)
    return {name: Summary(tuple(runs)) for name, runs in costs.items()}


def in_child(make: Callable[..., Path], *arguments: object) -> None:
    """Make data in a process of its own: a child's peak memory begins with its parent's."""
    process = multiprocessing.get_context("spawn").Process(target=make, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{make.__name__} failed")


def remove(paths: Sequence[Path]) -> None:
    """Remove files and folders that may or may not be there."""
    for path in paths:
        if path.is_dir():
            subprocess.run(["rm", "-rf", str(path)], check=True)
        else:
            path.unlink(missing_ok=True)


def forget(path: Path) -> None:
    """Have the page cache let go of a file, or of all files in a folder."""
    os.sync()  # it keeps what has yet to be written
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def machine() -> str:
    """Describe the machine in one line."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    file_system = subprocess.run(
        ["df", "--output=fstype", tempfile.gettempdir()], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()} "
        f"{platform.release()}, {file_system}, Python {platform.python_version()}"
    )
