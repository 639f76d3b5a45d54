"""A whole zoo, unattended: converted, repeated, killed, and always the same bytes at the end."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from resize_pos import resize_checkpoint
from resize_pos.containers.io.stage_names import PART_SUFFIX
from tests.support.builders import raw_tensors
from tests.support.zoo import (
    AT_TARGET,
    BROKEN,
    CONTAINERS,
    FAMILIES,
    NOTHING,
    TO,
    build_zoo,
    names,
    tree,
    write_distributed,
)

JOBS = len(names()) + len(BROKEN) + 2


def batch(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "resize_pos", "batch", *map(str, words), "--to", TO]


def finish(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(batch(*words), cwd=folder, capture_output=True, text=True, check=False)


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
    assert len(CONTAINERS) == 7


def test_every_job_is_told_once_and_as_it_ended(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    _, done = undisturbed
    told = {line["source"]: line for line in lines(done)}
    assert len(lines(done)) == len(told) == JOBS
    assert all(line["schema"] == "resize-pos/report/1" for line in told.values())
    assert {line["job"]["number"] for line in told.values()} == set(range(1, JOBS + 1))
    assert {told[f"zoo/{name}"]["status"] for name in names()} == {"resized"}
    assert {told[f"zoo/{name}"]["status"] for name in (AT_TARGET, NOTHING)} == {"unchanged"}
    for name in BROKEN:
        line = told[f"zoo/{name}"]
        assert line["status"] == "failed"
        assert line["error"].startswith(Path(name).name)
        assert "hint" in line
    assert done.returncode == 1


def test_the_tree_is_mirrored_and_nothing_else_is_left(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, _ = undisturbed
    assert places(out) == {*names(), AT_TARGET, NOTHING}
    assert not list(out.rglob(f"*{PART_SUFFIX}"))
    assert not (out / "broken").exists()
    for name in (AT_TARGET, NOTHING):
        assert (out / name).read_bytes() == (zoo / "zoo" / name).read_bytes()


@pytest.mark.parametrize("name", names("safetensors"))
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
    before = {name: (out / name).stat().st_mtime_ns for name in tree(out)}
    again = finish("zoo", "-o", "out", "-j", "2", "--json", folder=zoo)
    statuses = Counter(line["status"] for line in lines(again))
    assert statuses == {"current": len(names()) + 2, "failed": len(BROKEN)}
    assert before == {name: (out / name).stat().st_mtime_ns for name in tree(out)}
    verdicts = {line["source"]: line.get("verdict") for line in lines(first)}
    assert all(line.get("verdict") == verdicts[line["source"]] for line in lines(again))
    assert again.returncode == 1


@pytest.mark.parametrize("container", CONTAINERS)
def test_each_output_is_what_the_single_command_writes(
    container: str,
    zoo: Path,
    undisturbed: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    name = names(container)[0]
    report = resize_checkpoint(zoo / "zoo" / name, to=TO, output=tmp_path / Path(name).name)
    assert report.status == "resized"
    ours = {p.name: c for p, c in _files(undisturbed[0] / name).items()}
    assert ours == {p.name: c for p, c in _files(tmp_path / Path(name).name).items()}


def _files(path: Path) -> dict[Path, bytes]:
    found = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {p: p.read_bytes() for p in found}


def test_one_process_gives_the_same_bytes_as_two(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    done = finish("zoo", "-o", "alone", "-j", "1", "-q", folder=zoo)
    assert len(done.stdout.splitlines()) == len(names()) + 2
    assert tree(zoo / "alone") == tree(undisturbed[0])


@pytest.mark.slow
def test_a_distributed_checkpoint_is_one_job(tmp_path: Path) -> None:
    write_distributed(tmp_path / "zoo" / "run" / "step-9", FAMILIES["timm"](8))
    for status in ("resized", "current"):
        done = finish("zoo", "-o", "out", "--json", folder=tmp_path)
        assert [line["status"] for line in lines(done)] == [status], done.stderr
    assert (tmp_path / "out" / "run" / "step-9" / ".metadata").is_file()


def kill(process: subprocess.Popen[bytes], *, everything: bool) -> None:
    """Kill the driver alone, or all of its processes at once, as a job manager would."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL) if everything else process.kill()
    process.wait()


def places(folder: Path) -> set[str]:
    """Name the files and model folders that are in place."""
    found = (path.relative_to(folder).as_posix() for path in folder.glob("*/*"))
    return {name for name in found if not Path(name).name.startswith(".")}


def test_killed_ten_times_it_ends_with_the_same_bytes(
    zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    rng = random.Random(20)
    out, killed = zoo / "killed", 0
    whole = tree(undisturbed[0])
    for round_ in range(10):
        process = subprocess.Popen(
            batch("zoo", "-o", "killed", "-j", "2"),
            cwd=zoo,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stderr is not None
        # Moments are counted in finished jobs, so that they are spread on any machine.
        for _ in range(len(places(out)) + rng.randint(0, 4)):
            process.stderr.readline()
        try:
            process.wait(timeout=rng.uniform(0, 0.03))
        except subprocess.TimeoutExpired:
            killed += 1
        kill(process, everything=bool(round_ % 2))
        process.stderr.close()
        # Whatever is in place is whole.
        for name, content in tree(out).items():
            assert content == whole[name], name
    assert killed >= 5
    done = finish("zoo", "-o", "killed", "-j", "2", "--json", folder=zoo)
    assert done.returncode == 1
    assert Counter(line["status"] == "failed" for line in lines(done))[True] == len(BROKEN)
    assert tree(out) == whole
    assert not list(out.rglob(f"*{PART_SUFFIX}"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_it_quietly_and_leaves_nothing_unfinished(
    name: str, zoo: Path, undisturbed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    number, target = signal.Signals[name], f"ended-by-{name}"
    process = subprocess.Popen(
        batch("zoo", "-o", target, "-j", "2"),
        cwd=zoo,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    os.killpg(process.pid, number)  # as a terminal does: the workers get it, too
    out, err = process.communicate()
    assert process.returncode == 128 + number
    assert re.search(r"interrupted; \d+ of \d+ finished.*; run it again to continue", err), err
    assert "Traceback" not in err
    assert out == ""
    assert not list((zoo / target).rglob(f"*{PART_SUFFIX}"))
    whole = tree(undisturbed[0])
    assert all(whole[file] == content for file, content in tree(zoo / target).items())
