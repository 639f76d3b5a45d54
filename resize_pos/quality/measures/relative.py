"""Relative tables: is offset zero kept, and does the bias decay with distance as before."""

from __future__ import annotations

import numpy as np

from resize_pos.quality.measures.energy import norm_map
from resize_pos.quality.measures.sampling import Wide, centred, ratio, size

_BINS = 8


def measure_relative(source: Wide, target: Wide) -> dict[str, float]:
    """Measure two grids of offsets −(n−1) … n−1, (copies, rows, columns, d)."""
    before, after = _middle(source), _middle(target)
    change = size(after - before)
    mean = ratio(float(norm_map(target).mean()), float(norm_map(source).mean()), 1.0)
    # Each head has its own constant offset, so differences are measured relative to the variation.
    scale = float(np.sqrt(np.mean(centred(source) ** 2)))
    # Offset zero alone can be near zero, so its change is not measured by itself.
    usual = max(size(before), scale * float(np.sqrt(before.size)))
    measures = {
        "norm_ratio": mean,
        "norm_change": abs(mean - 1),
        "zero_offset_change": ratio(change, usual, change),
        "asymmetry_before": asymmetry(source),
        "asymmetry_after": asymmetry(target),
    }
    if scale:
        parts = decay(source, 1.0), decay(target, 1.0)
        measures["decay_drift"] = _difference(*parts) / scale
        reach = min(_reach(source), _reach(target))
        cells = decay(source, reach / _reach(source)), decay(target, reach / _reach(target))
        measures["decay_drift_cells"] = _difference(*cells) / scale
    return measures


def asymmetry(grid: Wide) -> float:
    """Compare offsets Δ and −Δ: 0 when equal, 1 when opposite, about 0.7 when unrelated."""
    varying = centred(grid)
    flipped = varying[:, ::-1, ::-1]
    return ratio(size(varying - flipped), 2 * size(varying))


def decay(grid: Wide, share: float) -> Wide:
    """Average over rings of equal distance, out to `share` of the window; (bins, copies · d)."""
    height, width = grid.shape[1:3]
    rows = np.abs(np.arange(height) - (height - 1) / 2) / max((height - 1) / 2, 1)
    columns = np.abs(np.arange(width) - (width - 1) / 2) / max((width - 1) / 2, 1)
    distance = np.maximum(rows[:, None], columns[None, :]) / share
    curve = []
    for ring in range(_BINS):
        # Rings overlap by half, so that a small window fills them all.
        weight = np.maximum(0.0, 1 - np.abs(distance * (_BINS - 1) - ring))
        if not weight.sum():
            weight = (
                distance == distance.flat[np.abs(distance * (_BINS - 1) - ring).argmin()]
            ) + 0.0
        curve.append(np.einsum("hw,chwd->cd", weight, grid).ravel() / weight.sum())
    return np.array(curve)


def _difference(before: Wide, after: Wide) -> float:
    return float(np.sqrt(np.mean((after - before) ** 2)))


def _reach(grid: Wide) -> float:
    return float(max((grid.shape[1] - 1) / 2, (grid.shape[2] - 1) / 2, 1.0))


def _middle(grid: Wide) -> Wide:
    return grid[:, (grid.shape[1] - 1) // 2, (grid.shape[2] - 1) // 2]
