"""The patch size, read from the patch-embedding kernels of a checkpoint.

A family names where to look with small expressions: a sibling tensor, an integer, or a product or
quotient of them, such as `patch_embed.proj.weight * 2` for a grid half as fine as the patches; `t2`
is a tube of two frames; `name^3` is a linear embedding that reads cubes of a volume.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import TensorInfo

_VOLUME_CHANNELS = (1, 2, 3, 4)  # CT, PET-CT, colour, the four of BraTS
# What the input of a linear patch embedding may hold per pixel. Colours are the rule. 1024 inputs
# may be 32×32 grey or 16×16 four-channel pixels, so another count is taken only if it alone fits.
_COLOURS = 3
_OTHER_CHANNELS = (1, 4)
USUAL_CHANNELS = (1, 2, 3, 4, 6, 10, 12, 13)  # grey, radar, colours, bands of satellites
_SMALLEST_PATCH = 4  # pixels
_MOST_CHANNELS = 32  # of a kernel that reads pixels; others read features
_PATCH_NAME = lazy_regex(r"patch|embed|proj|stem|token|conv1\b|conv_proj", re.IGNORECASE)
_LINEAR_NAME = lazy_regex(r"patch|(?:image|pixels?)_to_tokens?|to_tokens\.", re.IGNORECASE)
_LARGE = 8  # pixels; smaller kernels may be the first of several steps
_MOST_OWN_ROWS = 8  # rows by which tables of one grid may differ: class tokens, registers
_MOST_KERNELS = 64  # that one table is compared with; no model has so many patch embeddings
_MOST_STEPS = 8  # kernels between the pixels and a table
_FACTOR = lazy_regex(r"([*/])\s+")


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
        sides = {c: math.isqrt(inputs // c) for c in (_COLOURS, *_OTHER_CHANNELS)}
        fits = [c for c, side in sides.items() if side and side * side * c == inputs]
        if fits[:1] == [_COLOURS] or len(fits) == 1:
            return 1, Size(sides[fits[0]], sides[fits[0]])
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


def width_of_kernel(info: TensorInfo) -> int:
    """Return the number of channels that a patch embedding puts out."""
    return info.shape[-1] if info.name.endswith("kernel") else info.shape[0]


def makes_the_rows(
    kernel: TensorInfo, rows: int, width: int, tables: Mapping[int, Collection[int]]
) -> bool:
    """Tell whether a kernel's output can be the rows of a table; `tables` is `rows_by_width()`.

    It is where it is as wide as the table, or as another table with about as many rows: the tables
    of a decoder count the patches of its encoder. Else it is only the first step of the embedding.
    """
    out = width_of_kernel(kernel)
    near = range(rows - _MOST_OWN_ROWS, rows + _MOST_OWN_ROWS + 1)
    return out == width or any(count in tables.get(out, ()) for count in near)


def rows_by_width(tensors: Iterable[TensorInfo]) -> Mapping[int, Collection[int]]:
    """List the row counts of everything that may be a table, by the length of its last axis."""
    found: dict[int, set[int]] = {}
    for shape in {info.shape for info in tensors}:
        if len(shape) in (2, 3):
            found.setdefault(shape[-1], set()).add(math.prod(shape[:-1]))
    return found


def made_by_kernels(tensors: Iterable[TensorInfo]) -> Collection[int]:
    """List the numbers of channels that a kernel with an extent makes of fewer channels."""
    return {
        info.shape[0]
        for info in tensors
        if len(info.shape) in (4, 5) and info.shape[1] < info.shape[0] and max(info.shape[2:]) > 1
    }


def reads_features(kernel: TensorInfo, made: Collection[int]) -> bool:
    """Whether a kernel reads what another one puts out, so its extent is only part of a patch.

    `made` is `made_by_kernels()`. Few channels are those of an image, whatever else has as many.
    """
    torch = len(kernel.shape) in (4, 5) and not kernel.name.endswith("kernel")
    return torch and kernel.shape[1] not in USUAL_CHANNELS and kernel.shape[1] in made


def patch_kernels(
    width: int, tensors: Iterable[TensorInfo]
) -> Mapping[str, tuple[TensorInfo, tuple[int, Size]]]:
    """List patch embeddings under any name: they read pixels and put out `width` channels.

    Odd kernels are left out, since they overlap by a step that the file does not hold. So are
    kernels that read the features of another one. A kernel of 8×8 pixels or more that is the only
    one of this width needs no name of a patch embedding.
    """
    found: dict[str, tuple[TensorInfo, tuple[int, Size]]] = {}
    tensors = tuple(tensors)
    made = made_by_kernels(tensors)
    pixels = [info.name for info in tensors if info.shape[:1] == (width,) and reads_pixels(info)]
    for info in tensors:
        shape = info.shape
        linear = len(shape) == 2 and _LINEAR_NAME.search(info.name) is not None
        reads = len(shape) in (4, 5) and 1 <= shape[1] <= _MOST_CHANNELS
        named = _PATCH_NAME.search(info.name) or pixels == [info.name]
        if not (linear or reads) or shape[0] != width or not named:
            continue
        if reads_features(info, made):
            continue
        extent = None if info.name.endswith("kernel") else kernel_extent(info)
        if extent is not None and min(extent[1].height, extent[1].width) > 1:
            even = extent[1].height % 2 == 0 and extent[1].width % 2 == 0
            found |= {info.name: (info, extent)} if even else {}
    return found


def is_linear_embedding(info: TensorInfo) -> bool:
    """Whether a linear layer has the name of a patch embedding."""
    return (
        len(info.shape) == 2
        and info.name.endswith("weight")
        and _LINEAR_NAME.search(info.name) is not None
    )


def reads_pixels(info: TensorInfo) -> bool:
    """Whether a kernel is so large, and its channels are so few, that it cuts an image up."""
    shape = info.shape
    return len(shape) in (4, 5) and shape[1] in _VOLUME_CHANNELS and min(shape[-2:]) >= _LARGE


def find_patch(
    stem: str, kernels: Mapping[str, tuple[TensorInfo, tuple[int, Size]]]
) -> Patch | None:
    """Choose the patch embedding nearest to a table, if those nearest to it agree."""
    if not 0 < len(kernels) <= _MOST_KERNELS:
        return None
    shared = max(len(_common(stem, name)) for name in kernels)
    near = [each for name, each in kernels.items() if len(_common(stem, name)) == shared]
    if len({extent for _, extent in near}) != 1:
        return None
    info, (tube, size) = near[0]
    return Patch(size, _words(info, size), tube, info.name)


def sides_that_fit(inputs: int, size: Size, rows: int) -> list[tuple[int, int]]:
    """List patch sides and channels of a linear embedding for which an image gives these rows."""
    return [
        (side, inputs // side**2)
        for side in range(1, math.isqrt(inputs) + 1)
        if inputs % side**2 == 0
        and size.height % side == 0
        and size.width % side == 0
        and 0 <= rows - (size.height // side) * (size.width // side) <= _MOST_OWN_ROWS
    ]


def other_readings(kernel: TensorInfo, side: int) -> list[tuple[int, int]]:
    """List patch sides and channels, besides `side`, that a linear embedding may read as well."""
    if len(kernel.shape) != 2:
        return []
    inputs = kernel.shape[0] if kernel.name.endswith("kernel") else kernel.shape[1]
    sides = (math.isqrt(inputs // channels) for channels in USUAL_CHANNELS)
    return [
        (other, channels)
        for other, channels in zip(sides, USUAL_CHANNELS, strict=True)
        if other >= _SMALLEST_PATCH and other != side and other * other * channels == inputs
    ]


def chained_patch(width: int, tensors: Iterable[TensorInfo]) -> Patch | None:
    """Multiply the kernels from the pixels to `width` channels, if each step is the only one.

    A pyramid reads 4×4 pixels first and 2×2 cells in every later stage. Odd kernels overlap by a
    step that the file does not hold, so they end the chain.
    """
    by_output: dict[int, dict[tuple[int, Size], TensorInfo]] = {}
    for info in tensors:
        shape = info.shape
        if len(shape) == 4 and shape[0] != shape[1] and _PATCH_NAME.search(info.name):
            extent = Size(*shape[2:])
            if min(extent.height, extent.width) > 1:
                by_output.setdefault(shape[0], {})[(shape[1], extent)] = info
    height = wide = 1
    reasons: list[str] = []
    while len(steps := by_output.get(width, {})) == 1 and len(reasons) < _MOST_STEPS:
        ((inputs, extent), info) = next(iter(steps.items()))
        if extent.height % 2 or extent.width % 2:
            return None
        height, wide = height * extent.height, wide * extent.width
        reasons.append(_words(info, extent))
        if inputs in USUAL_CHANNELS or (inputs <= _MOST_CHANNELS and inputs not in by_output):
            return Patch(Size(height, wide), ", ".join(reasons)) if len(reasons) > 1 else None
        width = inputs
    return None


def _common(one: str, other: str) -> str:
    """Return the part of two names up to the last module that they share."""
    modules = [a for a, b in zip(one.split("."), other.split("."), strict=False) if a == b]
    return ".".join(modules)


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
