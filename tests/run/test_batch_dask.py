"""A real scheduler and two real workers on localhost; one of them is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.zoo import BROKEN, TO, build_zoo, names, tree

ROOT = Path(__file__).parents[2]
BATCH = [sys.executable, "-m", "resize_pos", "batch", "zoo", "--to", TO, "-o", "out"]
pytest.importorskip("distributed")


def start(stack: ExitStack, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a part of the cluster; it ends with the test, whatever happens."""
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
    )
    stack.callback(process.kill)
    return process


def await_words(process: subprocess.Popen[str], words: str) -> str:
    """Read a process's log up to a line with these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"ended before it said {words!r}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """A scheduler and two workers of one thread each, started in a folder of their own."""
    with ExitStack() as stack:
        home = tmp_path / "cluster"
        home.mkdir()
        local = ("--host", "127.0.0.1", "--no-dashboard")
        # Should this process be killed, the cluster ends by itself.
        scheduler = start(stack, home, "scheduler", "--port", "0", "--idle-timeout", "300s", *local)
        address = await_words(scheduler, "Scheduler at:").split()[-1]
        workers = [
            start(
                stack,
                home,
                *("worker", address, "--nthreads", "1", "--no-nanny", "--death-timeout", "60s"),
                *local,
            )
            for _ in range(2)
        ]
        for worker in workers:
            await_words(worker, "Registered to:")
        yield address, workers


def test_a_lost_worker_changes_nothing_and_the_bytes_are_the_local_ones(
    cluster: tuple[str, list[subprocess.Popen[str]]], tmp_path: Path
) -> None:
    address, workers = cluster
    build_zoo(tmp_path / "zoo")
    command = [sys.executable, "-m", "resize_pos", "batch", "zoo", "--to", TO]
    errors = tmp_path / "errors.txt"
    with (
        errors.open("w", encoding="utf-8") as stream,
        subprocess.Popen(
            [*command, "-o", "out", "--dask", address, "--json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(5)]
        workers[0].send_signal(signal.SIGKILL)
        # `communicate` would lose what the lines before have read ahead.
        out = process.stdout.read()
    assert "Traceback" not in errors.read_text(encoding="utf-8")
    assert len(out.splitlines()) > 10  # it was killed in the middle, not at the end
    told += [json.loads(line) for line in out.splitlines()]
    failed = {Path(line["source"]).name for line in told if line["status"] == "failed"}
    assert len(failed) == len(BROKEN)
    assert len(told) == len(names()) + len(BROKEN) + 2
    assert process.returncode == 1
    subprocess.run([*command, "-o", "here", "-j", "1", "-q"], cwd=tmp_path, check=False)
    assert tree(tmp_path / "out") == tree(tmp_path / "here")
    again = subprocess.run(
        [*command, "-o", "out", "-j", "2", "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    statuses = [json.loads(line)["status"] for line in again.stdout.splitlines()]
    assert sorted(set(statuses)) == ["current", "failed"]


def test_a_scheduler_that_does_not_answer_is_named(tmp_path: Path) -> None:
    build_zoo(tmp_path / "zoo")
    done = subprocess.run(
        [*BATCH, "--dask", "tcp://127.0.0.1:9"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"},
    )
    assert done.returncode == 1
    assert "--dask tcp://127.0.0.1:9: no scheduler answers there" in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(tmp_path / "out") == {}


def test_without_dask_the_way_to_install_it_is_told(tmp_path: Path) -> None:
    build_zoo(tmp_path / "zoo")
    # A module that cannot be imported stands in for one that is not installed.
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "distributed.py").write_text("raise ImportError('not installed')\n")
    done = subprocess.run(
        [*BATCH, "--dask", "tcp://127.0.0.1:9"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'hidden'}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 2
    assert "pip install 'resize-pos[dask]'" in done.stderr
