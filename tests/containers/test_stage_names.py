"""A stage is known by its writer: what a dead process left is removed, the rest stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resize_pos.containers.io import stage_names as stages
from resize_pos.containers.io.atomic_output import staged
from resize_pos.containers.io.stage_names import (
    ABANDONED_AFTER,
    PART_SUFFIX,
    is_abandoned,
    remove_abandoned,
    stage_path,
    staged_bytes,
)


def leaving(target: Path, *, folder: bool = False) -> list[str]:
    """Word a command that makes a stage, prints its name and dies without a word more."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from resize_pos.containers.io.stage_names import stage_path\n"
        "stage = stage_path(Path(sys.argv[1]))\n"
        "stage.mkdir() if sys.argv[2] else None\n"
        "(stage / 'part' if sys.argv[2] else stage).write_bytes(b'half')\n"
        "print(stage, flush=True)\n"
        "os._exit(9)\n"
    )
    return [sys.executable, "-c", script, str(target), "folder" if folder else ""]


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_dead_process_left_is_removed(folder: bool, tmp_path: Path) -> None:
    words = leaving(tmp_path / "out.pth", folder=folder)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    stage = Path(done.stdout.strip())
    assert stage.exists()
    assert remove_abandoned([tmp_path]) == [stage]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="ends cannot be awaited without taking them")
def test_what_a_process_left_whose_end_nobody_took_is_removed(tmp_path: Path) -> None:
    if stages._started(os.getpid()) is None:
        pytest.skip("no /proc here")
    process = subprocess.Popen(leaving(tmp_path / "out"), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        stage = Path(said.readline().strip())
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from here on
    os.kill(process.pid, 0)
    assert remove_abandoned([tmp_path]) == [stage]
    assert process.wait() == 9


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    with staged(tmp_path / "out", force=False) as stage:
        stage.write_bytes(b"half")
        assert remove_abandoned([tmp_path]) == []
        assert stage.exists()


def test_a_process_number_that_is_used_again_is_not_mistaken(tmp_path: Path) -> None:
    if stages._started(os.getpid()) is None:
        pytest.skip("no /proc here")
    stage = stage_path(tmp_path / "out")
    place, process, started, rest = stage.name.removeprefix(".out.").split("-", 3)
    earlier = tmp_path / f".out.{place}-{process}-{int(started, 16) - 1:x}-{rest}"
    earlier.write_bytes(b"half")
    assert is_abandoned(earlier)


@pytest.mark.parametrize("name", [".out.0badbeef-1-1-00000000", ".out.abcdef01"])
def test_a_stage_from_elsewhere_is_removed_when_it_is_old(name: str, tmp_path: Path) -> None:
    stage = tmp_path / f"{name}{PART_SUFFIX}"
    stage.write_bytes(b"half")
    assert not is_abandoned(stage)
    old = time.time() - ABANDONED_AFTER - 10
    os.utime(stage, (old, old))
    assert is_abandoned(stage)


def test_a_folder_is_as_old_as_the_newest_file_in_it(tmp_path: Path) -> None:
    stage = tmp_path / f".out.0badbeef-1-1-00000000{PART_SUFFIX}"
    stage.mkdir()
    (stage / "shard").write_bytes(b"half")
    old = time.time() - ABANDONED_AFTER - 10
    os.utime(stage, (old, old))
    assert not is_abandoned(stage)


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    for name in (f"mine{PART_SUFFIX}", ".hidden", "out.pth"):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (0, 0))
    assert remove_abandoned([tmp_path, tmp_path / "nowhere"]) == []


def test_progress_shows_in_the_size_of_the_stage(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert staged_bytes(target) == 0
    with staged(target, force=False) as stage:
        stage.mkdir()
        (stage / "a").write_bytes(bytes(10))
        (stage / "b").write_bytes(bytes(5))
        assert staged_bytes(target) == 15
        assert staged_bytes(tmp_path / "other") == 0
