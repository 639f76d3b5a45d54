"""Absolute position tables: resample the grid, keep every other row bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.conventions import Resampling
from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import DTYPES
from resize_pos.transforms.kernels import Operator, Scratch, apply, operator
from resize_pos.transforms.norms import norm_limits, restored, with_norms

_FLOATING = {dtype.numpy for dtype in DTYPES.values() if dtype.floating}
_BLOCK = 1 << 16  # elements rounded at a time
_BAND = 1 << 18  # elements of the new grid computed at a time
_ALL = slice(None)  # rows


def resize_grid(
    grid: NDArray[np.float64], target: Grid, resampling: Resampling, device: str = "cpu"
) -> NDArray[np.float64]:
    """Resample a (copies, h, w, d) grid to `target`, one matrix per axis, in float64."""
    if device != "cpu":
        from resize_pos.transforms.device import resize_grid_on, resolve_device

        return resize_grid_on(grid, target, resampling, resolve_device(device))
    return _resized(grid, _passes(Grid(*grid.shape[1:3]), target, resampling))


def _passes(source: Grid, target: Grid, resampling: Resampling) -> dict[int, Operator]:
    """List what to do along which axis of a (copies, h, w, d) grid, in order."""
    height = operator(source.height, target.height, resampling)
    width = operator(source.width, target.width, resampling)
    along = {1: height, 2: width}
    return {axis: along[axis] for axis in axis_order(source, target)}


def _resized(
    grid: NDArray[np.float64], passes: Mapping[int, Operator], scratch: Scratch | None = None
) -> NDArray[np.float64]:
    for axis, along in passes.items():
        if not along.is_identity:
            grid = apply(along, grid, axis, scratch)
    return grid


def axis_order(source: Grid, target: Grid) -> tuple[int, int]:
    """Return which axis of a (copies, h, w, d) grid to resample first: the one that grows less."""
    height_first = target.height * source.width <= target.width * source.height
    return (1, 2) if height_first else (2, 1)


def resize_absolute(
    array: NDArray[Any],
    layout: Layout,
    prefix: int,
    source: Grid,
    suffix: int,
    target: Grid,
    resampling: Resampling,
    device: str = "cpu",
    frames: tuple[int, int] = (1, 1),
    *,
    restore_norms: bool = False,
) -> NDArray[Any]:
    """Resize a stored table to `target`, in its own layout and dtype; the same grid is a no-op.

    `frames` are those of the source and of the target, for a table with a time axis.
    `restore_norms`: rescale each new vector to the norm that interpolating the norms gives there,
    within the range of the norms that it is interpolated from.
    """
    _check_geometry(array.shape, layout, prefix, source, suffix, frames[0])
    if source == target and frames[0] == frames[1]:
        return array
    parts = layout.unfold(array, prefix, source, suffix, frames[0])
    passes = _passes(source, target, resampling)
    cells, limits = parts.grid, None
    if restore_norms:
        cells = with_norms(widen(cells))
        limits = norm_limits(cells[..., -1:], passes[1].matrix, passes[2].matrix)
        if frames[0] != frames[1]:
            limits = limits.in_time(operator(*frames, resampling).matrix)

    def stored(grid: NDArray[np.float64], rows: slice) -> NDArray[Any]:
        resized = resize_frames(grid, *frames, resampling)
        if limits is not None:
            resized = restored(resized, limits.of_rows(rows))
        return round_once(resized, array.dtype)

    if device == "cpu":
        grid = _by_rows(cells, passes, stored)
    else:
        grid = stored(resize_grid(widen(cells), target, resampling, device), _ALL)
    whole = Unfolded(parts.prefix, grid, parts.suffix)
    return layout.fold(whole, array.shape).astype(array.dtype, copy=False)


def _by_rows(
    grid: NDArray[Any],
    passes: Mapping[int, Operator],
    stored: Callable[[NDArray[np.float64], slice], NDArray[Any]],
) -> NDArray[Any]:
    """Resize a few rows at a time: fresh memory for a large table costs more than the arithmetic.

    Each row is made of the same numbers in the same order as if all were made at once.
    """
    copies, _, _, channels = grid.shape
    height, width = passes[1].target, passes[2].target
    rows = max(1, _BAND // max(1, copies * width * channels))
    if rows >= height:
        return stored(_resized(widen(grid), passes), _ALL)
    whole: NDArray[Any] | None = None
    scratch = Scratch()
    try:
        for first in range(0, height, rows):
            band = slice(first, min(first + rows, height))
            needed, vertical = passes[1].part(band.start, band.stop)
            wide = widen(grid[:, needed], scratch)
            part = stored(_resized(wide, {**passes, 1: vertical}, scratch), band)
            if whole is None:
                whole = np.empty((part.shape[0], height, *part.shape[2:]), part.dtype)
            whole[:, band] = part
    except TableError:  # the whole table fails, too, and its error counts all bad values
        return stored(_resized(widen(grid), passes), _ALL)
    assert whole is not None
    return whole


def resize_frames(
    grid: NDArray[np.float64], source: int, target: int, resampling: Resampling
) -> NDArray[np.float64]:
    """Resample the frames or slices of a (copies · frames, h, w, d) film."""
    if source == target:
        return grid
    copies, *cell = grid.shape
    film = grid.reshape(copies // source, source, *cell)
    return apply(operator(source, target, resampling), film, 1).reshape(-1, *cell)


def widen(array: NDArray[Any], scratch: Scratch | None = None) -> NDArray[np.float64]:
    """Return a stored table as contiguous float64; refuse integers, NaN and infinity."""
    if array.dtype.name not in _FLOATING:
        raise TableError(
            f"a table of {array.dtype.name} cannot be interpolated: only floating-point ones can.",
            hint="dequantise it first, or leave this tensor out.",
        )
    wide = (scratch or Scratch()).array("wide", array.shape)
    with np.errstate(invalid="ignore"):  # a signalling NaN is counted below like any other NaN
        np.copyto(wide, array, casting="unsafe")
    broken = wide.size - int(np.count_nonzero(np.isfinite(wide)))
    if broken:
        raise TableError(
            f"{broken} of {wide.size} values are NaN or infinite; interpolation would spread them."
        )
    return wide


def round_once(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Round float64 values to the nearest (ties to even) of a stored dtype, in one step."""
    flat = np.ascontiguousarray(values).reshape(-1)
    rounded = np.empty(flat.shape, dtype)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            stored = (block if _is_native(dtype) else _round_to_odd(block)).astype(dtype)
        if not np.all(np.isfinite(stored)):
            raise _overflow(values, dtype)
        rounded[start : start + _BLOCK] = stored
    return rounded.reshape(values.shape)


