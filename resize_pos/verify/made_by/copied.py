"""Source cells that stand in the new grid as they were: cut off, padded, tiled, not resampled."""

from __future__ import annotations

import numpy as np

from resize_pos.core.conventions import DEFAULT
from resize_pos.quality.measures.sampling import resample, size
from resize_pos.verify.made_by.pair import Pair
from resize_pos.verify.made_by.parts import Finding
from resize_pos.verify.made_by.turned import flat

_MOVES = 0.02  # of the usual length: so far must a resize move a cell for its old value to tell
_FEWEST_LINES = 2  # rows, and columns, that hold old cells; single ones may be equal by chance


def find_kept_rows(pair: Pair) -> Finding | None:
    """Find rows that kept their old index, bit for bit, although the grid has another width."""
    if pair.source.width == pair.target.width:
        return None
    old, new = flat(pair.cells_before), pair.cells_after
    count = min(len(old), len(new))
    same = np.all(old[:count] == new[:count], axis=1)
    first = count if same.all() else int(same.argmin())
    if first < max(2, count // 2):
        return None
    words = f"the first {first} rows are the source's, in their old places: cut off or padded"
    if first < len(new) and not new[first:].any():
        words += "; the rest is zero"
    elif first < len(new):
        words += "; the rest is something else"
    return Finding("truncated", words)


def find_old_cells(pair: Pair) -> Finding | None:
    """Find cells that kept their old row and column, bit for bit, where a resize moves them."""
    height, width = (
        min(pair.source.height, pair.target.height),
        min(pair.source.width, pair.target.width),
    )
    shape = (pair.target.height, pair.target.width, -1)
    honest = flat(resample(pair.cells_before, pair.target, DEFAULT.resampling))
    grids = pair.cells_before[0], pair.cells_after.reshape(shape), honest.reshape(shape)
    old, new, fair = (grid[:height, :width] for grid in grids)
    usual = size(old) / np.sqrt(height * width)
    moves = np.sqrt(((old - fair) ** 2).sum(axis=-1)) > _MOVES * usual
    kept = np.all(old == new, axis=-1) & moves
    if min(int(kept.any(axis=axis).sum()) for axis in (0, 1)) < _FEWEST_LINES:
        return None
    which = f"{kept.sum()} of {pair.target.cells} cells"
    words = f"{which} are the source's, in their old rows and columns: not resampled"
    return Finding("padded", words)


def find_block(pair: Pair) -> Finding | None:
    """Find the unresampled source as a block of the new grid, or the new grid as one of it."""
    grid = pair.cells_before[0]
    new = pair.cells_after.reshape(pair.target.height, pair.target.width, -1)
    grows = all(n >= m for n, m in zip(new.shape, grid.shape, strict=True))
    shrinks = all(n <= m for n, m in zip(new.shape, grid.shape, strict=True))
    if grows == shrinks:
        return None
    large, small = (new, grid) if grows else (grid, new)
    height, width = small.shape[:2]
    same = np.all(large == small[0, 0], axis=-1)
    for top, left in np.argwhere(same):
        part = large[top : top + height, left : left + width]
        if part.shape == small.shape and np.array_equal(part, small):
            place = f"row {top}, column {left}"
            if grows:
                rows, columns = np.arange(len(new)) % height, np.arange(new.shape[1]) % width
                if np.array_equal(new, grid[rows][:, columns]):
                    words = "the source repeated side by side, not resampled: tiled"
                    return Finding("tiled", words)
                words = f"the source stands unresampled at {place} of the new grid: padded"
                return Finding("padded", words)
            words = f"a part of the source from {place} on, not resampled: cropped"
            return Finding("cropped", words)
    return None
