"""Tensors over cells that shapes alone do not show: as many cells as features, or no table at all.

The models of this file have 48 features, and most of them a grid of 6×8 cells.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.request import Request
from tests.outside.cases import pasted_flags
from tests.planning.test_by_value import D, Tensors, convert, convert_with, refused, result, rows
from tests.planning.test_neutral_names import leave, noise, transformer
from tests.planning.test_stated_grid import timm

FLAGS = "--from 96x128 --to 128x192"
CELLS = 6 * 8
FIELD = rows(6, 8, 24, noise=0.02)
Array = NDArray[np.float32]


def slope(height: int, width: int) -> Array:
    """Return one number per cell that changes slowly along rows and columns."""
    y, x = np.meshgrid((np.arange(height) + 0.5) / height, np.arange(width) / width, indexing="ij")
    return (np.cos(3 * y + 0.3) * np.cos(3 * x)).ravel().astype(np.float32)


def coordinates(height: int, width: int) -> Array:
    y, x = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    return np.stack([x, y], -1).reshape(-1, 2).astype(np.float32)


def angles() -> Array:
    place = coordinates(6, 8)
    steps = 100.0 ** (-np.arange(6) / 6)
    return np.concatenate([place[:, :1] * steps, place[:, 1:] * steps], 1).astype(np.float32)


def without_class() -> Tensors:
    tensors = timm(rows(6, 8)[None])
    del tensors["cls_token"]
    return tensors


OVER_CELLS: dict[str, Array] = {
    "gain": slope(6, 8)[None, :, None],
    "pool_w": slope(6, 8),
    "xy": coordinates(6, 8),
    "cache.cos": np.cos(angles()),
    "blk.0.bn.running_mean": slope(6, 8),
    "blk.0.token_mix.bias": slope(6, 8),
    "blk.0.token_mix.weight": np.ascontiguousarray(FIELD.T),
    "attn_bias": np.zeros((4, CELLS, CELLS), np.float32),
    "blk.0.attn.bias": np.tril(np.ones((1, 1, CELLS, CELLS), np.float32)),
    "adjacency": np.eye(CELLS, dtype=np.float32),
}


@pytest.mark.parametrize("name", OVER_CELLS)
def test_as_many_cells_as_features_hide_nothing(name: str, tmp_path: Path) -> None:
    tensors = without_class() | {name: OVER_CELLS[name]}
    error = refused(tmp_path, tensors, FLAGS)
    assert f"{name} F32" in error.message
    report, output = convert_with(tmp_path, tensors, [*FLAGS.split(), *leave(error.hint)])
    assert [step.name for step in report.plan.changes] == ["pos_embed"]
    assert np.array_equal(result(output, name), OVER_CELLS[name])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.scale", (CELLS,)),
        ("blk.0.gamma", (1, 1, CELLS)),
        ("memory", (8, CELLS)),
        ("queries", (CELLS, D)),
        ("blk.0.out.weight", (24, CELLS)),
    ],
)
def test_features_in_no_order_are_no_cells(
    name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    report, _ = convert(tmp_path, without_class() | {name: noise(np.empty(shape))}, FLAGS)
    assert [step.name for step in report.plan.changes] == ["pos_embed"]


def test_a_ramp_is_no_grid(tmp_path: Path) -> None:
    """Numbers in one long order vary smoothly under every width, and jump at no row's end."""
    ramp = np.linspace(0, 1, CELLS, dtype=np.float32)
    report, _ = convert(tmp_path, without_class() | {"blk.0.decay": ramp}, FLAGS)
    assert [step.name for step in report.plan.changes] == ["pos_embed"]


def test_channels_first_with_as_many_cells_as_channels(tmp_path: Path) -> None:
    tensors = without_class() | {"pos_embed": np.ascontiguousarray(rows(6, 8).T)[None]}
    error = refused(tmp_path, tensors, FLAGS)
    assert "its channels come first" in error.message
    _, output = convert_with(tmp_path, tensors, [*FLAGS.split(), *pasted_flags(error.hint or "")])
    assert result(output, "pos_embed").shape == (1, D, 8 * 12)


def cnn() -> Tensors:
    """Make a convolutional network: nothing in it depends on the size of the image."""
    return {
        "c1.weight": noise(np.empty((32, 3, 3, 3))),
        "c1.bias": noise(np.empty(32)),
        "bn.weight": np.ones(32, np.float32),
        "c2.weight": noise(np.empty((64, 32, 3, 3))),
        "c2.bias": noise(np.empty(64)),
        "fc.weight": noise(np.empty((10, 64))),
        "fc.bias": noise(np.empty(10)),
    }


FIELD_7_10 = rows(7, 10, 24, noise=0.02)
ALONE: dict[str, tuple[Array, str]] = {
    "anchors": (
        np.concatenate([coordinates(7, 10), np.ones((70, 2), np.float32)], 1),
        "coordinates of 70 cells",
    ),
    "places": (np.ascontiguousarray(coordinates(7, 10).T), "coordinates of 70 cells"),
    "coords": (
        np.ascontiguousarray(coordinates(7, 10).T).reshape(1, 2, 7, 10),
        "coordinates of 70 cells",
    ),
    "uv": (
        np.ascontiguousarray(coordinates(4, 16).T).reshape(1, 2, 4, 16),
        "coordinates of 64 cells",
    ),
    "mean": (np.ascontiguousarray(FIELD_7_10.T), "smoothly over 7×10 cells"),
    "mix.1.bias": (slope(7, 10), "smoothly over 7×10 cells"),
    "norm.weight": (np.ones((32, 28, 40), np.float32), "normalises 1120 cells"),
    "head.weight": (noise(np.empty((128, 64 * 70))), "reads 70 cells of 64 channels"),
}


