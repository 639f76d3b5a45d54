"""Layers that put out a number per cell or pixel are not left behind; classifiers are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from resize_pos.quality.checks import Level
from tests.planning.test_by_value import D, Tensors, convert, convert_with, refused, rows
from tests.planning.test_neutral_names import leave, noise, with_row
from tests.planning.test_stated_grid import timm


def with_head(count: int, name: str, height: int = 10, width: int = 14) -> Tensors:
    layer = {f"{name}.weight": noise(np.empty((count, D))), f"{name}.bias": noise(np.empty(count))}
    return timm(with_row(rows(height, width))[None]) | layer


@pytest.mark.parametrize("count", [10 * 14, 20 * 28, 40 * 56])
@pytest.mark.parametrize("name", ["depth", "top.map", "out_head"])
def test_one_output_per_cell_stops_half_a_conversion(count: int, name: str, tmp_path: Path) -> None:
    flags = "--from 160x224 --to 192x288"
    error = refused(tmp_path, with_head(count, name), flags)
    assert f"has {count} outputs, as many as" in error.message
    report, _ = convert_with(tmp_path, with_head(count, name), [*flags.split(), *leave(error.hint)])
    assert report.plan.changes


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("count", [256, 4096])
def test_a_round_number_of_outputs_is_a_warning(count: int, hidden: bool, tmp_path: Path) -> None:
    """256 px are 16×16 cells and 64×64 of 4 px; 4096 may also be the width of hidden layers."""
    tensors = with_head(count, "depth_head", 16, 16)
    for number in range(2 if hidden else 0):
        tensors[f"blk.{number}.g1.weight"] = noise(np.empty((count, D)))
        tensors[f"blk.{number}.g1.bias"] = noise(np.empty(count))
        tensors[f"blk.{number}.g2.weight"] = noise(np.empty((D, count)))
    report, _ = convert(tmp_path, tensors, "--to 288x384")
    assert report.verdict is Level.WARN
    (note,) = (note for note in report.plan.notes if note.warning)
    assert f"depth_head.weight F32 [{count}, {D}] has {count} outputs" in note.text
    report, _ = convert(tmp_path, tensors, "--to 288x384 --leave ^depth_head")
    assert not any(note.warning for note in report.plan.notes)


@pytest.mark.parametrize(
    ("count", "name"),
    [(256, "visual_projection"), (256, "fc"), (196, "classifier"), (4096, "mm_projector")],
)
def test_classes_and_projections_are_no_suspects(count: int, name: str, tmp_path: Path) -> None:
    side = 14 if count == 196 else 16
    report, _ = convert(tmp_path, with_head(count, name, side, side), "--to 288x384")
    assert not any(note.warning for note in report.plan.notes)


def test_a_hidden_layer_is_read_by_the_next_one(tmp_path: Path) -> None:
    tensors = with_head(560, "top.0") | {"top.2.weight": noise(np.empty((D, 560)))}
    report, _ = convert(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert report.plan.changes


def test_as_many_classes_as_cells_are_a_warning(tmp_path: Path) -> None:
    report, _ = convert(tmp_path, with_head(196, "head", 14, 14), "--to 288x384")
    (note,) = (note for note in report.plan.notes if note.warning)
    assert "which is right if these are classes" in note.text
