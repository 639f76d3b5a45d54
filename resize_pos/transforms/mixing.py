"""Layers over patches (MLP-Mixer, ResMLP, gMLP): transferred to another grid as linear maps.

With R the operator that resamples the grid, and R⁺ its pseudo-inverse, weights that read patches
become W·R⁺, weights that write them R·W, and weights that do both R·W·R⁺. On tokens that are
resampled by R, the new layer then gives what the old one gave, resampled by R. R is one operator
per axis, so its pseudo-inverse is the product of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.conventions import Resampling
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Mixing
from resize_pos.transforms.absolute import round_once, widen
from resize_pos.transforms.kernels import Operator, apply, operator
from resize_pos.transforms.patch_kernel import inverse


def resize_mixing(
    array: NDArray[Any],
    layout: Layout,
    source: Grid,
    target: Grid,
    resampling: Resampling,
    mixing: Mixing,
) -> NDArray[Any]:
    """Transfer stored weights or a stored bias to another grid, in their own layout and dtype."""
    if source == target:
        return array
    exact = _transferred(widen(array), layout, source, target, resampling, mixing)
    return round_once(exact, array.dtype)


def undo_mixing(
    array: NDArray[Any],
    layout: Layout,
    source: Grid,
    target: Grid,
    resampling: Resampling,
    mixing: Mixing,
) -> NDArray[np.float64]:
    """Return what the new weights (of `target`) do on the old grid: W′·R, R⁺·W′ or R⁺·W′·R."""
    values = array.astype(np.float64)
    for writes in _directions(mixing):
        along = [
            _dense(_pseudo_inverse(operator(*pair, resampling)))
            if writes
            else _dense(operator(*pair, resampling).matrix.T)
            for pair in _sides(source, target)
        ]
        values = _along(values, _layout(layout, mixing, writes), target, along)
    return values


def _transferred(
    values: NDArray[np.float64],
    layout: Layout,
    source: Grid,
    target: Grid,
    resampling: Resampling,
    mixing: Mixing,
) -> NDArray[np.float64]:
    for writes in _directions(mixing):
        along = [
            operator(*pair, resampling) if writes else inverse(*pair, resampling)
            for pair in _sides(source, target)
        ]
        values = _along(values, _layout(layout, mixing, writes), source, along)
    return values


def _directions(mixing: Mixing) -> tuple[bool, ...]:
    """List the directions, true for the patches that are written."""
    return {Mixing.READS: (False,), Mixing.WRITES: (True,), Mixing.BOTH: (True, False)}[mixing]


def _layout(layout: Layout, mixing: Mixing, writes: bool) -> Layout:
    """Return the layout that names the patches of one direction."""
    return layout.exchanged if mixing is Mixing.BOTH and not writes else layout


def _sides(source: Grid, target: Grid) -> tuple[tuple[int, int], tuple[int, int]]:
    return (source.height, target.height), (source.width, target.width)


def _along(
    values: NDArray[np.float64], layout: Layout, grid: Grid, operators: list[Operator]
) -> NDArray[np.float64]:
    """Apply one operator to the rows and one to the columns of the patches."""
    parts = layout.unfold(values, 0, grid, 0)
    cells: NDArray[np.float64] = np.ascontiguousarray(parts.grid, dtype=np.float64)
    for axis, along in enumerate(operators, start=1):
        if not along.is_identity:
            cells = apply(along, cells, axis)
    folded: NDArray[np.float64] = layout.fold(
        Unfolded(parts.prefix, cells, parts.suffix), values.shape
    )
    return folded


def _pseudo_inverse(along: Operator) -> NDArray[np.float64]:
    return np.linalg.pinv(along.matrix).astype(np.float64, copy=False)


def _dense(matrix: NDArray[np.float64]) -> Operator:
    target, source = matrix.shape
    indices = np.broadcast_to(np.arange(source), (target, source))
    return Operator(source, indices, np.ascontiguousarray(matrix))