@pytest.mark.parametrize("name", ALONE)
def test_nothing_to_do_is_not_said_of_cells(name: str, tmp_path: Path) -> None:
    values, words = ALONE[name]
    tensors = cnn() | {name: values}
    if name == "norm.weight":
        tensors["norm.bias"] = values
    error = refused(tmp_path, tensors, "--to 224x320")
    assert words in error.message or "may be a position table" in error.message
    report, _ = convert_with(tmp_path, tensors, ["--to", "224x320", *leave(error.hint)])
    assert not report.plan.changes


DECOYS: dict[str, tuple[int, ...]] = {
    "priors": (8732 // 4, 4),
    "mel_filters": (80, 201),
    "head.weight": (10, 64),
    "fusion.weight": (10, 4 * 64),
    "memory_bank": (640, 64),
}


@pytest.mark.parametrize("name", DECOYS)
def test_a_convolutional_network_needs_nothing(name: str, tmp_path: Path) -> None:
    report, _ = convert(tmp_path, cnn() | {name: noise(np.empty(DECOYS[name]))}, "--to 224x320")
    assert not report.plan.changes


ODD_LAYERS: dict[str, tuple[tuple[int, ...], str]] = {
    "blk.0.filter.complex_weight": ((10, 8, D, 2), "filter over the frequencies"),
    "blk.0.attn.bias": ((4, 19, 27), "one number for each offset"),
    "top.weight": ((5, 140 * D), "140 numbers of a grid"),
    "slim.weight": ((5, 140 * 24), "reads 140 cells of 24 channels"),
}


@pytest.mark.parametrize("name", ODD_LAYERS)
def test_layers_over_the_whole_grid_are_found(name: str, tmp_path: Path) -> None:
    shape, words = ODD_LAYERS[name]
    tensors = timm(rows(10, 14)[None]) | {"reduce.bias": np.zeros(24, np.float32)}
    del tensors["cls_token"]
    tensors[name] = noise(np.empty(shape))
    error = refused(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert name in error.message
    assert words in error.message or str(140 * D) in error.message


def test_a_norm_over_cells_has_a_weight_and_a_bias_of_one_shape(tmp_path: Path) -> None:
    tensors = without_class()
    for name in ("blk.0.ln.weight", "blk.0.ln.bias"):
        tensors[name] = np.ones((CELLS, D), np.float32)
    error = refused(tmp_path, tensors, FLAGS)
    assert "one weight for each cell and channel" in error.message


def test_offsets_along_two_axes_in_five_dimensions(tmp_path: Path) -> None:
    """BoTNet keeps one vector per head and row, and one per head and column."""
    tensors = cnn() | {
        "mhsa.rel_h": noise(np.empty((1, 4, 16, 8, 1))),
        "mhsa.rel_w": noise(np.empty((1, 4, 16, 1, 12))),
    }
    error = refused(tmp_path, tensors, "--to 224x320")
    assert "one row per row or column of cells, and 1 more" in error.message


def test_numbers_of_cells_beside_tables_of_rows_and_columns(tmp_path: Path) -> None:
    tensors = transformer("row", rows(10, 1)) | {"col": rows(14, 1)}
    tensors["ids"] = np.repeat(np.arange(10), 14)
    error = refused(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert "ids I64 [140] has one row for each of 140 cells of row and col" in error.message


def test_a_bias_for_each_pair_of_cells_is_not_resized_along_one_axis(tmp_path: Path) -> None:
    for shape in ((1, 4, 70, 70), (70, 70)):
        values = np.abs(noise(np.empty(shape))) + rows(7, 10, 70)
        error = refused(tmp_path, transformer("pair", values.astype(np.float32)), "--to 176x256")
        assert "--pattern" not in (error.hint or "")


def test_tokens_that_fill_rows_of_cells_are_not_resized(tmp_path: Path) -> None:
    """Twenty tokens after 7×10 cells are two more rows of ten; their values are not smooth."""
    tokens = 2 * np.random.default_rng(4).standard_normal((20, D)).astype(np.float32)
    tensors = transformer("posn", np.concatenate([rows(7, 10), tokens])[None])
    error = refused(tmp_path, tensors, "--to 176x256")
    assert "its last 20 rows do not" in error.message
    flags = [*pasted_flags(error.hint or ""), "--from", "112x160"]
    assert "--suffix 20" in " ".join(flags)
    flags = [f for f in flags if f not in ("--from-grid", "7x10")]
    _, output = convert_with(tmp_path, tensors, ["--to", "176x256", *flags])
    new = result(output, "posn")
    assert new.shape == (1, 11 * 16 + 20, D)
    assert np.array_equal(new[0, -20:], tokens)


def test_a_window_that_the_user_knows_is_left(tmp_path: Path) -> None:
    tensors = transformer("blk.0.relative_position_bias_table", noise(np.empty((49, 4))))
    error = refused(tmp_path, tensors, "--to 192x288")
    report, _ = convert_with(tmp_path, tensors, ["--to", "192x288", *leave(error.hint)])
    assert not report.plan.changes


def test_values_are_read_only_for_an_image_size() -> None:
    """An inspection names no target, so the values of other tensors are not asked."""
    assert not Request().to_image
