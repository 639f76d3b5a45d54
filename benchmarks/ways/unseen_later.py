"""Further honest and wrong ways, written in a later round than those of `unseen.py`.

They were first judged by the rules as they were; docs/artifacts.md has those counts, and says which
rules were mended since. Each works on the cells of a grid (h, w, channels).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import interpolate, ndimage, signal

from benchmarks.ways.proper import BICUBIC, LINEAR, SMOOTH, Cells, Proper, Shape, two_lines
from benchmarks.ways.unseen import Wide, _after, _each_axis, _kernel

Damage = Callable[[Cells, Shape], Cells]


def _single(values: NDArray[np.floating]) -> Cells:
    return np.ascontiguousarray(values, np.float32)


def _keys(a: float) -> Callable[[Wide], Wide]:
    """Keys' cubic kernel."""

    def shape(apart: Wide) -> Wide:
        x = np.abs(apart)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))

    return shape


def _lanczos5(apart: Wide) -> Wide:
    return np.where(np.abs(apart) < 5, np.sinc(apart) * np.sinc(apart / 5), 0.0)


def _quadratic(apart: Wide) -> Wide:
    """The B-spline of second degree, as a kernel."""
    x = np.abs(apart)
    return np.where(x < 0.5, 0.75 - x**2, np.where(x < 1.5, 0.5 * (1.5 - x) ** 2, 0.0)) + 1e-12


def _half(mode: str, dtype: torch.dtype) -> Proper:
    """Compute in half precision."""

    def resized(cells: Cells, target: Shape) -> Cells:
        image = torch.from_numpy(cells.copy()).permute(2, 0, 1)[None].to(dtype)
        made = torch.nn.functional.interpolate(image, target, mode=mode, align_corners=False)
        result: Cells = made[0].permute(1, 2, 0).float().contiguous().numpy()
        return result

    return resized


def _by_way_of(way: Proper, between: Callable[[int], int]) -> Proper:
    def resized(cells: Cells, target: Shape) -> Cells:
        height, width = (between(count) for count in cells.shape[:2])
        return way(way(cells, (height, width)), target)

    return resized


def _three_steps(cells: Cells, target: Shape) -> Cells:
    """Grow or shrink in three steps, each by a library's usual kernel."""
    cells = two_lines(cells)  # torch mixes up the channels of one column that stays one
    for share in (1 / 3, 2 / 3, 1):
        sides = (s ** (1 - share) * t**share for s, t in zip(cells.shape, target, strict=False))
        height, width = (max(2, round(side)) for side in sides)
        cells = SMOOTH(cells, (height, width))
    return SMOOTH(cells, target)


def _reflected(cells: Cells, target: Shape) -> Cells:
    """Pad by reflection before a bicubic resize, and cut the border off."""
    reach = [min(3, n - 1) for n in cells.shape[:2]]
    padded = np.pad(cells, [(reach[0], reach[0]), (reach[1], reach[1]), (0, 0)], "symmetric")
    wide: Wide = padded.astype(np.float64)
    for axis, length in enumerate(target):
        count = cells.shape[axis]
        place = (np.arange(length) + 0.5) * count / length - 0.5 + reach[axis]
        weights = _keys(-0.5)(np.arange(count + 2 * reach[axis])[None] - place[:, None])
        weights /= weights.sum(1, keepdims=True)
        wide = np.moveaxis(np.tensordot(weights, wide, (1, axis)), 0, axis)
    return wide.astype(np.float32)


def _mean_kept(cells: Cells, target: Shape) -> Cells:
    made = SMOOTH(cells, target)
    return _single(made - made.mean((0, 1)) + cells.mean((0, 1)))


def _spread_kept(cells: Cells, target: Shape) -> Cells:
    """Restore mean and deviation of each channel."""
    made = LINEAR(cells, target)
    centred = made - made.mean((0, 1))
    ratio = cells.std((0, 1)) / np.maximum(made.std((0, 1)), 1e-9)
    return _single(centred * np.clip(ratio, 0.5, 2) + cells.mean((0, 1)))


def _least_squares(cells: Cells, target: Shape) -> Cells:
    """Find the smooth table that a linear resize brings back to the source."""
    wide: Wide = cells.astype(np.float64)
    for axis, length in enumerate(target):
        count = cells.shape[axis]
        back = _kernel(lambda x: np.maximum(1 - np.abs(x), 0), antialias=True)(length, count)
        rough = np.diff(np.eye(length), axis=0)
        solved = np.linalg.solve(back.T @ back + 0.02 * rough.T @ rough, back.T)
        wide = np.moveaxis(np.tensordot(solved, wide, (1, axis)), 0, axis)
    return wide.astype(np.float32)


