"""Damage that training hides: cells that belong elsewhere, and cells that no resize gives.

A mistake that was recomputed equals the table only until somebody trains on. Training moves every
cell by about the same small distance. So a cell whose distance to the honest one is explained by
another place, or is many times the usual one, was wrong before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.sampling import Wide, median, products, ratio, size, spread
from resize_pos.verify.made_by_parts import Finding, place_of, wrong_order

_CELLS = 16  # fewer are too few to tell
_SAMPLE = 256  # cells that are looked for elsewhere
_APART = 0.05  # of the usual length: a cell that is nearer than this to its own is in its place
_NEARER = 0.45  # of the distance to its own place: as near as this, another place explains a cell
_EXPLAINS = 0.5  # of a cell's length: what is farther away than this explains nothing
_MANY = 0.3  # share of cells in wrong places
_USUAL, _UNUSUAL = 3.0, 6.0  # times the median distance: what training does, and what it does not,
_FAR = 0.25  # if it is that much of the usual length
_MOST_BETWEEN = 0.1  # share of cells that may be neither
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
    return _elsewhere(table, honest, target) or _foreign(rows, results, nearest, table, target)


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


def _foreign(
    rows: Wide, results: list[Wide], nearest: int, table: Wide, target: Grid
) -> Finding | None:
    """Look for cells that are much farther from every honest result than the others."""
    length = float(np.sqrt((results[nearest] ** 2).sum(axis=1).mean())) or 1.0
    apart = [np.sqrt(((rows - result) ** 2).sum(axis=1)) / length for result in results]
    usual = median(apart[nearest])
    least = np.min(apart, axis=0)
    other: NDArray[np.bool_] = least >= max(_FAR, _UNUSUAL * usual)
    same = apart[nearest] <= _USUAL * usual
    if not other.any() or same.mean() < 0.5 or (~same & ~other).mean() > _MOST_BETWEEN:
        return None
    words = place_of(other, table, target)
    return Finding("patched", f"{words}; the rest is near an honest resize")
