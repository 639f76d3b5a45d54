"""Honest and wrong ways that were written after the verdict's limits were fixed.

No limit and no rule was changed to fit one of these, so their counts say how the verdict does on
what it was not made for. Each works on the cells of a grid (h, w, channels).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from benchmarks.ways.proper import BICUBIC, LINEAR, SMOOTH, Cells, Proper, Shape

Wide = NDArray[np.float64]


def _each_axis(weights: Callable[[int, int], Wide]) -> Proper:
    """Resample both axes by a matrix of (target, source)."""

    def resized(cells: Cells, target: Shape) -> Cells:
        down, across = (weights(s, t) for s, t in zip(cells.shape, target, strict=False))
        made: Cells = np.einsum("hi,wj,ijd->hwd", down, across, cells).astype(np.float32)
        return made

    return resized


def _kernel(shape: Callable[[Wide], Wide], *, antialias: bool) -> Callable[[int, int], Wide]:
    def weights(source: int, target: int) -> Wide:
        scale = source / target
        place = np.clip((np.arange(target) + 0.5) * scale - 0.5, 0, source - 1)
        wide = max(1.0, scale) if antialias else 1.0
        made = shape((np.arange(source)[None] - place[:, None]) / wide)
        result: Wide = made / made.sum(1, keepdims=True)
        return result

    return weights


def _bell(apart: Wide) -> Wide:
    result: Wide = np.exp(-2 * apart**2)
    return result


def _lanczos4(apart: Wide) -> Wide:
    return np.where(np.abs(apart) < 4, np.sinc(apart) * np.sinc(apart / 4), 0.0)


def _mitchell(apart: Wide) -> Wide:
    x = np.abs(apart)
    near = (7 * x**3 - 12 * x**2 + 16 / 3) / 6
    far = (-7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6
    return np.where(x < 1, near, np.where(x < 2, far, 0.0)) + 1e-12


def cosine_series(cells: Cells, target: Shape) -> Cells:
    """Cut off, or extend by zeros, the cosine transform of each axis."""
    wide = cells.astype(np.float64)
    for axis, length in enumerate(target):
        count = wide.shape[axis]
        spectrum = fft.dct(wide, axis=axis, norm="ortho")
        if length <= count:
            spectrum = spectrum.take(range(length), axis)
        else:
            spectrum = np.pad(spectrum, [(0, (length - count) * (a == axis)) for a in range(3)])
        wide = fft.idct(spectrum, axis=axis, norm="ortho") * np.sqrt(length / count)
    return wide.astype(np.float32)


def blurred_then_linear(cells: Cells, target: Shape) -> Cells:
    """Blur by the width that scikit-image chooses, then interpolate linearly."""
    sigma = [max(0.0, (s / t - 1) / 2) for s, t in zip(cells.shape, target, strict=False)]
    blurred = ndimage.gaussian_filter(cells, [*sigma, 0], mode="nearest")
    return LINEAR(blurred.astype(np.float32), target)


def _between(cells: Cells, target: Shape) -> Cells:
    height, width = ((s + t) // 2 for s, t in zip(cells.shape, target, strict=False))
    return LINEAR(BICUBIC(cells, (max(2, height), max(2, width))), target)


def _rounded(cells: Cells, target: Shape) -> Cells:
    """Round to eight bits of mantissa, as bfloat16 does."""
    whole = SMOOTH(cells, target).view(np.uint32)
    return ((whole + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


HONEST: Mapping[str, Proper] = {
    "Lanczos of 4 lobes, no antialias": _each_axis(_kernel(_lanczos4, antialias=False)),
    "Mitchell, antialias": _each_axis(_kernel(_mitchell, antialias=True)),
    "Gaussian kernel": _each_axis(_kernel(_bell, antialias=True)),
    "cosine series": cosine_series,
    "blur, then linear": blurred_then_linear,
    "bicubic, then bilinear": _between,
    "mean of bicubic and bilinear": lambda c, t: 0.5 * (BICUBIC(c, t) + LINEAR(c, t)),
    "rounded to bfloat16": _rounded,
}

Damage = Callable[[Cells, Shape], Cells]


def _after(change: Callable[[Cells], NDArray[np.floating]]) -> Damage:
    return lambda cells, target: np.ascontiguousarray(change(SMOOTH(cells, target)), np.float32)


def _rng() -> np.random.Generator:
    return np.random.default_rng(21)


def _few_components(cells: Cells) -> Cells:
    rows = cells.reshape(-1, cells.shape[-1])
    mean = rows.mean(0)
    left, values, right = np.linalg.svd(rows - mean, full_matrices=False)
    made: Cells = ((left[:, :1] * values[:1]) @ right[:1] + mean).reshape(cells.shape)
    return made


def _half_channels_moved(cells: Cells) -> Cells:
    half = cells.shape[-1] // 2
    moved = np.roll(cells[..., :half], (cells.shape[0] // 3, cells.shape[1] // 3), (0, 1))
    return np.concatenate([moved, cells[..., half:]], axis=-1)


def _right_half_upside_down(cells: Cells) -> Cells:
    middle = cells.shape[1] // 2
    return np.concatenate([cells[:, :middle], cells[::-1, middle:]], axis=1)


def _corner_copied(cells: Cells) -> Cells:
    height, width = cells.shape[0] // 2, cells.shape[1] // 2
    made = cells.copy()
    made[-height:, -width:] = cells[:height, :width]
    return made


def _cells_scaled(cells: Cells) -> Cells:
    return cells * _rng().choice([0.2, 2.5], (*cells.shape[:2], 1)).astype(np.float32)


def _moved(cells: Cells, target: Shape) -> Cells:
    """Everything a quarter of the image too far right; the border is repeated."""
    made = SMOOTH(cells, target)
    step = max(1, target[1] // 4)
    return made[:, np.clip(np.arange(target[1]) - step, 0, None)]


def _one_axis(cells: Cells, target: Shape) -> Cells:
    """Height is resampled, width is repeated from the left."""
    tall = SMOOTH(cells, (target[0], cells.shape[1]))
    return tall[:, np.arange(target[1]) % cells.shape[1]]


DAMAGE: Mapping[str, Damage] = {
    "a quarter too far right": _moved,
    "width repeated, not resampled": _one_axis,
    "the middle 70 %": lambda c, t: SMOOTH(
        c[round(0.15 * len(c)) : round(0.85 * len(c)), round(0.15 * c.shape[1]) :], t
    ),
    "left and right halves exchanged": _after(lambda c: np.roll(c, c.shape[1] // 2, 1)),
    "right half upside down": _after(_right_half_upside_down),
    "a corner copied over another": _after(_corner_copied),
    "half of the channels moved": _after(_half_channels_moved),
    "one component left": _after(_few_components),
    "mixed with its mirror image": _after(lambda c: 0.5 * (c + c[:, ::-1])),
    "mixed with noise": _after(
        lambda c: 0.4 * c + _rng().normal(0, 0.9 * c.std(), c.shape).astype(np.float32)
    ),
    "cells scaled at random": _after(_cells_scaled),
    "times 0.4": _after(lambda c: 0.4 * c),
    "times 2.2": _after(lambda c: 2.2 * c),
    "a third of the channels zero": _after(
        lambda c: c * (np.arange(c.shape[-1]) % 3 != 0).astype(np.float32)
    ),
    "roots of the values": _after(lambda c: np.sign(c) * np.abs(c) ** 0.3),
    "pairs of cells exchanged": _after(
        lambda c: c.reshape(-1, c.shape[-1])[
            np.minimum(np.arange(c[..., 0].size) ^ 1, c[..., 0].size - 1)
        ].reshape(c.shape)
    ),
    "a constant added": _after(lambda c: c + 3 * c.std()),
    "cells sorted by norm": _after(
        lambda c: c.reshape(-1, c.shape[-1])[
            np.argsort(np.linalg.norm(c, axis=-1).reshape(-1))
        ].reshape(c.shape)
    ),
}
