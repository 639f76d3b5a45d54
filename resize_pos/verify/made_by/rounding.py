"""How far eight bits, or fewer, have rounded the values of a table."""

from __future__ import annotations

import numpy as np

from resize_pos.quality.measures.sampling import Wide, ratio, size

_VALUES = 256  # as many as eight bits have
# The limit, for tables with as many values as floats of eight bits have, and with fewer.
_MOST, _FEW_VALUES, _MOST_OF_FEW = 0.3, 64, 0.1
_SEVEN_BITS = 50  # steps between zero and the largest value; not every step occurs
_WHOLE = 0.05  # of a step: how far from whole numbers the values may be
_MOST_CHANNELS = 0.5  # that must be so


def rounding(rows: Wide) -> float:
    """Return how far values were rounded, as a part of how much rows differ, up to a limit.

    Rounding by more is damage. It is 0 for values of more than eight bits.
    """
    count = len(np.unique(rows))
    errors = _of_all(rows) if count <= _VALUES else _of_channels(rows)
    most = _MOST if count >= _FEW_VALUES else _MOST_OF_FEW
    return min(ratio(errors, size(rows - rows.mean(axis=0))), most)


def _of_all(rows: Wide) -> float:
    """Return the size of all errors of a table with one set of values."""
    values, counts = np.unique(rows, return_counts=True)
    if len(values) <= 2:
        return 0.0
    steps = np.diff(values)
    around = 0.5 * (np.append(steps, steps[-1]) + np.insert(steps, 0, steps[0]))
    # A value lies anywhere between the middles of the steps on both sides.
    return float(np.sqrt((counts * around**2).sum() / 12))


def _of_channels(rows: Wide) -> float:
    """Return the same for channels that are whole numbers of steps, at least seven bits each."""
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    least = 1e-6 * np.abs(rows).max(axis=0)
    steps = np.where(gaps > least, gaps, np.inf).min(axis=0)
    bits = np.divide(np.abs(rows).max(axis=0), steps, out=np.zeros(len(steps)), where=steps > 0)
    counts = rows / steps
    whole = np.abs(counts - np.round(counts)).max(axis=0) < _WHOLE
    fine = whole & (bits >= _SEVEN_BITS) & (bits <= _VALUES)
    if fine.mean() < _MOST_CHANNELS:
        return 0.0
    return float(np.sqrt(len(rows) * (steps[fine] ** 2).sum() / 12))
