"""A whole zoo, unattended: converted, repeated, killed, and always the same bytes at the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from resize_pos.containers.stages import PART_SUFFIX
from tests.builders import raw_tensors
from tests.zoo import AT_TARGET, BROKEN, NOTHING, TO, build_zoo, names, tree

JOBS = len(names()) + len(BROKEN) + 2


def batch(*words: str | Path, folder: Path) -> list[str]:
    return [sys.executable, "-m", "resize_pos", "batch", *map(str, words), "--to", TO]


def finish(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        batch(*words, folder=folder), cwd=folder, capture_output=True, text=True, check=False
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zoo, and its undisturbed conversion beside it."""
    folder = tmp_path_factory.mktemp("zoo")
    build_zoo(folder / "zoo")
    return folder


@pytest.fixture(scope="module")
def undisturbed(zoo: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    return zoo / "out", finish("zoo", "-o", "out", "-j", "2", "--json", folder=zoo)


def test_the_zoo_is_large_and_mixed() -> None:
    assert JOBS >= 40


def test_every_job_is_told_once_and_as_it_ended(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    _, done = undisturbed
    told = {line["source"]: line for line in lines(done)}
    assert len(lines(done)) == len(told) == JOBS
    assert all(line["schema"] == "resize-pos/report/1" for line in told.values())
    assert {line["job"]["number"] for line in told.values()} == set(range(1, JOBS + 1))
    assert {told[f"zoo/{name}"]["status"] for name in names()} == {"resized"}
    assert told[f"zoo/{AT_TARGET}"]["status"] == "unchanged"
    for name in (*BROKEN, NOTHING):
        line = told[f"zoo/{name}"]
        assert line["status"] == "failed"
        assert line["error"].startswith(Path(name).name)
        assert "hint" in line
    assert done.returncode == 1


def test_the_tree_is_mirrored_and_nothing_else_is_left(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, _ = undisturbed
    assert sorted(tree(out)) == sorted([*names(), AT_TARGET])
    assert not list(out.rglob(f"*{PART_SUFFIX}"))
    assert not (out / "broken").exists()
    assert (out / AT_TARGET).read_bytes() == (zoo / "zoo" / AT_TARGET).read_bytes()


@pytest.mark.parametrize("name", [name for name in names() if name.endswith(".safetensors")])
def test_every_untouched_tensor_is_identical(
    name: str, zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    before, _ = raw_tensors(zoo / "zoo" / name)
    after, _ = raw_tensors(undisturbed[0] / name)
    assert list(before) == list(after)
    changed = {key for key in before if before[key] != after[key]}
    assert changed
    assert all("pos" in key for key in changed)


def test_the_second_run_finds_everything_current(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, first = undisturbed
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = finish("zoo", "-o", "out", "-j", "2", "--json", folder=zoo)
    statuses = Counter(line["status"] for line in lines(again))
    assert statuses == {"current": len(names()) + 1, "failed": len(BROKEN) + 1}
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert all(before[path] == moment for path, moment in after.items())
    verdicts = {line["source"]: line.get("verdict") for line in lines(first)}
    assert all(line.get("verdict") == verdicts[line["source"]] for line in lines(again))
    assert again.returncode == 1


def test_one_process_gives_the_same_bytes_as_two(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    done = finish("zoo", "-o", "alone", "-j", "1", "-q", folder=zoo)
    assert len(done.stdout.splitlines()) == len(names()) + 1
    assert tree(zoo / "alone") == tree(undisturbed[0])


def test_killed_ten_times_it_ends_with_the_same_bytes(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    rng = random.Random(20)
    killed = 0
    for round_ in range(10):
        process = subprocess.Popen(
            batch("zoo", "-o", "killed", "-j", "2", folder=zoo),
            cwd=zoo,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stderr is not None
        # Moments are counted in finished jobs, so that they are spread on any machine.
        current = len(tree(zoo / "killed")) if (zoo / "killed").exists() else 0
        for _ in range(current + rng.randint(0, 4)):
            process.stderr.readline()
        try:
            process.wait(timeout=rng.uniform(0, 0.03))
        except subprocess.TimeoutExpired:
            killed += 1
        # The driver alone, or everything at once, as a job manager would.
        if round_ % 2:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.stderr.close()
        process.wait()
        for name, content in tree(zoo / "killed").items():
            assert content == (undisturbed[0] / name).read_bytes(), name
    assert killed >= 5
    done = finish("zoo", "-o", "killed", "-j", "2", "--json", folder=zoo)
    assert done.returncode == 1
    assert Counter(line["status"] == "failed" for line in lines(done))[True] == len(BROKEN) + 1
    assert tree(zoo / "killed") == tree(undisturbed[0])
    assert not list((zoo / "killed").rglob(f"*{PART_SUFFIX}"))
