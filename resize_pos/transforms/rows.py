"""Raw-index tables: rows are cut off, or the last one is repeated; no value is mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout


def set_rows(array: NDArray[Any], layout: Layout, rows: int) -> NDArray[Any]:
    """Return a table `rows` rows along `l`."""
    axis = layout.terms.index("l")
    kept = np.minimum(np.arange(rows), array.shape[axis] - 1)
    return np.ascontiguousarray(array.take(kept, axis=axis))
