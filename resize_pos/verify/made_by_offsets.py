"""Find how a relative table or a buffer was made: recompute it under every convention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import RELATIVE_CONVENTIONS
from resize_pos.core.errors import ResizePosError
from resize_pos.core.operations import Rebuild, ResampleOffsets
from resize_pos.families.tables import Step
from resize_pos.quality.checks import Check, Level
from resize_pos.transforms.execute import transform

_ROUNDING = 1e-6
_EXACT = 1e-5  # of the largest value: float32 arithmetic in another order


def origin_of(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Check | None:
    """Recompute the result of a step; return None for other operations."""
    if isinstance(step.operation, Rebuild):
        return _computed(step, before, after)
    if isinstance(step.operation, ResampleOffsets):
        return _resampled(step, step.operation, before, after)
    return None


def _computed(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Check:
    try:
        expected = transform(step, before)
    except ResizePosError as error:
        return Check("origin", Level.FAIL, error.message)
    gap = np.abs(expected.astype(np.float64) - after.astype(np.float64))
    different = int(np.count_nonzero(gap > _ROUNDING))
    if different:
        words = f"{different} of {after.size} values are not what the formula gives"
        return Check("origin", Level.FAIL, words)
    return Check("origin", Level.OK, "every value is what the formula gives")


def _resampled(
    step: Step, operation: ResampleOffsets, before: NDArray[Any], after: NDArray[Any]
) -> Check:
    errors = {}
    actual = after.astype(np.float64)
    scale = max(float(np.max(np.abs(actual))), np.finfo(np.float64).tiny)
    for name, convention in RELATIVE_CONVENTIONS.items():
        how = replace(operation, resampling=convention.resampling)
        expected = transform(replace(step, operation=how), before).astype(np.float64)
        errors[name] = float(np.max(np.abs(expected - actual))) / scale
    best = min(errors, key=errors.__getitem__)
    coarse = 2.0**-7 if after.dtype.itemsize < 4 else 0.0
    if errors[best] <= max(_EXACT, coarse):
        same = [name for name, error in errors.items() if error == errors[best]]
        return Check("origin", Level.OK, f"made by {' = '.join(same)}, to {errors[best]:.0e}")
    words = f"matches no convention; the nearest is {best}, {errors[best]:.1%} away"
    return Check("origin", Level.WARN, words)
