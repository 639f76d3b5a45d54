"""Did a method restore what averaging takes: the mean, the deviations or the lengths?

Then the mean is the source's, or each channel, or each cell, has a factor of its own. That is no
damage.
"""

from __future__ import annotations

import numpy as np

from resize_pos.quality.measures.sampling import Wide, ratio, size

_RESTORED = 0.02  # relative difference of lengths, or of deviations
_MOST_CHANNELS = 0.5  # of the channels; the factors of the others may have been limited
_SAME_MEAN = 0.05  # of how much positions differ


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


def lengths_are_restored(source: Wide, rows: Wide) -> bool:
    """Whether the rows are as long as the source's cells, on average."""
    before, after = (np.sqrt((cells**2).sum(axis=-1)) for cells in (source[0], rows))
    return abs(ratio(float(after.mean()), float(before.mean())) - 1) <= _RESTORED


def with_deviations_of(made: Wide, rows: Wide) -> Wide:
    """Give each channel of `made` the deviation that it has in the rows."""
    mean, deviation = made.mean(axis=0), made.std(axis=0)
    factors = np.divide(rows.std(axis=0), deviation, out=np.ones_like(mean), where=deviation > 0)
    result: Wide = mean + (made - mean) * factors
    return result
