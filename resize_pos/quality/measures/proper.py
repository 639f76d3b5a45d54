"""Every proper way to resample an axis that people use, by name, as small matrices.

The conventions of the libraries come first (`core/conventions.py`). The other kernels are used to
recognise tables that other programs have resized, and to measure how much honest results differ.
No conversion uses them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import CONVENTIONS, Method, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.sampling import ONE_THREAD, Wide
from resize_pos.transforms.kernels import operator
from resize_pos.transforms.spline import spline_at

_LANCZOS = 3  # lobes on each side
_NEARLY_LOST = 0.1  # of the largest singular value


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to resample an axis: a library's convention, or a kernel by name."""

    name: str  # as a user would say it
    resampling: Resampling | None = None  # None: one of `_MATRICES`

    def __str__(self) -> str:
        return self.name


_PLAIN = (
    Resampling(Method.BILINEAR, antialias=False),
    Resampling(Method.NEAREST, antialias=False),
)
CONVENTIONAL: tuple[Kernel, ...] = tuple(
    Kernel(str(resampling), resampling)
    for resampling in dict.fromkeys([*(c.resampling for c in CONVENTIONS.values()), *_PLAIN])
)
AREA = Kernel("area averaging (torch's area, adaptive pooling)")
BOX = Kernel("box averaging (PIL's BOX)")
OPENCV_AREA = Kernel("area averaging (OpenCV's INTER_AREA)")
NEAREST_EXACT = Kernel("nearest (nearest-exact, PIL)")
LANCZOS = Kernel("Lanczos, antialias (PIL, JAX)")
SHARP = Kernel("bicubic with a = -0.5, no antialias (TensorFlow)")
SPLINE_CORNERS = Kernel("cubic spline, aligned corners (scipy zoom, order 3)")
SPLINE_CENTRES = Kernel("cubic spline, half-pixel centres (scipy zoom with grid_mode)")
SPLINE_EXACT = Kernel("cubic spline, not-a-knot (RectBivariateSpline)")
HAMMING = Kernel("Hamming window, antialias (PIL)")
ASYMMETRIC = Kernel("bilinear, asymmetric coordinates (ONNX, TensorFlow 1)")
SMOOTHEST = Kernel("Gaussian of half a cell, antialias (ImageMagick's Gaussian)")
SHARPEST = Kernel("inverse of the resize back (pseudo-inverse, least squares)")
OTHERS: tuple[Kernel, ...] = (
    AREA,
    BOX,
    OPENCV_AREA,
    NEAREST_EXACT,
    LANCZOS,
    SHARP,
    SPLINE_CORNERS,
    SPLINE_CENTRES,
    SPLINE_EXACT,
    HAMMING,
    ASYMMETRIC,
)


@lru_cache(maxsize=256)
def matrix(kernel: Kernel, source: int, target: int) -> Wide:
    """Return the (target, source) matrix of a kernel along one axis."""
    if kernel.resampling is not None:
        return operator(source, target, kernel.resampling).matrix
    if source == target and kernel not in (SHARP, SMOOTHEST):
        return np.eye(source)
    made = {
        AREA: _adaptive,
        BOX: _box,
        OPENCV_AREA: _shared,
        NEAREST_EXACT: _nearest,
        LANCZOS: _lanczos,
        SHARP: _sharp,
        SPLINE_CORNERS: _spline_corners,
        SPLINE_CENTRES: _spline_centres,
        SPLINE_EXACT: _spline_exact,
        HAMMING: _hamming,
        ASYMMETRIC: _asymmetric,
        SMOOTHEST: _smoothest,
        SHARPEST: _sharpest,
    }[kernel](source, target)
    made.flags.writeable = False
    return made


def resized(grid: Wide, target: Grid, kernel: Kernel) -> Wide:
    """Resample a (copies, h, w, d) grid; for measuring, where the last bit does not matter."""
    down = matrix(kernel, grid.shape[1], target.height)
    across = matrix(kernel, grid.shape[2], target.width)
    rows = along(down, np.swapaxes(grid, 1, 2)) if grid.shape[1] > 1 or len(down) > 1 else None
    halfway = grid if rows is None else np.swapaxes(rows, 1, 2)
    return along(across, halfway)


