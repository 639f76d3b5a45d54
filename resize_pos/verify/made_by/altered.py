"""Was an honest resize altered by one simple operation? Fit it, and look at what it leaves.

A resize combines cells near each other, in the same way for every channel. Training moves values in
a way that no few numbers describe. So if a few numbers turn an honest result into the table, and no
kernel comes near it, then that operation was applied, however little it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.sampling import Wide, ratio, size, some_channels, unit
from resize_pos.verify.made_by.moved import KERNELS
from resize_pos.verify.made_by.parts import Finding
from resize_pos.verify.made_by.restored import (
    deviations_are_restored,
    mean_is_restored,
    spread_is_restored,
    with_deviations_of,
)
from resize_pos.verify.made_by.rounding import rounding

_CELLS, _FEWEST_CELLS = 16, 9  # of both grids: fewer fit operations by chance,
_EXACTLY = 0.25  # so these must explain a table better by this factor
_CHANNELS, _FEWEST_CHANNELS = 48, 12  # that operations are fitted to,
_NUMBERS = 1 << 17  # … and how many numbers these may have
_TRIED = 6  # kernels that come nearest, whatever the size of the values
_ROUNDING = 0.7  # of what the fitted kernel leaves: if rounding is as large, nothing else is left
_LITTLE = 0.02  # of how much positions differ: what kernels leave, and nothing has to explain
_EXPLAINED = 0.2  # of what listed kernels leave: an operation that leaves no more was applied,
_BETTER = 0.6  # if it is better than the fitted kernel, too, which has many more numbers
_OWN = 0.5  # of how much the table's own cells differ: an operation that leaves more made nothing
_SHIFTED = 0.15  # of how much positions differ: a vector that was added
_SCALED = 0.05  # how far a factor is from one,
_LEAST = 0.05  # … and its least size; below it nothing is left that could have been scaled
_MIXED = 0.05  # weight of a mirror image
_STEPS = 3  # of the sequence on each side that cells are mixed with
_KNOTS = 12  # of a curve
_BENT = 0.06  # of how much positions differ: eight bits round each channel by less
_DISORDER = 0.5  # of a change: what no rising function explains of it in other cells
_FEWEST_LINES = 4  # of an axis, to tell slow waves from fast ones
_SLOW_WAVES = 3  # along each axis
_SLOW = 0.12  # how far the factor of the slowest waves is from one


@dataclass(frozen=True, slots=True, eq=False)
class _Honest:
    """An honest result beside the table: rows (cells × channels) without the source's mean."""

    table: Wide
    rows: Wide
    mean: Wide  # the source's
    transposed: Wide  # the same kernel applied to the source with rows and columns exchanged
    target: Grid
    shift: Wide  # one vector that may be added to all cells: little, or to restore the mean

    @property
    def varying(self) -> Wide:
        """What positions differ by."""
        return np.asarray(self.rows - self.rows.mean(axis=0))

    @property
    def usual(self) -> float:
        """How much positions differ."""
        return size(self.varying) / float(np.sqrt(len(self.rows)))

    @property
    def moved(self) -> Wide:
        """How the table differs from the rows."""
        return np.asarray(self.table - self.rows - self.shift)


# What the operation makes of the honest rows, and the words for it.
_Made = tuple[Wide, str]
_Operation = Callable[[_Honest], Iterator[_Made]]


