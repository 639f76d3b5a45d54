"""Did training move a table by as much as its positions differ, or is that noise?

Adam and its kin move each value by at most the rate in every step, whatever its channel, and the
same pictures pull many channels at once. So the movement has shorter tails than noise, is about as
large in every channel and cell, and lies in fewer directions than noise that is as smooth. It has
little to do with the values that were there: those are still in the table, and in place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.likeness import best_kernel
from resize_pos.quality.measures.sampling import Wide, products, ratio, size, some_channels
from resize_pos.verify.made_by.restored import deviations_are_restored, with_deviations_of
from resize_pos.verify.made_by.rounding import rounding

_CHANNELS = 128  # that are compared
_CELLS, _FEWEST_CELLS = 16, 4  # of both grids: too few to tell training, or to tell anything
_MOST_MOVED = 5.0  # times how much positions differ; beyond it, too little is left to be seen
# Cosine of the movement and the positions: training may strengthen them, damage takes them away.
_RELATED = (-0.12, 0.3)
_LEFT, _REPLACED = 0.6, 0.3  # of the positions: what must still be there; below it they are gone
_TAILS = 2.95  # fourth moment ÷ squared second one: noise has 3, evenly spread values have 1.8
_UNEVEN = 0.68  # deviation ÷ mean of what each channel, and each cell, moved
DIRECTIONS = 0.85  # share of the directions that noise would fill
_HELD, _OWN = 0.8, 0.74  # of the variance, and of the movement: training has 0.67 there at most
_SHARED = 0.5  # of the movement that may be the same in all cells; a vector added to all has 1
# A little training, beside what a fitted kernel leaves: up to so much of how much positions differ,
# these tails, unevenness and directions. Its relation to positions is small.
_LIGHT = ((0.2, 5.0, 0.85, 0.8), (0.3, 4.0, 0.8, 0.6))
_LIGHT_FEW = (0.41, 5.0, 1.0)  # the same on few cells, which always fill all directions
_LIGHTLY_RELATED = 0.1
# SGD moves values as far as their gradients are long: some cells much farther than others, and in
# few directions. It strengthens the positions. Its tails are longer than those of Adam; beyond
# these, single values were changed.
_SGD_MOVED, _SGD_TAILS, _SGD_UNEVEN, _SGD_DIRECTIONS = 0.3, (4.5, 15.0), 1.0, 0.5
_SGD_LEFT, _SGD_OWN, _SGD_SHARED, _SGD_SMOOTH = 1.02, 0.5, 0.1, 0.45
_KEPT = 0.9  # of the positions: what training leaves; runs here left 0.93 at least
# … and what honest methods leave: 0.84 at least where they agree, and less where they do not.
_WEAK, _WEAK_OF_ENVELOPE = 0.8, 1.25
# A vector that was added to all cells, and only to some channels: its share, its size, and how
# uneven it is. Training moves all channels, and of honest methods what is shared has 0.02 at most.
_VECTOR = (0.7, 0.03, 2.0)
# Of how much positions differ: what may come from no cell of the source without a reason, and what
# is too much. Methods that take no weighted means leave up to 0.62 of the envelope.
_LITTLE, _OF_ENVELOPE, _MUCH = 0.12, 0.67, 0.24
_LITTLE_FEW, _NINE = 0.2, 9  # on fewer than nine cells
# Correlation of neighbours up to which the rest is detail, about which honest results differ. Of
# smoother rests, honest methods leave 0.10 at most.
_DETAIL = 0.6
_LITTLE_NOISE, _MUCH_NOISE = 0.205, 0.3  # networks hardly notice noise; something smooth costs more
_SMOOTH = 0.3  # correlation of neighbours, from which it is smooth
# Noise: how large (beyond that, nothing else is left), and its directions; training has 0.88.
_NOISE, FILLED = (_MUCH_NOISE, 3.0), 0.92


@dataclass(frozen=True, slots=True)
class Movement:
    """How a table differs from the honest resize that it resembles most."""

    cells: int  # of the smaller grid
    moved: float  # ÷ how much positions differ
    related: float
    tails: float
    uneven: float
    directions: float
    shared: float
    left: float  # how much of the positions is still there
    smooth: float = 0.0  # correlation of what neighbours moved by
    own: float = 0.0  # share in the directions that positions themselves mostly differ in

    @property
    def is_own(self) -> bool:
        """Whether it consists of the source's own cells, in other places; training does not."""
        return self.own >= _OWN

    @property
    def is_small(self) -> bool:
        """Whether there are too few cells to tell training from noise."""
        return self.cells < _CELLS

    @property
    def is_training(self) -> bool:
        """Whether an optimiser moves values in this way, and noise does not."""
        return (
            not self.is_small
            and self.moved <= _MOST_MOVED
            and _RELATED[0] <= self.related <= _RELATED[1]
            and self.left >= _LEFT
            and self.tails <= _TAILS
            and self.uneven <= _UNEVEN
            and self.directions <= DIRECTIONS
            and self.shared <= _SHARED
        )

    @property
    def is_light_training(self) -> bool:
        """Whether a little training explains what a fitted kernel leaves."""
        if self._is_by_gradients:
            return True
        shape = self.moved, self.tails, self.uneven, self.directions
        rows = (_LIGHT_FEW,) if self.is_small else _LIGHT
        usual = any(all(v <= most for v, most in zip(shape, row, strict=False)) for row in rows)
        usual = usual and not self.is_own and self.left >= _KEPT
        return usual and abs(self.related) <= _LIGHTLY_RELATED and self.shared <= _SHARED

    @property
    def _is_by_gradients(self) -> bool:
        """Whether plain SGD moves values in this way."""
        least, most = _SGD_TAILS
        return (
            self.moved <= _SGD_MOVED
            and least <= self.tails <= most
            and self.uneven >= _SGD_UNEVEN
            and self.directions <= _SGD_DIRECTIONS
            and self.left >= _SGD_LEFT
            and self.own <= _SGD_OWN
            and self.shared <= _SGD_SHARED
            and self.smooth <= _SGD_SMOOTH
        )

    def least_left(self, envelope: float) -> float:
        """Return how much of the positions every honest method leaves.

        `envelope`: how much honest results differ from each other.
        """
        return min(_WEAK, 1 - _WEAK_OF_ENVELOPE * envelope)

    def is_weak(self, envelope: float) -> bool:
        """Whether less is left of the positions than any honest method leaves."""
        return self.left < self.least_left(envelope)

    @property
    def is_vector(self) -> bool:
        """Whether one vector was added to all cells, and only to some channels."""
        share, moved, uneven = _VECTOR
        found = self.shared >= share and self.moved >= moved and self.uneven >= uneven
        return found and not self.is_small

    @property
    def _is_white(self) -> bool:
        return self.directions >= FILLED and self.smooth <= _SMOOTH

    def most_little(self, envelope: float) -> float:
        """Return how much may come from elsewhere without a reason; `envelope` as above."""
        little = _LITTLE if self.cells >= _NINE else _LITTLE_FEW
        most = _LITTLE_NOISE if self._is_white else little
        return max(most, _OF_ENVELOPE * envelope) if self.smooth <= _DETAIL else most

    def is_little(self, envelope: float) -> bool:
        """Whether so little comes from elsewhere that it needs no reason."""
        return self.moved <= self.most_little(envelope)

    def least_much(self, envelope: float) -> float:
        """Return how much comes from elsewhere in a table that is wrong, unless it was trained."""
        return max(_MUCH_NOISE if self._is_white else _MUCH, envelope)

    def is_much(self, envelope: float) -> bool:
        """Whether so much comes from elsewhere that the table is wrong, unless it was trained.

        Where nearly nothing is left of the positions, nothing was added: they were replaced.
        """
        return self.left >= _REPLACED and self.moved >= self.least_much(envelope)

    @property
    def is_noise(self) -> bool:
        """Whether the cells and channels moved without any relation to each other."""
        filled = self.directions >= FILLED and not self.is_small
        return filled and self.left >= _LEFT and _NOISE[0] <= self.moved <= _NOISE[1]


