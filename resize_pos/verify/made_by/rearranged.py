"""Was the source rearranged before a resize, or the result after it? By any kernel.

`mistakes.py` recomputes these by the kernels that libraries use. Here the kernel is fitted, so it
need not be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.sampling import Wide, some_channels
from resize_pos.verify.made_by.diagnosis import Diagnosis
from resize_pos.verify.made_by.fitted import Fitted, KernelFit, fit_kernel
from resize_pos.verify.made_by.pair import Pair

_EXPLAINED = 0.02  # of how much positions differ
_BETTER = 0.5  # of what the kernel leaves that is fitted to the source as it is
_EXACT, _MUCH_BETTER = 1e-3, 0.1  # the same for a kernel that is not known to be honest
_MOST_PREFIX = 5  # rows that are looked for in the grid
_FEWEST_LINES = 3  # of two lines, each kernel that leans the other way looks like a mirror


def find_unpermuted(pair: Pair) -> Diagnosis | None:
    """Say that rows × channels were read as channels × rows; all channels are needed."""
    source, table = pair.whole_before, pair.whole_after
    for before, after, when in (
        (False, True, "after"),
        (True, False, "before"),
        (True, True, "before and after"),
    ):
        # What was misread before the resize is misread again; what was misread after it, read back.
        cells = source.reshape(source.shape[1], -1).T if before else source
        rows = table.reshape(table.shape[1], -1).T if after else table
        grid = cells.reshape(1, pair.source.height, pair.source.width, -1)
        if _fit(grid, rows, pair.target).left <= _EXPLAINED:
            words = f"rows × channels were read as channels × rows {when} the resize"
            return Diagnosis("permute forgotten", words, 0.0, True)
    return None


def find_turned(pair: Pair) -> Diagnosis | None:
    """Say that the source was turned, mirrored or misread, and that a proper kernel resized it."""
    grid, rows, target = pair.cells_before, pair.cells_after, pair.target
    if min(pair.source.height, pair.source.width, target.height, target.width) < _FEWEST_LINES:
        return None
    plain = _fit(grid, rows, target).left
    for name, words, image, shape in chain(_turned(grid, target), _off_by_some(pair)):
        fit = _fit(image, rows, shape)
        honest = fit.kind is Fitted.HONEST and fit.left <= min(_EXPLAINED, _BETTER * plain)
        # Some kernels, such as area averaging, lean more than `fit_kernel` believes without proof.
        if honest or (fit.away <= 1 and fit.left <= min(_EXACT, _MUCH_BETTER * plain)):
            return Diagnosis(name, words, fit.left, True)
    return None


def _turned(grid: Wide, target: Grid) -> Iterator[tuple[str, str, Wide, Grid]]:
    """Give what may have been resized instead: a name, words, the grid, and its new size."""
    height, width = grid.shape[1:3]
    yield "mirrored", "mirrored vertically", np.flip(grid, 1), target
    yield "mirrored", "mirrored horizontally", np.flip(grid, 2), target
    transposed = "height and width are exchanged: transposed"
    yield "swapped", transposed, grid.swapaxes(1, 2), target
    for quarter, angle in ((1, 90), (2, 180), (3, 270)):
        yield "rotated", f"turned by {angle}°", np.rot90(grid, quarter, (1, 2)), target
    other = Grid(target.width, target.height)
    if target.height != target.width:
        words = f"resized to {other}: height and width are swapped"
        yield "swapped", words, grid, other
    if height != width:
        misread = grid.reshape(1, width, height, -1)
        for shape in dict.fromkeys((target, other)):
            words = f"read as {width}×{height}: height and width are swapped"
            yield "swapped", words, misread, shape


def _off_by_some(pair: Pair) -> Iterator[tuple[str, str, Wide, Grid]]:
    """Give the grid as if it began at another row of the table, in the same form."""
    grid, first = pair.cells_before, pair.prefix
    cells = pair.before[first : first + pair.source.cells]
    zero = np.zeros_like(cells[:1])  # or a repeated row, or the one from the other end
    read: list[tuple[str, str, tuple[Wide, ...]]] = []
    for count in range(1, min(first, _MOST_PREFIX) + 1):
        rows = "one prefix row was" if count == 1 else f"{count} prefix rows were"
        words = f"{rows} taken for cells of the grid"
        read.append(("prefix", words, (pair.before[first - count : first], cells[:-count])))
    for end in (cells[-1:], zero, cells[:1]):
        read.append(("off by one", "the source was read one row too late", (cells[1:], end)))
    for start in (cells[:1], zero, cells[-1:]):
        read.append(("off by one", "the source was read one row too early", (start, cells[:-1])))
    for name, words, parts in read:
        yield name, words, np.concatenate(parts).reshape(grid.shape), pair.target


def _fit(grid: Wide, rows: Wide, target: Grid) -> KernelFit:
    image = some_channels(grid)
    mean = image.mean(axis=(0, 1, 2))
    return fit_kernel(image - mean, some_channels(rows) - mean, target)
