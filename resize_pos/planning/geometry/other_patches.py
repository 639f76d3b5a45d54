"""What one cell of a table may be besides the pixels that a patch kernel sees.

A file holds the kernel of a patch embedding, but not what happens before and after it. Pixels may
be folded into channels, channels may be latents of another network, a later layer may merge cells,
and kernels may overlap. Nothing in the file tells then, but the size of the image does.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from itertools import product

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.patch_size import USUAL_CHANNELS, other_readings
from resize_pos.families.tables import PositionTable

_COLOURS = 3
_MOST_FOLDED = 8  # pixels along each side that become channels
_LATENT_CHANNELS = (4, 8, 16, 32)  # Stable Diffusion 1 to 3, Flux, deep compression
_LATENT_SIDE = 8  # pixels; of nearly all published autoencoders
_MOST_LATENTS = 4  # along each side of a patch
_USUAL = frozenset({224, 256, 384})  # pixels
# Sizes that models without overlapping patches are published in, with patches of 14 and 16.
_PUBLISHED = frozenset(
    {32, 64, 96, 128, 160, 192, 224, 240, 256, 320, 378, 384, 392, 448, 480, 512, 518, 560, 576}
    | {640, 672, 768, 784, 896, 1008, 1024}
)
# Height and width of people, whole or cut out for their pose; patches often overlap.
_USUAL_RECTANGLES = ((256, 128), (384, 128), (384, 192), (256, 192), (384, 288))
_BINS = (128, 80, 64)  # height of spectrograms, which have one channel; patches often overlap
# Pixels. Larger kernels hardly ever overlap, and those of 14 (DINOv2, CLIP) never do.
_OFTEN_OVERLAPPING = frozenset(range(8, 17)) - {14}
_FEWEST_CELLS = 36
_ODD = (3, 5, 7)  # pixels; such kernels usually move by half their side, over a padded image
_DIGITS = lazy_regex(r"\d+")
_MERGES = lazy_regex(r"merg|reduc|down|pool|unshuffle|squeeze|s2d|space_to_depth", re.I)
# Layers after the blocks: they make cells finer again, or read them for an output.
_AFTER = lazy_regex(r"up|deconv|transpos|fpn|neck|decod|head|out|reassemble|resize|pred", re.I)


class CellKind(StrEnum):
    """Why a cell may have another size than its kernel."""

    CHANNELS = "channels"  # a linear layer does not show how many channels a pixel has
    FOLDED = "folded"
    LATENTS = "latents"
    MERGED = "merged"
    PADDED = "padded"


@dataclass(frozen=True, slots=True)
class OtherPatch:
    """Another number of pixels for one cell."""

    kind: CellKind
    side: int
    words: str
    likely: bool = False  # more so than what the kernel alone says

    def pixels(self, grid: Grid) -> Size:
        """Return the image that a grid of such cells covers."""
        return Tiling(Size(self.side, self.side)).pixels(grid)


def other_patches(
    kernel: TensorInfo, patch: Size, width: int, tensors: Collection[TensorInfo]
) -> list[OtherPatch]:
    """List what a cell of a table with `width` channels may be besides `patch`."""
    if len(kernel.shape) == 2:
        return [
            OtherPatch(CellKind.CHANNELS, side, f"{side}×{side} of {channels}")
            for side, channels in other_readings(kernel, patch.height)
        ]
    if len(kernel.shape) != 4 or kernel.name.endswith("kernel") or patch.height != patch.width:
        return []
    channels, side = kernel.shape[1], patch.height
    found = []
    folded = math.isqrt(channels // _COLOURS)
    if channels == _COLOURS * folded**2 and 1 < folded <= _MOST_FOLDED:
        pixels = f"{folded}×{folded} pixels"
        words = f"the {channels} channels of {kernel.name} may be the colours of {pixels}"
        found.append(
            OtherPatch(CellKind.FOLDED, side * folded, words, channels not in USUAL_CHANNELS)
        )
    if channels in _LATENT_CHANNELS and side <= _MOST_LATENTS:
        pixels = f"{_LATENT_SIDE}×{_LATENT_SIDE} pixels"
        words = f"the {channels} channels of {kernel.name} may be latents of {pixels} each"
        found.append(OtherPatch(CellKind.LATENTS, side * _LATENT_SIDE, words, likely=True))
    if side in _ODD:
        step = (side + 1) // 2
        words = f"kernels of {side}×{side} usually overlap, with one cell every {step} px"
        found.append(OtherPatch(CellKind.PADDED, step, words, likely=True))
    if kernel.shape[0] == width and (merge := _merging_layer(width, tensors)):
        words = f"{merge} may merge 2×2 cells into one"
        found.append(OtherPatch(CellKind.MERGED, side * 2, words, likely=True))
    return found


def _merging_layer(width: int, tensors: Collection[TensorInfo]) -> str:
    """Find a layer that makes one cell of four, and that no block has; empty if there is none.

    The second layer of an MLP has the same shape, so it counts only what no first layer matches.
    """
    shapes = {(width, 4 * width), (width, width, 2, 2)}
    layers = [info for info in tensors if info.shape in shapes and info.name.endswith("weight")]
    alike = Counter(_DIGITS.sub("0", info.name) for info in layers)
    alone = [info for info in layers if alike[_DIGITS.sub("0", info.name)] == 1]
    alone = [info for info in alone if not _AFTER.search(info.name)]
    if not alone:
        return ""
    linear = sum(len(info.shape) == 2 for info in layers)
    matched = sum(info.shape == (4 * width, width) for info in tensors)
    found = [info.name for info in alone if len(info.shape) == 4 or linear > matched]
    return next((name for name in found if _MERGES.search(name)), found[0] if found else "")


def doubts(table: PositionTable, tensors: Mapping[str, TensorInfo]) -> list[OtherPatch]:
    """List the readings that are not less likely than the one that was taken.

    A size of the image that most models have speaks for a reading.
    """
    kernel = None if table.kernel is None else tensors.get(table.kernel)
    if kernel is None or table.patch is None or table.window is not None:
        return []
    width = dict(zip(table.layout.terms, table.tensor.shape, strict=False)).get("d", 0)
    own = is_usual(Tiling(table.patch).pixels(table.grid))
    others = other_patches(kernel, table.patch, width, tensors.values())
    if table.grid.cells < _FEWEST_CELLS:  # 4×4 patches of 7 pixels make a small image
        others = [other for other in others if other.kind is not CellKind.PADDED]
    return [other for other in others if not own or is_usual(other.pixels(table.grid))]


def is_usual(size: Size) -> bool:
    """Whether most models see images of this size."""
    return {size.height, size.width} <= _USUAL


def is_published(size: Size) -> bool:
    """Whether models are published for images of this size."""
    return {size.height, size.width} <= _PUBLISHED


def overlapping_reading(
    table: PositionTable, tensors: Mapping[str, TensorInfo]
) -> tuple[Size, int] | None:
    """Return a usual image and the step between patches that give a table's grid.

    Only if patches that do not overlap would need an image of an unusual size.
    """
    kernel = None if table.kernel is None else tensors.get(table.kernel)
    grid, patch = table.grid, table.patch
    if kernel is None or patch is None or table.window is not None or len(kernel.shape) != 4:
        return None
    cut = patch.height == patch.width and grid.cells >= _FEWEST_CELLS
    flat = table.layout.grid(table.tensor.shape) is None and {"h", "w"} <= table.layout.axes
    if not (cut and flat) or patch.height not in _OFTEN_OVERLAPPING:
        return None
    own = Tiling(patch).pixels(grid)
    if _is_published(own):
        return None
    return next(
        (
            (Size(*size), step)
            for size, step in _overlapping_sizes(grid, patch.height, channels=kernel.shape[1])
            if _overlapping_grid(size, patch.height, step) == (grid.height, grid.width)
        ),
        None,
    )


def _overlapping_sizes(
    grid: Grid, patch: int, *, channels: int
) -> Iterator[tuple[tuple[int, int], int]]:
    """List usual sizes of images with overlapping patches, each with the steps to try."""
    steps = range(patch - 1, patch // 2 - 1, -1)
    square = [(pixels, pixels) for pixels in sorted(_USUAL)]
    yield from product(square if grid.is_square else _USUAL_RECTANGLES, steps)
    if channels == 1 and not grid.is_square and grid.height * patch not in _BINS:
        for bins, step in product(_BINS, steps):
            frames = (grid.width - 1) * step + patch
            rounded = frames + -frames % 16  # patches may leave out the last frames
            yield (bins, rounded if rounded < frames + step else frames), step


def _is_published(size: Size) -> bool:
    """Whether models without overlapping patches are published in this size."""
    if size.height != size.width:
        return (size.height, size.width) in _USUAL_RECTANGLES
    return size.height in _PUBLISHED


def _overlapping_grid(size: tuple[int, int], patch: int, step: int) -> tuple[int, int]:
    height, width = ((pixels - patch) // step + 1 for pixels in size)
    return height, width
