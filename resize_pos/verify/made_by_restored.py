"""Did a method restore what averaging takes: the mean, the deviations or the lengths?

Then the mean is the source's, or each channel, or each cell, has a factor of its own. That is no
damage.
"""

from __future__ import annotations

import numpy as np

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.sampling import Wide, ratio, size
from resize_pos.verify.made_by_fitted import fit_nearby

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


def without_lengths(source: Wide, rows: Wide, target: Grid) -> Wide | None:
    """Undo that lengths were restored; None if they are not between the source's own.

    The lengths may be interpolated by another kernel than the values, or have one factor.
    """
    before = np.sqrt((source**2).sum(axis=-1, keepdims=True))
    mine = np.sqrt((rows**2).sum(axis=-1))
    kept = abs(ratio(float(mine.mean()), float(before.mean())) - 1) <= _SAME_LENGTH
    wanted = (proper.resized(before, target, kernel).reshape(-1) for kernel in _KERNELS)
    if not kept and not any(size(mine - each) <= _SAME_LENGTH * size(mine) for each in wanted):
        return None
    results = (proper.resized(source, target, kernel).reshape(rows.shape) for kernel in _KERNELS)
    plain = max(
        (_with_lengths_of(made, rows) for made in results),
        key=lambda each: -size(each[0] - each[1]),
    )[0]
    for _ in range(_ROUNDS):
        plain = _with_lengths_of(plain - fit_nearby(source, plain, target), rows)[0]
    return plain


def _with_lengths_of(made: Wide, rows: Wide) -> tuple[Wide, Wide]:
    """Divide each row by the factor that it has beside the row of `made`; return both."""
    energy = np.maximum(np.einsum("nd,nd->n", made, made), 1e-300)
    factors = np.einsum("nd,nd->n", rows, made) / energy
    return rows / np.where(factors > 0, factors, 1.0)[:, None], made


def with_deviations_of(made: Wide, rows: Wide) -> Wide:
    """Give each channel of `made` the deviation that it has in the rows."""
    mean, deviation = made.mean(axis=0), made.std(axis=0)
    factors = np.divide(rows.std(axis=0), deviation, out=np.ones_like(mean), where=deviation > 0)
    result: Wide = mean + (made - mean) * factors
    return result
