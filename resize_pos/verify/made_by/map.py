"""Cells that were read from the wrong places: a bent, turned, shifted or magnified grid.

The places are found to a part of a cell. Between places that are near each other a table changes
by its slope, so the difference between a table and an honest one tells how far each cell has moved.
All cells together give one smooth map (a polynomial of second degree along each axis). Training and
other kernels leave differences, too, but no map explains those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.proper import along
from resize_pos.quality.measures.sampling import Wide, size, spread
from resize_pos.verify.made_by.parts import Finding

_LINES = 10  # rows, and columns, of new cells that are looked at
_CHANNELS = 16
_SHORTEST = 4  # cells of an axis, in both grids: a map of fewer means little
_STEPS = 6  # of the fit
_NEAR = 0.05  # distance to an honest result: nothing is left to explain
_EXPLAINED = 0.62  # of that distance must be left at most
_HOPELESS = 0.9  # of it is left after two steps: then no map explains it
_MOVED = 0.35  # cells of the coarser grid, on average, from every honest rule of coordinates
_SLOPE = 0.25  # cells: the slope is taken between places that far on both sides


def find_map(source: Wide, table: Wide, honest: Sequence[Wide], target: Grid) -> Finding | None:
    """Look for a smooth map of places that explains the rows (cells × channels) of a table.

    `source` is a grid (h, w, channels), `honest` are the rows that the conventions give.
    """
    height, width = source.shape[:2]
    if min(height, width, target.height, target.width) < _SHORTEST:
        return None
    channels = spread(source.shape[2], _CHANNELS)
    rows, columns = spread(target.height, _LINES), spread(target.width, _LINES)
    cells = (rows[:, None] * target.width + columns).reshape(-1)
    mean = source.mean(axis=(0, 1))[channels]
    mine = table[cells][:, channels] - mean
    apart = min(size(mine - (other[cells][:, channels] - mean)) for other in honest)
    if apart <= _NEAR * size(mine):
        return None
    pace = np.array([height / target.height, width / target.width])
    wanted = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)
    centres = (wanted + 0.5) * pace - 0.5
    read = _Reader(source[..., channels] - mean, np.maximum(pace, 1.0))
    moved, left = _fitted(read, mine, centres)
    if left > _EXPLAINED * apart:
        return None
    places = centres + moved
    far = np.array(
        [
            min(_apart(places[:, axis], rule) for rule in _rules(index, old, new))
            for axis, (index, old, new) in enumerate(
                zip(wanted.T, (height, width), (target.height, target.width), strict=True)
            )
        ]
    )
    if size(far / np.maximum(pace, 1.0)) < _MOVED:
        return None
    by = size(far)
    words = f"cells were read from places that are {by:.1f} cells of the source away"
    return Finding("displaced", f"{words}: shifted, magnified, turned or bent")


def _rules(index: NDArray[np.intp], old: int, new: int) -> Iterator[Wide]:
    """Give the places of some new cells along an axis by every honest rule of coordinates."""
    yield (index + 0.5) * old / new - 0.5
    yield index * (old - 1) / max(new - 1, 1)
    yield index * old / new


def _apart(places: Wide, rule: Wide) -> float:
    return float(np.sqrt(np.mean((places - rule) ** 2)))


class _Reader:
    """Reads a grid (h, w, channels) at any places, smoothed where the grid shrinks."""

    def __init__(self, grid: Wide, wide: Wide) -> None:
        self.grid, self.wide = grid, wide

    def __call__(self, places: Wide) -> Wide:
        down, across = (
            self._weights(places[:, axis], self.grid.shape[axis], float(self.wide[axis]))
            for axis in (0, 1)
        )
        count, (height, width, channels) = len(places), self.grid.shape
        lines = along(down, self.grid.reshape(height, -1))
        result: Wide = np.einsum("nb,nbd->nd", across, lines.reshape(count, width, channels))
        return result

    def _weights(self, places: Wide, count: int, wide: float) -> Wide:
        apart = np.abs(np.arange(count)[None] - np.clip(places, 0, count - 1)[:, None]) / wide
        near = (1.5 * apart - 2.5) * apart * apart + 1
        far = -0.5 * (((apart - 5) * apart + 8) * apart - 4)
        weights = np.where(apart < 1, near, np.where(apart < 2, far, 0.0))
        result: Wide = weights / weights.sum(axis=1, keepdims=True)
        return result


def _fitted(read: _Reader, mine: Wide, centres: Wide) -> tuple[Wide, float]:
    """Fit the map: how far each cell has moved, and the distance that is left."""
    unit = 2 * (centres - centres.min(axis=0)) / np.maximum(np.ptp(centres, axis=0), 1e-9) - 1
    y, x = unit.T
    basis = np.stack([np.ones_like(y), y, x, y * x, y * y, x * x], axis=1)
    # Long vectors must not decide alone.
    weight = 1 / np.maximum(np.sqrt((mine**2).sum(axis=1)), 1e-30)[:, None]
    moved = np.zeros_like(centres)
    best = first = size((mine - read(centres)) * weight)
    for count in range(_STEPS):
        if count == 2 and best > _HOPELESS * first:
            break
        here = centres + moved
        rest = (mine - read(here)) * weight
        slopes = []
        for axis in (0, 1):
            step = np.zeros(2)
            step[axis] = _SLOPE * read.wide[axis]
            slope = (read(here + step) - read(here - step)) / (2 * step[axis])
            slopes.append((slope * weight)[:, :, None] * basis[:, None, :])
        design = np.concatenate(slopes, axis=2).reshape(rest.size, -1)
        normal = np.einsum("ni,nj->ij", design, design, optimize=True)
        wanted = np.einsum("ni,n->i", design, rest.reshape(-1))
        normal += 1e-3 * np.eye(len(normal)) * (np.trace(normal) / len(normal) or 1.0)
        found = np.linalg.solve(normal, wanted).reshape(2, -1)
        step_taken = basis @ found.T
        for share in (1.0, 0.5, 0.25):
            tried = moved + share * step_taken
            left = size((mine - read(centres + tried)) * weight)
            if left < best:
                break
        else:
            break
        moved, best = tried, left
    return moved, size(mine - read(centres + moved))
