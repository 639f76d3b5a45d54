"""Honest and wrong ways of a third round, written before the rules were looked at again.

The honest ways are those of libraries for pictures and signals, and of people who are careful; the
wrong ones are bugs that people make with checkpoints. docs/artifacts.md has the counts by the rules
as they were, and says which rules were mended since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import interpolate, ndimage, signal
from torch.nn import functional

from benchmarks.ways.proper import BICUBIC, LINEAR, SMOOTH, Cells, Proper, Shape
from benchmarks.ways.unseen import Wide, _after, _each_axis, _kernel
from benchmarks.ways.unseen_later import _axis_by_axis, _keys

Table = NDArray[np.float32]
# A whole table: rows, prefix, source grid, target grid.
Whole = Callable[[Table, int, Shape, Shape], Table]


def _single(values: NDArray[np.floating]) -> Cells:
    return np.ascontiguousarray(values, np.float32)


def _image(cells: Cells) -> torch.Tensor:
    image = torch.from_numpy(cells.copy()).permute(2, 0, 1)[None]
    return image.contiguous(memory_format=torch.channels_last)


def _back(image: torch.Tensor) -> Cells:
    result: Cells = image[0].permute(1, 2, 0).float().contiguous().numpy()
    return result


# ------------------------------------------------------------------ honest


def _hermite(apart: Wide) -> Wide:
    x = np.abs(apart)
    return np.where(x < 1, 2 * x**3 - 3 * x**2 + 1, 0.0)


def _mitchell(apart: Wide) -> Wide:
    x = np.abs(apart)
    near = (7 * x**3 - 12 * x**2 + 16 / 3) / 6
    far = (-7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(lobes: int) -> Callable[[Wide], Wide]:
    return lambda x: np.where(np.abs(x) < lobes, np.sinc(x) * np.sinc(x / lobes), 0.0)


def _kaiser(apart: Wide) -> Wide:
    x = np.clip(np.abs(apart) / 3, 0, 1)
    return np.where(x < 1, np.sinc(apart) * np.i0(5 * np.sqrt(1 - x**2)) / np.i0(5), 0.0)


def _cosine_bell(apart: Wide) -> Wide:
    return np.where(np.abs(apart) < 1, 0.5 + 0.5 * np.cos(np.pi * apart), 0.0)


def _jax(shape: Callable[[Wide], Wide], *, antialias: bool) -> Proper:
    """Do as jax.image.resize does: centres outside the image keep their own weights."""

    def weights(source: int, target: int) -> Wide:
        scale = source / target
        wide = max(1.0, scale) if antialias else 1.0
        place = (np.arange(target) + 0.5) * scale - 0.5
        made = shape((np.arange(source)[None] - place[:, None]) / wide)
        result: Wide = made / made.sum(1, keepdims=True)
        return result

    return _each_axis(weights)


def _fractional_area(source: int, target: int) -> Wide:
    """Average what each new cell covers; partly covered cells count partly."""
    edge = np.arange(target + 1) * source / target
    low, high = edge[:-1, None], edge[1:, None]
    cell = np.arange(source)[None]
    covered = np.clip(np.minimum(high, cell + 1) - np.maximum(low, cell), 0, None)
    result: Wide = covered / covered.sum(1, keepdims=True)
    return result


def _pseudo_inverse(source: int, target: int) -> Wide:
    """What FlexiViT does to patch kernels: invert the resize in the other direction."""
    back = _kernel(lambda x: np.maximum(1 - np.abs(x), 0), antialias=target > source)
    made = np.asarray(np.linalg.pinv(back(target, source), rcond=0.05), np.float64)
    result: Wide = made / made.sum(1, keepdims=True)
    return result


def _with_offset(cells: Cells, target: Shape) -> Cells:
    """Ask for a factor that is 0.1 cell too large, as DINOv2's own code does."""
    factors = [(t + 0.1) / s for s, t in zip(cells.shape, target, strict=False)]
    factor = (factors[0], factors[1])
    made = functional.interpolate(_image(cells), scale_factor=factor, mode="bicubic")
    return _back(made)[: target[0], : target[1]]


def _sampled(mode: str, *, corners: bool) -> Proper:
    """Read the source at the new cells' places by grid_sample."""

    def resized(cells: Cells, target: Shape) -> Cells:
        axes = [
            torch.linspace(-1, 1, t) if corners else (torch.arange(t) + 0.5) * 2 / t - 1
            for t in target
        ]
        down, across = torch.meshgrid(*axes, indexing="ij")
        grid = torch.stack([across, down], -1)[None]
        made = functional.grid_sample(
            _image(cells), grid, mode=mode, padding_mode="border", align_corners=corners
        )
        return _back(made)

    return resized


