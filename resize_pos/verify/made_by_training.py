"""Did training move a table by as much as its positions differ, or is that noise?

Adam and its kin move each value by at most the rate in every step, whatever its channel, and the
same pictures pull many channels at once. So the movement has shorter tails than noise, is about as
large in every channel and cell, and lies in fewer directions than noise that is as smooth. It has
little to do with the values that were there: those are still in the table, and in place.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.likeness import best_kernel
from resize_pos.quality.measures.sampling import Wide, products, size, some_channels

_CHANNELS = 128  # that are compared
_CELLS = 16  # of both grids: fewer are too few to tell
_MOST_MOVED = 5.0  # times how much positions differ; beyond it, too little is left to be seen
# Cosine of the movement and the positions: training may strengthen them, damage takes them away.
_RELATED = (-0.12, 0.3)
_LEFT = 0.6  # of the positions that must still be there
_TAILS = 2.95  # fourth moment ÷ squared second one: noise has 3, evenly spread values have 1.8
_UNEVEN = 0.68  # deviation ÷ mean of what each channel, and each cell, moved
_DIRECTIONS = 0.85  # share of the directions that noise would fill
_REACH = 3  # cells that neighbours are compared over


@dataclass(frozen=True, slots=True)
class Movement:
    """How a table differs from the honest resize that it resembles most."""

    moved: float  # ÷ how much positions differ
    related: float
    tails: float
    uneven: float
    directions: float

    @property
    def left(self) -> float:
        """How much of the positions is still there."""
        return 1 + self.related * self.moved

    @property
    def is_training(self) -> bool:
        """Whether an optimiser moves values in this way, and noise does not."""
        return (
            self.moved <= _MOST_MOVED
            and _RELATED[0] <= self.related <= _RELATED[1]
            and self.left >= _LEFT
            and self.tails <= _TAILS
            and self.uneven <= _UNEVEN
            and self.directions <= _DIRECTIONS
        )


def movement(source: Wide, rows: Wide, target: Grid) -> Movement | None:
    """Compare the rows of a table with an honest resize of a (1, h, w, channels) grid."""
    if min(len(rows), source.shape[1] * source.shape[2]) < _CELLS:
        return None
    kernel = best_kernel(source, rows.reshape(1, target.height, target.width, -1))
    source, rows = (some_channels(values, _CHANNELS) for values in (source, rows))
    honest = proper.resized(source, target, kernel).reshape(rows.shape)
    positions, moved = honest - source.mean(axis=(1, 2)), rows - honest
    mine, theirs = size(moved), size(positions)
    if not mine or not theirs:
        return None
    squares = moved**2
    return Movement(
        moved=mine / theirs,
        related=float(np.einsum("nd,nd->", moved, positions)) / (mine * theirs),
        tails=float((squares**2).mean() / squares.mean() ** 2),
        uneven=max(_uneven(squares.mean(axis=0)), _uneven(squares.mean(axis=1))),
        directions=_directions(moved) / _directions_of_noise(moved, target),
    )


def _uneven(sizes: Wide) -> float:
    return float(sizes.std() / sizes.mean())


def _directions(moved: Wide) -> float:
    """Count the directions that a movement fills: the larger ones count more."""
    lines = moved.T if moved.shape[0] >= moved.shape[1] else moved
    inner = products(lines.astype(np.float32), lines.astype(np.float32)).astype(np.float64)
    return float(np.trace(inner) ** 2 / (inner**2).sum())


def _directions_of_noise(moved: Wide, target: Grid) -> float:
    """Count the directions of noise whose neighbours are as alike, in channels without relation."""
    grid = moved.reshape(target.height, target.width, -1)
    mean_square = float((moved**2).mean())
    alike = 0.0  # sum of the squared correlations of a cell with all others
    for down, across in product(range(_REACH + 1), range(-_REACH, _REACH + 1)):
        if (down, across) <= (0, 0) or down >= target.height or abs(across) >= target.width:
            continue
        last = target.width - abs(across)
        upper = grid[: target.height - down, max(-across, 0) :][:, :last]
        lower = grid[down:, max(across, 0) :][:, :last]
        correlation = float((upper * lower).mean()) / mean_square
        by_chance = 1 / lower.size
        alike += 2 * max(correlation**2 - by_chance, 0.0) * lower[..., 0].size
    cells, channels = moved.shape
    return float(1 / ((1 + alike / cells) / cells + 1 / channels))
