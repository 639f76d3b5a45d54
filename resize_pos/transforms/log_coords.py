"""Swin V2's table of log-spaced offsets, which its small MLP turns into a bias."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.errors import TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Rebuild

_SPAN = 8.0  # the outermost offset of the trained window
_TOLERANCE = 1e-6


def rebuild_log_coordinates(name: str, array: NDArray[Any], how: Rebuild) -> NDArray[Any]:
    """Find out which window the source was normalised by, and compute the target's table."""
    source, target = how.source.grid, how.target.grid
    assert source is not None and target is not None
    trained = _trained_window(array, source)
    expected = log_coordinates(source, trained, array.dtype)
    worst = float(np.max(np.abs(expected.astype(np.float64) - array.astype(np.float64))))
    tolerance = max(_TOLERANCE, float(np.finfo(np.float32).eps))
    if array.dtype.itemsize < 4:
        tolerance = 2e-2
    if not worst <= tolerance:
        raise TableError(
            f"{name} is not Swin V2's table of log-spaced offsets: it is off by up to {worst:.2g}.",
            hint="remove it from the file; the library builds its own.",
        )
    if how.normaliser == "window" and trained == source:
        trained = target
    return log_coordinates(target, trained, array.dtype)


def log_coordinates(window: Grid, trained: Grid, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return sign(Δ)·log2(1 + 8·|Δ|/(trained − 1))/3 for every offset, in float32 as in Swin."""
    axes = []
    for cells, unit in ((window.height, trained.height), (window.width, trained.width)):
        offsets = np.arange(1 - cells, cells, dtype=np.float32)
        scaled = offsets / np.float32(unit - 1) * np.float32(_SPAN)
        # log2 in float64, rounded once, is within half a unit of what any float32 log2 gives.
        logs = np.log2((np.abs(scaled) + np.float32(1)).astype(np.float64)).astype(np.float32)
        axes.append(np.sign(scaled) * logs / np.float32(math.log2(_SPAN)))
    table = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)[None]
    return np.ascontiguousarray(table.astype(dtype))


def _trained_window(array: NDArray[Any], window: Grid) -> Grid:
    """Solve the outermost coordinates for the window that they are a share of."""
    units = []
    for axis, cells in enumerate((window.height, window.width)):
        outermost = float(np.max(np.abs(array[..., axis].astype(np.float64))))
        ratio = (2 ** (outermost * math.log2(_SPAN)) - 1) / _SPAN
        units.append(round((cells - 1) / ratio) + 1 if ratio > 0 else cells)
    return Grid(*(max(unit, 2) for unit in units))
