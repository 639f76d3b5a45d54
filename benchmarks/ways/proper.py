"""Honest ways to resize a table that are not this project's: other libraries' own code.

Each gives the new grid (h′, w′, d) as float32. scipy, Pillow and torch compute; nothing here calls
`resize_pos`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import interpolate, ndimage
from torch.nn import functional

Cells = NDArray[np.float32]
Shape = tuple[int, int]
Proper = Callable[[Cells, Shape], Cells]


def _torch(mode: str, **options: object) -> Proper:
    def resized(cells: Cells, target: Shape) -> Cells:
        image = torch.from_numpy(cells.copy()).permute(2, 0, 1)[None]
        image = image.contiguous(memory_format=torch.channels_last)
        made = functional.interpolate(image, target, mode=mode, **options)  # type: ignore[arg-type]
        result: Cells = made[0].permute(1, 2, 0).contiguous().numpy()
        return result

    return resized


def _pillow(filter_: Image.Resampling) -> Proper:
    def resized(cells: Cells, target: Shape) -> Cells:
        layers = [
            np.asarray(Image.fromarray(layer).resize((target[1], target[0]), filter_))
            for layer in np.moveaxis(cells, -1, 0)
        ]
        return np.stack(layers, -1).astype(np.float32)

    return resized


def _zoom(order: int, *, grid_mode: bool) -> Proper:
    def resized(cells: Cells, target: Shape) -> Cells:
        factors = [t / s for s, t in zip(cells.shape, target, strict=False)]
        # The default mode, "constant", makes the last row or column zero at some sizes (24 → 22).
        made = ndimage.zoom(
            cells.astype(np.float64),
            [*factors, 1],
            order=order,
            grid_mode=grid_mode,
            mode="nearest" if grid_mode else "mirror",
        )
        result: Cells = made.astype(np.float32)
        return result

    return resized


def two_lines(cells: Cells) -> Cells:
    """Repeat the row, or the column, of a grid that has only one."""
    for axis in (0, 1):
        if cells.shape[axis] == 1:
            cells = np.repeat(cells, 2, axis)
    return cells


def spline(cells: Cells, target: Shape) -> Cells:
    """FITPACK's interpolating spline at half-pixel centres."""
    cells = two_lines(cells)
    height, width, channels = cells.shape
    degrees = min(3, height - 1), min(3, width - 1)
    places = [
        np.clip((np.arange(t) + 0.5) * s / t - 0.5, 0, s - 1)
        for s, t in zip((height, width), target, strict=True)
    ]
    layers = [
        interpolate.RectBivariateSpline(
            np.arange(height), np.arange(width), cells[..., c], kx=degrees[0], ky=degrees[1]
        )(*places)
        for c in range(channels)
    ]
    return np.stack(layers, -1).astype(np.float32)


def tensorflow_bicubic(cells: Cells, target: Shape) -> Cells:
    """Keys' kernel with a = −½ at half-pixel centres, weights outside the image left out."""
    for axis, length in enumerate(target):
        count = cells.shape[axis]
        place = (np.arange(length) + 0.5) * count / length - 0.5
        apart = np.abs(np.arange(count)[None] - place[:, None])
        near = 1.5 * apart**3 - 2.5 * apart**2 + 1
        far = -0.5 * apart**3 + 2.5 * apart**2 - 4 * apart + 2
        weights = np.where(apart < 1, near, np.where(apart < 2, far, 0))
        weights /= weights.sum(1, keepdims=True)
        cells = np.moveaxis(np.tensordot(weights, cells, (1, axis)), 0, axis)
    return cells.astype(np.float32)


def asymmetric(cells: Cells, target: Shape) -> Cells:
    """Linear between neighbours, place i of m at i·n/m: ONNX's `asymmetric`, TensorFlow 1."""
    for axis, length in enumerate(target):
        count = cells.shape[axis]
        place = np.minimum(np.arange(length) * count / length, count - 1)
        weights = np.maximum(1 - np.abs(np.arange(count)[None] - place[:, None]), 0)
        cells = np.moveaxis(np.tensordot(weights, cells, (1, axis)), 0, axis)
    return cells.astype(np.float32)


def _norm_restored(way: Proper) -> Proper:
    """Scale every vector to the norm that its neighbours had, interpolated in the same way."""

    def resized(cells: Cells, target: Shape) -> Cells:
        made = way(cells, target)
        norms = np.linalg.norm(cells, axis=-1, keepdims=True).astype(np.float32)
        own = np.linalg.norm(made, axis=-1, keepdims=True)
        scaled: Cells = (made * (way(norms, target) / np.maximum(own, 1e-12))).astype(np.float32)
        return scaled

    return resized


def _two_hops(way: Proper, share: float) -> Proper:
    """By way of a grid between the two (or beyond them)."""

    def resized(cells: Cells, target: Shape) -> Cells:
        between = tuple(
            max(2, round(s ** (1 - share) * t**share))
            for s, t in zip(cells.shape, target, strict=False)
        )
        return way(way(cells, (between[0], between[1])), target)

    return resized


BICUBIC = _torch("bicubic", align_corners=False)
SMOOTH = _torch("bicubic", align_corners=False, antialias=True)
LINEAR = _torch("bilinear", align_corners=False)

LIBRARIES: Mapping[str, Proper] = {
    "torch bicubic": BICUBIC,
    "torch bicubic antialias": SMOOTH,
    "torch bilinear": LINEAR,
    "torch bilinear antialias": _torch("bilinear", align_corners=False, antialias=True),
    "torch bicubic corners": _torch("bicubic", align_corners=True),
    "torch bilinear corners": _torch("bilinear", align_corners=True),
    "torch nearest": _torch("nearest"),
    "scipy zoom linear": _zoom(1, grid_mode=False),
}
OTHERS: Mapping[str, Proper] = {
    "torch area": _torch("area"),
    "torch nearest exact": _torch("nearest-exact"),
    "PIL bicubic": _pillow(Image.Resampling.BICUBIC),
    "PIL bilinear": _pillow(Image.Resampling.BILINEAR),
    "PIL lanczos": _pillow(Image.Resampling.LANCZOS),
    "PIL box": _pillow(Image.Resampling.BOX),
    "PIL hamming": _pillow(Image.Resampling.HAMMING),
    "TensorFlow bicubic": tensorflow_bicubic,
    "asymmetric bilinear": asymmetric,
    "scipy zoom cubic": _zoom(3, grid_mode=False),
    "scipy zoom cubic grid_mode": _zoom(3, grid_mode=True),
    "scipy zoom quintic": _zoom(5, grid_mode=False),
    "FITPACK spline": spline,
    "bicubic, norm restored": _norm_restored(BICUBIC),
    "bicubic antialias, norm restored": _norm_restored(SMOOTH),
    "bilinear, norm restored": _norm_restored(LINEAR),
    "two hops bicubic": _two_hops(BICUBIC, 0.5),
    "two hops bicubic antialias": _two_hops(SMOOTH, 0.5),
    "two hops bilinear": _two_hops(LINEAR, 0.4),
}