def along(weights: Wide, grid: Wide) -> Wide:
    """Multiply the axis before the last; in pieces too small for BLAS to start threads on."""
    step = max(1, ONE_THREAD // max(1, weights.size))
    channels = grid.shape[-1]
    if step >= channels:
        product: Wide = weights @ grid
        return product
    return np.concatenate(
        [weights @ grid[..., at : at + step] for at in range(0, channels, step)], axis=-1
    )


def _centres(source: int, target: int) -> Wide:
    return (np.arange(target) + 0.5) * source / target - 0.5


def _corners(source: int, target: int) -> Wide:
    places: Wide = np.arange(target, dtype=np.float64) * ((source - 1) / max(target - 1, 1))
    return places


def _normalised(weights: Wide) -> Wide:
    result: Wide = weights / weights.sum(axis=1, keepdims=True)
    return result


def _distances(source: int, target: int, widest: float) -> Wide:
    apart = np.arange(source)[None] - _centres(source, target)[:, None]
    return np.asarray(apart / widest, np.float64)


def _adaptive(source: int, target: int) -> Wide:
    first = np.arange(target) * source // target
    last = -(-(np.arange(target) + 1) * source // target)
    place = np.arange(source)[None]
    return _normalised(((place >= first[:, None]) & (place < last[:, None])).astype(np.float64))


def _nearest(source: int, target: int) -> Wide:
    chosen = np.minimum(((2 * np.arange(target) + 1) * source) // (2 * target), source - 1)
    return np.eye(source)[chosen]


def _box(source: int, target: int) -> Wide:
    """Average the source positions whose centres lie inside the target's."""
    if target >= source:
        return _nearest(source, target)
    # A centre on the border of two cells belongs to one or the other, as PIL's arithmetic rounds.
    scale = source / target
    centre = (np.arange(target)[:, None] + 0.5) * scale
    first, last = (np.trunc(centre + side * (0.5 * scale) + 0.5) for side in (-1, 1))
    place = np.arange(source)[None]
    apart = (place - centre + 0.5) * (1 / scale)
    inside = (apart > -0.5) & (apart <= 0.5) & (place >= first) & (place < last)
    return _normalised(inside.astype(np.float64))


def _shared(source: int, target: int) -> Wide:
    """Weigh each source position by the length that it shares with the target's."""
    scale = source / target
    left, right = np.arange(target) * scale, (np.arange(target) + 1) * scale
    place = np.arange(source)[None]
    shared = np.minimum(place + 1, right[:, None]) - np.maximum(place, left[:, None])
    return _normalised(np.maximum(shared, 0.0))


def _lanczos(source: int, target: int) -> Wide:
    apart = _distances(source, target, max(source / target, 1.0))
    inside = np.abs(apart) < _LANCZOS
    return _normalised(np.where(inside, np.sinc(apart) * np.sinc(apart / _LANCZOS), 0.0))


def _hamming(source: int, target: int) -> Wide:
    apart = _distances(source, target, max(source / target, 1.0))
    window = 0.54 + 0.46 * np.cos(np.pi * apart)
    return _normalised(np.where(np.abs(apart) < 1, np.sinc(apart) * window, 0.0))


def _smoothest(source: int, target: int) -> Wide:
    apart = _distances(source, target, max(source / target, 1.0))
    return _normalised(np.exp(-2 * apart * apart))


def _sharpest(source: int, target: int) -> Wide:
    """Undo the antialiased linear resize in the other direction, but for what it nearly loses."""
    back = operator(target, source, Resampling(Method.BILINEAR, antialias=True)).matrix
    return _normalised(np.asarray(np.linalg.pinv(back, rcond=_NEARLY_LOST), np.float64))


def _asymmetric(source: int, target: int) -> Wide:
    """Linear between neighbours at i·source/target, so that only the first positions coincide."""
    places = np.minimum(np.arange(target) * (source / target), source - 1.0)
    return np.asarray(np.maximum(1 - np.abs(np.arange(source)[None] - places[:, None]), 0.0))


def _sharp(source: int, target: int) -> Wide:
    apart = np.abs(_distances(source, target, 1.0))
    near = (1.5 * apart - 2.5) * apart * apart + 1
    far = -0.5 * (((apart - 5) * apart + 8) * apart - 4)
    return _normalised(np.where(apart < 1, near, np.where(apart < 2, far, 0.0)))


def _spline_exact(source: int, target: int) -> Wide:
    sites = [float(i) for i in range(source)]
    places = [float(p) for p in np.clip(_centres(source, target), 0, source - 1)]
    return np.array(spline_at(sites, places, extrapolate=False).matrix)


def _spline_corners(source: int, target: int) -> Wide:
    return _mirrored_spline(source, _corners(source, target))


def _spline_centres(source: int, target: int) -> Wide:
    return _mirrored_spline(source, np.clip(_centres(source, target), 0, source - 1))


def _mirrored_spline(source: int, places: Wide) -> Wide:
    """The cubic B-spline through all positions, even about the first and the last one."""
    if source == 1:
        return np.ones((len(places), 1))
    fit = _spline_weights(source, np.arange(source, dtype=np.float64))
    look = _spline_weights(source, places)
    return np.ascontiguousarray(np.linalg.solve(fit.T, look.T).T, np.float64)


def _spline_weights(source: int, places: Wide) -> Wide:
    weights = np.zeros((len(places), source))
    base = np.floor(places).astype(np.intp)
    rows = np.arange(len(places))
    for offset in (-1, 0, 1, 2):
        apart = np.abs(places - (base + offset))
        inner = 2 / 3 - apart * apart * (2 - apart) / 2
        value = np.where(apart < 1, inner, np.maximum(2 - apart, 0) ** 3 / 6)
        np.add.at(weights, (rows, _reflected(base + offset, source)), value)
    return weights


def _reflected(index: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    period = 2 * (length - 1)
    inside = np.abs(index) % period
    return np.where(inside >= length, period - inside, inside)
