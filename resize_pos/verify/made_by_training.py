"""Did training move a table by as much as its positions differ, or is that noise?

Adam and its kin move each value by at most the rate in every step, whatever its channel, and the
same pictures pull many values at once. So the movement has shorter tails than noise, is about as
large in every channel and cell, and lies in fewer directions than it could; cells move with their
neighbours. It has nothing to do with the values that were there: those are still in the table, in
full and in place.
"""

from __future__ import annotations

import numpy as np

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.likeness import best_kernel
from resize_pos.quality.measures.sampling import Wide, products, ratio, size, some_channels

_CHANNELS = 128  # that are compared
_CELLS = 16  # of both grids: fewer are too few to tell
_MOST_MOVED = 2.5  # times how much positions differ; beyond it, too little is left to be seen
# Cosine of the movement and the positions: training may strengthen them, damage takes them away.
_RELATED = (-0.12, 0.3)
_TAILS = 2.7  # fourth moment ÷ squared second one: noise has 3, evenly spread values have 1.8
_UNEVEN = 0.6  # deviation ÷ mean of what each channel, and each cell, moved
_DIRECTIONS = 0.85  # share of the directions that noise would fill
_TOGETHER = (0.05, 0.6)  # how alike neighbours move; one vector for all cells is no training


@dataclass(frozen=True, slots=True)
class Movement:
    """How a table differs from the honest resize that it resembles most."""

    moved: float  # ÷ how much positions differ
    related: float
    tails: float
    uneven: float
    directions: float
    together: float

    @property
    def is_training(self) -> bool:
        """Whether an optimiser moves values in this way, and noise does not."""
        return (
            self.moved <= _MOST_MOVED
            and _RELATED[0] <= self.related <= _RELATED[1]
            and self.tails <= _TAILS
            and self.uneven <= _UNEVEN
            and self.directions <= _DIRECTIONS
            and _TOGETHER[0] <= self.together <= _TOGETHER[1]
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
        directions=_directions(moved),
        together=_together(moved.reshape(target.height, target.width, -1)),
    )


def _uneven(sizes: Wide) -> float:
    return float(sizes.std() / sizes.mean())


def _directions(moved: Wide) -> float:
    """Count the directions that a movement fills, as a share of those that noise would."""
    lines = moved.T if moved.shape[0] >= moved.shape[1] else moved
    inner = products(lines.astype(np.float32), lines.astype(np.float32)).astype(np.float64)
    filled = float(np.trace(inner) ** 2 / (inner**2).sum())
    return float(filled * (1 / moved.shape[0] + 1 / moved.shape[1]))


def _together(moved: Wide) -> float:
    """Return the mean product of neighbours ÷ the mean square."""
    found = [
        float((moved.take(range(1, n), axis) * moved.take(range(n - 1), axis)).mean())
        for axis, n in ((0, moved.shape[0]), (1, moved.shape[1]))
        if n > 1
    ]
    return ratio(sum(found) / len(found), float((moved**2).mean()))