def _spline_zoom(order: int, mode: str) -> Proper:
    def resized(cells: Cells, target: Shape) -> Cells:
        factors = [t / s for s, t in zip(cells.shape, target, strict=False)]
        wide = cells.astype(np.float64)
        return _single(ndimage.zoom(wide, [*factors, 1], order=order, grid_mode=True, mode=mode))

    return resized


def _fourier(cells: Cells, target: Shape) -> Cells:
    """Resample the mirrored table by Fourier series, so that no side leaks into the other."""
    wide: Wide = cells.astype(np.float64)
    for axis, length in enumerate(target):
        count = wide.shape[axis]
        even = np.concatenate([wide, np.flip(wide, axis)], axis)
        fine = signal.resample(even, 16 * 2 * length, axis=axis)
        at = (np.arange(length) + 0.5) * 16 - 16 * length / (2 * count)
        low = np.floor(at).astype(int)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(3)])
        wide = (1 - part) * fine.take(low, axis, mode="wrap") + part * fine.take(
            low + 1, axis, mode="wrap"
        )
    return wide.astype(np.float32)


def _hops(*ways: Proper) -> Proper:
    """Go by way of the geometric means, each hop by another kernel."""

    def resized(cells: Cells, target: Shape) -> Cells:
        first = cells.shape[:2]
        for index, way in enumerate(ways, 1):
            share = index / len(ways)
            pairs = zip(first, target, strict=True)
            height, width = (max(2, round(s ** (1 - share) * t**share)) for s, t in pairs)
            cells = way(cells, target if index == len(ways) else (height, width))
        return cells

    return resized


def _padded(mode: str) -> Proper:
    """Add a border of two cells, resize, and cut the border's share off again."""

    def resized(cells: Cells, target: Shape) -> Cells:
        wide: Wide = np.pad(cells.astype(np.float64), [(2, 2), (2, 2), (0, 0)], mode)  # type: ignore[call-overload]
        for axis, length in enumerate(target):
            count = cells.shape[axis]
            place = (np.arange(length) + 0.5) * count / length + 1.5
            weights = _keys(-0.75)(np.arange(count + 4)[None] - place[:, None])
            wide = np.moveaxis(np.tensordot(weights, wide, (1, axis)), 0, axis)
        return wide.astype(np.float32)

    return resized


def _reduced(cells: Cells, target: Shape) -> Cells:
    """Pillow with a reducing gap, which averages whole cells first."""
    layers = [
        np.asarray(
            Image.fromarray(layer).resize(
                (target[1], target[0]), Image.Resampling.BICUBIC, reducing_gap=2.0
            )
        )
        for layer in np.moveaxis(cells, -1, 0)
    ]
    return np.stack(layers, -1).astype(np.float32)


def _triangles(cells: Cells, target: Shape) -> Cells:
    """Clough and Tocher's cubic triangles, as scipy's griddata has them."""
    height, width, channels = cells.shape
    at = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
    places = [
        np.clip((np.arange(t) + 0.5) * s / t - 0.5, 0, s - 1)
        for s, t in zip((height, width), target, strict=True)
    ]
    wanted = np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, 2)
    fitted = interpolate.CloughTocher2DInterpolator(at.reshape(-1, 2), cells.reshape(-1, channels))
    made = fitted(wanted)
    nearest = cells.reshape(-1, channels)[
        (np.rint(wanted[:, 0]) * width + np.rint(wanted[:, 1])).astype(int)
    ]
    return _single(np.where(np.isfinite(made), made, nearest).reshape(*target, channels))


def _kriged(cells: Cells, target: Shape) -> Cells:
    """Predict by a Gaussian process whose length is one and a half cells, axis by axis."""
    wide: Wide = cells.astype(np.float64)
    mean = wide.mean((0, 1))
    wide = wide - mean
    for axis, length in enumerate(target):
        count = wide.shape[axis]
        at = np.arange(count, dtype=np.float64)
        place = (np.arange(length) + 0.5) * count / length - 0.5
        known = _near(at, at) + 1e-3 * np.eye(count)
        weights = _near(place, at) @ np.linalg.inv(known)
        wide = np.moveaxis(np.tensordot(weights, wide, (1, axis)), 0, axis)
    return _single(wide + mean)


