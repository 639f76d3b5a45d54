"""Recognise tables made by an honest method that no library uses for positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import Method
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.sampling import Wide, ratio, size, spread, unit
from resize_pos.transforms.norms import norm_limits
from resize_pos.verify.made_by.channels import channel_lengths, far_channels

_USUAL_SIDES = (7, 8, 12, 14, 16, 18, 20, 24, 27, 28, 30, 32, 36, 37, 40, 48, 50, 56, 64)
# Two resizes by nearest (rounded down) can be the same as a crop, so they prove nothing.
_REPEATABLE = tuple(
    kernel
    for kernel in proper.CONVENTIONAL
    if kernel.resampling is not None and kernel.resampling.method is not Method.NEAREST
)
_SHARES = (0.25, 1 / 3, 0.4, 0.6, 2 / 3, 0.75)  # of the way to the new grid, by ratio
_HALF = 1e-6  # of a cell: arithmetic decides where such a place is rounded to
_BORDERED = 4  # lines: up to so many with a border around them look like halves that went both ways
_LOOKED_AT = 6  # rows, and columns, of which every pair of resizes is computed
_MOST_CELLS = 1 << 12  # of the new or the intermediate grid; above, two resizes are not tried


@dataclass(frozen=True, slots=True, eq=False)
class Norms:
    """Norms over all channels: of the source's cells (copies, h, w, 1), and (copies, new rows)."""

    before: Wide
    after: Wide


@dataclass(frozen=True, slots=True, eq=False)
class Recognised:
    """The honest method that made a table: its name, and the matrices of both axes."""

    name: str
    down: Wide
    across: Wide
    factors: Wide | None = None  # of each cell, where norms were restored

    def strange_channels(self, source: Wide, rows: Wide, tolerance: float) -> NDArray[np.intp]:
        """Return the channels of rows that it does not make of a grid (1, h, w, d)."""
        lines = np.swapaxes(proper.along(self.down, np.swapaxes(source, 1, 2)), 1, 2)
        made = proper.along(self.across, lines).reshape(rows.shape)
        if self.factors is not None:
            made = made * self.factors[:, None]
        lengths = np.maximum(channel_lengths(rows), channel_lengths(made))
        return far_channels(channel_lengths(rows - made), lengths, tolerance)


def recognise(
    source: Wide, rows: Wide, target: Grid, tolerance: float, norms: Norms | None
) -> Recognised | None:
    """Name the proper kernel that made the rows of a grid (1, h, w, d); None where none did."""
    scale = size(rows)
    for kernel in (*proper.CONVENTIONAL, *proper.OTHERS):
        made = proper.resized(source, target, kernel).reshape(rows.shape)
        down = proper.matrix(kernel, source.shape[1], target.height)
        across = proper.matrix(kernel, source.shape[2], target.width)
        if ratio(size(rows - made), scale, 1.0) <= tolerance:
            return Recognised(str(kernel), down, across)
        if norms is not None and _restored(rows, made, target, kernel, norms, tolerance):
            return Recognised(f"{kernel}, norms restored", down, across, _factors(rows, made))
        if norms is not None and _restored_at_once(rows, made, norms, tolerance):
            name = f"{kernel}, norms restored by one factor"
            return Recognised(name, down, across, _factors(rows, made))
    cells = rows.reshape(target.height, target.width, -1)
    picked = _find_picked(source[0], cells, tolerance)
    if picked is not None:
        return Recognised("nearest, with another rounding", *picked)
    if target.cells > _MOST_CELLS:
        return None
    few = spread(target.height, _LOOKED_AT), spread(target.width, _LOOKED_AT)
    sample = cells[few[0]][:, few[1]]
    for words, down, across in two_resizes(Grid(*source.shape[1:3]), target):
        # Most of these are far off, so a few cells are looked at first.
        if _apart(sample, source, down[few[0]], across[few[1]]) > 2 * tolerance:
            continue
        if _apart(cells, source, down, across) <= tolerance:
            return Recognised(words, down, across)
    return None


