"""Optimizer state: interpolated like its table; non-negative state is clamped at 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def keep_sign(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """Clamp non-negative state at 0: Adam takes its square root, and bicubic can undershoot."""
    zero = before.dtype.type(0)
    return np.maximum(after, zero) if bool(np.all(before >= zero)) else after
