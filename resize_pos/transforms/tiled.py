"""Tables that repeat with a window of attention: the mean window is tiled, the rest interpolated.

Interpolating such a table as a whole stretches the windows, while the model's windows keep their
size ("Window Attention is Bugged", Bolya et al. 2023). So the table is split into its mean window
and the rest; only the rest is resampled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.conventions import Resampling
from resize_pos.core.geometry import Grid
from resize_pos.transforms.absolute import resize_grid, round_once, widen


def resize_tiled(
    array: NDArray[Any],
    layout: Layout,
    rows: tuple[int, int],
    source: Grid,
    target: Grid,
    resampling: Resampling,
    window: Grid,
    frames: int = 1,
    device: str = "cpu",
) -> NDArray[Any]:
    """Resize a stored table; both grids hold whole windows. `rows`: prefix and suffix."""
    if source == target:
        return array
    parts = layout.unfold(array, rows[0], source, rows[1], frames)
    cells = widen(parts.grid)
    mean = mean_window(cells, window)
    rest = resize_grid(cells - tile(mean, source), target, resampling, device)
    grid = round_once(rest + tile(mean, target), array.dtype)
    whole = Unfolded(parts.prefix, grid, parts.suffix)
    return layout.fold(whole, array.shape).astype(array.dtype, copy=False)


def mean_window(cells: NDArray[np.float64], window: Grid) -> NDArray[np.float64]:
    """Average a (copies, h, w, d) grid over its windows."""
    copies, height, width, channels = cells.shape
    down, right = height // window.height, width // window.width
    split = cells.reshape(copies, down, window.height, right, window.width, channels)
    # One window after another: np.mean may group the terms differently on another machine.
    total = np.zeros((copies, window.height, window.width, channels))
    for row in range(down):
        for column in range(right):
            total += split[:, row, :, column]
    total /= down * right
    return total


def tile(window: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """Repeat a window over a grid."""
    _, height, width, _ = window.shape
    return np.tile(window, (1, grid.height // height, grid.width // width, 1))
