"""The patch size, read from the patch-embedding kernels of a checkpoint.

A family names where to look with small expressions: a sibling tensor, an integer, or a product or
quotient of them, such as `patch_embed.proj.weight * 2` for a grid half as fine as the patches; `t2`
is a tube of two frames; `name^3` is a linear embedding that reads cubes of a volume.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.tensors import TensorInfo

_CHANNELS = (3, 1, 4)  # what the input of a linear patch embedding may hold per pixel
_VOLUME_CHANNELS = (1, 2, 3, 4)  # CT, PET-CT, colour, the four of BraTS
_FACTOR = re.compile(r"([*/])\s+")


@dataclass(frozen=True, slots=True)
class Patch:
    """Pixels per cell, and the evidence for it."""

    size: Size
    reason: str
    tube: int = 1  # frames per cell
    kernel: str | None = None  # the tensor that is this patch size and nothing else


def read_patch(
    expressions: Sequence[str], stem: str, tensors: Mapping[str, TensorInfo]
) -> Patch | None:
    """Evaluate the first expression whose tensors exist."""
    for expression in expressions:
        found = _evaluate(expression, stem, tensors)
        if found is not None:
            return found
    return None


def kernel_extent(info: TensorInfo) -> tuple[int, Size] | None:
    """Return frames and pixels of a patch-embedding kernel: convolution or linear, torch or JAX."""
    shape = info.shape
    jax = info.name.endswith("kernel")
    if len(shape) in (4, 5):
        window = shape[: len(shape) - 2] if jax else shape[2:]
        return (window[0] if len(shape) == 5 else 1), Size(*window[-2:])
    if len(shape) == 2:
        inputs = shape[0] if jax else shape[1]
        for channels in _CHANNELS:
            side = math.isqrt(inputs // channels)
            if side and side * side * channels == inputs:
                return 1, Size(side, side)
    return None


def cube_extent(info: TensorInfo) -> tuple[int, Size] | None:
    """Give the side of the cubes that a linear patch embedding reads."""
    if len(info.shape) != 2:
        return None
    for channels in _VOLUME_CHANNELS:
        side = round((info.shape[1] / channels) ** (1 / 3))
        if side and side**3 * channels == info.shape[1]:
            return side, Size(side, side)
    return None


def _evaluate(expression: str, stem: str, tensors: Mapping[str, TensorInfo]) -> Patch | None:
    words = _FACTOR.sub(r"\1", expression).split()
    height = width = tube = 1
    reasons: list[str] = []
    kernel: str | None = None
    for word in words:
        operator, name = (word[0], word[1:]) if word[0] in "*/" else ("*", word)
        if name.isdigit():
            factor, frames = Size(int(name), int(name)), 1
        elif re.fullmatch(r"t\d+", name):
            factor, frames = Size(1, 1), int(name[1:])
        else:
            info = tensors.get(stem + name.removesuffix("^3"))
            read = cube_extent if name.endswith("^3") else kernel_extent
            extent = None if info is None else read(info)
            if info is None or extent is None:
                return None
            frames, factor = extent
            reasons.append(_words(info, factor))
            kernel = info.name
        if operator == "/":
            height, width = height // factor.height, width // factor.width
        else:
            height, width, tube = height * factor.height, width * factor.width, tube * frames
    if len(words) > 1 or kernel is None:
        reasons.append(f"one cell is {Size(height, width)} px wide in this family")
        kernel = None
    return Patch(Size(height, width), ", ".join(reasons), tube, kernel)


def _words(info: TensorInfo, size: Size) -> str:
    if len(info.shape) == 2:
        return f"{info.name} reads {size.height}×{size.width} pixels"
    return f"{info.name} is a {size.height}×{size.width} kernel"
