"""Every 1-D resampling as a small float64 matrix: rows are target, columns source positions.

Coordinates are rationals of small integers, so they are formed in exact integer arithmetic and
rounded once; the weights agree with `torch.nn.functional.interpolate` in float64 to about 1e-14.
Only elementwise multiplications and additions in a fixed order are used, never BLAS: the result is
the same bytes on every machine, and no threads are started.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import Coordinates, Method, Resampling
from resize_pos.core.errors import GeometryError, UsageError

_CLAMPED_A = -0.75  # Keys' parameter in torch without antialias …
_ANTIALIAS_A = -0.5  # … and with it (as in Pillow)
_REACH = {Method.BICUBIC: 2, Method.BILINEAR: 1}  # half the kernel's support, in positions
_BLOCK = 1 << 15  # elements worked on at a time: three such float64 blocks stay in the cache


@dataclass(frozen=True, eq=False)
class Operator:
    """A linear map from `source` to `target` positions, row by row as `taps` weighted columns."""

    source: int
    indices: NDArray[np.intp]  # (target, taps), each within the source; one may repeat in a row
    weights: NDArray[np.float64]  # (target, taps); zero where a row needs fewer taps

    @property
    def target(self) -> int:
        """How many positions come out."""
        return len(self.indices)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The same map as a dense, read-only (target, source) matrix."""
        dense = np.zeros((self.target, self.source))
        rows = np.arange(self.target)
        for column, weight in zip(self.indices.T, self.weights.T, strict=True):
            dense[rows, column] += weight
        dense.flags.writeable = False
        return dense

    @cached_property
    def is_identity(self) -> bool:
        """Whether every position is taken over unchanged, bit for bit."""
        if self.source != self.target:
            return False
        own = np.where(self.indices == np.arange(self.target)[:, None], self.weights, 0.0)
        return bool(np.all(own.sum(axis=1) == 1.0) and np.all(own == self.weights))

    def part(self, first: int, last: int) -> tuple[slice, Operator]:
        """Return the map to the positions `first` … `last` - 1 only, and the sources it needs."""
        indices = self.indices[first:last]
        needed = slice(int(indices.min()), int(indices.max()) + 1)
        width = needed.stop - needed.start
        return needed, Operator(width, indices - needed.start, self.weights[first:last])


def check_resampling(resampling: Resampling) -> None:
    """Refuse a combination that no library has and that therefore has no agreed meaning."""
    rule = resampling.coordinates
    if rule is Coordinates.HALF_PIXEL:
        return
    if resampling.method is Method.NEAREST:
        raise UsageError(
            f"nearest cannot be combined with {rule.value} coordinates: no library does that.",
            hint="use half-pixel coordinates, or bilinear or bicubic.",
        )
    if resampling.antialias:
        raise UsageError(
            f"antialias cannot be combined with {rule.value} coordinates: no library does that.",
            hint="pass --no-antialias, or use half-pixel coordinates.",
        )


@lru_cache(maxsize=128)
def operator(source: int, target: int, resampling: Resampling) -> Operator:
    """Build the map from `source` to `target` positions along one axis."""
    check_resampling(resampling)
    if source < 1 or target < 1:
        raise GeometryError(f"cannot resample {source} positions to {target}: both must be ≥ 1.")
    if resampling.method is Method.NEAREST:
        indices, weights = _nearest(source, target)
    elif resampling.antialias:
        indices, weights = _antialiased(source, target, resampling.method)
    else:
        indices, weights = _clamped(source, target, resampling.method, resampling.coordinates)
    indices.flags.writeable = False
    weights.flags.writeable = False
    return Operator(source, indices, weights)


