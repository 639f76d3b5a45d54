"""Scale the rows of a projection that make the queries of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.transforms.absolute import round_once, widen


def scale_queries(array: NDArray[Any], factor: float, rows: int) -> NDArray[Any]:
    """Multiply the first rows in float64 and round once; the others keep their bits."""
    scaled = array.copy()
    scaled[:rows] = round_once(widen(np.ascontiguousarray(array[:rows])) * factor, array.dtype)
    return scaled
