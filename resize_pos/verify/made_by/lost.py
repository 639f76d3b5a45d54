"""What no honest resize takes from a table, and no training: it was changed by something else.

A resize is linear, and training moves every value by itself. So a table that has lost directions,
its asymmetry, or the freedom of its values exactly, or that is smoother than any kernel makes it,
is damaged, however near it is to an honest result.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.sampling import Wide, ratio, size, spread, unit
from resize_pos.verify.made_by.mixed import find_mixed
from resize_pos.verify.made_by.parts import Finding

_CELLS = 64  # that independent directions are counted in
_VALUES = 4096  # whose order is compared
_FEWEST_VALUES = 64  # fewer may be in the same order by chance
_GONE = 1e-5  # of the largest singular value, or of the variation: float32 rounds to 1e-7
_THERE = 1e-2  # … and what an honest result must have of it
_MATTERS = 0.1  # of the variation: a table may be stored without its weakest directions
_ASYMMETRIC = 0.05  # of the variation: an honest result below it is symmetric itself
_ALONG = 1 - 1e-4  # cosine with the honest row
_SHORT, _LONG = 0.5, 1.5  # of the shortest honest row, and of the source's longest one
_ONE_LENGTH = 2e-3  # deviation ÷ mean of lengths that were made equal, and stored as float16
_LENGTHS = 0.04  # … and of lengths that differ
_CURVED = 0.05  # distance to the nearest multiple of the honest result
_SIDES = ("first row", "last row", "first column", "last column")
_SHORTEST = 4  # cells of an axis of which the outermost are compared with the inner ones
_DIM = 0.7  # of what the inner cells have of an honest length
_INSIDE = 0.8  # cosine of the inner cells with the honest ones
_TOO_SHORT = 0.4  # of the inner cells' length: what a model never saw says nothing
_CHANNELS = 24  # that a blur is fitted to
_REACH = 2  # cells on each side that it mixes
_FITTED = 0.05  # of the variation: distance to the honest result after the fitted blur
_KEEPS_MEANS = 0.05  # how far the weights of a blur may be from a sum of one
_ROUGHER = 1.15  # of the largest variation that a convention leaves
_WIDE = (0.2, 0.25, 0.33, 0.4, 0.5, 0.6, 0.75)  # parts of an axis that a wide blur averages over,
_WIDELY_FITTED = 0.3  # of the variation and of the distance to the honest result: what it may leave
_MIXED = "an honest resize whose cells were mixed with their neighbours"
_BLURRED = f"{_MIXED}: smoother than any kernel makes it"
_SMOOTHER = 0.9  # of the variation that the smoothest kernel leaves


@dataclass(frozen=True, slots=True, eq=False)
class HonestRows:
    """The honest results (cells × channels) that a table is compared with."""

    results: Sequence[Wide]
    smoothest: Wide  # by the kernel that leaves the least variation
    lengths: Wide  # norms of the source's rows


def find_lost(table: Wide, honest: HonestRows, target: Grid) -> Finding | None:
    """Compare the rows (cells × channels) of a table with the honest ones."""
    if len(table) < 2 or not np.ptp(table, axis=0).any():
        return None  # zero or constant: the table's own values say so
    found = (
        _directions(table, honest)
        or _mirror_image(table, honest, target)
        or _sum_of_lines(table, honest, target)
    )
    for result in honest.results:
        found = found or _order(table, result) or _lengths(table, result, honest.lengths)
    found = found or _one_length(table, honest) or find_mixed(table, honest.results, honest.lengths)
    return found or _blur(table, honest, target)


def _directions(table: Wide, honest: HonestRows) -> Finding | None:
    """Count the independent directions in which positions differ."""
    cells = spread(len(table), _CELLS)
    mine = _strengths(table[cells])
    count = int(np.sum(mine > _GONE))
    # A gap, not a slope: smooth tables have directions of every strength.
    if not 0 < count < len(mine) or mine[count - 1] < _THERE:
        return None
    theirs = [_strengths(result[cells]) for result in honest.results]
    had = min(int(np.sum(strengths > _THERE)) for strengths in theirs)
    lost = min(ratio(size(strengths[count:]), size(strengths)) for strengths in theirs)
    if had <= count or lost < _MATTERS:
        return None
    words = "direction" if count == 1 else "directions"
    detail = f"positions differ in {count} independent {words}, an honest resize's in {had}"
    return Finding("directions lost", detail)


def _strengths(rows: Wide) -> Wide:
    """Return the singular values of centred rows, relative to the largest."""
    values: Wide = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    return values / (values[0] or 1.0)


def _mirror_image(table: Wide, honest: HonestRows, target: Grid) -> Finding | None:
    """Look for an axis along which the table is its own mirror image, unlike honest results."""
    for axis, words in ((0, "top and bottom"), (1, "left and right")):
        if _asymmetry(table, target, axis) >= _GONE:
            continue
        if min(_asymmetry(result, target, axis) for result in honest.results) > _ASYMMETRIC:
            detail = f"{words} are exactly alike: mixed with its mirror image"
            return Finding("mirror image", detail)
    return None


def _asymmetry(rows: Wide, target: Grid, axis: int) -> float:
    varying = (rows - rows.mean(axis=0)).reshape(target.height, target.width, -1)
    return ratio(size(varying - np.flip(varying, axis)), size(varying))


def _sum_of_lines(table: Wide, honest: HonestRows, target: Grid) -> Finding | None:
    """Look for cells that are the sum of what belongs to their row and to their column."""
    if min(target.height, target.width) < 2 or _together(table, target) >= _GONE:
        return None
    if min(_together(result, target) for result in honest.results) < _ASYMMETRIC:
        return None
    words = "every cell is the sum of one vector of its row and one of its column"
    return Finding("rows and columns added", f"{words}: what belongs to places is lost")


def _together(rows: Wide, target: Grid) -> float:
    """Return the share of the variation that neither rows nor columns have by themselves."""
    varying = (rows - rows.mean(axis=0)).reshape(target.height, target.width, -1)
    alone = varying.mean(axis=0, keepdims=True) + varying.mean(axis=1, keepdims=True)
    return ratio(size(varying - alone), size(varying))


def find_dim_border(table: Wide, honest: Sequence[Wide], target: Grid) -> Finding | None:
    """Look for outermost lines that are much shorter than honest ones, unlike the inner cells."""
    if min(target.height, target.width) < _SHORTEST:
        return None
    usual = [result for result in honest if _variation(result)]
    if not usual or max(_alike_inside(table, other, target) for other in usual) < _INSIDE:
        return None
    for side, words in enumerate(_SIDES):
        if min(_weight(other, target, side) for other in usual) < _TOO_SHORT:
            continue
        mine = max(_held(table, other, target, side) for other in usual)
        if mine >= _DIM:
            continue
        fair = [
            max(_held(one, other, target, side) for other in usual if other is not one)
            for one in usual
        ]
        if mine < _DIM * min(1.0, *fair):
            detail = f"the {words} has {mine:.0%} of the length of an honest one: mixed with zeros"
            return Finding("dim border", detail)
    return None


def _line(rows: Wide, target: Grid, side: int) -> tuple[Wide, Wide]:
    """Return an outermost line of the grid, and the inner cells."""
    grid = rows.reshape(target.height, target.width, -1)
    line = (np.s_[:1], np.s_[-1:], np.s_[:, :1], np.s_[:, -1:])[side]
    return grid[line], grid[1:-1, 1:-1]


def _weight(rows: Wide, target: Grid, side: int) -> float:
    """Return how long the cells of an outermost line are, relative to the inner ones."""
    line, inner = (np.mean(part**2) for part in _line(rows, target, side))
    return float(np.sqrt(ratio(float(line), float(inner), 1.0)))


def _alike_inside(table: Wide, honest: Wide, target: Grid) -> float:
    """Return the cosine of both without their outermost lines, each as one long vector.

    The honest mean is left out: it is the same in every place.
    """
    mine, theirs = (_line(rows - honest.mean(axis=0), target, 0)[1] for rows in (table, honest))
    return ratio(float(np.sum(mine * theirs)), size(mine) * size(theirs))


def _held(table: Wide, honest: Wide, target: Grid, side: int) -> float:
    """Return how long an outermost line is for an honest one, relative to the inner cells."""
    mine, theirs = _line(table, target, side), _line(honest, target, side)
    line, inner = (ratio(size(m), size(t), 1.0) for m, t in zip(mine, theirs, strict=True))
    return ratio(line, inner, 1.0)


def _order(table: Wide, honest: Wide) -> Finding | None:
    """Look for one function that was applied to every value, as a root or a power."""
    chosen = spread(table.size, _VALUES)
    mine, theirs = table.reshape(-1)[chosen], honest.reshape(-1)[chosen]
    if len(mine) < _FEWEST_VALUES:
        return None
    factor = ratio(float(mine @ theirs), float(theirs @ theirs))
    if size(mine - factor * theirs) <= _CURVED * size(mine):
        return None
    rising = np.diff(mine[np.argsort(theirs, kind="stable")])
    if float(rising.min()) < -_GONE * float(np.ptp(mine)) or len(np.unique(mine)) < len(mine) // 2:
        return None
    return Finding("bent", "every value was changed by one function, as a root or a power does")


def _lengths(table: Wide, honest: Wide, lengths: Wide) -> Finding | None:
    """Look for rows that have the honest direction, and a length that nothing restores."""
    mine, theirs = (np.sqrt((rows**2).sum(axis=1)) for rows in (table, honest))
    if not mine.all() or not theirs.all():
        return None
    if float((unit(table) * unit(honest)).sum(axis=1).min()) < _ALONG:
        return None
    odd = (mine < _SHORT * theirs.min()) | (mine > _LONG * lengths.max())
    if not odd.any():
        return None
    detail = f"{odd.sum()} of {len(table)} cells have another length than any resize gives them"
    return Finding("cells scaled", detail)


def _one_length(table: Wide, honest: HonestRows) -> Finding | None:
    """Look for cells that are all as long as each other, unlike the source's and honest ones."""
    norms = [np.sqrt((rows**2).sum(axis=1)) for rows in (table, *honest.results)]
    mine, *theirs = (ratio(float(each.std()), float(each.mean())) for each in norms)
    before = ratio(float(honest.lengths.std()), float(honest.lengths.mean()))
    if mine > _ONE_LENGTH or min(before, *theirs) < _LENGTHS:
        return None
    return Finding("normalised", "every cell has the same length, unlike those of the source")


