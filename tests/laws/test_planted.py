"""Wrong resizers, each a mistake that somebody has made: the checks of the suite must see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.conventions import Coordinates, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import numpy_dtype
from resize_pos.transforms.absolute import resize_absolute, resize_grid, round_once, widen
from resize_pos.transforms.kernels import operator
from tests.transforms.test_absolute import (
    CASES,
    NARROW,
    Resizer,
    Rounder,
    check_resizer,
    check_rounding,
)

Array = NDArray[Any]
Wide = NDArray[np.float64]
GridResizer = Callable[[Wide, Grid, Resampling], Wide]


def swapped(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Read the rows of the grid as its columns."""
    copies, height, width, channels = grid.shape
    turned = grid.reshape(copies, width, height, channels)
    resized = resize_grid(turned, Grid(target.width, target.height), resampling)
    return resized.reshape(copies, target.height, target.width, channels)


def flattened(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Interpolate the table as one long sequence."""
    copies, height, width, channels = grid.shape
    line = grid.reshape(copies, 1, height * width, channels)
    resized = resize_grid(line, Grid(1, target.cells), resampling)
    return resized.reshape(copies, target.height, target.width, channels)


def corners_aligned(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Align the corners, whatever was asked for."""
    corners = replace(resampling, antialias=False, coordinates=Coordinates.CORNERS)
    return resize_grid(grid, target, corners)


def antialias_forgotten(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Drop the antialiasing."""
    return resize_grid(grid, target, replace(resampling, antialias=False))


def off_by_one(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Be one cell late."""
    return np.roll(resize_grid(grid, target, resampling), 1, axis=2)


def half_arithmetic(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Compute in float16."""
    return _computed_in(np.float16, grid, target, resampling)


def single_arithmetic(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Compute in float32, as the libraries do: close, but not always the nearest."""
    return _computed_in(np.float32, grid, target, resampling)


def _computed_in(dtype: DTypeLike, grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    height = operator(grid.shape[1], target.height, resampling).matrix.astype(dtype)
    width = operator(grid.shape[2], target.width, resampling).matrix.astype(dtype)
    resized: Array = np.einsum("ih,jw,chwd->cijd", height, width, grid.astype(dtype))
    return resized.astype(np.float64)


def as_resizer(resize: GridResizer) -> Resizer:
    """Do everything else right."""

    def whole(
        array: Array, layout: Layout, p: int, source: Grid, s: int, target: Grid, r: Resampling
    ) -> Array:
        parts = layout.unfold(array, p, source, s)
        cells = round_once(resize(widen(parts.grid), target, r), array.dtype)
        return layout.fold(Unfolded(parts.prefix, cells, parts.suffix), array.shape)

    return whole


def prefix_last(
    array: Array, layout: Layout, p: int, source: Grid, s: int, target: Grid, r: Resampling
) -> Array:
    """Take the grid from the front of the table, and the prefix from behind it."""
    return resize_absolute(array, layout, 0, source, p + s, target, r)


def counts_compared(
    array: Array, layout: Layout, p: int, source: Grid, s: int, target: Grid, r: Resampling
) -> Array:
    """Believe that as many cells are the same grid."""
    if source.cells == target.cells:
        return array
    return resize_absolute(array, layout, p, source, s, target, r)


def dtype_lost(
    array: Array, layout: Layout, p: int, source: Grid, s: int, target: Grid, r: Resampling
) -> Array:
    """Come back in float32, whatever the table was stored in."""
    return resize_absolute(array, layout, p, source, s, target, r).astype(np.float32)


def prefix_through_half(
    array: Array, layout: Layout, p: int, source: Grid, s: int, target: Grid, r: Resampling
) -> Array:
    """Let the prefix lose bits on the way."""
    parts = layout.unfold(resize_absolute(array, layout, p, source, s, target, r), p, target, s)
    worn = parts.prefix.astype(np.float16).astype(array.dtype)
    return layout.fold(Unfolded(worn, parts.grid, parts.suffix), array.shape)


PLANTED: dict[str, tuple[Resizer, str]] = {
    "height and width swapped": (as_resizer(swapped), "grid values are off"),
    "flattened to a sequence": (as_resizer(flattened), "grid values are off"),
    "corners aligned": (as_resizer(corners_aligned), "grid values are off"),
    "antialias forgotten": (as_resizer(antialias_forgotten), "grid values are off"),
    "off by one": (as_resizer(off_by_one), "grid values are off"),
    "float16 arithmetic": (as_resizer(half_arithmetic), "grid values are off"),
    "float32 arithmetic": (as_resizer(single_arithmetic), "grid values are off"),
    "prefix last": (prefix_last, "prefix rows changed"),
    "prefix through float16": (prefix_through_half, "prefix rows changed"),
    "token counts compared": (counts_compared, "grid values are off"),
    "dtype lost": (dtype_lost, "the dtype changed"),
}
SMOOTH = [case for case in CASES if case.resampling == Resampling()]  # corners need a smooth method


def check_everywhere(resize: Resizer) -> None:
    for case in SMOOTH:
        check_resizer(resize, case)


@pytest.mark.parametrize("resize", [resize_absolute, as_resizer(resize_grid)])
def test_the_right_resizer_passes(resize: Resizer) -> None:
    check_everywhere(resize)


@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_resizer_is_rejected(name: str) -> None:
    resize, complaint = PLANTED[name]
    with pytest.raises(AssertionError, match=complaint):
        check_everywhere(resize)


def twice(values: Wide, dtype: np.dtype[Any]) -> Array:
    """Round to float32 first."""
    return values.astype(np.float32).astype(dtype)


def towards_zero(values: Wide, dtype: np.dtype[Any]) -> Array:
    """Cut off what does not fit."""
    rounded = round_once(values, dtype)
    away = np.abs(rounded.astype(np.float64)) > np.abs(values)
    bits = rounded.view(f"uint{8 * dtype.itemsize}") - away.astype(np.uint8)
    return bits.view(dtype)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize(
    ("rounder", "complaint"), [(twice, "rounded twice"), (towards_zero, "a tie went")]
)
def test_a_wrong_rounding_is_rejected(rounder: Rounder, complaint: str, name: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_rounding(rounder, numpy_dtype(name))
