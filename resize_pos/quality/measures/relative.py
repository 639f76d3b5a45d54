"""Relative tables: is offset zero kept, and does the bias decay with distance as before.

What the honest conventions themselves do to the same table is measured, too: rough tables lose
norms, and averaging flattens a peak at offset zero. The verdict judges against that envelope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from resize_pos.core.conventions import (
    RELATIVE_CONVENTIONS,
    OffsetMethod,
    OffsetResampling,
    Spacing,
)
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.energy import norm_map
from resize_pos.quality.measures.sampling import Wide, centred, ratio, size
from resize_pos.transforms.relative import mirrored, offset_operator

_BINS = 8
HONEST_OFFSETS: Mapping[str, OffsetResampling] = {
    **{name: convention.resampling for name, convention in RELATIVE_CONVENTIONS.items()},
    "bilinear, antialias": OffsetResampling(OffsetMethod.BILINEAR, Spacing.UNIFORM, antialias=True),
    "bicubic, antialias": OffsetResampling(OffsetMethod.BICUBIC, Spacing.UNIFORM, antialias=True),
}
# A convention that extrapolates can multiply norms by 20: it counts only where it was chosen.
_ENVELOPE = tuple(how for how in dict.fromkeys(HONEST_OFFSETS.values()) if not how.extrapolate)


def measure_relative(
    source: Wide, target: Wide, own: OffsetResampling | None = None
) -> dict[str, float]:
    """Measure two grids of offsets −(n−1) … n−1, (copies, rows, columns, d).

    `own` is the convention that the table should be resized by; it is part of the envelope.
    """
    measures = _measured(source, target)
    grid = Grid(target.shape[1], target.shape[2])
    honest = [_measured(source, made) for made in _honest_results(source, grid, own)]
    growth = [one["asymmetry_after"] - one["asymmetry_before"] for one in honest]
    return measures | {
        "norm_honest_low": min(one["norm_ratio"] for one in honest),
        "norm_honest_high": max(one["norm_ratio"] for one in honest),
        "zero_offset_honest": max(one["zero_offset_change"] for one in honest),
        "asymmetry_honest": max(growth),
        **_decays(source, target),
    }


def _honest_results(source: Wide, target: Grid, own: OffsetResampling | None) -> Iterator[Wide]:
    """Resize a grid of offsets by every honest convention, and by area averaging."""
    for how in dict.fromkeys([*_ENVELOPE, *([] if own is None else [own])]):
        if how.folded:  # distances are resampled as an image, which may end at any offset
            quarter = source[:, source.shape[1] // 2 :, source.shape[2] // 2 :]
            half = Grid(target.height // 2 + 1, target.width // 2 + 1)
            yield mirrored(_resized(quarter, half, how))
        else:
            yield _resized(source, target, how)
    yield proper.resized(source, target, proper.AREA)


def _resized(grid: Wide, target: Grid, how: OffsetResampling) -> Wide:
    down = offset_operator(grid.shape[1], target.height, how).matrix
    across = offset_operator(grid.shape[2], target.width, how).matrix
    rows = np.swapaxes(proper.along(down, np.swapaxes(grid, 1, 2)), 1, 2)
    return proper.along(across, rows)


def _measured(source: Wide, target: Wide) -> dict[str, float]:
    before, after = _middle(source), _middle(target)
    change = size(after - before)
    mean = ratio(float(norm_map(target).mean()), float(norm_map(source).mean()), 1.0)
    # Each head has its own constant offset, so differences are measured relative to the variation.
    scale = float(np.sqrt(np.mean(centred(source) ** 2)))
    # Offset zero alone can be near zero, so its change is not measured by itself.
    usual = max(size(before), scale * float(np.sqrt(before.size)))
    return {
        "norm_ratio": mean,
        "norm_change": abs(mean - 1),
        "zero_offset_change": ratio(change, usual, change),
        "asymmetry_before": asymmetry(source),
        "asymmetry_after": asymmetry(target),
    }


def _decays(source: Wide, target: Wide) -> dict[str, float]:
    scale = float(np.sqrt(np.mean(centred(source) ** 2)))
    if not scale:
        return {}
    parts = decay(source, 1.0), decay(target, 1.0)
    reach = min(_reach(source), _reach(target))
    cells = decay(source, reach / _reach(source)), decay(target, reach / _reach(target))
    return {
        "decay_drift": _difference(*parts) / scale,
        "decay_drift_cells": _difference(*cells) / scale,
    }


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