def movement(source: Wide, rows: Wide, target: Grid) -> Movement | None:
    """Compare the rows of a table with an honest resize of a (1, h, w, channels) grid."""
    honest = _honest(source, rows, target)
    return _described(source, rows, honest, honest, target)


def unexplained(source: Wide, rows: Wide, rest: Wide, target: Grid) -> Movement | None:
    """Look at what no kernel explains of the rows of a table: the rest, by the fitted one."""
    some, rest = (some_channels(values, _CHANNELS) for values in (rows, rest))
    made = some - rest
    if deviations_are_restored(source, rows):
        made = with_deviations_of(made, some)
    # Norms can be restored, so each cell may have a length of its own. Of a few cells these explain
    # too much; they may all have the same factor.
    axes = "nd,nd->n" if min(len(rows), source.shape[1] * source.shape[2]) >= _NINE else "nd,nd->"
    lengths = np.einsum(axes, made, made)
    factors = np.einsum(axes, some, made) / np.where(lengths > 0, lengths, 1.0)
    made = made * factors.reshape(-1, 1)
    found = _described(source, rows, made, _honest(source, rows, target), target)
    if found is None:
        return None
    return replace(found, moved=float(np.sqrt(max(found.moved**2 - rounding(some) ** 2, 0.0))))


def _honest(source: Wide, rows: Wide, target: Grid) -> Wide:
    """Resize some channels of a grid by the proper kernel that comes nearest to the rows."""
    kernel = best_kernel(source, rows.reshape(1, target.height, target.width, -1))
    some = some_channels(source, _CHANNELS)
    return proper.resized(some, target, kernel).reshape(len(rows), -1)


