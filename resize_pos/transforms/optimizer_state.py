"""Moments of an optimizer: interpolated like their table, and as non-negative as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def keep_sign(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """Clamp at zero what was nowhere negative: bicubic overshoots, and a root follows."""
    zero = before.dtype.type(0)
    return np.maximum(after, zero) if bool(np.all(before >= zero)) else after
