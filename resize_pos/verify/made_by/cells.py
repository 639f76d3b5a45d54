"""Was each cell interpolated between the four source cells around it, as in triangles?

Then rows and columns are not treated by themselves, and no two matrices make the table. The four
weights of each cell are fitted to all its channels instead.
"""

from __future__ import annotations

import numpy as np

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.sampling import Wide, ratio, size, some_channels

_CHANNELS, _FEWEST_CHANNELS = 128, 16  # fewer do not tell three weights from chance
_NEAR, _NEAR_EACH = 0.01, 0.05  # of how much positions differ: what may be left, also of each cell
_USUALLY_APART, _APART = 0.13, 0.35  # lines: how far the middle of the weights may be from a place
_TIED = 1e-6  # how strongly equal weights are preferred


def is_interpolated(source: Wide, rows: Wide, target: Grid) -> bool:
    """Whether rows (cells × channels) lie between the cells around their places of (1, h, w, d)."""
    grid, table = some_channels(source, _CHANNELS)[0], some_channels(rows, _CHANNELS)
    height, width, channels = grid.shape
    if channels < _FEWEST_CHANNELS or min(height, width) < 2:
        return False
    places = [
        np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
        for old, new in ((height, target.height), (width, target.width))
    ]
    y, x = (axis.reshape(-1) for axis in np.meshgrid(*places, indexing="ij"))
    top = np.minimum(np.floor(y), height - 2).astype(np.intp)
    left = np.minimum(np.floor(x), width - 2).astype(np.intp)
    down, across = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    around = grid[top[:, None] + down, left[:, None] + across]  # (cells, 4, channels)
    weights = _weights(around, table)
    apart = table - np.einsum("nk,nkd->nd", weights, around)
    whole = size(table - table.mean(axis=0))
    each = np.sqrt((apart**2).sum(axis=1)).max() * np.sqrt(len(table))
    if ratio(size(apart), whole, 1.0) > _NEAR or each > _NEAR_EACH * whole:
        return False
    away = np.hypot(top + weights @ down - y, left + weights @ across - x)
    return bool(away.mean() <= _USUALLY_APART and away.max() <= _APART)


def _weights(around: Wide, table: Wide) -> Wide:
    """Fit four weights with a sum of one to each row."""
    first, others = around[:, :1], around[:, 1:] - around[:, :1]
    gram = np.einsum("nid,njd->nij", others, others)
    gram += (_TIED * np.trace(gram, axis1=1, axis2=2) + 1e-300)[:, None, None] * np.eye(3)
    wanted = np.einsum("nid,nd->ni", others, table - first[:, 0])
    rest = np.linalg.solve(gram, wanted[..., None])[..., 0]
    return np.concatenate([1 - rest.sum(axis=1, keepdims=True), rest], axis=1)