def _find_picked(source: Wide, cells: Wide, tolerance: float) -> tuple[Wide, Wide] | None:
    """Say which source line next to its place each row and column is, if all are rounded alike."""
    axes = list(zip(source.shape, cells.shape[:2], strict=False))
    centres = [np.clip((np.arange(m) + 0.5) * n / m - 0.5, 0, n - 1) for n, m in axes]
    around = [(np.floor(p), np.ceil(p)) for p in centres]
    picked = _picked(source, cells, around, tolerance)
    # A part of the source can consist of lines around the centres, too.
    lengths = source.shape[:2]
    if picked and all(_rounds_alike(*axis) for axis in zip(centres, picked, lengths, strict=True)):
        return _picking(source, around, picked)
    ends = [np.arange(m) * (n - 1) / max(m - 1, 1) for n, m in axes]
    around = [(np.floor(p), np.ceil(p)) for p in ends]
    picked = _picked(source, cells, around, tolerance)
    if picked and all(_is_nearest(*axis) for axis in zip(ends, picked, strict=True)):
        return _picking(source, around, picked)
    # Upper left corners are rounded down. Where the step is no whole number, arithmetic decides
    # about those on the border of two lines.
    slack = [_HALF if n % m else 0.0 for n, m in axes]
    corners = [np.arange(m) * n / m for n, m in axes]
    lines = [
        (np.maximum(np.floor(p - by), 0), np.floor(p + by))
        for p, by in zip(corners, slack, strict=True)
    ]
    picked = _picked(source, cells, lines, tolerance)
    return None if picked is None else _picking(source, lines, picked)


def _picking(
    source: Wide,
    lines: Sequence[tuple[Wide, Wide]],
    picked: tuple[NDArray[np.intp], NDArray[np.intp]],
) -> tuple[Wide, Wide]:
    """Return the matrices that pick one of two source lines for each row and column."""
    down, across = (
        np.eye(count)[np.where(second, pair[1], pair[0]).astype(np.intp)]
        for count, pair, second in zip(source.shape[:2], lines, picked, strict=True)
    )
    return down, across


