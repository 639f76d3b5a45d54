"""Recognise tables made by an honest method that no library uses for positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from resize_pos.core.conventions import Method
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.sampling import Wide, ratio, size, unit

_HALFWAY = (7, 8, 12, 14, 16, 18, 20, 24, 27, 28, 30, 32, 36, 37, 40, 48, 50, 56, 64)
# Two resizes by nearest (rounded down) can be the same as a crop, so they prove nothing.
_REPEATABLE = tuple(
    kernel
    for kernel in proper.CONVENTIONAL
    if kernel.resampling is not None and kernel.resampling.method is not Method.NEAREST
)
_MOST_CELLS = 1 << 12  # of the new or the intermediate grid; above, two resizes are not tried


@dataclass(frozen=True, slots=True, eq=False)
class Norms:
    """Norms over all channels: of the source's cells (copies, h, w, 1), and (copies, new rows)."""

    before: Wide
    after: Wide


def recognise(
    source: Wide, rows: Wide, target: Grid, tolerance: float, norms: Norms | None
) -> str | None:
    """Name the proper kernel that made the rows of a grid (1, h, w, d); None where none did."""
    scale = size(rows)
    for kernel in (*proper.CONVENTIONAL, *proper.OTHERS):
        made = proper.resized(source, target, kernel).reshape(rows.shape)
        if ratio(size(rows - made), scale, 1.0) <= tolerance:
            return str(kernel)
        if norms is not None and _restored(rows, made, target, kernel, norms, tolerance):
            return f"{kernel}, norms restored"
    for words, grid in _two_resizes(source, target):
        if ratio(size(rows - grid.reshape(rows.shape)), scale, 1.0) <= tolerance:
            return words
    return None


def _restored(
    rows: Wide, made: Wide, target: Grid, kernel: Kernel, norms: Norms, tolerance: float
) -> bool:
    """Whether each row has the kernel's direction, and the interpolated norm of its neighbours."""
    each = (len(rows), len(norms.before), -1)  # the copies of a table lie in its channels
    mine, theirs = unit(rows.reshape(each)), unit(made.reshape(each))
    if ratio(size(mine - theirs), size(theirs), 1.0) > max(tolerance, 1e-4):
        return False
    wanted = np.maximum(proper.resized(norms.before, target, kernel), 0.0)
    wanted = wanted.reshape(norms.after.shape)
    return ratio(size(norms.after - wanted), size(wanted), 1.0) <= max(tolerance, 1e-4)


def _two_resizes(source: Wide, target: Grid) -> Iterator[tuple[str, Wide]]:
    """Yield the results of two successive resizes by one convention: words, new grid."""
    grid = Grid(source.shape[1], source.shape[2])
    if target.cells > _MOST_CELLS:
        return
    for between in _between(grid, target):
        for kernel in _REPEATABLE:
            first = proper.resized(source, between, kernel)
            words = f"two resizes, by way of {between} ({kernel})"
            yield words, proper.resized(first, target, kernel)


def _between(source: Grid, target: Grid) -> Iterator[Grid]:
    """Yield likely intermediate grids."""
    square = source.is_square and target.is_square
    squares = [Grid(side, side) for side in _HALFWAY] if square else []
    middle = Grid(
        round((source.height * target.height) ** 0.5), round((source.width * target.width) ** 0.5)
    )
    for grid in dict.fromkeys([middle, *squares]):
        if grid not in (source, target) and grid.cells <= _MOST_CELLS:
            yield grid
