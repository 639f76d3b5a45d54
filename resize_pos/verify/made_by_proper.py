"""Tables that an honest method made which is no library's convention for positions, by name."""

from __future__ import annotations

from collections.abc import Iterator

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.sampling import Wide, ratio, size

_HALFWAY = (7, 8, 12, 14, 16, 18, 20, 24, 27, 28, 30, 32, 36, 37, 40, 48, 50, 56, 64)
_MOST_CELLS = 1 << 12  # of a grid on the way; larger ones are not tried


def recognise(source: Wide, rows: Wide, target: Grid, tolerance: float) -> str | None:
    """Name the proper kernel that made the rows of a grid; None where none did."""
    scale = size(rows)
    for words, made in _candidates(source, target):
        if ratio(size(rows - made.reshape(rows.shape)), scale, 1.0) <= tolerance:
            return words
    return None


def _candidates(source: Wide, target: Grid) -> Iterator[tuple[str, Wide]]:
    """Give what each method makes of a (1, h, w, d) grid: words, new grid."""
    kernels = (*proper.CONVENTIONAL, *proper.OTHERS)
    for kernel in kernels:
        made = proper.resized(source, target, kernel)
        if kernel in proper.OTHERS:
            yield str(kernel), made
        yield f"{kernel}, norms restored", proper.norms_restored(made, source, kernel)
    grid = Grid(source.shape[1], source.shape[2])
    for between in _between(grid, target):
        for kernel in proper.CONVENTIONAL:
            first = proper.resized(source, between, kernel)
            words = f"two resizes, by way of {between} ({kernel})"
            yield words, proper.resized(first, target, kernel)


def _between(source: Grid, target: Grid) -> Iterator[Grid]:
    """Guess the grids that somebody may have gone through."""
    squares = [Grid(side, side) for side in _HALFWAY]
    middle = Grid(
        round((source.height * target.height) ** 0.5), round((source.width * target.width) ** 0.5)
    )
    for grid in dict.fromkeys([middle, *squares]):
        if grid not in (source, target) and grid.cells <= _MOST_CELLS:
            yield grid