def _blur(table: Wide, honest: HonestRows, target: Grid) -> Finding | None:
    """Look for an honest result whose cells were mixed with their neighbours, or set off."""
    smoother = _variation(table) < _SMOOTHER * _variation(honest.smoothest)
    rougher = _variation(table) > _ROUGHER * max(_variation(one) for one in honest.results)
    if not smoother and not rougher:
        return None
    channels = spread(table.shape[1], _CHANNELS)
    for reach in range(1, _REACH + 1):
        if min(target.height, target.width) < 3 * reach + 1:
            break
        mine = _mixed(table[:, channels], target, reach)[0]
        for result in honest.results:
            parts = _mixed(result[:, channels], target, reach)
            weights = np.linalg.lstsq(parts.T, mine, rcond=None)[0]
            sums = float(weights @ _counts(reach))
            apart = size(mine - weights @ parts)
            if abs(sums - 1) < _KEEPS_MEANS and apart <= _FITTED * _variation(mine[:, None]):
                if rougher:
                    words = "an honest resize whose cells were set off against their neighbours"
                    return Finding("sharpened", f"{words}: rougher than any kernel makes it")
                return Finding("blurred", _BLURRED)
    wide = smoother and _widely_blurred(table[:, channels], honest, target, channels)
    return Finding("blurred", _BLURRED) if wide else None