def _is_native(dtype: np.dtype[Any]) -> bool:
    return dtype.type in (np.float64, np.float32, np.float16)


def _round_to_odd(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 so that a second rounding, to a narrower type, cannot go wrong.

    ml_dtypes converts float64 by way of float32, and two roundings to nearest are not one: what is
    just above the middle between two bfloat16 values becomes the middle, and then goes to the even
    one. Cutting off and setting the last bit wherever something was lost keeps it off the middle.
    """
    single = values.astype(np.float32)
    error = single.astype(np.float64) - values
    bits = single.view(np.uint32)
    bits -= (error * np.sign(values) > 0).astype(np.uint32)  # towards zero
    bits |= (error != 0).astype(np.uint32)
    return single


def _overflow(values: NDArray[np.float64], dtype: np.dtype[Any]) -> TableError:
    from ml_dtypes import finfo

    low, high, largest = float(values.min()), float(values.max()), float(finfo(dtype).max)
    return TableError(
        f"resized values span {low:.6g} … {high:.6g}, beyond the ±{largest:g} of {dtype.name}.",
        hint="bicubic overshoots at edges; --method bilinear stays within the source's range.",
    )


def _check_geometry(
    shape: tuple[int, ...], layout: Layout, prefix: int, source: Grid, suffix: int, frames: int
) -> None:
    reason = layout.mismatch(shape)
    if reason is None:
        rows, stated = layout.rows(shape), layout.grid(shape)
        # Each block of a table in blocks has a prefix and a suffix of its own.
        extra = (prefix + suffix) * layout.blocks(shape).cells
        if rows != extra + frames * source.cells:
            reason = f"{rows} rows, not {prefix} + {source.height}·{source.width} + {suffix}"
        elif stated is not None and stated != source:
            reason = f"its shape states the grid {stated}, not {source}"
    if reason is not None:
        raise GeometryError(f"a table of shape {list(shape)} does not fit: {reason}.")
