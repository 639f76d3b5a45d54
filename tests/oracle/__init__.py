"""What others compute, to hold our results against."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from resize_pos.core.conventions import Coordinates, Method, Resampling
from resize_pos.core.geometry import Grid


def interpolate(
    grid: NDArray[np.float64], target: Grid, resampling: Resampling
) -> NDArray[np.float64]:
    """Resize a (copies, h, w, d) grid with torch, in float64.

    The permuted view has torch's channels-last strides when d > 1. That is wanted: on contiguous
    NCHW torch 2.13 is wrong for antialias with a target width of 1, and its float64 nearest is not
    the one of float32.
    """
    assert grid.shape[3] > 1
    cells = torch.from_numpy(grid).permute(0, 3, 1, 2)
    smooth = resampling.method is not Method.NEAREST
    corners = resampling.coordinates is Coordinates.CORNERS
    if resampling.coordinates is Coordinates.OFFSET:
        scale = ((target.height + 0.1) / grid.shape[1], (target.width + 0.1) / grid.shape[2])
        resized = F.interpolate(cells, scale_factor=scale, mode=resampling.method.value)
    else:
        resized = F.interpolate(
            cells,
            size=(target.height, target.width),
            mode=resampling.method.value,
            align_corners=corners if smooth else None,
            antialias=resampling.antialias and smooth,
        )
    assert resized.shape[2:] == (target.height, target.width)
    return resized.permute(0, 2, 3, 1).contiguous().numpy()