def _near(one: Wide, two: Wide) -> Wide:
    result: Wide = np.exp(-((one[:, None] - two[None]) ** 2) / (2 * 1.5**2))
    return result


def _residual(share: float, *, smooth: bool) -> Proper:
    """A learned residual on top of an honest result."""

    def resized(cells: Cells, target: Shape) -> Cells:
        made = SMOOTH(cells, target)
        noise = np.random.default_rng(61).normal(size=made.shape)
        if smooth:
            noise = ndimage.gaussian_filter(noise, [1, 1, 0], mode="nearest")
        varying = float((made - made.mean((0, 1))).std())  # a large common vector does not count
        return _single(made + noise * (share * varying / noise.std()))

    return resized


def _eight_bits(cells: Cells, target: Shape) -> Cells:
    """Store in eight bits with one scale for each channel."""
    made = SMOOTH(cells, target)
    scale = np.maximum(np.abs(made).max((0, 1)), 1e-12) / 127
    return _single(np.rint(made / scale) * scale)


def _typed(way: Proper, dtype: torch.dtype) -> Proper:
    return lambda c, t: torch.from_numpy(way(c, t)).to(dtype).float().numpy()


HONEST: Mapping[str, Proper] = {
    "Hermite": _each_axis(_kernel(_hermite, antialias=False)),
    "Hermite, antialias": _each_axis(_kernel(_hermite, antialias=True)),
    "Mitchell": _each_axis(_kernel(_mitchell, antialias=False)),
    "Catmull-Rom, antialias, jax": _jax(_keys(-0.5), antialias=True),
    "Catmull-Rom, jax": _jax(_keys(-0.5), antialias=False),
    "Lanczos 3, jax": _jax(_lanczos(3), antialias=False),
    "Lanczos 5, antialias, jax": _jax(_lanczos(5), antialias=True),
    "Lanczos 5, jax": _jax(_lanczos(5), antialias=False),
    "linear, antialias, jax": _jax(lambda x: np.maximum(1 - np.abs(x), 0), antialias=True),
    "Kaiser window": _each_axis(_kernel(_kaiser, antialias=True)),
    "raised cosine": _each_axis(_kernel(_cosine_bell, antialias=True)),
    "area of fractional cells": _each_axis(_fractional_area),
    "pseudo-inverse": _each_axis(_pseudo_inverse),
    "bicubic with an offset of 0.1": _with_offset,
    "grid_sample bilinear": _sampled("bilinear", corners=False),
    "grid_sample bicubic": _sampled("bicubic", corners=False),
    "grid_sample bicubic, corners": _sampled("bicubic", corners=True),
    "zoom of order 2, reflected": _spline_zoom(2, "reflect"),
    "zoom of order 4, nearest": _spline_zoom(4, "nearest"),
    "zoom of order 3, mirrored grid": _spline_zoom(3, "grid-mirror"),
    "zoom of order 1, reflected": _spline_zoom(1, "reflect"),
    "Fourier series, mirrored": _fourier,
    "three hops by three kernels": _hops(LINEAR, SMOOTH, BICUBIC),
    "two hops, antialias then bilinear": _hops(SMOOTH, LINEAR),
    "three hops bilinear": _hops(LINEAR, LINEAR, LINEAR),
    "bicubic, border repeated": _padded("edge"),
    "bicubic, border reflected": _padded("reflect"),
    "Pillow with a reducing gap": _reduced,
    "cubic triangles": _triangles,
    "Gaussian process": _kriged,
    "natural cubic spline": _axis_by_axis(
        lambda x, y: interpolate.CubicSpline(x, y, bc_type="natural")
    ),
    "modified Akima": _axis_by_axis(
        lambda x, y: (
            interpolate.Akima1DInterpolator(x, y, method="makima")
            if len(x) > 2
            else interpolate.interp1d(x, y, axis=0)
        )
    ),
    "residual of 3 %": _residual(0.03, smooth=False),
    "smooth residual of 10 %": _residual(0.10, smooth=True),
    "eight bits for each channel": _eight_bits,
    "antialias, stored as float16": _typed(SMOOTH, torch.float16),
    "antialias, stored as bfloat16": _typed(SMOOTH, torch.bfloat16),
    "bilinear, stored as e4m3": _typed(LINEAR, torch.float8_e4m3fn),
    "bicubic, stored as e5m2": _typed(BICUBIC, torch.float8_e5m2),
}


