"""1-D tables: change their length by interpolation, by repetition, or by stretching a part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Fill, Lengthen, LengthMethod
from resize_pos.transforms.absolute import round_once, widen
from resize_pos.transforms.kernels import Operator, apply, operator


def resize_sequence(
    array: NDArray[Any],
    layout: Layout,
    prefix: int,
    length: int,
    suffix: int,
    target: int,
    how: Lengthen,
) -> NDArray[Any]:
    """Return a stored 1-D table `target` positions; prefix and suffix rows are kept bit for bit.

    Rows that a method only moves or repeats (`keep`, `tile`, `nearest`, the first K of `stretch`)
    keep their bits as well: they never pass through a wider type.
    """
    if length == target:
        return array
    parts = layout.unfold(array, prefix, Grid(1, length), suffix)
    rows = parts.grid[:, 0]
    wide = widen(rows)
    indices = _moved(length, target, how)
    if indices is not None:
        new = rows[:, np.maximum(indices, 0)]
        new[:, indices < 0] = 0
    elif how.method is LengthMethod.STRETCH:
        rest = apply(stretch(length - how.first, target - how.first), wide[:, how.first :], axis=1)
        new = np.concatenate([rows[:, : how.first], round_once(rest, array.dtype)], axis=1)
    else:
        assert how.resampling is not None
        along = operator(length, target, how.resampling)
        new = round_once(apply(along, wide, axis=1), array.dtype)
    resized = Unfolded(parts.prefix, new[:, None], parts.suffix)
    return layout.fold(resized, array.shape).astype(array.dtype, copy=False)


def stretch(source: int, target: int) -> Operator:
    """Build the map of `stretch`: target i lies at i·n/m, linear between, and on past the last.

    With m = 4n this is Long-CLIP's knowledge-preserved stretching: the quarters between two
    neighbours, and the last three positions extrapolated from the last two.
    """
    if source < 2 or target < 1:
        raise GeometryError(
            f"stretching needs two positions or more to stretch, and one or more to fill; "
            f"there are {source} and {target}.",
            hint="choose a smaller K for stretch:K.",
        )
    above = np.arange(target, dtype=np.int64) * source
    base = np.minimum(above // target, source - 2)
    share = (above - base * target) / target  # beyond 1 past the last position
    indices = np.stack([base, base + 1], axis=1).astype(np.intp)
    return Operator(source, indices, np.stack([1 - share, share], axis=1))


def _moved(length: int, target: int, how: Lengthen) -> NDArray[np.intp] | None:
    """Return the old position that each new one copies (−1: zeros); None: it interpolates."""
    positions = np.arange(target, dtype=np.intp)
    if how.method is LengthMethod.NEAREST:
        assert how.resampling is not None
        return operator(length, target, how.resampling).indices[:, 0]
    if how.method is LengthMethod.TILE or how.fill is Fill.TILE:
        return positions % length
    if how.method is not LengthMethod.KEEP:
        return None
    assert target < length or how.fill is not None, "growing by keep needs a fill"
    if how.fill is Fill.ZEROS:
        return np.where(positions < length, positions, -1)
    return np.minimum(positions, length - 1)
