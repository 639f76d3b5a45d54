"""Damage that training hides: cells that belong elsewhere, and cells that no resize gives.

A mistake that was recomputed equals the table only until somebody trains on. Training moves every
cell by about the same small distance. So a cell whose distance to the honest one is explained by
another place, or is many times the usual one, was wrong before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import Method
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.sampling import Wide, median, products, ratio, size, spread
from resize_pos.verify.made_by.parts import Finding, content_of, place_of, wrong_order

_CELLS = 16  # fewer are too few to tell
_SAMPLE = 256  # cells that are looked for elsewhere
_APART = 0.05  # of the usual length: a cell that is nearer than this to its own is in its place
_NEARER = 0.45  # of the distance to its own place: as near as this, another place explains a cell
_EXPLAINS = 0.5  # of a cell's length: what is farther away than this explains nothing
_MANY = 0.3  # share of cells in wrong places
_USUAL, _UNUSUAL = 3.0, 6.0  # times the median distance: what training does, and what it does not,
_SPAN = 1.25  # times the largest distance between honest results
_FAR = 0.25  # if it is that much of the usual length
_FEWEST_FOREIGN, _LEAST_FOREIGN = 2, 0.01  # cells, and share; fewer may be a kernel's overshoot,
_VERY_FAR = 2.0  # unless they are that many usual lengths away
_MOST_BETWEEN = 0.1  # share of cells that may be neither
_GAP = 2.5  # times the distance of all others but so many: SGD moves cells very differently
KERNELS: tuple[Kernel, ...] = (*proper.CONVENTIONAL, *proper.OTHERS)


def find_moved(
    source: Wide, rows: Wide, whole_source: Wide, table: Wide, target: Grid
) -> Finding | None:
    """Compare a table with the nearest honest result.

    `source` (1, h, w, d) and `rows` hold some channels, `whole_source` and `table` all of them.
    """
    if min(len(table), source.shape[1] * source.shape[2]) < _CELLS:
        return None
    results = list(_results(source, target))
    nearest = int(np.argmin([size(rows - result) for result in results]))
    honest = proper.resized(whole_source, target, KERNELS[nearest]).reshape(table.shape)
    paces = (target.height / source.shape[1], target.width / source.shape[2])
    step = [
        min(max(1, round(pace)), n - 1)
        for pace, n in zip(paces, (target.height, target.width), strict=True)
    ]
    extremes = [
        proper.resized(source, target, kernel).reshape(rows.shape)
        for kernel in (proper.SMOOTHEST, proper.SHARPEST)
    ]
    found = _elsewhere(table, honest, target)
    return found or _foreign(rows, results, nearest, table, target, step, extremes)


def nearest_honest(source: Wide, rows: Wide, target: Grid) -> float:
    """Return the relative distance of the rows of a table to the nearest honest result."""
    return min(ratio(size(rows - result), size(rows), 1.0) for result in _results(source, target))


def _results(source: Wide, target: Grid) -> Iterator[Wide]:
    for kernel in KERNELS:
        yield proper.resized(source, target, kernel).reshape(target.cells, -1)


def _elsewhere(table: Wide, honest: Wide, target: Grid) -> Finding | None:
    """Count the cells that another place explains much better than their own."""
    cells = spread(len(table), _SAMPLE)
    mean = honest.mean(axis=0)
    mine, theirs = table[cells] - mean, honest - mean
    inner = products(mine.astype(np.float32), theirs.astype(np.float32)).astype(np.float64)
    lengths = (theirs**2).sum(axis=1)
    far = np.maximum((mine**2).sum(axis=1)[:, None] + lengths - 2 * inner, 0.0)
    each = np.arange(len(cells))
    own = ((mine - theirs[cells]) ** 2).sum(axis=1)
    far[each, cells] = np.inf
    found = far.argmin(axis=1)
    best = ((mine - theirs[found]) ** 2).sum(axis=1)
    moved = (own > _APART**2 * lengths.mean()) & (best < _NEARER**2 * own)
    moved &= best < _EXPLAINS**2 * (mine**2).sum(axis=1)  # zeros are near any short cell
    if moved.mean() < _MANY:
        return None
    name, words = wrong_order(cells, np.where(moved, found, cells), target, float(moved.mean()))
    return Finding(name, f"{words}, and trained on or changed then")


def _is_smooth(kernel: Kernel) -> bool:
    """Whether a kernel interpolates; the others repeat single cells where a grid grows."""
    if kernel.resampling is not None:
        return kernel.resampling.method is not Method.NEAREST
    return kernel not in (proper.NEAREST_EXACT, proper.BOX, proper.AREA, proper.OPENCV_AREA)


def _beyond(honest: Wide, target: Grid, step: list[int]) -> Wide:
    """Return how far outermost cells are from those one source cell further in; 0 for the others.

    Kernels repeat, reflect or continue what lies beyond the border: they differ by about that much.
    """
    grid = honest.reshape(target.height, target.width, -1)
    allowed = np.zeros(grid.shape[:2])
    for axis in (0, 1):
        lines, by = grid.shape[axis], step[axis]
        index = np.arange(lines)
        inward = np.where(index < by, index + by, np.where(index >= lines - by, index - by, index))
        apart = np.sqrt(((grid - grid.take(inward.clip(0, lines - 1), axis)) ** 2).sum(axis=-1))
        allowed = np.maximum(allowed, apart)
    return allowed.reshape(-1)


def _foreign(
    rows: Wide,
    results: list[Wide],
    nearest: int,
    table: Wide,
    target: Grid,
    step: list[int],
    extremes: list[Wide],
) -> Finding | None:
    """Look for cells that are much farther from every honest result than the others."""
    length = float(np.sqrt((results[nearest] ** 2).sum(axis=1).mean())) or 1.0
    apart = [np.sqrt(((rows - result) ** 2).sum(axis=1)) / length for result in results]
    usual = median(apart[nearest])
    least = np.min(apart, axis=0)
    beyond = _beyond(results[nearest], target, step) / length
    # Long cells, and those beside them, differ more among honest results, too.
    smooth = [result for result, kernel in zip(results, KERNELS, strict=True) if _is_smooth(kernel)]
    far = [np.sqrt(((r - results[nearest]) ** 2).sum(axis=1)) for r in (*smooth, *extremes)]
    span = np.max(far, axis=0)
    limit = np.maximum(beyond, _SPAN * span / length)
    other: NDArray[np.bool_] = least >= np.maximum(max(_FAR, _UNUSUAL * usual), limit)
    same = apart[nearest] <= _USUAL * usual
    if other.sum() < max(_FEWEST_FOREIGN, _LEAST_FOREIGN * len(other)):
        other &= least >= _VERY_FAR
    if not other.any() or same.mean() < 0.5 or (~same & ~other).mean() > _MOST_BETWEEN:
        return None
    if least[other].min() < _GAP * float(np.quantile(apart[nearest][~other], 1 - _MOST_BETWEEN)):
        return None
    words = place_of(other, table, target, content_of(rows[other], results[nearest]))
    return Finding("patched", f"{words}; the rest is near an honest resize")