def find_altered(source: Wide, table: Wide, rest: float, target: Grid) -> Finding | None:
    """Look for the operation that makes a table (cells × channels) of an honest resize.

    `source` is a grid (1, h, w, channels). `rest`: how far the kernel that was fitted is from the
    table, as a part of how much positions differ.
    """
    if rounding(table) >= _ROUNDING * rest:
        return None
    cells = min(len(table), source.shape[1] * source.shape[2])
    fewer = min(_CHANNELS, max(_FEWEST_CHANNELS, _NUMBERS // len(table)))
    some, rows = some_channels(source, fewer), some_channels(table, fewer)
    results = list(_nearest(some, rows, target))
    listed = min((size(one.moved) / size(one.varying) for one in results), default=0.0)
    if cells < _FEWEST_CELLS or min(listed, rest) < _LITTLE:
        return None
    most = min(_EXPLAINED * listed, _BETTER * rest) * (1.0 if cells >= _CELLS else _EXACTLY)
    own = _OWN * size(rows - rows.mean(axis=0))
    for name, operation in _OPERATIONS:
        for honest in results:
            for made, words in operation(honest):
                if size(honest.table - made) <= min(own, most * size(honest.varying)):
                    return Finding(name, f"an honest resize, but {words}")
    return None


def _nearest(source: Wide, table: Wide, target: Grid) -> Iterator[_Honest]:
    """Give the honest results that resemble a table most, however large its values are."""
    mean = source.mean(axis=(0, 1, 2))
    varying = unit((table - table.mean(axis=0)).reshape(1, -1))

    def alike(kernel: Kernel) -> float:
        rows = proper.resized(source, target, kernel).reshape(table.shape)
        return float((unit((rows - rows.mean(axis=0)).reshape(1, -1)) * varying).sum())

    turned, same_mean = source.swapaxes(1, 2), mean_is_restored(source, table)
    same_deviations = deviations_are_restored(source, table)
    same_spread = spread_is_restored(source, table)
    for kernel in sorted(KERNELS, key=alike, reverse=True)[:_TRIED]:
        rows, other = (
            proper.resized(grid, target, kernel).reshape(table.shape) - mean
            for grid in (source, turned)
        )
        if same_deviations:
            rows = with_deviations_of(rows, table)
        elif same_spread:
            centred = rows - rows.mean(axis=0)
            factor = ratio(size(table - table.mean(axis=0)), size(centred), 1.0)
            rows = rows.mean(axis=0) + factor * centred
        honest = _Honest(table - mean, rows, mean, other, target, np.zeros_like(mean))
        shift = (honest.table - rows).mean(axis=0)
        if same_mean or size(shift) < _SHIFTED * honest.usual:
            honest = replace(honest, shift=shift)
        if honest.usual:
            yield honest


def _vector(honest: _Honest) -> Iterator[_Made]:
    moved = honest.moved.mean(axis=0)
    by = size(moved) / honest.usual
    if by >= _SHIFTED:
        words = f"one vector was added to all cells, {by:.1f} times as long as positions differ"
        yield honest.rows + moved, words


def _gain(honest: _Honest) -> Iterator[_Made]:
    varying, mean = honest.varying, honest.table.mean(axis=0)
    factor = float(((honest.table - mean) * varying).sum() / (varying**2).sum())
    if abs(factor - 1) >= _SCALED and abs(factor) >= _LEAST:
        yield mean + factor * varying, f"positions differ {factor:.2f} times as much"


def _mirrors(honest: _Honest) -> Iterator[_Made]:
    """The table is a sum of the honest one and its mirror images."""
    varying, mean = honest.varying, honest.table.mean(axis=0)
    grid = varying.reshape(honest.target.height, honest.target.width, -1)
    other = honest.transposed - honest.transposed.mean(axis=0)
    images = (varying, grid[::-1], grid[:, ::-1], grid[::-1, ::-1], other)
    weights, made = _combined(np.stack([i.reshape(-1) for i in images]), honest.table - mean)
    if np.abs(weights[1:]).max() >= _MIXED:
        part = float(np.abs(weights[1:]).max())
        yield mean + made, f"{part:.0%} of its mirror image or of its transpose was mixed in"


def _echo(honest: _Honest) -> Iterator[_Made]:
    """The table is a sum of the honest one and a copy of it that was moved."""
    varying, mean = honest.varying, honest.table.mean(axis=0)
    shape = (honest.target.height, honest.target.width, -1)
    grid = varying.reshape(shape)
    first, second = (
        np.fft.rfft2(rows.reshape(shape), axes=(0, 1)) for rows in (honest.moved, grid)
    )
    alike = np.fft.irfft2((first * second.conj()).sum(axis=-1), s=grid.shape[:2])
    alike[0, 0] = 0.0
    down, across = np.unravel_index(np.abs(alike).argmax(), alike.shape)
    steps = [
        int(step - count if step > count // 2 else step)
        for step, count in zip((down, across), grid.shape[:2], strict=True)
    ]
    copies = (np.roll(grid, steps, axis=(0, 1)), _pushed(grid, steps))
    for copy in copies:
        parts = np.stack([varying.reshape(-1), (copy - copy.mean(axis=(0, 1))).reshape(-1)])
        weights, made = _combined(parts, honest.table - mean)
        if abs(weights[1]) >= _MIXED:
            where = f"{abs(steps[0])} rows and {abs(steps[1])} columns away"
            yield mean + made, f"{abs(weights[1]):.0%} of itself, {where}, was mixed in"


def _sequence(honest: _Honest) -> Iterator[_Made]:
    """Cells were mixed with those before and after them in the sequence, across ends of rows."""
    varying, mean = honest.varying, honest.table.mean(axis=0)
    copies = [np.roll(varying, step, axis=0) for step in range(-_STEPS, _STEPS + 1)]
    parts = np.stack([copy.reshape(-1) for copy in copies])
    yield mean + _combined(parts, honest.table - mean)[1], "it was averaged along the sequence"


def _pushed(grid: Wide, steps: list[int]) -> Wide:
    """Move a grid by some rows and columns; its border is repeated."""
    for axis, step in enumerate(steps):
        grid = grid.take(np.clip(np.arange(grid.shape[axis]) - step, 0, grid.shape[axis] - 1), axis)
    return grid


def _combined(parts: Wide, wanted: Wide) -> tuple[Wide, Wide]:
    """Fit the weights of some tables, each as one long row; give the weights and their sum."""
    gram = np.einsum("in,jn->ij", parts, parts)
    gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram, np.einsum("in,n->i", parts, wanted.reshape(-1)))
    return weights, (weights @ parts).reshape(wanted.shape)


def _curve(honest: _Honest) -> Iterator[_Made]:
    """One function of the values around the mean, in deviations of each channel, or of all."""
    varying, mean = honest.varying, honest.rows.mean(axis=0)
    each = np.sqrt((varying**2).mean(axis=0))
    for scale in (np.maximum(each, 1e-30), np.full_like(each, np.sqrt((each**2).mean()))):
        values = varying / scale
        ordered = np.sort(values, axis=None)
        knots = ordered[np.linspace(0, len(ordered) - 1, _KNOTS).astype(np.intp)]
        if np.any(np.diff(knots) <= 0):
            continue
        hats = np.stack([_hat(values, knots, at) * scale for at in range(_KNOTS)])
        made = _combined(hats.reshape(_KNOTS, -1), honest.table - mean)[1]
        yield mean + made, "every value was changed by one function: cut off, bent or shrunk"


def _rising(honest: _Honest) -> Iterator[_Made]:
    """A rising function of each channel's values: rounded, cut off, or numbered by their order."""
    if size(honest.moved) < _BENT * size(honest.varying):
        return
    made = _risen(honest.rows, honest.table)
    # Where values hardly change their order, any change is such a function. So the same changes in
    # other cells must not be one.
    moved = np.roll(honest.moved, len(honest.rows) // 2 + 1, axis=0)
    other = honest.rows + honest.shift + moved
    if size(other - _risen(honest.rows, other)) >= _DISORDER * size(moved):
        yield made, "the values of each channel were rounded, cut off or bent"


def _risen(values: Wide, wanted: Wide) -> Wide:
    """Return a rising function of each column of values that comes near to what is wanted."""
    order = values.argsort(axis=0, kind="stable")
    along = np.take_along_axis(wanted, order, axis=0)
    # For a function that rises everywhere, the largest so far and the least from here on are equal.
    lower = np.maximum.accumulate(along, axis=0)
    upper = np.minimum.accumulate(along[::-1], axis=0)[::-1]
    made = np.empty_like(along)
    np.put_along_axis(made, order, (lower + upper) / 2, axis=0)
    return made


def _hat(values: Wide, knots: Wide, at: int) -> Wide:
    """Return 1 at one knot, 0 at all others, and straight lines between them."""
    peak = np.zeros(len(knots))
    peak[at] = 1.0
    return np.interp(values, knots, peak)


def _slope(honest: _Honest) -> Iterator[_Made]:
    y, x = _places(honest.target)
    yield (
        _with(honest, np.stack([np.ones_like(y), y, x])),
        "a slope from side to side was added to each channel",
    )


def _stripes(honest: _Honest) -> Iterator[_Made]:
    down, across = (
        np.where(np.arange(n) % 2, 1.0, -1.0) for n in (honest.target.height, honest.target.width)
    )
    rows, columns = np.meshgrid(down, across, indexing="ij")
    patterns = [each.reshape(-1) for each in (np.ones_like(rows), rows, columns, rows * columns)]
    yield _with(honest, np.stack(patterns)), "stripes were added to each channel"


def _with(honest: _Honest, patterns: Wide) -> Wide:
    """Add patterns over the cells, each channel in its own way, that come nearest to the table."""
    basis = np.linalg.qr(patterns.T)[0]
    return np.asarray(honest.rows + honest.shift + basis @ (basis.T @ honest.moved))


def _pattern(honest: _Honest) -> Iterator[_Made]:
    """One pattern was added, stronger in some channels than in others."""
    moved = honest.moved
    left = moved @ (moved.T @ (moved @ np.ones(moved.shape[1])))
    for _ in range(8):
        left = unit((moved @ (moved.T @ left))[None])[0]
    made = honest.rows + honest.shift + np.outer(left, left @ moved)
    yield made, "one pattern was added to all channels"


def _channels(honest: _Honest) -> Iterator[_Made]:
    varying, mean = honest.varying, honest.table.mean(axis=0)
    energy = np.maximum((varying**2).sum(axis=0), 1e-30)
    factors = ((honest.table - mean) * varying).sum(axis=0) / energy
    low, high = float(factors.min()), float(factors.max())
    yield (
        mean + factors * varying,
        f"each channel was scaled by itself, by {low:.2f} to {high:.2f}",
    )


def _cells(honest: _Honest) -> Iterator[_Made]:
    """Each cell was scaled by itself, around the mean or as a whole."""
    for mean in (honest.rows.mean(axis=0), -honest.mean):
        varying = honest.rows - mean
        energy = np.maximum((varying**2).sum(axis=1), 1e-30)
        factors = ((honest.table - mean) * varying).sum(axis=1) / energy
        low, high = float(factors.min()), float(factors.max())
        words = f"each cell was scaled by itself, by {low:.2f} to {high:.2f}"
        yield mean + factors[:, None] * varying, words


def _waves(honest: _Honest) -> Iterator[_Made]:
    """Each wave over the grid has its own strength. Kernels leave the slow ones as they are."""
    height, width = honest.target.height, honest.target.width
    if min(height, width) < _FEWEST_LINES:
        return
    down, across = _cosines(height), _cosines(width)
    mean = honest.rows.mean(axis=0)
    mine, theirs = (
        np.tensordot(down, across @ rows.reshape(height, width, -1), 1)
        for rows in (honest.table - mean, honest.varying)
    )
    energy = (theirs**2).sum(axis=-1)
    factors = (mine * theirs).sum(axis=-1) / np.maximum(energy, 1e-12 * energy.sum())
    slow = energy[:_SLOW_WAVES, :_SLOW_WAVES], factors[:_SLOW_WAVES, :_SLOW_WAVES]
    factor = ratio(float((slow[0] * slow[1]).sum()), float(slow[0].sum()), 1.0)
    if abs(factor - 1) < _SLOW:
        return
    made = np.tensordot(down.T, across.T @ (factors[..., None] * theirs), 1)
    words = f"slow changes from place to place are {factor:.2f} times as strong"
    yield mean + made.reshape(honest.rows.shape), words


def _cosines(length: int) -> Wide:
    """Return the cosine transform of an axis, an orthogonal matrix."""
    at = np.arange(length)
    waves = np.cos(np.pi * at[:, None] * (at + 0.5) / length) * np.sqrt(2 / length)
    waves[0] /= np.sqrt(2)
    return np.asarray(waves)


def _places(target: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the row and the column of each cell, from −1 to 1."""
    down, across = (np.linspace(-1, 1, n) for n in (target.height, target.width))
    rows, columns = np.meshgrid(down, across, indexing="ij")
    return rows.reshape(-1), columns.reshape(-1)


# Those with few numbers come first.
_OPERATIONS: tuple[tuple[str, _Operation], ...] = (
    ("mean changed", _vector),
    ("scaled", _gain),
    ("mirror image", _mirrors),
    ("mixed with itself", _echo),
    ("mixed along the sequence", _sequence),
    ("bent", _curve),
    ("waves changed", _waves),
    ("slope added", _slope),
    ("stripes added", _stripes),
    ("channels scaled", _channels),
    ("cells scaled", _cells),
    ("pattern added", _pattern),
    ("bent", _rising),
)
