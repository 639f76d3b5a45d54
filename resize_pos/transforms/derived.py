"""Buffers computed again, to the values that the library builds for a new model.

The source comes first: unless it is what the formula gives at the source's geometry, the buffer is
not understood and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.errors import TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Extent, Rebuild
from resize_pos.transforms.log_coords import rebuild_log_coordinates
from resize_pos.transforms.rope import rebuild_rotary

_MASKED = -100.0  # Swin's value for "not in the same region"


def rebuild(name: str, array: NDArray[Any], how: Rebuild, shape: tuple[int, ...]) -> NDArray[Any]:
    """Check a buffer against its formula at the source, and compute it at the target."""
    fitted = _FITTED.get(how.formula)
    if fitted is not None:
        return fitted(name, array, how)
    build = _EXACT[how.formula]
    expected = build(how.source, array.shape).astype(array.dtype)
    if expected.shape != array.shape or not np.array_equal(expected, array):
        different = int(np.count_nonzero(expected != array)) if expected.shape == array.shape else 0
        count = f"{different} of {array.size} values differ" if different else "its shape differs"
        raise TableError(
            f"{name} is not what its formula ({how.formula}) gives: {count}.",
            hint="the buffer is not understood; remove it from the file if the library rebuilds "
            "it, or convert with the library itself.",
        )
    return np.asarray(build(how.target, shape), array.dtype, order="C")  # also of no axes at all


def _offsets(grid: Grid, stride: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column offsets, query minus key, for every pair of cells."""
    rows, columns = np.divmod(np.arange(grid.cells), grid.width)
    queries = (rows % stride == 0) & (columns % stride == 0)
    down = rows[queries, None] - rows[None, :]
    right = columns[queries, None] - columns[None, :]
    return down, right


def _with_class(index: NDArray[np.int64], offsets: int, extra: int) -> NDArray[np.int64]:
    """Add the class token's row and column; its three entries follow the offsets."""
    if not extra:
        return index
    whole = np.full((len(index) + 1, len(index) + 1), offsets, np.int64)
    whole[1:, 1:] = index
    whole[1:, 0] = offsets + 1
    whole[0, 0] = offsets + 2
    return whole


def _relative_index(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:
    grid = _grid(extent)
    down, right = _offsets(grid)
    width = 2 * grid.width - 1
    index = (down + grid.height - 1) * width + right + grid.width - 1
    offsets = (2 * grid.height - 1) * width
    if extent.depth > 1:
        frames = np.arange(extent.depth)
        later = (frames[:, None] - frames[None, :] + extent.depth - 1) * offsets
        tokens = extent.depth * grid.cells
        index = (later[:, None, :, None] + index[None, :, None, :]).reshape(tokens, tokens)
    whole = _with_class(index, offsets, extent.extra)
    return whole.reshape(-1) if len(shape) == 1 else whole


def _high_index(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ARG001
    grid = _grid(extent)
    down, _ = _offsets(grid)
    return _with_class(grid.height - 1 - down, 2 * grid.height - 1, extent.extra)


def _width_index(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ARG001
    grid = _grid(extent)
    _, right = _offsets(grid)
    return _with_class(grid.width - 1 - right, 2 * grid.width - 1, extent.extra)


def _axis_pairs(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:
    rows = np.arange(shape[0])
    return rows[:, None] - rows[None, :] + _grid(extent).height - 1


def _distance_index(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:
    grid = _grid(extent)
    down, right = _offsets(grid, 1 if shape[0] == grid.cells else 2)
    return np.abs(down) * grid.width + np.abs(right)


def _shifted_mask(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ARG001
    window, blocks = _grid(extent), extent.blocks
    assert blocks is not None
    rows = _regions(blocks.height * window.height, window.height, extent.shift)
    columns = _regions(blocks.width * window.width, window.width, extent.shift)
    regions = (rows[:, None] * 3 + columns[None, :]).reshape(
        blocks.height, window.height, blocks.width, window.width
    )
    cells = regions.transpose(0, 2, 1, 3).reshape(blocks.cells, window.cells)
    return np.where(cells[:, None, :] == cells[:, :, None], 0.0, _MASKED)


def _regions(length: int, window: int, shift: int) -> NDArray[np.int64]:
    """Number the bands that a cyclic shift brings together."""
    place = np.arange(length)
    return (place >= length - window).astype(np.int64) + (place >= length - shift)


def _positions(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.broadcast_to(np.arange(extent.extra, extent.rows), shape)


def _zeros(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ARG001
    return np.zeros(shape, np.int64)


def _causal_mask(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.broadcast_to(np.tri(extent.rows, dtype=np.int64), shape)


def _scalar(extent: Extent, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.full(shape, extent.value)


def _emptied(name: str, array: NDArray[Any], how: Rebuild) -> NDArray[Any]:  # noqa: ARG001
    """A cache that the model fills before it reads it: zeros, as in a model that never ran."""
    before, after = how.source.rows, how.target.rows
    first = array.ndim - 2  # (1, heads, tokens, tokens) or (1, tokens, channels)
    counted = range(first, array.ndim) if array.ndim == 4 else range(first, first + 1)
    assert all(array.shape[axis] == before for axis in counted)
    shape = [after if axis in counted else length for axis, length in enumerate(array.shape)]
    return np.zeros(shape, array.dtype)


def _grid(extent: Extent) -> Grid:
    assert extent.grid is not None
    return extent.grid


_EXACT: Mapping[str, Callable[[Extent, tuple[int, ...]], NDArray[Any]]] = {
    "relative-index": _relative_index,
    "relative-index-high": _high_index,
    "relative-index-width": _width_index,
    "axis-index": _axis_pairs,
    "distance-index": _distance_index,
    "shifted-mask": _shifted_mask,
    "positions": _positions,
    "zeros": _zeros,
    "causal-mask": _causal_mask,
    "input-resolution": _scalar,
    "context-length": _scalar,
}

# Formulas with a parameter that only the source's values can tell.
_FITTED: Mapping[str, Callable[[str, NDArray[Any], Rebuild], NDArray[Any]]] = {
    "log-coordinates": rebuild_log_coordinates,
    "rotary": rebuild_rotary,
    "cached-bias": _emptied,
}
