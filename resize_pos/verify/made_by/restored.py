"""Did a method restore what averaging takes: the mean, the deviations or the lengths?

Then the mean is the source's, or each channel, or each cell, has a factor of its own. That is no
damage.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.sampling import Wide, ratio, size
from resize_pos.verify.made_by.fitted import fit_nearby
from resize_pos.verify.made_by.proper import limited_norms

_RESTORED = 0.02  # relative difference of deviations
_SAME_LENGTH = 1e-3  # relative difference of lengths
_ROUNDS = 12  # of fitting a kernel to what its cells' factors leave
_MOST_CHANNELS = 0.5  # of the channels; the factors of the others may have been limited
_SAME_MEAN = 0.05  # of how much positions differ
_KERNELS = (*proper.CONVENTIONAL, *proper.OTHERS)  # by which values, or lengths, are resized


def mean_is_restored(source: Wide, rows: Wide) -> bool:
    """Whether rows (cells × channels) have the mean of a grid (1, h, w, channels)."""
    mean = source.mean(axis=(0, 1, 2))
    usual = size(rows - rows.mean(axis=0)) / np.sqrt(len(rows))
    return bool(size(rows.mean(axis=0) - mean) <= _SAME_MEAN * usual)


def deviations_are_restored(source: Wide, rows: Wide) -> bool:
    """Whether the channels of the rows vary as much as the source's."""
    before, after = source.std(axis=(0, 1, 2)), rows.std(axis=0)
    alive = before > 0
    same = np.abs(after[alive] - before[alive]) <= _RESTORED * before[alive]
    return bool(alive.any() and same.mean() > _MOST_CHANNELS)


def spread_is_restored(source: Wide, rows: Wide) -> bool:
    """Whether positions differ as much as in the source, over all channels."""
    before, after = (
        float(np.sqrt(((c - c.mean(axis=0)) ** 2).mean()))
        for c in (source.reshape(-1, source.shape[-1]), rows)
    )
    return abs(ratio(after, before) - 1) <= _SAME_LENGTH


def without_lengths(source: Wide, rows: Wide, target: Grid) -> Iterator[tuple[Wide, Wide]]:
    """Undo that lengths or deviations were restored: give source and rows for a fit.

    Lengths may be interpolated by another kernel than the values, or have one factor, and
    directions may be interpolated without them. Deviations may have one factor.
    """
    before = np.sqrt((source**2).sum(axis=-1, keepdims=True))
    mine = np.sqrt((rows**2).sum(axis=-1))
    signs = _signs(before, mine, target)
    if signs is not None:
        directions = source / np.where(before > 0, before, 1.0)
        for values in (source, directions):
            yield values, _plain(values, rows * signs[:, None], target, each=True)
    elif abs(ratio(float(mine.mean()), float(before.mean())) - 1) <= _SAME_LENGTH:
        yield source, _plain(source, rows, target, each=False)
    if not spread_is_restored(source, rows):
        return
    own, mean = source.mean(axis=(0, 1, 2)), rows.mean(axis=0)
    yield source - own, _plain(source - own, rows - own, target, each=False)
    if _is_a_kernels(mean, source, rows, target):
        yield source - own, _plain(source - own, rows - mean, target, each=False)


def _is_a_kernels(mean: Wide, source: Wide, rows: Wide, target: Grid) -> bool:
    """Whether some kernel gives the mean of the rows, so that only deviations were restored."""
    most = _SAME_MEAN * size(rows - mean) / np.sqrt(len(rows))
    results = (proper.resized(source, target, kernel).reshape(rows.shape) for kernel in _KERNELS)
    return any(size(result.mean(axis=0) - mean) <= most for result in results)


def _signs(before: Wide, mine: Wide, target: Grid) -> Wide | None:
    """Return the signs of interpolated lengths; a cubic kernel may make some of them negative."""
    for kernel in _KERNELS:
        for wanted in (
            proper.resized(before, target, kernel).reshape(-1),
            limited_norms(before, target, kernel).reshape(-1),
        ):
            if size(mine - np.abs(wanted)) <= _SAME_LENGTH * size(mine):
                return np.where(wanted < 0, -1.0, 1.0)
    return None


def _plain(source: Wide, rows: Wide, target: Grid, *, each: bool) -> Wide:
    """Divide rows by the factors that they have beside what a kernel makes of the source.

    `each`: every row has a factor of its own.
    """
    results = (proper.resized(source, target, kernel).reshape(rows.shape) for kernel in _KERNELS)
    plain = min(
        ((_divided(rows, made, each), made) for made in results),
        key=lambda pair: size(pair[0] - pair[1]),
    )[0]
    for _ in range(_ROUNDS):
        plain = _divided(rows, plain - fit_nearby(source, plain, target), each)
    return plain


def _divided(rows: Wide, made: Wide, each: bool) -> Wide:
    energy = np.einsum("nd,nd->n", made, made)
    shared = np.einsum("nd,nd->n", rows, made)
    if not each:
        energy, shared = (np.full_like(values, values.sum()) for values in (energy, shared))
    factors = shared / np.maximum(energy, 1e-300)
    return np.asarray(rows / np.where(factors > 0, factors, 1.0)[:, None])


def with_deviations_of(made: Wide, rows: Wide) -> Wide:
    """Give each channel of `made` the deviation that it has in the rows."""
    mean, deviation = made.mean(axis=0), made.std(axis=0)
    factors = np.divide(rows.std(axis=0), deviation, out=np.ones_like(mean), where=deviation > 0)
    result: Wide = mean + (made - mean) * factors
    return result
