"""What the transfer did to one table: numbers, no opinions. `verdict.py` judges them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.conventions import Method, Resampling
from resize_pos.geometry import Grid
from resize_pos.kernels import apply, operator

_Array = NDArray[np.float64]
_LINEAR = Resampling(Method.BILINEAR, antialias=False)


def measure_grid(source: _Array, target: _Array, resampling: Resampling) -> Mapping[str, float]:
    """Measure one resized grid; both arrays are (copies, h, w, d) in float64."""
    return {
        **_norm_ratios(source, target),
        "round_trip": _round_trip(source, target, resampling),
        "overshoot": _overshoot(source, target),
        **_neighbour_cosines(source, target),
    }


def prefix_change(source: NDArray[Any], target: NDArray[Any]) -> float:
    """Relative change of the rows that must not change: 0 when they are bit-equal."""
    before, after = source.astype(np.float64), target.astype(np.float64)
    scale = float(np.linalg.norm(before))
    change = float(np.linalg.norm(after - before))
    return change / scale if scale else change


def _norm_ratios(source: _Array, target: _Array) -> Mapping[str, float]:
    """Norm of each new vector over the source's norm at the same place."""
    before = np.linalg.norm(source, axis=-1)
    after = np.linalg.norm(target, axis=-1)
    expected = _resample(before[..., None], _grid(target), _LINEAR)[..., 0]
    ratio = np.divide(after, expected, out=np.ones_like(after), where=expected > 0)
    ring = np.ones(ratio.shape[1:], dtype=bool)
    ring[1:-1, 1:-1] = False
    low, high = np.percentile(ratio, (1, 99))
    mean_before = float(before.mean())
    return {
        "norm_ratio": float(after.mean()) / mean_before if mean_before else 1.0,
        "norm_ratio_p1": float(low),
        "norm_ratio_p99": float(high),
        "norm_ratio_edge": float(ratio[:, ring].mean()),
    }


def _round_trip(source: _Array, target: _Array, resampling: Resampling) -> float:
    """Relative error after going back to the source grid by the same method."""
    back = _resample(target, _grid(source), resampling)
    centred = source - source.mean(axis=(1, 2), keepdims=True)
    scale = float(np.linalg.norm(centred))
    return float(np.linalg.norm(back - source)) / scale if scale else 0.0


def _overshoot(source: _Array, target: _Array) -> float:
    """Share of new values outside the source's range in their channel."""
    low = source.min(axis=(1, 2), keepdims=True)
    high = source.max(axis=(1, 2), keepdims=True)
    slack = 1e-12 * (high - low)  # rounding in the last place is no overshoot
    return float(np.mean((target < low - slack) | (target > high + slack)))


def _neighbour_cosines(source: _Array, target: _Array) -> Mapping[str, float]:
    """Mean cosine of neighbours at one physical distance: the coarser grid's cell.

    A neighbour on a finer grid is nearer in the image, so cosines at lag one cannot be compared.
    """
    mean = source.mean(axis=(1, 2), keepdims=True)
    before, after = _unit(source - mean), _unit(target - mean)
    pairs = []
    for axis in (1, 2):
        coarse = min(before.shape[axis], after.shape[axis])
        if coarse > 1:
            pairs.append([_cosine_at(x, axis, x.shape[axis] / coarse) for x in (before, after)])
    if not pairs:
        return {}
    cosines = np.mean(pairs, axis=0)
    return {
        "neighbour_cosine_source": float(cosines[0]),
        "neighbour_cosine": float(cosines[1]),
        "neighbour_deficit": float(cosines[0] - cosines[1]),
    }


def _cosine_at(unit: _Array, axis: int, lag: float) -> float:
    """Mean cosine at a lag that need not be whole: linear between the two whole ones."""
    below = int(lag)
    share = lag - below
    value = (1 - share) * _cosine_at_whole(unit, axis, below)
    return value + (share * _cosine_at_whole(unit, axis, below + 1) if share else 0.0)


def _cosine_at_whole(unit: _Array, axis: int, lag: int) -> float:
    length = unit.shape[axis]
    first = unit.take(range(length - lag), axis=axis)
    second = unit.take(range(lag, length), axis=axis)
    return float((first * second).sum(axis=-1).mean())


def _unit(vectors: _Array) -> _Array:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: _Array = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit


def _resample(grid: _Array, target: Grid, resampling: Resampling) -> _Array:
    rows = apply(operator(grid.shape[1], target.height, resampling), grid, axis=1)
    return apply(operator(grid.shape[2], target.width, resampling), rows, axis=2)


def _grid(array: _Array) -> Grid:
    return Grid(array.shape[1], array.shape[2])
