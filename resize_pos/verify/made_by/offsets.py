"""Find how a relative table or a buffer was made: recompute it by every convention and kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Unfolded
from resize_pos.core.conventions import Method
from resize_pos.core.errors import ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Rebuild, ResampleOffsets
from resize_pos.families.tables import Step, stored_frames, stored_grid
from resize_pos.quality.checks import Check, Level
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.relative import HONEST_OFFSETS
from resize_pos.quality.measures.sampling import Wide, ratio, size
from resize_pos.quality.verdict import (
    ENVELOPE_FACTORS,
    OFFSET_ZERO_UNLIKE,
    OFFSETS_UNLIKE,
    OFFSETS_UNLIKE_MOST,
)
from resize_pos.transforms.execute import transform
from resize_pos.transforms.relative import mirrored

# Conventions for images that are honest on a grid of offsets, too. Half-pixel bicubic and bilinear
# are among the conventions of relative tables; asymmetric coordinates would move offset zero.
_KERNELS: tuple[Kernel, ...] = tuple(
    kernel for kernel in (*proper.CONVENTIONAL, *proper.OTHERS) if kernel is not proper.ASYMMETRIC
)
_ROUNDING = 1e-6
_EXACT = 1e-5  # of the largest value: float32 arithmetic in another order
_LIBRARY_EXACT = 1e-4  # … and in float32 throughout, as other libraries compute
_RELATED = 0.3  # cosine with the honest result, below which nothing of the source is left
_FOLLOWS = 0.7  # … of one head, below which it is not the source's
_ROUGH = 0.3  # similarity of neighbouring differences, below which they are noise


@dataclass(frozen=True, slots=True)
class Origin:
    """How a table was made: the check, and whether it was recomputed exactly."""

    check: Check
    exact: bool
    near: str = ""  # the nearest method in words, if none was recomputed exactly


def origin_of(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Origin | None:
    """Recompute the result of a step; return None for other operations."""
    if isinstance(step.operation, Rebuild):
        check = _computed(step, before, after)
        return Origin(check, check.level is Level.OK)
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


@dataclass(frozen=True, slots=True, eq=False)
class NearestOffsets:
    """How far a relative table is from the honest result that it resembles most.

    Distances are divided by the variation of the honest result: heads have their own constants.
    """

    name: str
    largest: float  # difference ÷ largest value
    unlikeness: float
    at_zero: float  # at offset zero alone, apart from what a smoother kernel would do there
    unlikeness_honest: float  # the largest of the honest results, each to the nearest other one
    cosines: Wide  # of each head with the nearest honest result's, both without their means
    smoothness: float  # similarity of neighbouring differences: 0 for noise


@dataclass(frozen=True, slots=True, eq=False)
class _Honest:
    """One honest result, as offsets × heads, and whole with the rows after the grid."""

    name: str
    whole: Wide
    cells: Wide
    varying: float
    widens: bool  # whether it counts for the envelope

    def distance(self, other: Wide) -> float:
        """Return the distance of other cells."""
        apart = other - self.cells
        return ratio(size(apart), self.varying, size(apart))


def nearest_honest(step: Step, before: NDArray[Any], after: NDArray[Any]) -> NearestOffsets:
    """Recompute a table by every convention and kernel, and compare."""
    actual = after.astype(np.float64)
    cells = _cells(step, actual)
    honest = list(_honest_results(step, before))
    scale = float(np.max(np.abs(actual), initial=0.0))
    errors = [ratio(float(np.max(np.abs(one.whole - actual))), scale, 1.0) for one in honest]
    found = [one.distance(cells) for one in honest]
    best = min(range(len(honest)), key=lambda i: (errors[i] > _EXACT, found[i], errors[i]))
    alike = [(error <= _EXACT, one) for error, one in zip(errors, found, strict=True)]
    same = [one.name for one, other in zip(honest, alike, strict=True) if other == alike[best]]
    widest = _envelope([one for one in honest if one.widens])
    apart = cells - honest[best].cells
    return NearestOffsets(
        " = ".join(same),
        errors[best],
        found[best],
        _unlike_at_zero(step, cells, honest[best]),
        widest,
        _cosines(cells, honest[best].cells),
        _smoothness(step, apart),
    )


def _envelope(honest: list[_Honest]) -> float:
    """Return how far each honest result is from the nearest different one, at most."""
    widest = 0.0
    for one in honest:
        others = (other.distance(one.cells) for other in honest if other is not one)
        widest = max(widest, min((d for d in others if d > _LIBRARY_EXACT), default=0.0))
    return widest


def _unlike_at_zero(step: Step, cells: Wide, honest: _Honest) -> float:
    """Return the distance at offset zero, relative to the typical variation of an offset.

    A smoother kernel moves offset zero towards its neighbours. So the distance is that to the line
    between the honest value and the mean of the honest neighbours.
    """
    middle, width = _middle(step), stored_grid(step.table.role, step.target).width
    steps = [i for i in (-width, -1, 1, width) if 0 <= middle + i < len(cells)]
    expected = honest.cells[middle]
    along = honest.cells[[middle + i for i in steps]].mean(axis=0) - expected
    apart = cells[middle] - expected
    share = np.clip(ratio(float(apart @ along), float(along @ along)), 0.0, 1.0)
    typical = honest.varying / max(1.0, np.sqrt(len(cells)))
    return ratio(size(apart - share * along), typical)


def _honest_results(step: Step, before: NDArray[Any]) -> Iterator[_Honest]:
    operation = step.operation
    assert isinstance(operation, ResampleOffsets)
    for name, resampling in HONEST_OFFSETS.items():
        how = replace(operation, resampling=resampling)
        whole = transform(replace(step, operation=how), before).astype(np.float64)
        yield _result(step, name, whole, widens=not resampling.extrapolate)
    if step.frames != step.table.frames:
        return
    for kernel in _KERNELS:
        picks = kernel is proper.NEAREST_EXACT or (
            kernel.resampling is not None and kernel.resampling.method is Method.NEAREST
        )
        whole = _by_kernel(step, operation, before, kernel)
        yield _result(step, str(kernel), whole, widens=not picks)


def _result(step: Step, name: str, whole: Wide, *, widens: bool) -> _Honest:
    cells = _cells(step, whole)
    return _Honest(name, whole, cells, size(cells - cells.mean(axis=0)), widens)


def _by_kernel(
    step: Step, operation: ResampleOffsets, before: NDArray[Any], kernel: Kernel
) -> Wide:
    """Resample the grid of offsets by a kernel for images; the rows beside it are kept."""
    table = step.table
    source, target = (stored_grid(table.role, grid) for grid in (table.grid, step.target))
    frames = stored_frames(table.role, table.frames)
    parts = table.layout.unfold(before, table.prefix, source, table.suffix, frames)
    grid = parts.grid.astype(np.float64)
    if operation.signed:
        made = proper.resized(grid, target, kernel)
    else:
        wide = Grid(2 * target.height - 1, 2 * target.width - 1)
        made = proper.resized(mirrored(grid), wide, kernel)
        made = made[:, target.height - 1 :, target.width - 1 :]
    around = (rows.astype(np.float64) for rows in (parts.prefix, parts.suffix))
    prefix, suffix = around
    whole = table.layout.fold(Unfolded(prefix, made, suffix), before.shape)
    return whole.astype(np.float64, copy=False)


def _cells(step: Step, table: Wide) -> Wide:
    """Return offsets × heads, of all frames behind each other."""
    table_grid = stored_grid(step.table.role, step.target)
    frames = stored_frames(step.table.role, step.frames)
    parts = step.table.layout.unfold(
        table, step.table.prefix, table_grid, step.table.suffix, frames
    )
    grid: Wide = parts.grid.astype(np.float64, copy=False)
    return grid.reshape(-1, grid.shape[-1])


def _middle(step: Step) -> int:
    """Return the row of offset zero: the middle one of signed offsets, the first of distances."""
    operation = step.operation
    signed = isinstance(operation, ResampleOffsets) and operation.signed
    grid = stored_grid(step.table.role, step.target)
    frames = stored_frames(step.table.role, step.frames)
    return frames * grid.cells // 2 if signed else 0


def _cosines(first: Wide, second: Wide) -> Wide:
    one, other = first - first.mean(axis=0), second - second.mean(axis=0)
    lengths = np.sqrt((one**2).sum(axis=0) * (other**2).sum(axis=0))
    cosines: Wide = (one * other).sum(axis=0) / np.maximum(lengths, 1e-30)
    return cosines


def _smoothness(step: Step, apart: Wide) -> float:
    """Return how similar neighbours along a row are: the lag-1 correlation of the differences."""
    width = stored_grid(step.table.role, step.target).width
    rows = (apart - apart.mean(axis=0)).reshape(-1, width, apart.shape[-1])
    pairs = float(np.sum(rows[:, 1:] * rows[:, :-1])) * width / max(width - 1, 1)
    return ratio(pairs, size(rows) ** 2)


def _resampled(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Origin:
    nearest = nearest_honest(step, before, after)
    coarse = 2.0**-7 if after.dtype.itemsize < 4 else 0.0
    if nearest.largest <= max(_LIBRARY_EXACT, coarse):
        words = f"made by {nearest.name} (differs by {nearest.largest:.0e})"
        return Origin(Check("origin", Level.OK, words), exact=True)
    distance = f"{nearest.name}, {nearest.unlikeness:.1%} of its variation away"
    words = f"matches no convention; the nearest is {distance}"
    measured = tuple(zip((nearest.unlikeness, nearest.at_zero), limits(nearest), strict=True))
    if all(value <= least for value, (least, _) in measured):
        how = "an honest resize followed by training, or made by another honest method"
        return Origin(Check("origin", Level.OK, f"{how} (nearest: {distance})"), False, words)
    level = Level.WARN if all(value <= most for value, (_, most) in measured) else Level.FAIL
    return Origin(Check("origin", level, f"{words}{_guess(nearest, level)}"), False, words)


def limits(nearest: NearestOffsets) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the limits of both distances; the envelope widens the first, up to a bound."""
    least, most = (
        max(limit, min(factor * nearest.unlikeness_honest, bound))
        for limit, factor, bound in zip(
            OFFSETS_UNLIKE, ENVELOPE_FACTORS, OFFSETS_UNLIKE_MOST, strict=True
        )
    )
    return (least, most), OFFSET_ZERO_UNLIKE


def _guess(nearest: NearestOffsets, level: Level) -> str:
    """Say what a table may be that is far from every honest result."""
    if level is Level.WARN:
        return ""
    heads = nearest.cosines
    if np.median(heads) < _RELATED:
        return ". Nothing of the source is left: re-initialised, or another checkpoint's table"
    if abs(nearest.smoothness) < _ROUGH:
        return ". Noise was added, or it was trained on"
    foreign = np.flatnonzero(heads < _FOLLOWS)
    if len(foreign):
        listed = ", ".join(str(head) for head in foreign[:6])
        return f": heads {listed} of {len(heads)} do not follow the source's"
    return ": it is no resize of the source's table"