# ------------------------------------------------------------------ wrong


def _rng() -> np.random.Generator:
    return np.random.default_rng(71)


def _on_cells(change: Callable[[Cells, Shape], NDArray[np.floating]]) -> Whole:
    """Leave the prefix rows alone."""

    def damaged(rows: Table, prefix: int, grid: Shape, target: Shape) -> Table:
        cells = change(rows[prefix:].reshape(*grid, -1), target)
        flat = np.ascontiguousarray(cells, np.float32).reshape(-1, rows.shape[1])
        return np.concatenate([rows[:prefix], flat])

    return damaged


def _on_result(change: Callable[[Cells], NDArray[np.floating]]) -> Whole:
    return _on_cells(_after(change))


def _flat(cells: Cells) -> Cells:
    return cells.reshape(-1, cells.shape[-1])


def _column_major(cells: Cells, target: Shape) -> Cells:
    """Rows were taken for columns when the sequence became a grid."""
    height, width, channels = cells.shape
    return SMOOTH(_single(_flat(cells).reshape(width, height, channels).swapaxes(0, 1)), target)


def _column_major_after(cells: Cells) -> Cells:
    return _single(cells.swapaxes(0, 1)).reshape(cells.shape)


def _root_grid(cells: Cells, target: Shape) -> Cells:
    """Take the root of the number of rows for the side, and drop the rest."""
    side = int(len(_flat(cells)) ** 0.5)
    return SMOOTH(_flat(cells)[: side * side].reshape(side, side, -1), target)


def _twice(cells: Cells, target: Shape) -> Cells:
    """Resize what was resized, read as the source again."""
    made = _flat(SMOOTH(cells, target))
    count = cells.shape[0] * cells.shape[1]
    again = made[np.arange(count) % len(made)].reshape(cells.shape)
    return SMOOTH(again, target)


def _repeated(cells: Cells, target: Shape) -> Cells:
    """Repeat the sequence until it is long enough."""
    flat = _flat(cells)
    return flat[np.arange(target[0] * target[1]) % len(flat)].reshape(*target, -1)