class Scratch:
    """Memory that is used again and again: fresh memory costs more than arithmetic on it."""

    def __init__(self) -> None:
        self._buffers: dict[object, NDArray[np.float64]] = {}

    def array(self, use: object, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return an array of any content; it holds until the next one for the same use."""
        count = math.prod(shape)
        buffer = self._buffers.get(use)
        if buffer is None or buffer.size < count:
            buffer = self._buffers[use] = np.empty(count)
        return buffer[:count].reshape(shape)


def apply(
    operator: Operator, array: NDArray[np.float64], axis: int, scratch: Scratch | None = None
) -> NDArray[np.float64]:
    """Resample one axis of an array; C-contiguous, and new unless `scratch` lends it."""
    axis = axis % array.ndim
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    outer, inner = math.prod(before), math.prod(after)
    source = np.ascontiguousarray(array).reshape(outer, operator.source, inner)
    result = (scratch or Scratch()).array(axis, (outer, operator.target, inner))
    rows = [
        [(index, weight) for index, weight in zip(*row, strict=True) if weight]
        for row in zip(operator.indices.tolist(), operator.weights.tolist(), strict=True)
    ]
    across = max(1, min(inner, _BLOCK))
    deep = max(1, _BLOCK // across)
    buffer = (scratch or Scratch()).array("product", (min(deep, outer), across))
    # The caller reports an overflow, because it knows the dtype of the output.
    with np.errstate(over="ignore", invalid="ignore"):
        for top in range(0, outer, deep):
            for left in range(0, inner, across):
                block = (slice(top, top + deep), slice(left, left + across))
                _block(rows, source[block[0], :, block[1]], result[block[0], :, block[1]], buffer)
    return result.reshape(*before, operator.target, *after)


def _block(
    rows: list[list[tuple[int, float]]],
    source: NDArray[np.float64],
    result: NDArray[np.float64],
    buffer: NDArray[np.float64],
) -> None:
    product = buffer[: source.shape[0], : source.shape[2]]
    for position, ((index, weight), *others) in enumerate(rows):
        total = result[:, position]
        np.multiply(source[:, index], weight, out=total)
        for index, weight in others:
            np.multiply(source[:, index], weight, out=product)
            np.add(total, product, out=total)


def _nearest(source: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    # torch multiplies by a float32 scale. For 1,218 of the 65,536 pairs up to 256 that differs from
    # floor(i·n/m) in exact integers, for one to a few positions each (the first is 2 → 82), and a
    # float64 tensor in NCHW differs again (457 pairs). What the libraries run is float32.
    scale = np.float32(source) / np.float32(target)
    indices = np.floor(np.arange(target, dtype=np.float32) * scale).astype(np.intp)
    return np.minimum(indices, source - 1)[:, None], np.ones((target, 1))


def _clamped(
    source: int, target: int, method: Method, rule: Coordinates
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    above, below = _coordinate(source, target, method, rule)
    if method is Method.BILINEAR:
        above = np.clip(above, 0, (source - 1) * below)
    base = above // below
    fraction = (above - base * below) / below
    reach = _REACH[method]
    offsets = np.arange(1 - reach, 1 + reach)
    distance = np.abs(fraction[:, None] - offsets)
    weights = _keys(distance, _CLAMPED_A) if method is Method.BICUBIC else _triangle(distance)
    return np.clip(base[:, None] + offsets, 0, source - 1).astype(np.intp), weights


def _coordinate(
    source: int, target: int, method: Method, rule: Coordinates
) -> tuple[NDArray[np.int64], int]:
    """Return the source coordinate of every target position as integers over one denominator."""
    position = np.arange(target, dtype=np.int64)
    if rule is Coordinates.CORNERS:
        return position * (source - 1), max(target - 1, 1)
    if rule is Coordinates.OFFSET and not (method is Method.BILINEAR and source == target):
        # (i + ½)·n/(m + 1/10) − ½. An axis that keeps its size still moves, except that torch's
        # bilinear copies it without looking at the scale.
        return (2 * position + 1) * 10 * source - (10 * target + 1), 2 * (10 * target + 1)
    return (2 * position + 1) * source - target, 2 * target


def _antialiased(
    source: int, target: int, method: Method
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    # The distance of source j from target i in kernel units is
    # ((j + ½) − (i + ½)·n/m) / max(n/m, 1) = ((2j + 1)·m − (2i + 1)·n) / (2·max(n, m)).
    longer, reach = max(source, target), _REACH[method]
    taps = min(source, -(-2 * reach * longer // target))
    centre = (2 * np.arange(target, dtype=np.int64) + 1) * source
    first = (centre - 2 * reach * longer - target) // (2 * target) + 1
    indices = np.clip(first, 0, source - taps)[:, None] + np.arange(taps)
    distance = np.abs((2 * indices + 1) * target - centre[:, None]) / (2 * longer)
    weights = _keys(distance, _ANTIALIAS_A) if method is Method.BICUBIC else _triangle(distance)
    total = reduce(np.add, weights.T)  # one tap after another: np.sum may group them
    return indices.astype(np.intp), weights / total[:, None]


def _keys(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance < 1, near, np.where(distance < 2, far, 0.0))


def _triangle(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - distance, 0.0)
