"""Layers whose weights count the cells of an image, by shape: heads, norms and filters over all.

A head that reads all cells at once reads a number of features that no layer puts out. A norm over
cells has a weight and a bias of one shape. A filter over the frequencies of a grid has as many
columns as a real Fourier transform leaves. Reads shapes only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from resize_pos.core.geometry import Grid
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.planning.unknown_names.candidates import is_matrix_name

_FEWEST_CELLS = 20  # that a head reads at once; up to 4×4 are levels, or patches that were merged
_FEWEST_CHANNELS = 8
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

    Such a layer reads a multiple of what a kernel puts out, and no layer puts out that many.
    """
    layers = [
        info
        for name, info in every.items()
        if name.endswith(".weight") and DTYPES[info.dtype].floating and len(info.shape) > 1
    ]
    kernels = [info.shape for info in layers if len(info.shape) == 4 and max(info.shape[2:]) > 1]
    read = {shape[1] for shape in kernels}
    # Without a kernel that reads pixels, a linear layer may read patches of them.
    if not any(s[1] in _COLOURS or (s[1] == 1 and s[0] in read) for s in kernels):
        return
    made = {info.shape[0] for info in every.values() if info.shape}
    channels = sorted({s[0] for s in kernels if s[0] >= _FEWEST_CHANNELS}, reverse=True)
    for info in layers:
        if len(info.shape) != 2 or info.shape[1] in made or _EMBEDS.search(info.name):
            continue
        for count in channels:
            cells, rest = divmod(info.shape[1], count)
            if not rest:
                if cells >= _FEWEST_CELLS:
                    yield info, cells, count
                break  # a smaller number of channels would divide nearly everything


def is_pair_of_cells(info: TensorInfo, cells: int) -> bool:
    """Whether a tensor that is no layer has one row and one column per cell."""
    lengths = info.shape[-2:]
    return not is_layer(info) and lengths == (cells, cells) and math.prod(info.shape[:-2]) <= 64
