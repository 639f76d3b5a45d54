"""Layers over patches, against dense matrices, and tables that repeat with a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from resize_pos import resize_state_dict
from resize_pos.core.axes import Layout
from resize_pos.core.conventions import DEFAULT
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Mixing
from resize_pos.transforms.mixing import resize_mixing, undo_mixing
from resize_pos.transforms.tiled import mean_window, resize_tiled, tile

SOURCE, LARGER, SMALLER, MIXED = Grid(3, 5), Grid(4, 8), Grid(2, 3), Grid(5, 2)
HOW = DEFAULT.resampling
RANDOM = np.random.default_rng(5)


def resampled_by_torch(source: Grid, target: Grid) -> NDArray[np.float64]:
    """Build R (new cells × old cells) by resampling every unit image."""
    eye = torch.eye(source.cells, dtype=torch.float64)
    images = eye.reshape(source.cells, 1, source.height, source.width)
    size = (target.height, target.width)
    new = torch.nn.functional.interpolate(images, size=size, mode="bicubic", antialias=True)
    return new.reshape(source.cells, -1).T.numpy()


@pytest.mark.parametrize("target", [LARGER, SMALLER, MIXED], ids=str)
def test_the_weights_are_what_dense_matrices_give(target: Grid) -> None:
    matrix = resampled_by_torch(SOURCE, target)
    inverse = np.linalg.pinv(matrix)
    reads = RANDOM.standard_normal((7, SOURCE.cells))
    writes = RANDOM.standard_normal((SOURCE.cells, 6))
    both = RANDOM.standard_normal((2, SOURCE.cells, SOURCE.cells))
    bias = RANDOM.standard_normal(SOURCE.cells)
    cases: list[tuple[str, Mixing, Any, Any]] = [
        ("k (h w)", Mixing.READS, reads, reads @ inverse),
        ("k (h w) 1", Mixing.READS, reads[..., None], (reads @ inverse)[..., None]),
        ("(h w) k", Mixing.WRITES, writes, matrix @ writes),
        ("(h w)", Mixing.WRITES, bias, matrix @ bias),
        ("n (h w) k", Mixing.BOTH, both, matrix @ both @ inverse),
    ]
    for pattern, mixing, weights, wanted in cases:
        new = resize_mixing(weights, Layout.parse(pattern), SOURCE, target, HOW, mixing)
        np.testing.assert_allclose(new, wanted, rtol=0, atol=1e-12, err_msg=pattern)


def test_on_a_larger_grid_the_layer_does_what_it_did() -> None:
    matrix = resampled_by_torch(SOURCE, LARGER)
    weights = RANDOM.standard_normal((SOURCE.cells, SOURCE.cells))
    layout = Layout.parse("(h w) k")
    new = resize_mixing(weights, layout, SOURCE, LARGER, HOW, Mixing.BOTH)
    tokens = RANDOM.standard_normal((SOURCE.cells, 4))
    np.testing.assert_allclose(new @ (matrix @ tokens), matrix @ (weights @ tokens), atol=1e-11)
    back = undo_mixing(new, layout, SOURCE, LARGER, HOW, Mixing.BOTH)
    np.testing.assert_allclose(back, weights, atol=1e-11)


@pytest.mark.parametrize("mixing", list(Mixing))
def test_on_a_smaller_grid_it_cannot(mixing: Mixing) -> None:
    layout = Layout.parse("k (h w)" if mixing is Mixing.READS else "(h w) k")
    weights = RANDOM.standard_normal((SOURCE.cells, SOURCE.cells))
    new = resize_mixing(weights, layout, SOURCE, SMALLER, HOW, mixing)
    back = undo_mixing(new, layout, SOURCE, SMALLER, HOW, mixing)
    assert 0.3 < np.linalg.norm(back - weights) / np.linalg.norm(weights) < 1.0


def test_a_layer_that_is_not_square_is_no_layer_from_cells_to_cells() -> None:
    state = {
        "stem.proj.weight": torch.zeros(8, 3, 16, 16),
        "blocks.0.linear_tokens.weight": torch.zeros(36, 25),
    }
    with pytest.raises(Exception, match="not a layer from cells to cells"):
        resize_state_dict(state, to=128)


WINDOW = Grid(2, 3)


def repeating(grid: Grid, channels: int = 4) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a table that repeats with the window, and its window."""
    window = RANDOM.standard_normal((1, WINDOW.height, WINDOW.width, channels))
    return tile(window, grid).reshape(1, grid.cells, channels), window


@pytest.mark.parametrize("target", [Grid(6, 9), Grid(2, 12)], ids=str)
def test_what_repeats_is_tiled_exactly(target: Grid) -> None:
    source, layout = Grid(4, 6), Layout.parse("1 (h w) d")
    table, window = repeating(source)
    new = resize_tiled(table, layout, (0, 0), source, target, HOW, WINDOW)
    np.testing.assert_allclose(new.reshape(1, target.height, target.width, 4), tile(window, target))


def test_the_rest_is_interpolated() -> None:
    source, target, layout = Grid(4, 6), Grid(6, 12), Layout.parse("1 (p h w s) d")
    table, window = repeating(source)
    slope = np.linspace(-1, 1, source.height)[:, None, None] * np.ones((source.height, 6, 4))
    cells = table.reshape(4, 6, 4) + slope
    stored = np.concatenate([np.full((1, 1, 4), 9.0), cells.reshape(1, -1, 4)], axis=1)
    new = resize_tiled(stored, layout, (1, 0), source, target, HOW, WINDOW)
    np.testing.assert_array_equal(new[:, :1], stored[:, :1])
    mean = mean_window(cells[None], WINDOW)
    rest = torch.from_numpy(cells[None] - tile(mean, source)).permute(0, 3, 1, 2)
    size = (target.height, target.width)
    wanted = torch.nn.functional.interpolate(rest, size=size, mode="bicubic", antialias=True)
    whole = wanted.permute(0, 2, 3, 1).numpy() + tile(mean, target)
    np.testing.assert_allclose(new[:, 1:].reshape(whole.shape), whole, rtol=0, atol=1e-12)
    assert np.abs(window).max() > 0
