"""What a source looks like that was turned, cut, wrapped, or resampled along one axis alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from resize_pos.core.conventions import CONVENTIONS, Coordinates, Method, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.proper import along
from resize_pos.quality.measures.sampling import Wide, resample
from resize_pos.transforms.kernels import operator

_PLAIN = (
    Resampling(Method.BILINEAR, antialias=False),
    Resampling(Method.NEAREST, antialias=False),
)


def resamplings() -> tuple[Resampling, ...]:
    """Return every library's way to resample, and two plain ones."""
    return tuple(dict.fromkeys([*(c.resampling for c in CONVENTIONS.values()), *_PLAIN]))


def flat(grid: Wide) -> Wide:
    """Return the rows of a grid (1, h, w, d)."""
    return np.ascontiguousarray(grid).reshape(-1, grid.shape[-1])


def turned(grid: Wide, target: Grid) -> Iterator[tuple[str, str, Wide]]:
    """Compute the source turned, cut to a part, wrapped, or resampled along one axis alone.

    The grid is (1, h, w, d). The results are names, words and rows.
    """
    height, width = grid.shape[1:3]
    yield from _one_axis(grid, target)
    for resampling in resamplings():
        centres = resampling.coordinates is Coordinates.HALF_PIXEL
        # Of two lines, each is beside both borders, and honest inverses look the same.
        few = min(height, width, target.height, target.width) <= 2
        if centres and not few and resampling.method is not Method.NEAREST:
            words = f"the opposite side was read beyond each border ({resampling})"
            yield "wrapped round", words, _wrapped(grid, target, resampling)
        for quarter, word in ((1, "90"), (2, "180"), (3, "270")):
            turned = resample(np.rot90(grid, quarter, (1, 2)), target, resampling)
            yield "rotated", f"turned by {word}° ({resampling})", flat(turned)
        if min(height, width) < 4:
            continue
        for words, part in (
            ("the top half", grid[:, : height // 2]),
            ("the left half", grid[:, :, : width // 2]),
            ("the top left 60 %", grid[:, : -(-3 * height // 5), : -(-3 * width // 5)]),
            ("the middle", grid[:, height // 4 : -(height // 4), width // 4 : -(width // 4)]),
        ):
            words = f"{words} of the source, stretched over the whole grid ({resampling})"
            yield "cropped", words, flat(resample(part, target, resampling))
        if target.height != target.width:
            swapped = resample(grid, Grid(target.width, target.height), resampling)
            words = f"resized to {target.width}×{target.height}: height and width are swapped"
            yield "swapped", words, flat(swapped)


def _wrapped(grid: Wide, target: Grid, resampling: Resampling) -> Wide:
    """Resize a grid whose opposite sides meet, as those of a Fourier transform do."""
    lines = along(_ring(grid.shape[2], target.width, resampling), grid)
    rows = along(_ring(grid.shape[1], target.height, resampling), np.swapaxes(lines, 1, 2))
    return flat(np.swapaxes(rows, 1, 2))


def _ring(source: int, target: int, resampling: Resampling) -> Wide:
    """Return the matrix of an axis that begins again where it ends."""
    thrice = operator(3 * source, 3 * target, resampling).matrix[target : 2 * target]
    return np.asarray(thrice.reshape(target, 3, source).sum(axis=1))


def _one_axis(grid: Wide, target: Grid) -> Iterator[tuple[str, str, Wide]]:
    """One axis is resampled; along the other, rows or columns are repeated or cut off."""
    height, width = grid.shape[1:3]
    for axis, source, count, resized, word, other in (
        (2, width, target.width, Grid(target.height, width), "columns", "rows"),
        (1, height, target.height, Grid(height, target.width), "rows", "columns"),
    ):
        if source == count or min(height, width) < 2:
            continue
        places = np.arange(count)
        verb = "cut off" if count < source else "repeated"
        words = f"only the {other} are resampled; {word} are {verb}"
        for resampling in resamplings():
            half = resample(grid, resized, resampling)
            for where in (places % source, np.minimum(places, source - 1)):
                yield (
                    "not resampled along one axis",
                    f"{words} ({resampling})",
                    flat(half.take(where, axis)),
                )