def _widely_blurred(
    table: Wide, honest: HonestRows, target: Grid, channels: NDArray[np.intp]
) -> bool:
    """Whether averages over parts of the image, of any width, explain what an honest one does not.

    They are taken once, or twice, which is near a Gaussian.
    """
    mean = table.mean(axis=0)
    for result in honest.results:
        grid = result[:, channels].reshape(target.height, target.width, -1)
        usual = size(table - result[:, channels])
        for part, times in product(_WIDE, (1, 2)):
            down, across = (_averages(n, part, times) for n in (target.height, target.width))
            rows = (across @ np.tensordot(down, grid, 1)).reshape(table.shape)
            apart = size(table - rows)
            if apart <= _WIDELY_FITTED * min(usual, size(table - mean)):
                return True
    return False


def _averages(length: int, part: float, times: int) -> Wide:
    """Return the matrix that averages over so large a part of an axis; its ends are repeated."""
    reach = max(1, round(part * length / 2)) if length > 1 else 0
    near = np.arange(length)[:, None] + np.arange(-reach, reach + 1)
    once = np.eye(length)[near.clip(0, length - 1)].mean(axis=1)
    return np.linalg.matrix_power(once, times)


def _variation(rows: Wide) -> float:
    return size(rows - rows.mean(axis=0))


def _orbits(reach: int) -> list[list[tuple[int, int]]]:
    """List the shifts that a symmetric blur weighs alike; first that by nothing."""
    steps = range(-reach, reach + 1)
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for down, across in sorted(product(steps, steps), key=lambda at: (abs(at[0]), abs(at[1]))):
        found.setdefault((abs(down), abs(across)), []).append((down, across))
    return list(found.values())


def _counts(reach: int) -> Wide:
    return np.array([len(orbit) for orbit in _orbits(reach)], np.float64)


def _mixed(rows: Wide, target: Grid, reach: int) -> Wide:
    """Return the sum over each orbit of shifts, at the cells that are no border's."""
    grid = rows.reshape(target.height, target.width, -1)
    height, width = target.height - 2 * reach, target.width - 2 * reach
    sums = [
        sum(
            grid[reach + down : reach + down + height, reach + across : reach + across + width]
            for down, across in orbit
        )
        for orbit in _orbits(reach)
    ]
    return np.stack([np.asarray(each).reshape(-1) for each in sums])
