"""Relative tables: resample in offset space, so that offset zero stays where it is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.conventions import Method, OffsetMethod, OffsetResampling, Resampling, Spacing
from resize_pos.core.geometry import Grid
from resize_pos.transforms.absolute import round_once, widen
from resize_pos.transforms.kernels import Operator, apply, operator
from resize_pos.transforms.progression import source_offsets
from resize_pos.transforms.spline import linear_at, spline_at

_METHODS = {
    OffsetMethod.BICUBIC: Method.BICUBIC,
    OffsetMethod.BILINEAR: Method.BILINEAR,
}


def resize_relative(
    array: NDArray[Any],
    layout: Layout,
    source: Grid,
    suffix: int,
    target: Grid,
    how: OffsetResampling,
    *,
    signed: bool = True,
    frames: tuple[int, int] = (1, 1),
) -> NDArray[Any]:
    """Resize a table between two stored grids, in its own layout and dtype.

    `source` and `target` count stored positions per axis: 2n − 1 offsets of a window of n cells,
    or its n distances where the table is not signed. The rows after the grid are kept. `frames`
    are the stored offsets in time or depth, before and after.
    """
    if source == target and frames[0] == frames[1]:
        return array
    parts = layout.unfold(array, 0, source, suffix, frames[0])
    grid = widen(parts.grid)
    unfolded = not signed and not how.folded
    if unfolded:
        grid = mirrored(grid)
    lengths = [2 * n - 1 if unfolded else n for n in (target.height, target.width)]
    for axis, length in zip((1, 2), lengths, strict=True):
        along = offset_operator(grid.shape[axis], length, how)
        if not along.is_identity:
            grid = apply(along, grid, axis)
    if frames[0] != frames[1]:
        film = grid.reshape(-1, frames[0], *grid.shape[1:])
        film = apply(offset_operator(*frames, how), film, 1)
        grid = film.reshape(-1, *grid.shape[1:])
    if unfolded:
        grid = grid[:, target.height - 1 :, target.width - 1 :]
    resized = Unfolded(parts.prefix, round_once(grid, array.dtype), parts.suffix)
    return layout.fold(resized, array.shape).astype(array.dtype, copy=False)


@lru_cache(maxsize=128)
def offset_operator(source: int, target: int, how: OffsetResampling) -> Operator:
    """Build the map between two axes of stored offsets.

    With geometric spacing an axis that keeps its length is still resampled, as in the libraries:
    the progression never has ratio 1.
    """
    if how.spacing is Spacing.UNIFORM:
        return operator(source, target, Resampling(_METHODS[how.method], antialias=how.antialias))
    half = target // 2
    sites = source_offsets(source, target, how.ratio)
    places = [float(offset) for offset in range(-half, half + 1)]
    if how.method is OffsetMethod.SPLINE:
        return spline_at(sites, places, extrapolate=how.extrapolate)
    return linear_at(sites, places)


def zero_offset(
    array: NDArray[Any], layout: Layout, stored: Grid, suffix: int, *, signed: bool
) -> NDArray[np.float64]:
    """Return the entries of offset (0, 0) in float64."""
    grid = layout.unfold(array, 0, stored, suffix).grid
    row, column = (stored.height // 2, stored.width // 2) if signed else (0, 0)
    return grid[:, row, column].astype(np.float64)


def mirrored(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unfold a (copies, h, w, d) table of distances into one of offsets."""
    return _mirror(_mirror(grid, 1), 2)


def _mirror(grid: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Unfold distances 0 … n−1 into offsets −(n−1) … n−1."""
    back = np.flip(grid, axis).take(range(grid.shape[axis] - 1), axis)
    return np.ascontiguousarray(np.concatenate([back, grid], axis=axis))
