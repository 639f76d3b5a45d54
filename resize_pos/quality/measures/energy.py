"""Sizes of vectors and channels: norm ratios, drift, overshoot, the rows that must not change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import Method, Resampling
from resize_pos.quality.measures.sampling import Wide, quantile, ratio, size, some_channels
from resize_pos.transforms.kernels import apply, operator

_LINEAR = Resampling(Method.BILINEAR, antialias=False)


def norm_map(grid: Wide) -> Wide:
    """Return the norm of every vector, (copies, h, w)."""
    norms: Wide = np.sqrt(np.einsum("chwd,chwd->chw", grid, grid))
    return norms


def norm_ratios(source: Wide, target: Wide) -> dict[str, float]:
    """Compare norms with the source's at the same place: overall, inside, edge ring, corners."""
    before, after = norm_map(source), norm_map(target)
    expected = _stretch(before, after.shape[1], after.shape[2])
    local = np.divide(after, expected, out=np.ones_like(after), where=expected > 0)
    low, high = (quantile(local, share) for share in (0.01, 0.99))
    mean = ratio(float(after.mean()), float(before.mean()), 1.0)
    measures = {
        "norm_ratio": mean,
        "norm_change": abs(mean - 1),
        "norm_ratio_p1": low,
        "norm_ratio_p99": high,
    }
    ring, corners = _borders(local.shape[1], local.shape[2])
    regions = {"interior": ~ring, "edge": ring, "corner": corners}
    for name, mask in regions.items():
        if mask.any():
            measures[f"norm_ratio_{name}"] = float(local[:, mask].mean())
    return measures


def prefix_to_grid(prefix: NDArray[Any], grid: Wide) -> float:
    """Compare the mean norm of the prefix rows with the grid's."""
    rows = np.linalg.norm(prefix.astype(np.float64), axis=-1)
    return ratio(float(rows.mean()), float(norm_map(grid).mean()))


def prefix_change(source: NDArray[Any], target: NDArray[Any]) -> float:
    """Relative change of the rows that must not change: 0 when they are bit-equal."""
    before, after = source.astype(np.float64), target.astype(np.float64)
    scale = size(before)
    change = size(after - before)
    return change / scale if scale else change


def channel_drift(source: Wide, target: Wide) -> dict[str, float]:
    """Compare each channel's mean and standard deviation over the grid."""
    mean_before, deviation_before = _moments(source)
    mean_after, deviation_after = _moments(target)
    scale = float(np.sqrt(np.mean(deviation_before**2)))
    shift = float(np.sqrt(np.mean((mean_after - mean_before) ** 2)))
    # A channel that hardly varies gives arbitrary ratios, so it is ignored.
    alive = deviation_before > 1e-3 * scale
    if not alive.any():
        return {"channel_mean_drift": 0.0 if shift == 0 else ratio(shift, scale, 1.0)}
    ratios = deviation_after[alive] / deviation_before[alive]
    return {
        "channel_mean_drift": ratio(shift, scale),
        "channel_std_ratio": float(ratios.mean()),
        "channel_std_drift": float(np.abs(ratios - 1).mean()),
    }


def overshoot(source: Wide, target: Wide) -> dict[str, float]:
    """Measure what lies outside the source's range in its channel."""
    before, after = some_channels(source), some_channels(target)
    low = before.min(axis=(1, 2), keepdims=True)
    high = before.max(axis=(1, 2), keepdims=True)
    span = high - low
    excess = np.maximum(low - after, after - high)
    # Rounding in the last place of a stored float32 does not count as overshoot.
    share = float(np.mean(excess > 1e-6 * span))
    relative = np.divide(excess, span, out=np.zeros_like(excess), where=span > 0)
    return {"overshoot": share, "overshoot_worst": max(0.0, float(relative.max()))}


def _moments(grid: Wide) -> tuple[Wide, Wide]:
    count = grid.shape[1] * grid.shape[2]
    mean: Wide = np.einsum("chwd->cd", grid) / count
    shifted = grid - mean[:, None, None]
    square: Wide = np.einsum("chwd,chwd->cd", shifted, shifted) / count
    return mean, np.sqrt(square)


def _stretch(values: Wide, height: int, width: int) -> Wide:
    rows = apply(operator(values.shape[1], height, _LINEAR), values[..., None], axis=1)
    return apply(operator(values.shape[2], width, _LINEAR), rows, axis=2)[..., 0]


def _borders(height: int, width: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    rows, columns = np.zeros(height, bool), np.zeros(width, bool)
    rows[[0, -1]] = height > 1
    columns[[0, -1]] = width > 1
    corners = rows[:, None] & columns if height > 1 else np.broadcast_to(columns, (1, width))
    return rows[:, None] | columns, corners
