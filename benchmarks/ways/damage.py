"""Ways in which people have botched a resize, for planting: each gives a table of the right shape.

A table is rows × channels, prefix rows first. Nothing here is used by the package itself, which has
to recognise these without knowing how they were made. `damage_more.py` has further kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

from resize_pos.api import resize_table

Table = NDArray[np.float32]
Shape = tuple[int, int]
Damage = Callable[[Table, int, Shape, Shape], Table]


_CHOSEN: ContextVar[Damage | None] = ContextVar("chosen", default=None)


@contextmanager
def resized_by(kernel: Damage) -> Iterator[None]:
    """Let mistakes that resize use this kernel instead of timm's."""
    token = _CHOSEN.set(kernel)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def honest(
    table: Table, prefix: int, source: Shape, target: Shape, like: str | None = None
) -> Table:
    """Resize as a library does; as the chosen kernel does if none is named."""
    chosen = _CHOSEN.get()
    if like is None and chosen is not None:
        return chosen(table, prefix, source, target)
    like = like or "timm"
    resized: Table = resize_table(
        table, source, target, axes="(p h w s) d", prefix=prefix, like=like
    )
    return resized


def _noise(shape: tuple[int, ...], scale: float, seed: int = 0) -> Table:
    noise: Table = np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)
    return noise


def _cells(table: Table, prefix: int, grid: Shape) -> Table:
    return table[prefix:].reshape(*grid, -1)


def _whole(prefix_rows: Table, cells: Table) -> Table:
    rows = cells.reshape(-1, cells.shape[-1])
    joined: Table = np.concatenate([prefix_rows, rows]).astype(np.float32)
    return joined


def one_d(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    count = target[0] * target[1]
    line = resize_table(
        table[prefix:], (1, source[0] * source[1]), (1, count), axes="(p h w s) d", like="hf"
    )
    return _whole(table[:prefix], line)


def one_d_linear(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    count = target[0] * target[1]
    line = resize_table(
        table[prefix:],
        (1, source[0] * source[1]),
        (1, count),
        axes="(p h w s) d",
        method="bilinear",
        antialias=False,
    )
    return _whole(table[:prefix], line)


def transposed(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    turned = np.ascontiguousarray(_cells(table, prefix, source).swapaxes(0, 1))
    return honest(_whole(table[:prefix], turned), prefix, (source[1], source[0]), target)


def swapped(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Read height for width (and on a square grid, turn it)."""
    if source[0] == source[1]:
        return transposed(table, prefix, source, target)
    resized = honest(table, prefix, (source[1], source[0]), (target[1], target[0]))
    return _whole(resized[:prefix], resized[prefix:])


def mirrored(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    flipped = np.ascontiguousarray(_cells(table, prefix, source)[:, ::-1])
    return honest(_whole(table[:prefix], flipped), prefix, source, target)


def truncated(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Keep the first rows; what is missing is drawn anew."""
    rows = table[prefix:]
    count = target[0] * target[1]
    tail = _noise((max(0, count - len(rows)), rows.shape[1]), 0.02)
    return _whole(table[:prefix], np.concatenate([rows[:count], tail]))


def padded(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Keep the first rows; what is missing is zero."""
    rows = table[prefix:]
    count = target[0] * target[1]
    tail = np.zeros((max(0, count - len(rows)), rows.shape[1]), np.float32)
    return _whole(table[:prefix], np.concatenate([rows[:count], tail]))


def cropped(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Keep the top left of the image only."""
    cells = _cells(table, prefix, source)
    height, width = (min(n, m, -(-3 * n // 5)) for n, m in zip(source, target, strict=True))
    part = np.ascontiguousarray(cells[:height, :width])
    return honest(_whole(table[:prefix], part), prefix, (height, width), target)


def tiled(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Repeat the grid from its top left, or stop early."""
    cells = _cells(table, prefix, source)
    rows, columns = np.arange(target[0]) % source[0], np.arange(target[1]) % source[1]
    return _whole(table[:prefix], cells[rows][:, columns])


def reinitialised(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    rows = _noise((target[0] * target[1], table.shape[1]), 0.02)
    return _whole(table[:prefix], rows)


def reinitialised_whole(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """What `ignore_mismatched_sizes=True` does, prefix and all, at the table's own scale."""
    scale = float(table.std())
    return _noise((prefix + target[0] * target[1], table.shape[1]), scale)


def zeros(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    rows = np.zeros((target[0] * target[1], table.shape[1]), np.float32)
    return _whole(table[:prefix], rows)


def constant(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    mean = table[prefix:].mean(axis=0, keepdims=True)
    return _whole(table[:prefix], np.repeat(mean, target[0] * target[1], axis=0))


def halved(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    resized = honest(table, prefix, source, target)
    return _whole(resized[:prefix], resized[prefix:] * np.float32(0.5))


def doubled(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    resized = honest(table, prefix, source, target)
    return _whole(resized[:prefix], resized[prefix:] * np.float32(2))


def prefix_last(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    resized = honest(table, prefix, source, target)
    return _whole(resized[prefix:], resized[:prefix])


def prefix_as_cell(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Take the grid from the front of the table, and the prefix from behind it."""
    cells = source[0] * source[1]
    turned = np.concatenate([table[cells:], table[:cells]])
    return honest(turned, prefix, source, target)


def prefix_dropped(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Let the first cell stand where the prefix was."""
    resized = honest(table, prefix, source, target)
    return _whole(resized[prefix : 2 * prefix], resized[prefix:])


def off_by_one(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    resized = honest(table, prefix, source, target)
    return _whole(resized[:prefix], np.roll(_cells(resized, prefix, target), 1, axis=1))


def noisy(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Add noise of the table's own size."""
    resized = honest(table, prefix, source, target)
    cells = resized[prefix:]
    return _whole(resized[:prefix], cells + _noise(cells.shape, float(cells.std())))


def shuffled(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    resized = honest(table, prefix, source, target)
    cells = np.random.default_rng(0).permutation(resized[prefix:])
    return _whole(resized[:prefix], cells)


DAMAGE: Mapping[str, Damage] = {
    damage.__name__: damage
    for damage in (
        one_d,
        one_d_linear,
        swapped,
        transposed,
        mirrored,
        truncated,
        padded,
        cropped,
        tiled,
        reinitialised,
        reinitialised_whole,
        zeros,
        constant,
        halved,
        doubled,
        prefix_last,
        prefix_as_cell,
        prefix_dropped,
        off_by_one,
        noisy,
        shuffled,
    )
}
