"""`compare` shows the other choice: keep the grid, and resize the patch kernel."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_cli import run
from tests.support.builders import raw_tensors, vit, write_safetensors

__all__ = ["run"]  # the fixture is used by its name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "vit.safetensors", vit(9, 6, channels=24))


def compared(source: Path, run: Any, to: str) -> tuple[dict[str, Any], str]:
    asked = ("compare", str(source), "--from-grid", "9x6", "--to", to)
    kept: dict[str, Any] = json.loads(run(*asked, "--json").out)["kept_grid"]
    return kept, run(*asked).out


def test_a_larger_kernel_keeps_its_response_and_the_command_works(source: Path, run: Any) -> None:
    kept, shown = compared(source, run, "288x192")
    assert kept["grid"] == [9, 6] and kept["instead_of"] == [18, 12]
    assert kept["new_patch"] == [32, 32]
    assert kept["response_error"] < 1e-5
    assert "its response is kept" in shown
    done = run(*shlex.split(kept["command"])[1:])
    assert done.code == 0, done.err
    before, after = raw_tensors(source)[0], raw_tensors(source.with_stem("vit-288x192-patch32"))[0]
    assert before["pos_embed"][1] == after["pos_embed"][1]
    assert after["patch_embed.proj.weight"][0]["shape"] == [24, 3, 32, 32]
    others = set(before) - {"patch_embed.proj.weight"}
    assert all(before[name][1] == after[name][1] for name in others)


def test_a_smaller_kernel_loses_some_of_its_response(source: Path, run: Any) -> None:
    kept, shown = compared(source, run, "144x48")
    assert kept["new_patch"] == [16, 8]
    assert kept["response_error"] > 0.1  # white noise cannot be seen with half of the pixels
    assert "its response changes by" in shown


def test_the_response_error_is_what_it_says(source: Path, run: Any) -> None:
    """Hold it against patches of noise, resized and seen by the new kernel."""
    from resize_pos.core.geometry import Grid
    from resize_pos.core.request import choose_resampling
    from resize_pos.transforms.absolute import resize_grid

    kept, _ = compared(source, run, "144x48")
    assert run(*shlex.split(kept["command"])[1:]).code == 0
    new = raw_tensors(source.with_stem("vit-144x48-patch16x8"))[0]["patch_embed.proj.weight"][1]
    small = np.frombuffer(new, np.float32).reshape(24, 3, 16, 8).astype(np.float64)
    old = vit(9, 6, channels=24)["patch_embed.proj.weight"].astype(np.float64)
    patches = np.random.default_rng(0).normal(size=(400, 16, 16, 3))
    resized = resize_grid(patches, Grid(16, 8), choose_resampling())
    right = np.einsum("nhwc,dchw->nd", patches, old)
    seen = np.einsum("nhwc,dchw->nd", resized, small)
    error = np.linalg.norm(seen - right) / np.linalg.norm(right)
    assert error == pytest.approx(kept["response_error"], rel=0.05)


def test_a_size_that_does_not_divide_names_those_that_do(source: Path, run: Any) -> None:
    kept, shown = compared(source, run, "160x160")
    assert kept["new_patch"] is None and kept["command"] is None
    assert "153x156 px or 162 px" in kept["obstacle"]
    assert "not possible here" in shown


BETTER = "often better without fine-tuning"


@pytest.mark.parametrize(
    ("to", "better"), [("288x192", True), ("288x96", True), ("144x48", False), ("288x48", False)]
)
def test_only_instead_of_a_larger_grid_it_is_called_better(
    source: Path, run: Any, to: str, better: bool
) -> None:
    """The benchmark grew grids; of smaller kernels it says nothing."""
    kept, shown = compared(source, run, to)
    assert kept["command"] is not None
    assert (BETTER in shown) is better


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_the_reports_show_the_choice_with_its_command(
    source: Path, run: Any, tmp_path: Path, suffix: str
) -> None:
    for to, parts in (
        ("288x192", ("16 → 32 px, its response is kept", BETTER.capitalize(), "--to-patch")),
        ("144x48", ("16 → 16x8 px, its response changes by", "--to-patch 16x8")),
        ("160x160", ("Not possible here;",)),
    ):
        path = tmp_path / f"{to}{suffix}"
        asked = ("compare", str(source), "--from-grid", "9x6", "--to", to)
        assert run(*asked, "--report", str(path)).code == 0
        page = path.read_text()
        assert "Or keep 9×6 and resize the patch kernel" in page
        assert all(part in page for part in parts), (to, page)
        assert (BETTER.capitalize() in page) is (to == "288x192")