def _described(source: Wide, rows: Wide, made: Wide, honest: Wide, target: Grid) -> Movement | None:
    """Describe how rows differ from what was made of the source; these two hold some channels."""
    cells = min(len(rows), source.shape[1] * source.shape[2])
    if cells < _FEWEST_CELLS:
        return None
    mean = some_channels(source, _CHANNELS).mean(axis=(1, 2))
    table = some_channels(rows, _CHANNELS)
    moved, positions, wanted = table - made, made - mean, honest - mean
    mine, theirs = size(moved), size(positions)
    if not mine or not theirs:
        return None
    squares, varying = moved**2, moved - moved.mean(axis=0)
    return Movement(
        cells=cells,
        moved=mine / theirs,
        related=float(np.einsum("nd,nd->", moved, positions)) / (mine * theirs),
        tails=float((squares**2).mean() / squares.mean() ** 2),
        uneven=max(_uneven(squares.mean(axis=0)), _uneven(squares.mean(axis=1))),
        directions=_directions(varying) / _directions_of_noise(varying, target),
        shared=1 - (size(varying) / mine) ** 2,
        left=ratio(float(np.einsum("nd,nd->", table - mean, wanted)), size(wanted) ** 2),
        smooth=_correlation(varying.reshape(target.height, target.width, -1)),
        own=_share_of_own(varying, some_channels(source, _CHANNELS)[0]),
    )


def _share_of_own(moved: Wide, source: Wide) -> float:
    """Return the share of a movement in the directions that hold most of the source's variance."""
    cells = source.reshape(-1, source.shape[-1])
    varying = cells - cells.mean(axis=0)
    strengths, directions = np.linalg.eigh(varying.T @ varying)
    held = np.cumsum(strengths[::-1])
    count = int(np.searchsorted(held, _HELD * held[-1])) + 1
    along = moved @ directions[:, ::-1][:, :count]
    return ratio(size(along), size(moved)) ** 2


def _correlation(grid: Wide) -> float:
    """Return the mean correlation of neighbours along both axes of (h, w, channels)."""
    pairs = [(grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1])]
    found = [
        ratio(float(np.einsum("hwd,hwd->", *pair)), size(pair[0]) * size(pair[1])) for pair in pairs
    ]
    return 0.5 * (found[0] + found[1])


def _uneven(sizes: Wide) -> float:
    return float(sizes.std() / sizes.mean())


def _directions(moved: Wide) -> float:
    """Count the directions that a movement fills: the larger ones count more."""
    lines = moved.T if moved.shape[0] >= moved.shape[1] else moved
    inner = products(lines.astype(np.float32), lines.astype(np.float32)).astype(np.float64)
    return ratio(float(np.trace(inner) ** 2), float((inner**2).sum()), 1.0)


def _directions_of_noise(moved: Wide, target: Grid) -> float:
    """Count the directions of noise whose cells are as alike, in channels without relation."""
    cells, channels = moved.shape
    height, width = target.height, target.width
    # Correlations of all cells that are so many rows and columns apart, from their spectrum.
    grid = np.fft.rfft2(moved.reshape(height, width, -1), s=(2 * height, 2 * width), axes=(0, 1))
    power = (np.abs(grid) ** 2).sum(axis=-1)
    sums = np.fft.irfft2(power, s=(2 * height, 2 * width))
    pairs = np.outer(_pairs(height), _pairs(width))
    terms = np.maximum(channels * pairs, 1)
    correlations = ratio(1.0, float((moved**2).mean())) * sums / terms
    by_chance = np.where(pairs == cells, 0.0, 1 / terms)
    alike = float((pairs * np.maximum(correlations**2 - by_chance, 0.0)).sum())
    return float(1 / (alike / cells**2 + 1 / channels))


def _pairs(length: int) -> Wide:
    """Count the pairs of lines that are 0, 1, … apart, in the order of a spectrum."""
    apart = np.arange(2 * length, dtype=np.float64)
    return np.asarray(np.maximum(length - np.minimum(apart, 2 * length - apart), 0.0))
