"""Samples that are the same on every run, and matrix products that use one thread.

All pairs of a 37×37 and a 55×55 table of 1024 channels are four billion multiplications. A few
hundred cells, or a few dozen channels, give the same result to two digits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resize_pos.core.conventions import Resampling
from resize_pos.core.geometry import Grid
from resize_pos.transforms.kernels import apply, operator

Wide = NDArray[np.float64]
Single = NDArray[np.float32]

_GOLDEN = 0.6180339887498949
ONE_THREAD = 1 << 18  # multiplications above which OpenBLAS starts threads; parallel jobs must not
_SMALLEST, _LARGEST = 2.0**-20, 2.0**10  # in this range no scaling is needed
_ROWS, _DEPTH = 32, 256  # block size that stays below the limit
_STEP = 16  # a multiple of what BLAS adds up at once: padding to it does not change the sums


@lru_cache(maxsize=64)
def spread(count: int, limit: int) -> NDArray[np.intp]:
    """Choose at most `limit` of `count` indexes, spread evenly but without a common period."""
    if count <= limit:
        chosen = np.arange(count)
    else:
        order = np.argsort((np.arange(count) * _GOLDEN) % 1.0, kind="stable")
        chosen = np.sort(order[:limit])
    chosen.flags.writeable = False
    return chosen


def some_channels(grid: Wide, limit: int = 48) -> Wide:
    """Take a sample of the channels, for measures that treat each channel alike."""
    chosen = spread(grid.shape[-1], limit)
    return grid if len(chosen) == grid.shape[-1] else np.ascontiguousarray(grid[..., chosen])


def centred(grid: Wide) -> Wide:
    """Subtract each channel's mean over the grid."""
    shifted: Wide = grid - grid.mean(axis=(1, 2), keepdims=True)
    return shifted


def unit(vectors: Wide) -> Wide:
    """Scale vectors to length one; zero vectors stay zero."""
    norms = np.sqrt(np.einsum("...d,...d->...", vectors, vectors))[..., None]
    scaled: Wide = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return scaled


def products(left: Single, right: Single) -> Single:
    """Compute left · rightᵀ in blocks too small for BLAS to start threads on."""
    rows, columns = left.shape[0], right.shape[0]
    first, second = _blocks(left), _blocks(right).transpose(0, 1, 3, 2)
    total = first[:, None, 0] @ second[None, :, 0]
    for part in range(1, first.shape[1]):
        total += first[:, None, part] @ second[None, :, part]
    merged = total.transpose(0, 2, 1, 3).reshape(len(first) * _ROWS, len(second) * _ROWS)
    return np.ascontiguousarray(merged[:rows, :columns])


def _blocks(matrix: Single) -> Single:
    # A sample of 48 channels must not be padded to 256: that is five times the work.
    depth = min(_DEPTH, _STEP * max(1, -(-matrix.shape[1] // _STEP)))
    rows, parts = -(-matrix.shape[0] // _ROWS), max(1, -(-matrix.shape[1] // depth))
    padded = np.zeros((rows * _ROWS, parts * depth), np.float32)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, _ROWS, parts, depth).transpose(0, 2, 1, 3)


def in_range(*arrays: NDArray[Any]) -> tuple[float, tuple[NDArray[Any], ...]]:
    """Divide arrays by one power of two if their squares could over- or underflow in float32.

    The divisor is returned, too. Nearly every measure is a ratio, so the division cancels out.
    """
    largest = max((float(np.max(np.abs(a))) for a in arrays if a.size), default=0.0)
    if largest == 0.0 or not np.isfinite(largest) or _SMALLEST <= largest <= _LARGEST:
        return 1.0, arrays
    divisor = 2.0 ** np.floor(np.log2(largest))
    return divisor, tuple(a.astype(np.float64) / divisor for a in arrays)


def resample(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Resample a sample of channels; for measuring, where the last bit does not matter."""
    for axis, length in ((1, target.height), (2, target.width)):
        along = operator(grid.shape[axis], length, resampling)
        if along.is_identity:
            continue
        if along.source * along.target * grid.shape[-1] > ONE_THREAD:
            grid = apply(along, grid, axis)
        elif axis == 2:
            grid = along.matrix @ grid
        else:
            grid = np.swapaxes(along.matrix @ np.swapaxes(grid, 1, 2), 1, 2)
    return grid


def size(values: NDArray[np.floating[Any]]) -> float:
    """Return the root of the sum of squares, without BLAS, whose dot product starts threads."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return float(np.sqrt(np.einsum("i,i->", flat, flat)))


def quantile(values: ArrayLike, share: float) -> float:
    """Like `np.quantile`, but without its import of masked arrays."""
    ordered = np.sort(values, axis=None)
    return float(np.interp(share * (ordered.size - 1), np.arange(ordered.size), ordered))


def median(values: ArrayLike) -> float:
    """Return the value in the middle."""
    return quantile(values, 0.5)


def ratio(part: float, whole: float, empty: float = 0.0) -> float:
    """Divide; return `empty` if the divisor is zero."""
    return part / whole if whole else empty
