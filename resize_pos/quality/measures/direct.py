"""Tables that were not resampled as images: text by a recipe, sines and cosines by a formula,
layers over patches by linear algebra, windows by tiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import DEFAULT
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import (
    Lengthen,
    LengthMethod,
    ResampleMixing,
    ResampleTiled,
    SinCos,
    SinCosMode,
)
from resize_pos.families.tables import Step
from resize_pos.quality.measures import energy
from resize_pos.quality.measures.catalogue import Measured
from resize_pos.quality.measures.sampling import in_range
from resize_pos.quality.measures.table import unfold
from resize_pos.transforms.absolute import resize_grid
from resize_pos.transforms.mixing import undo_mixing
from resize_pos.transforms.tiled import mean_window

_INTERPOLATING = (LengthMethod.LINEAR, LengthMethod.CUBIC, LengthMethod.STRETCH)


def measure_direct(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Measured:
    """Measure only what a recipe or a formula can change; rows that only move have no artifacts.

    The other measures are left out: their usual values were found on images, not on text.
    """
    _, (before, after) = in_range(before, after)
    if isinstance(step.operation, ResampleMixing):
        return Measured(_mixing(step, step.operation, before, after))
    old, new = unfold(step, before, after)
    values = dict(_values(step, old.grid.astype(np.float64), new.grid.astype(np.float64)))
    kept_before = np.concatenate([old.prefix, old.suffix], axis=1)
    kept_after = np.concatenate([new.prefix, new.suffix], axis=1)
    if kept_before.size:
        values["prefix_change"] = energy.prefix_change(kept_before, kept_after)
    return Measured(values)


def _values(
    step: Step, before: NDArray[np.float64], after: NDArray[np.float64]
) -> Mapping[str, float]:
    match step.operation:
        case SinCos(mode=SinCosMode.RESCALED):
            usual = resize_grid(before, step.target, DEFAULT.resampling)
            scale = float(np.linalg.norm(after))
            return {"interpolation_difference": float(np.linalg.norm(usual - after)) / scale}
        case ResampleTiled(resampling, window):
            plain = resize_grid(before, step.target, resampling)
            old, new, usual = (_centred_window(each, window) for each in (before, after, plain))
            spread = float(np.var(before, axis=(1, 2)).sum())
            share = float(np.var(old, axis=(1, 2)).sum()) / spread if spread else 0.0
            return {
                "window_share": share,
                "window_kept": _cosine(old, new),
                "window_kept_plain": _cosine(old, usual),
            }
        case Lengthen(method=method) if method in _INTERPOLATING:
            norms = [float(np.linalg.norm(rows, axis=-1).mean()) for rows in (before, after)]
            return {"length_norm_ratio": norms[1] / norms[0] if norms[0] else 1.0}
        case _:
            return {}


def _mixing(
    step: Step, how: ResampleMixing, before: NDArray[Any], after: NDArray[Any]
) -> Mapping[str, float]:
    """Compare what the new weights do on the old grid with the old weights."""
    table = step.table
    back = undo_mixing(after, table.layout, table.grid, step.target, how.resampling, how.mixing)
    old = before.astype(np.float64)
    scale = float(np.linalg.norm(old))
    ratios = (step.target.height / table.grid.height, step.target.width / table.grid.width)
    loss = float(np.linalg.norm(back - old)) / scale if scale else 0.0
    return {"mixing_loss": loss, "mixing_scale": min(ratios)}


def _centred_window(cells: NDArray[np.float64], window: Grid) -> NDArray[np.float64]:
    mean = mean_window(cells, window)
    mean -= mean.mean(axis=(1, 2), keepdims=True)
    return mean


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    scale = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(np.sum(one * other)) / scale if scale else 1.0
