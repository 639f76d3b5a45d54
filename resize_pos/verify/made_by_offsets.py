"""Find how a relative table or a buffer was made: recompute it under every convention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import (
    RELATIVE_CONVENTIONS,
    OffsetMethod,
    OffsetResampling,
    Spacing,
)
from resize_pos.core.errors import ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.operations import Rebuild, ResampleOffsets
from resize_pos.families.tables import Step, stored_frames, stored_grid
from resize_pos.quality.checks import Check, Level
from resize_pos.quality.measures.sampling import ratio, size
from resize_pos.quality.verdict import OFFSET_ZERO_UNLIKE, OFFSETS_UNLIKE
from resize_pos.transforms.execute import transform

_HONEST: Mapping[str, OffsetResampling] = {
    **{name: convention.resampling for name, convention in RELATIVE_CONVENTIONS.items()},
    "bilinear, antialias": OffsetResampling(OffsetMethod.BILINEAR, Spacing.UNIFORM, antialias=True),
    "bicubic, antialias": OffsetResampling(OffsetMethod.BICUBIC, Spacing.UNIFORM, antialias=True),
}
_ROUNDING = 1e-6
_EXACT = 1e-5  # of the largest value: float32 arithmetic in another order


def origin_of(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Check | None:
    """Recompute the result of a step; return None for other operations."""
    if isinstance(step.operation, Rebuild):
        return _computed(step, before, after)
    if isinstance(step.operation, ResampleOffsets):
        return _resampled(step, before, after)
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


@dataclass(frozen=True, slots=True)
class NearestOffsets:
    """How far a relative table is from the honest result that it resembles most."""

    name: str
    largest: float  # difference ÷ largest value
    unlikeness: float  # distance ÷ variation of the honest result: heads have their own constants
    at_zero: float  # the same at offset zero alone


def nearest_honest(step: Step, before: NDArray[Any], after: NDArray[Any]) -> NearestOffsets:
    """Recompute a table by every convention and kernel, and compare."""
    operation = step.operation
    assert isinstance(operation, ResampleOffsets)
    actual = after.astype(np.float64)
    found: dict[str, NearestOffsets] = {}
    for name, resampling in _HONEST.items():
        how = replace(operation, resampling=resampling)
        expected = transform(replace(step, operation=how), before).astype(np.float64)
        apart, varying = expected - actual, expected - _head_means(step, expected)
        error = ratio(float(np.max(np.abs(apart))), float(np.max(np.abs(actual))), 1.0)
        unlike = ratio(size(apart), size(varying), size(apart))
        typical = size(varying) / max(1.0, np.sqrt(len(_cells(step, varying))))
        zero = ratio(size(_cells(step, apart)[_middle(step)]), typical)
        found[name] = NearestOffsets(name, error, unlike, zero)
    best = min(found.values(), key=lambda one: (one.largest > _EXACT, one.unlikeness))
    same = [name for name, one in found.items() if one.largest == best.largest]
    return replace(best, name=" = ".join(same))


def _cells(step: Step, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return offsets × heads, of all frames behind each other."""
    table_grid = stored_grid(step.table.role, step.target)
    frames = stored_frames(step.table.role, step.frames)
    parts = step.table.layout.unfold(
        table, step.table.prefix, table_grid, step.table.suffix, frames
    )
    grid: NDArray[np.float64] = parts.grid.astype(np.float64, copy=False)
    return grid.reshape(-1, grid.shape[-1])


def _middle(step: Step) -> int:
    """Return the row of offset zero: the middle one of signed offsets, the first of distances."""
    operation = step.operation
    signed = isinstance(operation, ResampleOffsets) and operation.signed
    grid = stored_grid(step.table.role, step.target)
    frames = stored_frames(step.table.role, step.frames)
    return frames * grid.cells // 2 if signed else 0


def _head_means(step: Step, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each head over all offsets."""
    terms = step.table.layout.terms
    axes = tuple(axis for axis in range(table.ndim) if axis >= len(terms) or terms[axis] != "d")
    mean: NDArray[np.float64] = table.mean(axis=axes, keepdims=True)
    return mean


def _resampled(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Check:
    nearest = nearest_honest(step, before, after)
    coarse = 2.0**-7 if after.dtype.itemsize < 4 else 0.0
    if nearest.largest <= max(_EXACT, coarse):
        return Check("origin", Level.OK, f"made by {nearest.name}, to {nearest.largest:.0e}")
    words = (
        f"matches no convention; the nearest is {nearest.name}, {nearest.unlikeness:.1%} of its "
        "variation away"
    )
    measured = ((nearest.unlikeness, OFFSETS_UNLIKE), (nearest.at_zero, OFFSET_ZERO_UNLIKE))
    if all(value <= limit for value, (limit, _) in measured):
        return Check("origin", Level.OK, f"{words}: trained on, or made by another honest method")
    if all(value <= most for value, (_, most) in measured):
        return Check("origin", Level.WARN, words)
    return Check("origin", Level.FAIL, f"{words}: it is no resize of the source's table")