def _axis_by_axis(make: Callable[[Wide, Wide], Callable[[Wide], Wide]]) -> Proper:
    """Interpolate along each axis by a curve through the cells, at half-pixel centres."""

    def resized(cells: Cells, target: Shape) -> Cells:
        wide: Wide = cells.astype(np.float64)
        for axis, length in enumerate(target):
            count = wide.shape[axis]
            if count > 1:
                place = np.clip((np.arange(length) + 0.5) * count / length - 0.5, 0, count - 1)
                curve = make(np.arange(count, dtype=np.float64), np.moveaxis(wide, axis, 0))
                wide = np.moveaxis(curve(place), 0, axis)
            else:
                wide = np.repeat(wide, length, axis)
        return wide.astype(np.float32)

    return resized


def _thin_plate(cells: Cells, target: Shape) -> Cells:
    """A thin plate through all cells."""
    cells = two_lines(cells)
    height, width, channels = cells.shape
    at = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
    places = [
        np.clip((np.arange(t) + 0.5) * s / t - 0.5, 0, s - 1)
        for s, t in zip((height, width), target, strict=True)
    ]
    wanted = np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, 2)
    fitted = interpolate.RBFInterpolator(
        at.reshape(-1, 2) * 1.0, cells.reshape(-1, channels), neighbors=min(25, height * width)
    )
    return _single(fitted(wanted).reshape(*target, channels))


def _stored(kind: torch.dtype) -> Proper:
    """Resize, and store in eight bits of floating point, with one scale for the table."""

    def resized(cells: Cells, target: Shape) -> Cells:
        made = torch.from_numpy(SMOOTH(cells, target))
        scale = made.abs().max() / 200
        rounded: Cells = ((made / scale).to(kind).float() * scale).numpy()
        return rounded

    return resized


def _dithered(cells: Cells, target: Shape) -> Cells:
    made = SMOOTH(cells, target)
    noise = np.random.default_rng(31).normal(0, 0.01 * float(made.std()), made.shape)
    return made + noise.astype(np.float32)


HONEST: Mapping[str, Proper] = {
    "Keys a = −0.5, antialias": _each_axis(_kernel(_keys(-0.5), antialias=True)),
    "Lanczos of 5 lobes, antialias": _each_axis(_kernel(_lanczos5, antialias=True)),
    "quadratic B-spline kernel": _each_axis(_kernel(_quadratic, antialias=True)),
    "bilinear in float16": _half("bilinear", torch.float16),
    "bicubic in bfloat16": _half("bicubic", torch.bfloat16),
    "by way of twice the size and one": _by_way_of(BICUBIC, lambda source: 2 * source + 1),
    "three steps": _three_steps,
    "bicubic with reflected border": _reflected,
    "mean kept": _mean_kept,
    "mean and deviation kept": _spread_kept,
    "least squares": _least_squares,
    "Akima": _axis_by_axis(
        lambda x, y: interpolate.Akima1DInterpolator(x, y) if len(x) > 2 else _line(x, y)
    ),
    "PCHIP": _axis_by_axis(interpolate.PchipInterpolator),
    "thin plate": _thin_plate,
    "stored as e4m3": _stored(torch.float8_e4m3fn),
    "stored as e5m2": _stored(torch.float8_e5m2),
    "dithered by 1 %": _dithered,
    "mean of four conventions": lambda c, t: (
        0.25 * (SMOOTH(c, t) + BICUBIC(c, t) + LINEAR(c, t) + _reflected(c, t))
    ),
}


def _line(x: Wide, y: Wide) -> Callable[[Wide], Wide]:
    result: Callable[[Wide], Wide] = interpolate.interp1d(x, y, axis=0)
    return result


def _rng() -> np.random.Generator:
    return np.random.default_rng(41)


def _mapped(where: Callable[[Wide, Wide], tuple[Wide, Wide]]) -> Damage:
    """Read the source at other places: parts of the image in −1…1, down and across."""

    def damaged(cells: Cells, target: Shape) -> Cells:
        down, across = (2 * (np.arange(t) + 0.5) / t - 1 for t in target)
        v, u = where(*np.meshgrid(down, across, indexing="ij"))
        height, width = cells.shape[:2]
        at = [((v + 1) * height - 1) / 2, ((u + 1) * width - 1) / 2]
        layers = [
            ndimage.map_coordinates(cells[..., c], at, order=1, mode="nearest")
            for c in range(cells.shape[-1])
        ]
        return np.stack(layers, -1).astype(np.float32)

    return damaged


def _turned(degrees: float) -> Damage:
    angle = np.deg2rad(degrees)
    return _mapped(
        lambda v, u: (
            np.cos(angle) * v - np.sin(angle) * u,
            np.sin(angle) * v + np.cos(angle) * u,
        )
    )


