"""Further ways to botch a resize, 70 of them, most made from a few parts.

A damage is a function of the table (rows × channels, prefix rows first), the number of prefix rows,
and both grids. One that gives None does not apply to that pair of grids. One that gives what an
honest method gives (a 1-D resampling along the width alone, say) is no damage: see `is_damage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.ways.damage import DAMAGE, Damage, Shape, Table, honest
from resize_pos.api import resize_table
from resize_pos.core.conventions import CONVENTIONS

Cells = NDArray[np.float32]  # (h, w, channels)
MaybeDamage = Callable[[Table, int, Shape, Shape], Table | None]
CellDamage = Callable[[Cells], Cells]  # what is done to the resized grid

NO_DAMAGE = 1e-3  # relative distance to an honest result below which nothing is wrong


def after(change: CellDamage) -> Damage:
    """Resize honestly, then change the grid."""

    def damaged(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
        resized = honest(table, prefix, source, target)
        cells = change(resized[prefix:].reshape(*target, -1).copy())
        return _joined(resized[:prefix], cells)

    return damaged


def before(change: CellDamage) -> Damage:
    """Change the source's grid, then resize honestly from whatever grid that is."""

    def damaged(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
        cells = np.ascontiguousarray(change(table[prefix:].reshape(*source, -1)))
        height, width = cells.shape[:2]
        return honest(_joined(table[:prefix], cells), prefix, (height, width), target)

    return damaged


def _joined(prefix_rows: Table, cells: NDArray[np.floating]) -> Table:
    rows = cells.reshape(-1, cells.shape[-1])
    return np.concatenate([prefix_rows, rows]).astype(np.float32)


def _noise(cells: Cells, scale: float, seed: int = 0) -> Cells:
    deviation = float(cells.std()) * scale
    return np.random.default_rng(seed).normal(0, deviation, cells.shape).astype(np.float32)


def _set(cells: Cells, where: NDArray[np.bool_], values: Cells | float) -> Cells:
    """Replace the cells of a mask (h, w)."""
    filled = values[where] if isinstance(values, np.ndarray) else values
    cells[where] = filled
    return cells


def _last(cells: Cells, share: float) -> NDArray[np.bool_]:
    """The last rows of the flattened grid."""
    height, width = cells.shape[:2]
    count = max(1, round(share * height * width))
    late: NDArray[np.bool_] = np.arange(height * width) >= height * width - count
    return late.reshape(height, width)


def _scattered(cells: Cells, share: float) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = np.random.default_rng(5).random(cells.shape[:2]) < share
    return chosen


def _some_channels(cells: Cells, share: float) -> NDArray[np.intp]:
    count = cells.shape[-1]
    return np.random.default_rng(3).permutation(count)[: max(1, int(count * share))]


def _on_channels(cells: Cells, share: float, change: CellDamage) -> Cells:
    chosen = _some_channels(cells, share)
    cells[..., chosen] = change(cells[..., chosen])
    return cells


def _permuted(cells: Cells) -> Cells:
    return cells[..., np.random.default_rng(1).permutation(cells.shape[-1])]


def _serpentine(cells: Cells) -> Cells:
    cells[1::2] = cells[1::2, ::-1].copy()
    return cells


def _blocks(cells: Cells) -> Cells:
    """Cells in the order of 2×2 blocks, as patch merging wants them."""
    height, width, channels = cells.shape
    even = cells[: height // 2 * 2, : width // 2 * 2]
    cut = even.reshape(height // 2, 2, width // 2, 2, channels).transpose(0, 2, 1, 3, 4)
    rows = cells.reshape(-1, channels).copy()
    rows[: cut.size // channels] = cut.reshape(-1, channels)
    return rows.reshape(cells.shape)


def _blurred(cells: Cells) -> Cells:
    """Average over half of the image."""
    for axis in (0, 1):
        length = cells.shape[axis]
        reach = max(1, length // 4)
        padded = np.pad(cells, [(reach, reach) if a == axis else (0, 0) for a in range(3)], "edge")
        parts = [padded.take(range(i, i + length), axis) for i in range(2 * reach + 1)]
        cells = np.mean(parts, axis=0)
    return cells


def _wrapped(cells: Cells) -> Cells:
    """Eight bits whose overflow wraps around."""
    scale = float(np.abs(cells).max()) / 200
    return ((np.round(cells / scale).astype(np.int64) + 128) % 256 - 128).astype(np.float32) * scale


def _flat_roll(count: int) -> CellDamage:
    return lambda c: np.roll(c.reshape(-1, c.shape[-1]), count, 0).reshape(c.shape)


def _pad_to(mode: str, *, centred: bool) -> MaybeDamage:
    """Put the source into a larger grid, at the top left or in the middle."""

    def damaged(table: Table, prefix: int, source: Shape, target: Shape) -> Table | None:
        room = [t - s for s, t in zip(source, target, strict=True)]
        if min(room) < 0 or max(room) < 1:
            return None
        if mode == "reflect" and any(r >= s for r, s in zip(room, source, strict=True)):
            return None
        sides = [(r // 2, r - r // 2) if centred else (0, r) for r in room]
        cells = table[prefix:].reshape(*source, -1)
        if mode in ("zero", "noise"):
            padded = np.pad(cells, [*sides, (0, 0)])
            if mode == "noise":
                noise = np.random.default_rng(2).normal(0, 0.02, padded.shape)
                padded = np.where(padded == 0, noise, padded)
        else:
            padded = np.pad(cells, [*sides, (0, 0)], mode=mode)  # type: ignore[call-overload]
        return _joined(table[:prefix], padded)

    return damaged


def _cut_out(down: float, across: float) -> MaybeDamage:
    """Cut a smaller grid out of the source at a place."""

    def damaged(table: Table, prefix: int, source: Shape, target: Shape) -> Table | None:
        room = [s - t for s, t in zip(source, target, strict=True)]
        if min(room) < 0 or max(room) < 1:
            return None
        top, left = round(room[0] * down), round(room[1] * across)
        cells = table[prefix:].reshape(*source, -1)
        part = cells[top : top + target[0], left : left + target[1]]
        return _joined(table[:prefix], part)

    return damaged


def _without_permute(*, first: bool, last: bool) -> Damage:
    """Interpolate rows × channels as if they were channels × rows: a permute was forgotten."""

    def damaged(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
        cells, channels = table[prefix:], table.shape[1]
        image = cells.reshape(channels, *source) if first else cells.T.reshape(channels, *source)
        stored = np.ascontiguousarray(image.reshape(channels, -1).T)
        resized = honest(stored, 0, source, target)
        back = resized if not last else np.ascontiguousarray(resized.T).reshape(-1, channels)
        return np.concatenate([table[:prefix], back]).astype(np.float32)

    return damaged


def one_d_nearest(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    lengths = (1, source[0] * source[1]), (1, target[0] * target[1])
    line = resize_table(table[prefix:], *lengths, axes="(p h w s) d", method="nearest")
    return np.concatenate([table[:prefix], line]).astype(np.float32)


def target_swapped(table: Table, prefix: int, source: Shape, target: Shape) -> Table | None:
    """Resize to width × height instead of height × width."""
    if target[0] == target[1]:
        return None
    return honest(table, prefix, source, (target[1], target[0]))


def another_checkpoint(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """A smooth table of another training run: same spectrum, other directions and places."""
    rng = np.random.default_rng(11)
    cells = table[prefix:]
    mixing = np.linalg.qr(rng.normal(size=(cells.shape[1], cells.shape[1])))[0]
    other = np.concatenate([table[:prefix] @ mixing, cells @ mixing]).astype(np.float32)
    return honest(other, prefix, source, target)


def prefix_row_too_many(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Every cell one row late: the table has a prefix row that the model does not know."""
    resized = honest(table, prefix, source, target)
    extra = resized[:1] if prefix else resized[-1:] * 0
    return np.concatenate([resized[:prefix], extra, resized[prefix:-1]]).astype(np.float32)


def prefix_row_too_few(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """Every cell one row early: the first cell was taken for a prefix row."""
    resized = honest(table, prefix, source, target)
    return np.concatenate([resized[:prefix], resized[prefix + 1 :], resized[-1:] * 0])


def prefix_zero(table: Table, prefix: int, source: Shape, target: Shape) -> Table | None:
    if not prefix:
        return None
    resized = honest(table, prefix, source, target).copy()
    resized[:prefix] = 0
    return resized


def inverse_kernel(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """FlexiViT's formula, which is for patch kernels and multiplies the norms of a table."""
    resized = honest(table, prefix, source, target).copy()
    resized[prefix:] *= source[0] * source[1] / (target[0] * target[1])
    return resized


def last_rows_kept(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    """The first rows of the source, then the last one again and again."""
    rows, count = table[prefix:], target[0] * target[1]
    where = np.minimum(np.arange(count), len(rows) - 1)
    return np.concatenate([table[:prefix], rows[where]])


def mean_of(cells: Cells) -> Cells:
    mean: Cells = cells.mean((0, 1), keepdims=True)
    return mean


MORE: Mapping[str, MaybeDamage] = {
    "one_d_nearest": one_d_nearest,
    "permute_forgotten_first": _without_permute(first=True, last=False),
    "permute_forgotten_last": _without_permute(first=False, last=True),
    "permute_forgotten_both": _without_permute(first=True, last=True),
    "target_swapped": target_swapped,
    "mirrored_vertically": before(lambda c: c[::-1]),
    "rotated_180": before(lambda c: c[::-1, ::-1]),
    "rotated_90": before(lambda c: np.rot90(c)),
    "rotated_270": before(lambda c: np.rot90(c, 3)),
    "rolled_left": after(lambda c: np.roll(c, -1, 1)),
    "rolled_down": after(lambda c: np.roll(c, 1, 0)),
    "rolled_two_right": after(lambda c: np.roll(c, 2, 1)),
    "rolled_half": after(lambda c: np.roll(c, (c.shape[0] // 2, c.shape[1] // 2), (0, 1))),
    "rolled_flat": after(_flat_roll(1)),
    "rolled_flat_three": after(_flat_roll(3)),
    "another_checkpoint": another_checkpoint,
    "prefix_row_too_many": prefix_row_too_many,
    "prefix_row_too_few": prefix_row_too_few,
    "prefix_zero": prefix_zero,
    "inverse_kernel": inverse_kernel,
    "last_rows_kept": last_rows_kept,
    "padded_zero": _pad_to("zero", centred=False),
    "padded_zero_around": _pad_to("zero", centred=True),
    "padded_noise": _pad_to("noise", centred=False),
    "padded_edge": _pad_to("edge", centred=False),
    "padded_edge_around": _pad_to("edge", centred=True),
    "padded_reflect": _pad_to("reflect", centred=False),
    "padded_mean": _pad_to("mean", centred=True),
    "cut_top_left": _cut_out(0, 0),
    "cut_middle": _cut_out(0.5, 0.5),
    "cut_bottom_right": _cut_out(1, 1),
    "top_half": before(lambda c: c[: max(1, c.shape[0] // 2)]),
    "left_half": before(lambda c: c[:, : max(1, c.shape[1] // 2)]),
    "middle_half": before(
        lambda c: c[c.shape[0] // 4 : -(c.shape[0] // 4) or None][
            :, c.shape[1] // 4 : -(c.shape[1] // 4) or None
        ]
    ),
    "random_same_size": after(lambda c: _noise(c, 1.0)),
    "random_uniform": after(
        lambda c: np.random.default_rng(0).uniform(-0.05, 0.05, c.shape).astype(np.float32)
    ),
    "ones": after(lambda c: np.ones_like(c)),
    "tenth": after(lambda c: c * 0.1),
    "quartered": after(lambda c: c * 0.25),
    "times_0.6": after(lambda c: c * 0.6),
    "times_1.6": after(lambda c: c * 1.6),
    "quadrupled": after(lambda c: c * 4),
    "negated": after(lambda c: -c),
    "channels_permuted": after(_permuted),
    "channels_reversed": after(lambda c: c[..., ::-1]),
    "channels_rolled": after(lambda c: np.roll(c, 1, -1)),
    "channels_half_negated": after(lambda c: _on_channels(c, 0.5, lambda p: -p)),
    "channels_alternately_negated": after(
        lambda c: c * np.where(np.arange(c.shape[-1]) % 2, -1, 1).astype(np.float32)
    ),
    "channels_half_zero": after(lambda c: _on_channels(c, 0.5, lambda p: p * 0)),
    "channels_half_random": after(lambda c: _on_channels(c, 0.5, lambda p: _noise(p, 1.0))),
    "channels_halves_swapped": after(lambda c: np.roll(c, c.shape[-1] // 2, -1)),
    "mean_removed": after(lambda c: c - mean_of(c)),
    "mean_tripled": after(lambda c: c + 2 * mean_of(c)),
    "standardised": after(lambda c: (c - mean_of(c)) / (c.std((0, 1), keepdims=True) + 1e-9)),
    "last_tenth_zero": after(lambda c: _set(c, _last(c, 0.1), 0.0)),
    "last_quarter_zero": after(lambda c: _set(c, _last(c, 0.25), 0.0)),
    "last_half_zero": after(lambda c: _set(c, _last(c, 0.5), 0.0)),
    "last_quarter_random": after(lambda c: _set(c, _last(c, 0.25), _noise(c, 1.0))),
    "last_half_random": after(lambda c: _set(c, _last(c, 0.5), _noise(c, 1.0))),
    "first_quarter_zero": after(lambda c: _set(c, ~_last(c, 0.75), 0.0)),
    "scattered_zero": after(lambda c: _set(c, _scattered(c, 0.3), 0.0)),
    "scattered_random": after(lambda c: _set(c, _scattered(c, 0.3), _noise(c, 1.0))),
    "every_second_row_zero": after(
        lambda c: _set(
            c, (np.arange(c.shape[0]) % 2 == 1)[:, None] & np.ones(c.shape[1], bool), 0.0
        )
    ),
    "noise_twice": after(lambda c: c + _noise(c, 2.0)),
    "quantised_two_bits": after(
        lambda c: np.round(c / (2 * c.std() + 1e-12)).clip(-1, 1) * 2 * c.std()
    ),
    "wrapped_eight_bits": after(_wrapped),
    "absolute_values": after(np.abs),
    "signs_only": after(lambda c: np.sign(c) * c.std()),
    "clipped": after(lambda c: c.clip(-0.3 * c.std(), 0.3 * c.std())),
    "blurred": after(_blurred),
    "rows_only": after(lambda c: np.broadcast_to(c.mean(1, keepdims=True), c.shape)),
    "columns_only": after(lambda c: np.broadcast_to(c.mean(0, keepdims=True), c.shape)),
    "grid_rows_shuffled": after(lambda c: np.random.default_rng(4).permutation(c)),
    "serpentine": after(_serpentine),
    "block_order": after(_blocks),
    "column_order": after(lambda c: c.swapaxes(0, 1).reshape(c.shape)),
}

ALL_DAMAGE: Mapping[str, MaybeDamage] = {**DAMAGE, **MORE}
# These say something about prefix rows, and need one.
NEED_PREFIX = frozenset({"prefix_last", "prefix_as_cell", "prefix_dropped", "prefix_zero"})


def plant(
    how: str,
    table: Table,
    prefix: int,
    source: Shape,
    target: Shape,
    fair: Sequence[Table] | None = None,
) -> Table | None:
    """Damage a table; None where that kind does not apply, or does no damage there.

    `fair`: what `honest_results` gives, where a caller plants many.
    """
    if how in NEED_PREFIX and not prefix:
        return None
    made = ALL_DAMAGE[how](table, prefix, source, target)
    if made is None:
        return None
    results = honest_results(table, prefix, source, target) if fair is None else fair
    return np.ascontiguousarray(made, np.float32) if is_damage(made, results) else None


def honest_results(table: Table, prefix: int, source: Shape, target: Shape) -> list[Table]:
    """Resize a table as every library does."""
    return [honest(table, prefix, source, target, like) for like in CONVENTIONS]


def is_damage(made: Table, fair: Sequence[Table]) -> bool:
    """Whether a table differs from every honest result.

    A 1-D resampling along the width alone is bilinear or nearest; a mirror image of a grid of one
    row is that grid.
    """
    scale = float(np.linalg.norm(made)) or 1.0
    return all(float(np.linalg.norm(made - other)) / scale >= NO_DAMAGE for other in fair)
