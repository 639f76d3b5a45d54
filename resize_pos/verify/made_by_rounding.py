"""How far eight bits, or fewer, have rounded the values of a table."""

from __future__ import annotations

import numpy as np

from resize_pos.quality.measures.sampling import Wide, ratio, size

_VALUES = 256  # as many as eight bits have
_MOST = 0.1


def rounding(rows: Wide) -> float:
    """Return how far values were rounded, as a part of how much rows differ, up to 0.1.

    Rounding by more is damage. It is 0 for a table of more values than eight bits have.
    """
    values, counts = np.unique(rows, return_counts=True)
    if not 2 < len(values) <= _VALUES:
        return 0.0
    steps = np.diff(values)
    around = 0.5 * (np.append(steps, steps[-1]) + np.insert(steps, 0, steps[0]))
    # A value lies anywhere between the middles of the steps on both sides.
    error = np.sqrt((counts * around**2).sum() / 12)
    return min(ratio(float(error), size(rows - rows.mean(axis=0))), _MOST)
