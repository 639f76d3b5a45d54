"""Tables that were not resampled as images: text by a recipe, sines and cosines by a formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import DEFAULT
from resize_pos.core.operations import Lengthen, LengthMethod, SinCos, SinCosMode
from resize_pos.families.tables import Step
from resize_pos.quality.measures import energy
from resize_pos.quality.measures.catalogue import Measured
from resize_pos.quality.measures.sampling import in_range
from resize_pos.quality.measures.table import unfold
from resize_pos.transforms.absolute import resize_grid

_INTERPOLATING = (LengthMethod.LINEAR, LengthMethod.CUBIC, LengthMethod.STRETCH)


def measure_direct(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Measured:
    """Measure only what a recipe or a formula can change; rows that only move have no artifacts.

    The other measures are left out: their usual values were found on images, not on text.
    """
    _, (before, after) = in_range(before, after)
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
        case Lengthen(method=method) if method in _INTERPOLATING:
            norms = [float(np.linalg.norm(rows, axis=-1).mean()) for rows in (before, after)]
            return {"length_norm_ratio": norms[1] / norms[0] if norms[0] else 1.0}
        case _:
            return {}
