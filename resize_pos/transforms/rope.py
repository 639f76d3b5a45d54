"""EVA-02's stored rotary angles: one row of cosines or sines per patch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.errors import TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Rebuild

_THETA = 10000.0
_LONGEST = 1024  # positions of a pretraining grid's side that are tried
_TOLERANCE = 2e-6
_WAVES: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "cos": np.cos,
    "sin": np.sin,
}


def rebuild_rotary(name: str, array: NDArray[Any], how: Rebuild) -> NDArray[Any]:
    """Find the pretraining grid that the source is scaled to, and compute the target's angles."""
    source, target = how.source.grid, how.target.grid
    assert source is not None and target is not None
    wave, channels = _WAVES[name[-3:]], array.shape[1]
    for trained in _candidates(array, source, wave):
        difference = rotary(source, channels, trained, wave) - array
        if np.max(np.abs(difference)) <= _tolerance(array):
            return rotary(target, channels, trained, wave).astype(array.dtype)
    raise TableError(
        f"{name} does not follow EVA-02's rotary formula over {source} patches.",
        hint="the buffer is not understood; remove it from the file if the library rebuilds it.",
    )


def rotary(
    grid: Grid,
    channels: int,
    trained: int,
    wave: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the wave of every angle: the first half of the channels turns with the row."""
    half = channels // 2
    exponents = np.arange(0, half, 2, dtype=np.float32)[: half // 2] / np.float32(half)
    speeds = (1.0 / np.power(_THETA, exponents.astype(np.float64)).astype(np.float32)).astype(
        np.float32
    )
    tables = []
    for cells in (grid.height, grid.width):
        places = np.arange(cells, dtype=np.float32) / np.float32(cells) * np.float32(trained)
        angles = np.repeat(places[:, None] * speeds[None, :], 2, axis=1)
        tables.append(wave(angles.astype(np.float64)))
    rows = np.broadcast_to(tables[0][:, None], (grid.height, grid.width, half))
    columns = np.broadcast_to(tables[1][None, :], (grid.height, grid.width, half))
    return np.concatenate([rows, columns], axis=-1).reshape(grid.cells, channels)


def _candidates(
    array: NDArray[Any], grid: Grid, wave: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> list[int]:
    """Try every pretraining grid on the fastest channel, in which they differ most."""
    if array.shape[1] % 4 or grid.width < 2:
        return []
    stored = array[: grid.width, array.shape[1] // 2].astype(np.float64)
    found = []
    for trained in range(1, _LONGEST + 1):
        places = np.arange(grid.width, dtype=np.float32) / np.float32(grid.width)
        angles = (places * np.float32(trained)).astype(np.float64)
        if np.max(np.abs(wave(angles) - stored)) <= _tolerance(array):
            found.append(trained)
    return found


def _tolerance(array: NDArray[Any]) -> float:
    return _TOLERANCE if array.dtype.itemsize >= 4 else 1e-2
