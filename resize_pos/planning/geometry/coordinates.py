"""Tensors that hold coordinates: of every cell of a grid, or of boxes over several grids.

Their values follow from the size of the image, so they are no table that can be resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_COORDINATES = 4
_FEWEST_CELLS = 36
_FEWEST_SIDE = 4  # cells
_FEWEST_REPEATS = 4  # points on each line of a grid of anchors


def coordinates(values: NDArray[Any], shape: tuple[int, ...]) -> str:
    """Say that a tensor holds the coordinates of every cell of a grid; empty if it does not."""
    import numpy as np

    if shape[-1] <= MOST_COORDINATES:
        points = values.reshape(-1, shape[-1])
    elif shape[0] <= MOST_COORDINATES:
        points = values.reshape(shape[0], -1).T
    else:
        return ""
    sides = [len(np.unique(points[:, axis])) for axis in (0, 1)]
    if _are_boxes(points, sides):
        return f"holds {len(points)} points or boxes of several grids"
    lattice = math.prod(sides) >= _FEWEST_CELLS and min(sides) > 2
    if not lattice or len(points) % math.prod(sides):
        return ""
    if len(np.unique(points[:, :2], axis=0)) != math.prod(sides):
        return ""
    if any(np.ptp(np.diff(np.unique(points[:, axis]))) > 1e-3 * np.ptp(points) for axis in (0, 1)):
        return ""
    return f"holds the coordinates of {math.prod(sides)} cells"


def _are_boxes(points: NDArray[Any], sides: Sequence[int]) -> bool:
    """Whether points have few different coordinates, and many pairs of these: anchors."""
    import numpy as np

    few = max(sides) * _FEWEST_REPEATS <= len(points) and min(sides) > _FEWEST_SIDE
    if not few or not np.all(np.isfinite(points)):
        return False
    pairs = len(np.unique(points[:, :2], axis=0))
    return pairs >= _FEWEST_CELLS and pairs > sum(sides) and pairs != math.prod(sides)
