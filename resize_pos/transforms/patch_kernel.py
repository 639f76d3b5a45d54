"""Patch embeddings: resized so that a resized image gives the tokens that the original gave.

With R the operator that resizes an image patch, the new kernel solves ⟨R x, k'⟩ = ⟨x, k⟩ for all
x in the least-squares sense: k' = pinv(Rᵀ) k (FlexiViT). R is one operator per axis, so its
pseudo-inverse is the product of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.conventions import Resampling
from resize_pos.core.geometry import Grid
from resize_pos.transforms.absolute import round_once, widen
from resize_pos.transforms.kernels import Operator, apply, operator


def resize_kernel(
    array: NDArray[Any],
    layout: Layout,
    source: Grid,
    target: Grid,
    resampling: Resampling,
    frames: int = 1,
) -> NDArray[Any]:
    """Resize a stored patch embedding to another patch size, in its own layout and dtype."""
    if source == target:
        return array
    parts = layout.unfold(array, 0, source, 0, frames)
    pixels = widen(parts.grid)
    for axis, length in ((1, target.height), (2, target.width)):
        if pixels.shape[axis] != length:
            pixels = apply(inverse(pixels.shape[axis], length, resampling), pixels, axis)
    resized = Unfolded(parts.prefix, round_once(pixels, array.dtype), parts.suffix)
    return layout.fold(resized, array.shape).astype(array.dtype, copy=False)


def inverse(source: int, target: int, resampling: Resampling) -> Operator:
    """Return pinv(Rᵀ) of the operator R from `source` to `target` pixels."""
    dense = np.linalg.pinv(operator(source, target, resampling).matrix.T)
    indices = np.broadcast_to(np.arange(source), (target, source))
    return Operator(source, indices, dense.astype(np.float64, copy=False))