def _picked(
    source: Wide, cells: Wide, lines: Sequence[tuple[Wide, Wide]], tolerance: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Return which of two source lines each row, and each column, is; None where one is neither."""
    rows, columns = (np.stack(pair).astype(np.intp) for pair in lines)
    near = tolerance * float(np.abs(cells).max())
    if not _first_is_picked(source, cells, rows[:, 0], columns[:, 0], near):
        return None
    # Whether row a and column b of the source give the cell at (i, j), for each choice of both.
    same: NDArray[np.bool_] = np.array(
        [[np.all(np.abs(source[a][:, b] - cells) <= near, axis=-1) for b in columns] for a in rows]
    )
    down = np.all(np.any(same, axis=1), axis=2).argmax(axis=0)
    across = np.all(np.any(same, axis=0), axis=1).argmax(axis=0)
    right = same[down[:, None], across, *np.indices(cells.shape[:2])].all()
    return (down, across) if right else None


def _is_nearest(places: Wide, up: NDArray[np.intp]) -> bool:
    """Whether no picked line is farther from its place than another; halves go either way."""
    above = places - np.floor(places)
    picked = np.where(up.astype(bool), 1.0, 0.0)
    return bool(np.all((above == 0) | (np.abs(picked - above) <= 0.5 + _HALF)))


def _rounds_alike(places: Wide, up: NDArray[np.intp], length: int) -> bool:
    """Whether one border decides which places are rounded up.

    Halves go all alike, or to even; of a source with many lines, arithmetic may decide each.
    """
    above = places - np.floor(places)
    half = np.abs(above - 0.5) < _HALF
    between = (above > 0) & ~half
    if not between.any():
        between = half
    raised = up.astype(bool)
    odd = np.floor(places) % 2 == 1
    mixed = len(set(raised[half].tolist())) > 1 and not np.array_equal(raised[half], odd[half])
    if mixed and length <= _BORDERED:
        return False  # a border that is repeated around the source looks like this
    highest = float(above[between & ~raised].max(initial=0.0))
    return highest < float(above[between & raised].min(initial=1.0))


def _first_is_picked(
    source: Wide, cells: Wide, rows: NDArray[np.intp], columns: NDArray[np.intp], near: float
) -> bool:
    """Look at the first cell alone: most tables need no more."""
    first = source[np.ix_(rows, columns)] - cells[0, 0]
    return bool(np.any(np.all(np.abs(first) <= near, axis=-1)))


def _apart(cells: Wide, source: Wide, down: Wide, across: Wide) -> float:
    """Return the relative distance of a grid (h, w, d) to the source, resampled by two matrices."""
    halfway = np.swapaxes(proper.along(down, np.swapaxes(source, 1, 2)), 1, 2)
    return ratio(size(cells - proper.along(across, halfway)[0]), size(cells), 1.0)


def _restored(
    rows: Wide, made: Wide, target: Grid, kernel: Kernel, norms: Norms, tolerance: float
) -> bool:
    """Whether each row has the kernel's direction, and the interpolated norm of its neighbours."""
    each = (len(rows), len(norms.before), -1)  # the copies of a table lie in its channels
    mine, theirs = unit(rows.reshape(each)), unit(made.reshape(each))
    if ratio(size(mine - theirs), size(theirs), 1.0) > max(tolerance, 1e-4):
        return False
    return any(
        ratio(size(norms.after - wanted.reshape(norms.after.shape)), size(wanted), 1.0)
        <= max(tolerance, 1e-4)
        for wanted in _wanted(norms.before, target, kernel)
    )


def limited_norms(before: Wide, target: Grid, kernel: Kernel) -> Wide:
    """Interpolate norms (copies, h, w, 1), each within the range of those around it."""
    down = proper.matrix(kernel, before.shape[1], target.height)
    across = proper.matrix(kernel, before.shape[2], target.width)
    limits = norm_limits(before, down, across)
    made = proper.resized(before, target, kernel)
    return np.clip(made, limits.shortest, limits.longest)


def _wanted(before: Wide, target: Grid, kernel: Kernel) -> Iterator[Wide]:
    """Interpolate norms as this tool does, and as others do."""
    yield limited_norms(before, target, kernel)
    yield np.maximum(proper.resized(before, target, kernel), 0.0)


def _factors(rows: Wide, made: Wide) -> Wide:
    """Return how much longer each row is than the kernel makes it."""
    energy = np.maximum(np.einsum("nd,nd->n", made, made), 1e-300)
    return np.asarray(np.einsum("nd,nd->n", rows, made) / energy)


def _restored_at_once(rows: Wide, made: Wide, norms: Norms, tolerance: float) -> bool:
    """Whether one factor for all rows restores the source's mean norm, or its mean square."""
    factor = ratio(float(np.einsum("nd,nd->", rows, made)), size(made) ** 2)
    if factor <= 0 or ratio(size(rows - factor * made), size(rows), 1.0) > tolerance:
        return False
    before, after = norms.before, norms.after
    means = ratio(float(after.mean()), float(before.mean()))
    squares = ratio(float((after**2).mean()), float((before**2).mean())) ** 0.5
    return bool(min(abs(means - 1), abs(squares - 1)) <= max(tolerance, 1e-4))


def two_resizes(source: Grid, target: Grid) -> Iterator[tuple[str, Wide, Wide]]:
    """Yield likely pairs of successive resizes: words, and the matrices of both axes."""
    for between in _between(source, target):
        for first, second in _pairs(between in _halfway(source, target)):
            how = f"{first}" if first == second else f"{first}, then {second}"
            down, across = (
                proper.matrix(second, middle, end) @ proper.matrix(first, start, middle)
                for start, middle, end in (
                    (source.height, between.height, target.height),
                    (source.width, between.width, target.width),
                )
            )
            yield f"two resizes, by way of {between} ({how})", down, across


def _pairs(mixed: bool) -> Iterator[tuple[Kernel, Kernel]]:
    """Yield the kernels of both resizes: one for both, and if `mixed`, two different ones, too."""
    for first in _REPEATABLE:
        for second in _REPEATABLE if mixed else (first,):
            yield first, second


def _halfway(source: Grid, target: Grid) -> tuple[Grid, ...]:
    """Return the grids in the middle: the arithmetic mean of both sides, and the geometric one."""
    pairs = ((source.height, target.height), (source.width, target.width))
    means = (
        tuple(max(2, (s + t) // 2) for s, t in pairs),
        tuple(round((s * t) ** 0.5) for s, t in pairs),
    )
    return tuple(Grid(*mean) for mean in means)


def _between(source: Grid, target: Grid) -> Iterator[Grid]:
    """Yield likely intermediate grids."""
    square = source.is_square and target.is_square
    sides = _USUAL_SIDES if square else ()
    parts = [
        Grid(
            *(
                max(1, round(s ** (1 - share) * t**share))
                for s, t in ((source.height, target.height), (source.width, target.width))
            )
        )
        for share in _SHARES
    ]
    twice = [Grid(2 * grid.height, 2 * grid.width) for grid in (source, target)]
    squares = [Grid(side, side) for side in sides]
    for grid in dict.fromkeys([*_halfway(source, target), *parts, *twice, *squares]):
        if grid not in (source, target) and grid.cells <= _MOST_CELLS:
            yield grid
