"""Ordinary trouble around files is an error with the file and the cause; nothing is written.

The full and the read-only file system are real ones, and permissions are tested as another user, so
these need root; they are skipped elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resize_pos.cli.app import main
from resize_pos.containers.io.stage_names import PART_SUFFIX
from tests.support.builders import vit, write_safetensors

ROOT = Path(__file__).parents[2]
GRIDS = ["--from-grid", "3x5", "--to-grid", "4x7"]
NOBODY = 65534

needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts, and becomes another user"
)

Refused = Callable[..., str]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run the command line in this process; return what it says about its failure."""

    def run(*words: object) -> str:
        with pytest.raises(SystemExit) as end:
            main([*map(str, words), *GRIDS])
        said = capfd.readouterr().err
        assert end.value.code == 1, said
        assert said.startswith("error: ")
        assert "this is a bug" not in said
        assert "Traceback" not in said
        return said

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "vit.safetensors", vit(3, 5))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_name_over_255_bytes(refused: Refused, source: Path, tmp_path: Path) -> None:
    assert "the name is too long" in refused(source, "-o", tmp_path / ("ä" * 200 + ".safetensors"))
    assert "vit" in refused(tmp_path / ("vit" * 100 + ".safetensors"))
    assert "the name is too long" in refused(source, "-o", tmp_path / ("x" * 300) / "out")
    assert names(tmp_path) == ["vit.safetensors"]


def test_a_link_that_leads_back_to_itself(refused: Refused, source: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert "loop" in refused(loop)
    assert "symbolic links" in refused(loop / "vit.safetensors")
    assert "loop" in refused(source, "-o", loop / "out.safetensors")
    assert "loop" in refused(source, "-o", loop)
    assert names(tmp_path) == ["loop", "vit.safetensors"]


@pytest.mark.parametrize("target", ["pipe", "/dev/null", "/dev/full"])
@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_or_a_device_as_target(
    target: str, force: bool, refused: Refused, source: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = Path("/dev/null").stat().st_rdev
    said = refused(source, "-o", tmp_path / target, *(["-f"] if force else []))
    assert "not a regular file" in said
    assert target in said
    assert Path("/dev/null").stat().st_rdev == before


def test_a_pipe_or_a_device_as_source(refused: Refused, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    assert "pipe.safetensors" in refused(tmp_path / "pipe.safetensors")
    assert "null" in refused("/dev/null", "-o", tmp_path / "out.safetensors")


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_pipe_in_a_folder_does_not_hang(
    kind: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is refused or left out; nobody waits for its other end."""
    import socket

    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", vit(3, 5))
    if kind == "pipe":
        os.mkfifo(folder / "notes.txt")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "notes.txt"))
    with pytest.raises(SystemExit) as end:
        main([str(folder), "-o", str(tmp_path / "out"), *GRIDS])
    said = capfd.readouterr().err
    assert end.value.code in (0, 1), said
    assert "this is a bug" not in said
    if end.value.code:
        assert "notes.txt" in said
        assert names(tmp_path) == ["model"]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount small file systems in memory."""
    folders: list[Path] = []

    def mount(name: str, options: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"mount: {done.stderr.strip()}")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", folder], check=True)


@needs_root
def test_a_read_only_file_system(
    refused: Refused, source: Path, tmp_path: Path, mounted: Callable[..., Path]
) -> None:
    folder = mounted("disk", "size=2m")
    shutil.copy(source, folder)
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    beside = folder / "vit.safetensors"
    assert "disk" in refused(beside)  # beside its source
    assert "disk" in refused(source, "-o", folder / "out.safetensors")
    assert "disk" in refused("batch", tmp_path / "vit.safetensors", "-o", folder / "out")
    with pytest.raises(SystemExit) as end:
        main([str(beside), "-o", str(tmp_path / "out.safetensors"), *GRIDS])
    assert end.value.code == 0
    assert names(folder) == ["vit.safetensors"]


@needs_root
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("kind", ["bytes", "bytes, unnoticed", "inodes"])
def test_a_file_system_that_is_full(
    kind: str,
    replaces: bool,
    refused: Refused,
    source: Path,
    mounted: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = mounted("disk", "size=16k" if kind != "inodes" else "nr_inodes=2")
    target = folder / "out.safetensors"
    if replaces:
        target.write_text("old")
    elif kind == "inodes":
        (folder / "other").write_text("")
    if kind == "bytes, unnoticed":  # somebody else fills it meanwhile
        monkeypatch.setattr("resize_pos.run.job.require_space", lambda *_: None)
    said = refused(source, "-o", target, *(["-f"] if replaces else []))
    assert "are needed but only" in said if kind == "bytes" else "no space left" in said
    assert "disk" in said
    assert not [name for name in names(folder) if name.endswith(PART_SUFFIX)]
    assert target.read_text() == "old" if replaces else not target.exists()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter; pytest's are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user who owns nothing, with the modules at hand."""
    script = (
        "import difflib, os, shlex, shutil, sys, numpy\n"
        "import resize_pos.cli.resize, resize_pos.cli.batch, resize_pos.run.compute\n"
        "import resize_pos.verify.output_check, resize_pos.containers.io.rename\n"
        "from resize_pos.cli.app import main\n"
        "from resize_pos.core.geometry import Size\n"
        "os.setgroups([])\n"
        f"os.setresgid({NOBODY}, {NOBODY}, {NOBODY})\n"
        f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words), *GRIDS],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


# What may not be done, how it is forbidden, and the word that the error has to hold.
FORBIDDEN = {
    "enter the source's folder": ("in", 0o000, "vit.safetensors"),
    "list the source's folder": ("in", 0o311, None),
    "read the source": ("in/vit.safetensors", 0o000, "vit.safetensors"),
    "enter the target's folder": ("out", 0o000, "out"),
    "write to the target's folder": ("out", 0o555, "out"),
    "list the target's folder": ("out", 0o733, None),
}


def _others_may_import() -> bool:
    """Whether another user can read the virtualenv and the checkout, which modules come from."""
    ends = (Path(sys.prefix), Path(__file__).parents[2])
    return all(p.stat().st_mode & 0o1 for end in ends for p in (end, *end.parents))


@needs_root
@pytest.mark.skipif(not _others_may_import(), reason="the virtualenv or checkout is private")
@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_another_user_may_not_do(what: str, public: Path) -> None:
    place, mode, word = FORBIDDEN[what]
    for name in ("in", "out"):
        (public / name).mkdir()
        (public / name).chmod(0o777)
    source = write_safetensors(public / "in" / "vit.safetensors", vit(3, 5))
    source.chmod(0o644)
    (public / place).chmod(mode)
    done = as_nobody(source, "-o", public / "out" / "vit.safetensors")
    assert "this is a bug" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    if word is None:  # not needed for the work
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 1, done.stderr
    assert word in done.stderr
    assert any(why in done.stderr for why in ("ermission denied", "not writable", "not readable"))
    assert names(public / "out") == []
