"""The wheel: every data file is in it, and it converts the sample without the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy, so that no file of the checkout changes."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "resize_pos", tree / "resize_pos", ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, tree],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("resize_pos/")}
    own = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "resize_pos").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == own


def test_the_wheel_converts_the_sample_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """The environment holds the wheel alone; the libraries are those of this one."""
    place = tmp_path / "site"
    install = [
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(place),
        str(wheel),
    ]
    subprocess.run([sys.executable, *install], check=True)
    sample = tmp_path / "digits.safetensors"
    shutil.copy(ROOT / "sample_checkpoints" / "digits_vit_224.safetensors", sample)
    script = (
        "import resize_pos, sys; from resize_pos.cli.app import main; print(resize_pos.__file__);"
        f"main([{str(sample)!r}, '--from', '224', '--to', '384', '--report', 'page.html'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(place), _without_checkout()])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(place))
    assert (tmp_path / "digits-384.safetensors").is_file()
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


def _without_checkout() -> str:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(path for path in paths if path and Path(path).resolve() != ROOT)


@pytest.mark.slow
def test_the_commands_of_a_release_work_in_an_empty_environment(tmp_path: Path) -> None:
    """Run the block of docs/release.md in a copy: a new virtualenv, its dependencies from pip.

    It downloads the dependencies, torch among them, so it takes minutes.
    """
    tree, empty = tmp_path / "tree", tmp_path / "empty"
    skipped = shutil.ignore_patterns(".git", "__pycache__", "*.egg-info", "dist", "*-384*")
    shutil.copytree(ROOT, tree, ignore=skipped)
    text = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(.*?)```", text, re.S)
    script = textwrap.dedent(script).replace("/tmp/empty", str(empty))
    own = Path(sys.executable).parent  # `python -m build` is a development dependency
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=tree,
        env={**kept, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "verdict: ok" in done.stdout
    where = subprocess.run(
        [empty / "bin" / "python", "-c", "import resize_pos; print(resize_pos.__file__)"],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(empty)


def test_the_workflow_runs_what_the_checkout_has() -> None:
    jobs = WORKFLOW["jobs"]
    assert {"run": ".ci/run"} in jobs["tests"]["steps"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    (own,) = (step for step in jobs["action"]["steps"] if step.get("uses") == "./")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert own["with"].keys() <= action["inputs"].keys()
    assert (ROOT / own["with"]["checkpoint"]).is_file()