def _interleaved(cells: Cells, target: Shape) -> Cells:
    """Repeat every row of the sequence, or take every so manieth, as nearest does to a signal."""
    flat, count = _flat(cells), target[0] * target[1]
    return flat[np.arange(count) * len(flat) // count].reshape(*target, -1)


def _swapped_bytes(cells: Cells) -> Cells:
    swapped = cells.copy().view(">f4").astype(np.float32)
    bounded = np.nan_to_num(swapped, nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(bounded, -1e4, 1e4)


def _clipped(cells: Cells) -> Cells:
    bound = 0.7 * float(cells.std())
    return np.clip(cells, -bound, bound)


def _whole_numbers(cells: Cells) -> Cells:
    """Cast to integers on the way: a step of about one deviation, cut off towards zero."""
    step = float(cells.std())
    return _single(np.trunc(cells / step) * step)


def _two_bits(cells: Cells) -> Cells:
    low, high = float(cells.min()), float(cells.max())
    step = max((high - low) / 3, 1e-12)
    return _single(np.rint((cells - low) / step) * step + low)


def _another(cells: Cells) -> Cells:
    """A table that another training run might have learned: as smooth, and unrelated."""
    noise = _rng().normal(size=cells.shape)
    sigma = [0.12 * n for n in cells.shape[:2]]
    smooth = ndimage.gaussian_filter(noise, [*sigma, 0], mode="reflect")
    scale = cells.std((0, 1)) / np.maximum(smooth.std((0, 1)), 1e-12)
    return _single((smooth - smooth.mean((0, 1))) * scale + cells.mean((0, 1)))


def _half_another(cells: Cells) -> Cells:
    half = cells.shape[-1] // 2
    return np.concatenate([cells[..., :half], _another(cells)[..., half:]], -1)


def _layers_mixed(cells: Cells) -> Cells:
    """Every second row of cells comes from another layer's table."""
    made = cells.copy()
    made[1::2] = _another(cells)[1::2]
    return made


def _shards(axis: int) -> Callable[[Cells], Cells]:
    """Four shards were joined in another order."""

    def joined(cells: Cells) -> Cells:
        flat = _flat(cells)
        parts = np.array_split(flat, 4, axis)
        mixed = np.concatenate([parts[i] for i in (2, 0, 3, 1)], axis)
        return _single(mixed.reshape(cells.shape))

    return joined


def _lost_cells(share: float) -> Callable[[Cells], Cells]:
    """Cells that were NaN became zero."""
    return lambda c: c * (_rng().random((*c.shape[:2], 1)) > share).astype(np.float32)


def _lost_quarter(cells: Cells) -> Cells:
    made = cells.copy()
    made[: cells.shape[0] // 2, : cells.shape[1] // 2] = 0
    return made


def _stale(cells: Cells, target: Shape) -> Cells:
    """The old rows stay in front; the rest comes from an honest result."""
    made, old = _flat(SMOOTH(cells, target)).copy(), _flat(cells)
    count = min(len(old), len(made) // 2)
    made[:count] = old[:count]
    return made.reshape(*target, -1)


def _stale_block(cells: Cells, target: Shape) -> Cells:
    """The old grid stays in the top left corner; the rest comes from an honest result."""
    made = SMOOTH(cells, target).copy()
    height, width = (min(n, max(1, m // 2)) for n, m in zip(cells.shape, target, strict=False))
    made[:height, :width] = cells[:height, :width]
    return made


def _row_means(cells: Cells, target: Shape) -> Cells:
    """Only the position along the width is kept."""
    return SMOOTH(cells.mean(0, keepdims=True).repeat(len(cells), 0), target)


def _corner_places(cells: Cells, target: Shape) -> Cells:
    """Places were divided by the wrong size, so that only a part is read."""
    height, width = (max(2, round(0.75 * n)) for n in cells.shape[:2])
    return SMOOTH(_single(cells[:height, :width]), target)


def _bordered(cells: Cells, target: Shape) -> Cells:
    """A border of zeros was added before the resize and never cut off."""
    return SMOOTH(np.pad(cells, [(1, 1), (1, 1), (0, 0)]), target)


def _zero_outside(cells: Cells, target: Shape) -> Cells:
    """grid_sample in its default mode, with places in −1…1 from corner to corner of the pixels."""
    axes = [torch.linspace(-1, 1, t) for t in target]
    down, across = torch.meshgrid(*axes, indexing="ij")
    grid = torch.stack([across, down], -1)[None]
    return _back(functional.grid_sample(_image(cells), grid, align_corners=False))


def _random_start(cells: Cells) -> Cells:
    """An average of the table and its random beginning."""
    return _single(0.5 * cells + 0.5 * _rng().normal(0, cells.std(), cells.shape))


def _dropped_out(cells: Cells) -> Cells:
    """Dropout was left on."""
    kept = (_rng().random(cells.shape) > 0.2).astype(np.float32)
    return _single(cells * kept / 0.8)


def _every_line(axis: int) -> Callable[[Cells, Shape], Cells]:
    """One axis is resampled; the other repeats each line, or leaves lines out at the end."""

    def damaged(cells: Cells, target: Shape) -> Cells:
        other = list(cells.shape[:2])
        other[axis] = target[axis]
        made = SMOOTH(cells, (other[0], other[1]))
        at = np.minimum(np.arange(target[1 - axis]), cells.shape[1 - axis] - 1)
        return _single(made.take(at, 1 - axis))

    return damaged


def _prefix_as_sequence(rows: Table, prefix: int, grid: Shape, target: Shape) -> Table:
    """Prefix and cells were interpolated as one line."""
    count = prefix + target[0] * target[1]
    return BICUBIC(rows[None], (1, count))[0] if prefix else _column(rows, prefix, grid, target)


_column = _on_cells(_column_major)


def _with_prefix(change: Callable[[Table], Table]) -> Whole:
    """An honest resize, and something else in the place of the prefix rows."""

    def damaged(rows: Table, prefix: int, grid: Shape, target: Shape) -> Table:
        made = _flat(SMOOTH(rows[prefix:].reshape(*grid, -1), target))
        return np.concatenate([change(rows[:prefix]), made]).astype(np.float32)

    return damaged


def _prefix_added(rows: Table, prefix: int, grid: Shape, target: Shape) -> Table:
    """The class token's row was added to every cell."""
    made = _flat(SMOOTH(rows[prefix:].reshape(*grid, -1), target))
    added = rows[:1] if prefix else 0.5 * rows[:1]
    return np.concatenate([rows[:prefix], made + added]).astype(np.float32)


def _one_row_late(rows: Table, prefix: int, grid: Shape, target: Shape) -> Table:
    """The sequence begins one row too late."""
    moved = np.concatenate([rows[:prefix], rows[prefix + 1 :], rows[-1:]])
    made = _flat(SMOOTH(moved[prefix:].reshape(*grid, -1), target))
    return np.concatenate([rows[:prefix], made]).astype(np.float32)


DAMAGE: Mapping[str, Whole] = {
    "read column by column": _column,
    "written column by column": _on_result(_column_major_after),
    "root of the rows for the side": _on_cells(_root_grid),
    "resized twice": _on_cells(_twice),
    "sequence repeated": _on_cells(_repeated),
    "sequence stretched, nearest": _on_cells(_interleaved),
    "first row and column lost": _on_cells(lambda c, t: SMOOTH(_single(c[1:, 1:]), t)),
    "border of zeros": _on_cells(_bordered),
    "zeros outside": _on_cells(_zero_outside),
    "places divided by the wrong size": _on_cells(_corner_places),
    "height repeated at the end": _on_cells(_every_line(1)),
    "width repeated at the end": _on_cells(_every_line(0)),
    "bytes swapped": _on_result(_swapped_bytes),
    "clipped at 0.7 deviations": _on_result(_clipped),
    "cast to whole numbers": _on_result(_whole_numbers),
    "stored in two bits": _on_result(_two_bits),
    "another table": _on_result(_another),
    "half of the channels of another table": _on_result(_half_another),
    "two layers mixed": _on_result(_layers_mixed),
    "shards of rows in another order": _on_result(_shards(0)),
    "shards of channels in another order": _on_result(_shards(1)),
    "10 % of the cells lost": _on_result(_lost_cells(0.1)),
    "40 % of the cells lost": _on_result(_lost_cells(0.4)),
    "a quarter of the image lost": _on_result(_lost_quarter),
    "half of the channels lost": _on_result(
        lambda c: c * (np.arange(c.shape[-1]) < c.shape[-1] // 2).astype(np.float32)
    ),
    "old rows kept in front": _on_cells(_stale),
    "old grid kept in the corner": _on_cells(_stale_block),
    "positions along the width alone": _on_cells(_row_means),
    "standardised": _on_result(lambda c: (c - c.mean()) / c.std()),
    "each channel standardised": _on_result(
        lambda c: (c - c.mean((0, 1))) / np.maximum(c.std((0, 1)), 1e-6)
    ),
    "each cell of length one": _on_result(
        lambda c: c / np.maximum(np.linalg.norm(c, axis=-1, keepdims=True), 1e-9)
    ),
    "squares instead of values": _on_result(lambda c: c**2),
    "magnitudes instead of values": _on_result(np.abs),
    "half random": _on_result(_random_start),
    "dropout left on": _on_result(_dropped_out),
    "noise of half its deviation": _on_result(
        lambda c: c + _rng().normal(0, 0.5 * c.std(), c.shape)
    ),
    "times 0.7": _on_result(lambda c: 0.7 * c),
    "times 1.5": _on_result(lambda c: 1.5 * c),
    "divided by the root of the width": _on_result(lambda c: c / np.sqrt(c.shape[-1])),
    "a deviation added to all": _on_result(lambda c: c + c.std()),
    "two components left": _on_result(lambda c: _components(c, 2)),
    "turned by 90°": _on_cells(lambda c, t: SMOOTH(_single(np.rot90(c)), t)),
    "prefix and cells as one line": _prefix_as_sequence,
    "prefix rows lost": _with_prefix(np.zeros_like),
    "prefix rows negated": _with_prefix(np.negative),
    "prefix rows in another order": _with_prefix(lambda p: p[::-1]),
    "prefix row added to all cells": _prefix_added,
    "one row late": _one_row_late,
}


def _components(cells: Cells, count: int) -> Cells:
    flat = _flat(cells)
    mean = flat.mean(0)
    left, values, right = np.linalg.svd(flat - mean, full_matrices=False)
    made = (left[:, :count] * values[:count]) @ right[:count] + mean
    return _single(made.reshape(cells.shape))


def mistakes(prefix: int) -> Iterator[tuple[str, Whole]]:
    """Give every mistake by name; those of prefix rows where a table has enough of them."""
    for name, way in DAMAGE.items():
        least = 2 if name == "prefix rows in another order" else 1
        if not name.startswith("prefix rows") or prefix >= least:
            yield name, way
