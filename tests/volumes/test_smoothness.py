"""Volumes and videos whose three sides only the values tell."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from safetensors.torch import save_file

from resize_pos import ResizePosError, resize_checkpoint
from resize_pos.cli.resize import command
from resize_pos.quality.pictures import middle_slices

Sides = tuple[int, int, int]
WAVES = 4


def learned(sides: Sides, channels: int = 48) -> NDArray[np.float64]:
    """Sum slow waves over three axes, and add noise, as training leaves a table."""
    random = np.random.default_rng(3)
    along = [
        np.cos(np.pi * np.outer((np.arange(side) + 0.5) / side, np.arange(WAVES))) for side in sides
    ]
    table = 0.1 * random.standard_normal((*sides, channels))
    for k in product(range(WAVES), repeat=3):
        weights = random.standard_normal(channels) * np.exp(-0.7 * sum(k))
        wave = np.einsum("t,h,w->thw", *(axis[:, n] for axis, n in zip(along, k, strict=True)))
        table += wave[..., None] * weights
    return table.reshape(1, -1, channels)


def volume(path: Path, sides: Sides) -> Path:
    stem = "vit.patch_embedding."
    tensors = {
        f"{stem}position_embeddings": torch.from_numpy(learned(sides)).float(),
        f"{stem}patch_embeddings.weight": torch.randn(48, 1, 16, 16, 16),
    }
    save_file(tensors, path)
    return path


def video(path: Path, sides: Sides) -> Path:
    rows = torch.cat([torch.randn(1, 1, 48), torch.from_numpy(learned(sides)).float()], dim=1)
    tensors = {
        "pos_embed": rows,
        "cls_token": torch.randn(1, 1, 48),
        "patch_embed.proj.weight": torch.randn(48, 3, 2, 16, 16),
    }
    save_file(tensors, path)
    return path


@pytest.mark.parametrize("sides", [(6, 8, 10), (8, 12, 6), (5, 7, 9)], ids=str)
def test_the_values_tell_the_three_sides(sides: Sides, tmp_path: Path) -> None:
    report = resize_checkpoint(volume(tmp_path / "v.safetensors", sides), to="64x64x96")
    step = report.plan.changes[0]
    assert (step.table.frames, step.table.grid.height, step.table.grid.width) == sides
    assert any("vary smoothly over" in words for words in step.table.evidence)


def test_a_volume_that_only_counts_like_a_cube_is_not_read_as_one(tmp_path: Path) -> None:
    path = volume(tmp_path / "v.safetensors", (6, 16, 18))  # 1728 = 12³
    with pytest.raises(ResizePosError, match="vary smoothly over 6×16×18"):
        resize_checkpoint(path, to="64x64x96")
    assert resize_checkpoint(path, from_="96x256x288", to="64x64x96").plan.changes


@pytest.mark.parametrize("sides", [(8, 14, 14), (16, 6, 6)], ids=str)
def test_the_values_tell_the_frames_of_a_video(sides: Sides, tmp_path: Path) -> None:
    report = resize_checkpoint(video(tmp_path / "v.safetensors", sides), to="96x128")
    table = report.plan.changes[0].table
    assert (table.frames, table.grid.height, table.grid.width) == sides


def test_frames_that_are_not_square_are_not_read_as_squares(tmp_path: Path) -> None:
    path = video(tmp_path / "v.safetensors", (8, 10, 20))  # 1600 = 16·10² = 4·20²
    with pytest.raises(ResizePosError, match="look like 8×10×20"):
        resize_checkpoint(path, to="96x128")
    assert resize_checkpoint(path, from_="160x320", to="96x128").plan.changes


def test_an_untrained_volume_is_asked_about(tmp_path: Path) -> None:
    path = volume(tmp_path / "v.safetensors", (6, 8, 10))
    noise = {"vit.patch_embedding.position_embeddings": torch.randn(1, 480, 48)}
    noise["vit.patch_embedding.patch_embeddings.weight"] = torch.randn(48, 1, 16, 16, 16)
    save_file(noise, path)
    with pytest.raises(ResizePosError, match="480 rows"):
        resize_checkpoint(path, to="64x64x96")


def test_a_report_shows_the_three_middle_slices(tmp_path: Path) -> None:
    path, page = volume(tmp_path / "v.safetensors", (6, 8, 10)), tmp_path / "page.html"
    said = CliRunner().invoke(command, [str(path), "--to", "64x96x128", "--report", str(page)])
    assert said.exit_code == 0, said.output
    text = page.read_text(encoding="utf-8")
    assert "Middle slices" in text
    maps = {"8×10", "6×10", "6×8", "4×8", "4×6"}  # three planes before, three after
    planes = ("height × width", "depth × width", "depth × height")
    words = [f"{size} map: similarity of the middle cell" for size in maps]
    assert all(each in text for each in (*planes, *words))


def test_the_middle_of_a_volume_is_like_itself() -> None:
    grid = learned((4, 5, 6)).reshape(4, 5, 6, -1)
    slices = middle_slices(grid)
    assert [(len(one.values), len(one.values[0])) for one in slices] == [(5, 6), (4, 6), (4, 5)]
    for one in slices:
        assert one.values[one.row][one.column] == pytest.approx(1.0)
