"""Layers whose weights count the cells of an image, by shape: heads, norms and filters over all.

A head that reads all cells at once reads a number of features that no layer puts out. A norm over
cells has a weight and a bias of one shape. A filter over the frequencies of a grid has as many
columns as a real Fourier transform leaves. Reads shapes only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from resize_pos.core.geometry import Grid
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.planning.unknown_names.candidates import axial_pair_names, is_matrix_name

_FEWEST_CELLS = 20  # that a head reads at once; up to 4×4 are levels, or patches that were merged
_FEWEST_CHANNELS = 8
_FEWEST_SIDE = 4  # cells
_DIGITS = lazy_regex(r"\d+")
_COLOURS = range(2, 5)  # channels of a pixel
_PAIRS = (("weight", "bias"), ("bias", "weight"), ("gamma", "beta"), ("beta", "gamma"))
_NO_LAYER = lazy_regex(r"bias$|bias_?(?:table|map|matrix)$")
_EMBEDS = lazy_regex(r"patch|emb|token")


def long_axes(shape: Iterable[int]) -> tuple[int, ...]:
    """Return the lengths above one."""
    return tuple(length for length in shape if length > 1)


def is_layer(info: TensorInfo) -> bool:
    """Whether a name is that of a layer's weight or bias. A layer's bias has one long axis."""
    if len(long_axes(info.shape)) > 1 and _NO_LAYER.search(info.name):
        return False
    return is_matrix_name(info.name)


def is_norm_over_cells(info: TensorInfo, every: Mapping[str, TensorInfo]) -> bool:
    """Whether a weight and a bias have one shape of several axes: LayerNorm([n, d])."""
    if len(long_axes(info.shape)) < 2:
        return False
    for mine, other in _PAIRS:
        if info.name.endswith(f".{mine}"):
            partner = every.get(info.name.removesuffix(mine) + other)
            return partner is not None and partner.shape == info.shape
    return False


def spectrum_of(info: TensorInfo, grids: Mapping[Grid, str]) -> str:
    """Return the table over whose frequencies a tensor is a filter; empty if there is none."""
    shape = long_axes(info.shape)
    layer = is_matrix_name(info.name) and not info.name.endswith("_weight")
    if len(shape) < 3 or layer:
        return ""
    for grid, name in grids.items():
        half = (grid.height, grid.width // 2 + 1), (grid.height // 2 + 1, grid.width)
        if any(pair in half for pair in pairwise(shape)):
            return name
    return ""


def flat_reader_of(
    info: TensorInfo, counts: Collection[int], widths: Collection[int]
) -> tuple[int, int]:
    """Return the cells and channels that a layer reads all at once; (0, 0) if it does not."""
    if len(info.shape) != 2 or info.shape[1] in widths or not is_layer(info):
        return 0, 0
    for cells in counts:
        channels, rest = divmod(info.shape[1], cells)
        if not rest and channels >= _FEWEST_CHANNELS and channels in widths:
            return cells, channels
    return 0, 0


def flat_readers(every: Mapping[str, TensorInfo]) -> Iterator[tuple[TensorInfo, int, int]]:
    """Find layers behind the convolutions of a model that read all cells of a map at once.

    Such a layer reads a multiple of what a kernel puts out, and no layer puts out that many. It
    may follow a kernel of one cell, which leaves few channels: the heads of a player of Go.
    """
    layers = [
        info
        for name, info in every.items()
        if name.endswith(".weight") and DTYPES[info.dtype].floating and len(info.shape) > 1
    ]
    made = {info.shape[0] for info in every.values() if info.shape}
    yield from _next_to_kernels(layers, made)
    kernels = [info.shape for info in layers if len(info.shape) == 4 and max(info.shape[2:]) > 1]
    read = {shape[1] for shape in kernels}
    # Without a kernel that reads pixels, a linear layer may read patches of them.
    if not any(s[1] in _COLOURS or (s[1] == 1 and s[0] in read) for s in kernels):
        return
    channels = sorted({s[0] for s in kernels if s[0] >= _FEWEST_CHANNELS}, reverse=True)
    for info in layers:
        if len(info.shape) != 2 or info.shape[1] in made or _EMBEDS.search(info.name):
            continue
        if _reads_pooled_features(info, every):
            continue
        for count in channels:
            cells, rest = divmod(info.shape[1], count)
            if not rest:
                if cells >= _FEWEST_CELLS:
                    yield info, cells, count
                break  # a smaller number of channels would divide nearly everything


def mixes_one_axis(info: TensorInfo, every: Mapping[str, TensorInfo]) -> bool:
    """Whether one of two layers mixes the rows of cells, and the other one the columns.

    Each makes n of n, and n is the length of nothing else in the model.
    """
    shape = info.shape[:2] if set(info.shape[2:]) <= {1} else ()
    if len(shape) != 2 or shape[0] != shape[1] or not info.name.endswith(".weight"):
        return False
    names = axial_pair_names(info.name, every)
    if names is None or shape[0] < _FEWEST_SIDE:
        return False
    both = {_DIGITS.sub("0", name.removesuffix("weight")) for name in names}
    return not any(
        shape[0] in other.shape
        for name, other in every.items()
        if _DIGITS.sub("0", name.removesuffix("weight").removesuffix("bias")) not in both
    )


def _next_to_kernels(
    layers: Sequence[TensorInfo], made: Collection[int]
) -> Iterator[tuple[TensorInfo, int, int]]:
    """Find layers that stand next to a kernel and read a square of cells of what it puts out."""
    for kernel, info in pairwise(layers):
        if len(kernel.shape) != 4 or len(info.shape) != 2 or info.shape[1] in made:
            continue
        channels = kernel.shape[0]
        cells, rest = divmod(info.shape[1], channels)
        square = math.isqrt(cells) ** 2 == cells
        if not rest and square and cells >= _FEWEST_CELLS and channels < _FEWEST_CHANNELS:
            yield info, cells, channels


# The first layer over the features of AlexNet and VGG in torchvision, and what it reads: these are
# pooled to 6×6 and 7×7 cells at every size (torchvision/models/alexnet.py:36, vgg.py:42).
_POOLED = {"classifier.1.weight": 256 * 6 * 6, "classifier.0.weight": 512 * 7 * 7}


def _reads_pooled_features(info: TensorInfo, every: Mapping[str, TensorInfo]) -> bool:
    for name, inputs in _POOLED.items():
        stem = info.name.removesuffix(name)
        last = every.get(f"{stem}classifier.6.weight")
        if info.name.endswith(name) and info.shape == (_HIDDEN, inputs) and last is not None:
            return last.shape[1:] == (_HIDDEN,) and f"{stem}features.0.weight" in every
    return False


_HIDDEN = 4096  # units of both designs


def is_pair_of_cells(info: TensorInfo, cells: int) -> bool:
    """Whether a tensor that is no layer has one row and one column per cell."""
    lengths = info.shape[-2:]
    return not is_layer(info) and lengths == (cells, cells) and math.prod(info.shape[:-2]) <= 64
