"""A stage is known by its writer: what a dead process left is removed, the rest stays."""

from __future__ import annotations

import os
import platform
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


@pytest.mark.parametrize("part", ["node", "namespace", "boot"])
def test_a_writer_on_another_machine_is_not_looked_up_here(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines may share a disk, a host name and the number of their pid namespace."""
    stage = stage_path(tmp_path / "out")
    stage.write_bytes(b"half")
    dead = tmp_path / stage.name.replace(f"-{os.getpid():x}-", f"-{2**31 - 1:x}-")
    dead.write_bytes(b"half")
    assert is_abandoned(dead)
    readlink, read_bytes = Path.readlink, Path.read_bytes
    if part == "node":
        monkeypatch.setattr(platform, "node", lambda: "another")
    elif part == "namespace":
        monkeypatch.setattr(
            Path,
            "readlink",
            lambda path: Path("pid:[1]") if path.name == "pid" else readlink(path),
        )
    else:
        monkeypatch.setattr(
            Path,
            "read_bytes",
            lambda path: b"another" if path.name == "boot_id" else read_bytes(path),
        )
    stages._place.cache_clear()
    try:
        assert not is_abandoned(dead)  # it may be alive over there
    finally:
        monkeypatch.undo()
        stages._place.cache_clear()


@pytest.mark.parametrize("folder", [False, True])
def test_the_next_run_into_a_folder_removes_what_a_dead_process_left(
    folder: bool, tmp_path: Path
) -> None:
    for name in ("out.pth", "other.pth"):
        done = subprocess.run(leaving(tmp_path / name, folder=folder), capture_output=True)
        assert done.returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    with staged(tmp_path / "out.pth", force=False) as stage:
        stage.write_bytes(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out.pth"]


def test_a_folder_is_listed_once_for_a_row_of_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    monkeypatch.setattr(stages, "remove_abandoned", listed.extend)
    for number in range(5):
        with staged(tmp_path / f"{number}", force=False) as stage:
            stage.write_bytes(b"whole")
    assert listed == [tmp_path]


def moved_aside(target: Path) -> Path:
    """Do what a process does that dies between the two renames of a replaced folder."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from resize_pos.containers.io.stage_names import OLD_SUFFIX, stage_path\n"
        "target = Path(sys.argv[1])\n"
        "aside = stage_path(target, OLD_SUFFIX)\n"
        "target.rename(aside)\n"
        "print(aside)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, target], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_was_moved_aside_comes_back_unless_it_was_replaced(
    replaced: bool, tmp_path: Path
) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "model.safetensors").write_text("old")
    aside = moved_aside(target)
    if replaced:
        target.mkdir()
        (target / "model.safetensors").write_text("new")
    remove_abandoned([tmp_path])
    assert (target / "model.safetensors").read_text() == ("new" if replaced else "old")
    assert not aside.exists()


def test_a_folder_whose_name_was_cut_off_is_left_where_it_is(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 220)
    target.mkdir()
    aside = moved_aside(target)
    assert remove_abandoned([tmp_path]) == []
    assert aside.exists()


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
