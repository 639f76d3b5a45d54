"""Cells one row apart are alike: a jump inside every row of cells is not the end of a row.

The tables are trained ones. In those of shapes, the left half of the image and the right half are
opposite, so the values jump in the middle of a row of cells more than at its end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import resize_pos
from benchmarks.verdict.tables import Known, known_tables
from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.planning.geometry.grid_solver import Reading, RowCount, readings
from resize_pos.planning.geometry.smoothness import judge_readings
from tests.support.builders import vit, write_safetensors

KNOWN = {known.name: known for known in known_tables()}


def grid_of(known: Known, folder: Path, **stated: object) -> tuple[int, int]:
    """Plan a resize of a small ViT with the table and as many tokens; return the grid."""
    channels, target = known.rows.shape[1], "{}x{}".format(*(side + 3 for side in known.grid))
    tensors = {**vit(channels=channels), "pos_embed": known.rows[None]}
    if not known.prefix:
        del tensors["cls_token"]
    if known.prefix > 1:
        tensors["reg_token"] = np.zeros((1, known.prefix - 1, channels), np.float32)
    file = write_safetensors(folder / "vit.safetensors", tensors)
    report = resize_pos.resize_checkpoint(file, to_grid=target, dry_run=True, **stated)  # type: ignore[arg-type]
    grid = report.plan.changes[0].table.grid
    return grid.height, grid.width


@pytest.mark.parametrize("name", ["other_shapes_10x14", "other_shapes_12x16"])
def test_a_jump_inside_every_row_of_cells_is_not_its_end(name: str, tmp_path: Path) -> None:
    assert grid_of(KNOWN[name], tmp_path) == KNOWN[name].grid


@pytest.mark.parametrize(
    "name", ["other_shapes_10x14", "other_shapes_12x16", "fashion_window_12x18"]
)
def test_a_stated_grid_is_not_refused_for_a_width_with_less_alike_cells(
    name: str, tmp_path: Path
) -> None:
    known = KNOWN[name]
    grid = "{}x{}".format(*known.grid)
    assert grid_of(known, tmp_path, from_grid=grid) == known.grid


def test_a_width_that_scores_best_with_less_alike_cells_is_not_chosen(tmp_path: Path) -> None:
    with pytest.raises(GeometryError, match="more alike 18 rows apart than 6 rows apart"):
        grid_of(KNOWN["fashion_window_12x18"], tmp_path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fashion_11x15", 'prefix=5 suffix=0 from_grid="11x15"'),
        ("other_place_5x13", 'prefix=0 suffix=0 from_grid="5x13"'),
    ],
)
def test_a_square_is_not_assumed_if_another_width_has_more_alike_cells(
    name: str, hint: str, tmp_path: Path
) -> None:
    known = KNOWN[name]
    with pytest.raises(GeometryError, match=f"more alike {known.grid[1]} rows apart") as caught:
        grid_of(known, tmp_path)
    assert hint in str(caught.value.hint)
    stated = {"from_grid": "{}x{}".format(*known.grid), "prefix": known.prefix}
    assert grid_of(known, tmp_path, **stated) == known.grid


@pytest.mark.parametrize(
    "known", [k for k in KNOWN.values() if k.grid[0] == k.grid[1]], ids=lambda k: k.name
)
def test_a_true_square_is_still_assumed(known: Known, tmp_path: Path) -> None:
    """In the table of SAM 2's windows, every second row of cells is more alike."""
    assert grid_of(known, tmp_path) == known.grid


def test_a_grid_that_is_stored_by_columns_is_asked_in_the_same_way() -> None:
    rows = KNOWN["other_shapes_10x14"].rows[None]
    options = readings(140, [(RowCount(0, ""), RowCount(0, ""))])
    choice = judge_readings(rows, Layout.parse("1 (p w h s) d"), options).choice
    assert choice is not None
    assert str(choice.grid) == "14×10"


def test_in_a_volume_the_next_slice_may_be_more_alike_than_the_next_row() -> None:
    place, rng = np.mgrid[:4, :6, :6].reshape(3, -1, 1), np.random.default_rng(0)
    waves = (rng.uniform(-slope, slope, 64) for slope in (0.1, 1.2, 0.6))
    rows = np.sin(sum(axis * wave for axis, wave in zip(place, waves, strict=True)))
    none = RowCount(0, "")
    options = [
        Reading(none, Grid(height, width), none, depth)
        for depth, height, width in ((4, 6, 6), (6, 4, 6), (9, 4, 4), (4, 9, 4), (4, 4, 9))
    ]
    choice = judge_readings(rows[None], Layout.parse("1 (p t h w s) d"), options).choice
    assert choice == options[0]


def test_registers_own_no_rows_if_the_class_token_owns_none(tmp_path: Path) -> None:
    """68 rows are 5 + 9×7, not 4 + 8×8; the values are as good as noise."""
    with pytest.raises(GeometryError, match="68 = 5 \\+ 9×7"):
        grid_of(KNOWN["other_contrast_9x7"], tmp_path)


def test_a_square_that_the_values_do_not_show_is_a_warning(tmp_path: Path) -> None:
    known = KNOWN["other_depth_16x9"]
    tensors = {**vit(channels=known.rows.shape[1]), "pos_embed": known.rows[None]}
    tensors["reg_token"] = np.zeros((1, 1, known.rows.shape[1]), np.float32)
    file = write_safetensors(tmp_path / "vit.safetensors", tensors)
    for stated in (None, "12x12"):
        report = resize_pos.resize_checkpoint(
            file, from_grid=stated, prefix=2, to_grid="14x14", output=tmp_path / "out", force=True
        )
        told = [check.detail for check in report.checks if check.name == "grid"]
        assert [("12×12" in words, "rows 12 apart" in words) for words in told] == (
            [(True, True)] if stated is None else []
        )
