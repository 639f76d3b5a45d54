"""A run whose computing thread fails ends with an error, in every container; it never hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resize_pos.containers.io.stage_names import PART_SUFFIX
from tests.support.builders import vit, write_safetensors
from tests.support.torch_files import save, state_dict

TARGET = "vit-64x112.safetensors"
LIMIT = 60  # seconds; a hang, not a slow machine

# Each takes away what the computing thread needs, then runs the command line.
BREAKS = {
    "numpy is missing": "sys.modules['numpy'] = None",
    "numpy is broken": (
        "import importlib.abc\n"
        "class Broken(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'numpy':\n"
        "            raise OSError(12, 'Cannot allocate memory', 'libopenblas.so')\n"
        "sys.meta_path.insert(0, Broken())"
    ),
    "memory runs out": (
        "import importlib.abc\n"
        "class Empty(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'numpy':\n"
        "            raise MemoryError\n"
        "sys.meta_path.insert(0, Empty())"
    ),
    "a system exit": (
        "import importlib.abc\n"
        "class Leaves(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'numpy':\n"
        "            raise SystemExit(7)\n"
        "sys.meta_path.insert(0, Leaves())"
    ),
}
WORDS = {
    "numpy is missing": "numpy cannot be imported",
    "numpy is broken": "libopenblas.so",
    "memory runs out": "out of memory",
    "a system exit": "",
}


def checkpoint(folder: Path, name: str) -> Path:
    path = folder / name
    if path.suffix == ".pth":
        return save(path, state_dict())
    return write_safetensors(path, vit(3, 5))


def run(setup: str, source: Path) -> subprocess.CompletedProcess[str]:
    script = f"import sys\n{setup}\nfrom resize_pos.cli.app import main\nmain()\n"
    return subprocess.run(
        [sys.executable, "-c", script, source, "--from-grid", "3x5", "--to-grid", "4x7"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.mark.parametrize("name", ["vit.safetensors", "vit.pth"])
@pytest.mark.parametrize("broken", BREAKS)
def test_a_thread_that_cannot_compute_ends_the_run(name: str, broken: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path, name)
    before = source.read_bytes()
    done = run(BREAKS[broken], source)
    assert done.returncode not in (0, None), done.stdout
    assert WORDS[broken] in done.stderr
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert source.read_bytes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
@pytest.mark.parametrize("megabytes", [60, 100, 160])
def test_a_limit_of_the_address_space_ends_the_run(megabytes: int, tmp_path: Path) -> None:
    """Under some of these limits numpy's libraries cannot be loaded; it must not be a hang."""
    source = checkpoint(tmp_path, "vit.safetensors")
    limit = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({megabytes << 20}, {megabytes << 20}))"
    )
    done = run(limit, source)
    left = {path.name for path in tmp_path.iterdir() if not path.name.endswith(PART_SUFFIX)}
    assert left == {"vit.safetensors"} | ({TARGET} if done.returncode == 0 else set())
    assert done.returncode == 0 or done.stderr
    # A library that ends the process by itself (OpenBLAS) leaves a stage for the next run.
    if done.returncode:
        assert run("", source).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"vit.safetensors", TARGET}


def test_where_no_thread_can_be_started_the_run_succeeds(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, "vit.safetensors")
    refuse = (
        "import _thread\n"
        "def refused(*_):\n"
        '    raise RuntimeError("can\'t start new thread")\n'
        "_thread.start_new_thread = refused"
    )
    done = run(refuse, source)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / TARGET).exists()
