"""The wheel: every data file is in it, and it converts the sample without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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


def test_the_workflow_runs_what_the_checkout_has() -> None:
    jobs = WORKFLOW["jobs"]
    assert {"run": ".ci/run"} in jobs["tests"]["steps"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    (own,) = (step for step in jobs["action"]["steps"] if step.get("uses") == "./")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert own["with"].keys() <= action["inputs"].keys()
    assert (ROOT / own["with"]["checkpoint"]).is_file()