def _other_factors(cells: Cells, target: Shape) -> Cells:
    """Read the source's rows as a grid of another shape."""
    count, height = cells.shape[0] * cells.shape[1], cells.shape[0]
    others = [n for n in range(2, count // 2 + 1) if count % n == 0 and n != height]
    if not others:
        return SMOOTH(cells, target)
    nearest = min(others, key=lambda n: abs(n - height))
    return SMOOTH(cells.reshape(nearest, count // nearest, -1), target)


def _channels_as_width(cells: Cells, target: Shape) -> Cells:
    """Interpolate the picture of h × (w·d) numbers."""
    height, _, channels = cells.shape
    made = SMOOTH(cells.reshape(height, -1, 1), (target[0], target[1] * channels))
    return made.reshape(*target, channels)


def _heads_interleaved(cells: Cells) -> Cells:
    heads = next(n for n in (8, 6, 4, 3, 2, 1) if cells.shape[-1] % n == 0)
    order = np.arange(cells.shape[-1]).reshape(heads, -1).T.reshape(-1)
    return cells[..., order]


def _pairs_turned(cells: Cells) -> Cells:
    """Turn pairs of channels by 40°, as rotary positions do."""
    half = cells.shape[-1] // 2
    first, second = cells[..., :half], cells[..., half : 2 * half]
    cos, sin = np.cos(np.deg2rad(40)), np.sin(np.deg2rad(40))
    made = cells.copy()
    made[..., :half], made[..., half : 2 * half] = (
        cos * first - sin * second,
        sin * first + cos * second,
    )
    return made


def _each_normed(cells: Cells) -> Cells:
    """Apply a norm to every cell: mean 0 and the table's deviation."""
    centred = cells - cells.mean(-1, keepdims=True)
    deviation = np.maximum(centred.std(-1, keepdims=True), 1e-9)
    made: Cells = centred / deviation * 4 * cells.std()
    return made


def _whitened(cells: Cells) -> Cells:
    rows = cells.reshape(-1, cells.shape[-1])
    mean = rows.mean(0)
    left, _, right = np.linalg.svd(rows - mean, full_matrices=False)
    scale = float((rows - mean).std() * np.sqrt(len(rows)))
    made: Cells = (left @ right * scale + mean).reshape(cells.shape).astype(np.float32)
    return made


def _other_table(cells: Cells) -> Cells:
    """The same table in other directions: what another training run would have learned."""
    turned = np.linalg.qr(_rng().normal(size=(cells.shape[-1],) * 2))[0]
    return _single(cells @ turned)


def _sines(cells: Cells) -> Cells:
    """Sines and cosines of the table's own deviation."""
    height, width, channels = cells.shape
    quarter = -(-channels // 4)
    frequencies = 10000.0 ** -(np.arange(quarter) / quarter)
    down = np.arange(height)[:, None, None] * frequencies + np.zeros((1, width, 1))
    across = np.arange(width)[None, :, None] * frequencies + np.zeros((height, 1, 1))
    parts = [f(a) for a in (across, down) for f in (np.sin, np.cos)]
    made = np.concatenate(parts, -1)[..., :channels]
    return _single(made / made.std() * cells.std())


def _reinterpreted(cells: Cells) -> Cells:
    """bfloat16 bits that were read as float16."""
    bits = (cells.view(np.uint32) >> 16).astype(np.uint16)
    return np.nan_to_num(bits.view(np.float16).astype(np.float32), posinf=6e4, neginf=-6e4)


def _unsigned(cells: Cells) -> Cells:
    """Cast to eight unsigned bits, so that negative values wrap around."""
    scale = 127 / float(np.abs(cells).max() or 1.0)
    return ((cells * scale).astype(np.int64) % 256).astype(np.float32) / np.float32(scale)


def _coarse(cells: Cells) -> Cells:
    """Round to a step that one outlier dictates."""
    step = 1.2 * float(cells.std())
    return (np.round(cells / step) * step).astype(np.float32)


def _spike(cells: Cells) -> Cells:
    made = cells.copy()
    made[made.shape[0] // 2, made.shape[1] // 2] *= 40
    return made


def _loud_channels(cells: Cells) -> Cells:
    made = cells.copy()
    made[..., :: max(2, cells.shape[-1] // 4)] *= 12
    return made


def _checkerboard(cells: Cells) -> Cells:
    signs = np.where(np.add.outer(*(np.arange(n) for n in cells.shape[:2])) % 2, -1, 1)
    return cells * signs[..., None].astype(np.float32)


def _quadrants(cells: Cells) -> Cells:
    """Exchange top left with top right, and turn the bottom over."""
    middle = cells.shape[0] // 2
    top = np.roll(cells[:middle], cells.shape[1] // 2, 1)
    return np.concatenate([top, cells[middle:, ::-1]], 0)


def _rows_exchanged(cells: Cells) -> Cells:
    order = np.minimum(np.arange(len(cells)) ^ 1, len(cells) - 1)
    return _single(cells[order])


def _summed(cells: Cells) -> Cells:
    made = np.cumsum(cells - cells.mean((0, 1)), 1)
    return _single(made / max(float(made.std()), 1e-9) * cells.std())


def _sharpened(cells: Cells) -> Cells:
    blurred = ndimage.gaussian_filter(cells, [1, 1, 0], mode="nearest")
    return _single(cells + 4 * (cells - blurred))


def _saturated(cells: Cells) -> Cells:
    scale = float(cells.std())
    return _single(np.tanh(2.5 * cells / scale) * scale)


def _half_from_transposed(cells: Cells, target: Shape) -> Cells:
    """Half of the channels follow rows where they should follow columns."""
    made, turned = SMOOTH(cells, target), SMOOTH(np.ascontiguousarray(cells.swapaxes(0, 1)), target)
    half = cells.shape[-1] // 2
    return np.concatenate([made[..., :half], turned[..., half:]], -1)


def _by_way_of_few(cells: Cells, target: Shape) -> Cells:
    return LINEAR(SMOOTH(cells, (2, 2)), target)


def _zeros_outside(cells: Cells, target: Shape) -> Cells:
    """Shrink the table into the middle; around it is nothing."""
    inner = [max(1, round(0.7 * t)) for t in target]
    made = np.zeros((*target, cells.shape[-1]), np.float32)
    top, left = ((t - i) // 2 for t, i in zip(target, inner, strict=True))
    made[top : top + inner[0], left : left + inner[1]] = SMOOTH(cells, (inner[0], inner[1]))
    return made


def _fourier_wrapped(cells: Cells, target: Shape) -> Cells:
    """Resample by Fourier series and shift by half: the far side leaks in at the border."""
    made = signal.resample(signal.resample(cells, target[0], axis=0), target[1], axis=1)
    return _single(np.roll(made, target[0] // 2, 0))


DAMAGE: Mapping[str, Damage] = {
    "turned by 20°": _turned(20),
    "turned by 45°": _turned(45),
    "sheared": _mapped(lambda v, u: (v, u + 0.6 * v)),
    "seen in perspective": _mapped(lambda v, u: (v, u * (1 + 0.6 * v))),
    "bent coordinates": _mapped(lambda v, u: (np.sign(v) * v**2, np.sign(u) * u**2)),
    "magnified by 1.6": _mapped(lambda v, u: (v / 1.6, u / 1.6)),
    "extends beyond the image": _mapped(lambda v, u: (1.7 * v, 1.7 * u)),
    "only half as tall": _mapped(lambda v, u: (0.5 * v - 0.5, u)),
    "read with other factors": _other_factors,
    "channels interpolated with the width": _channels_as_width,
    "heads and channels exchanged": _after(_heads_interleaved),
    "pairs of channels turned": _after(_pairs_turned),
    "every cell normalised": _after(_each_normed),
    "whitened": _after(_whitened),
    "mixed with another table": _after(lambda c: 0.5 * (c + _other_table(c))),
    "sines instead": _after(_sines),
    "sines added": _after(lambda c: c + _sines(c)),
    "30 % of the values dropped": _after(
        lambda c: c * (_rng().random(c.shape) > 0.3).astype(np.float32)
    ),
    "bfloat16 read as float16": _after(_reinterpreted),
    "eight bits without a sign": _after(_unsigned),
    "rounded to a coarse step": _after(_coarse),
    "one cell 40 times as long": _after(_spike),
    "four channels 12 times as large": _after(_loud_channels),
    "every second cell negated": _after(_checkerboard),
    "quadrants mixed up": _after(_quadrants),
    "pairs of rows exchanged": _after(_rows_exchanged),
    "summed along the rows": _after(_summed),
    "sharpened": _after(_sharpened),
    "saturated": _after(_saturated),
    "negative values zero": _after(lambda c: np.maximum(c, 0)),
    "half of the channels transposed": _half_from_transposed,
    "by way of 2×2": _by_way_of_few,
    "shrunk into the middle": _zeros_outside,
    "Fourier series, shifted by half": _fourier_wrapped,
    "moved by a third of a cell's row": _after(
        lambda c: np.roll(c.reshape(-1, c.shape[-1]), c.shape[1] // 3, 0).reshape(c.shape)
    ),
    "rows and columns added": _after(
        lambda c: c.mean(0, keepdims=True) + c.mean(1, keepdims=True) - c.mean((0, 1))
    ),
}
