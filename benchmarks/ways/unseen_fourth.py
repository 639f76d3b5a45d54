"""Honest and wrong ways of a fourth round, written without a look at the rules.

Whoever wrote them had read the ways of the earlier rounds, and neither the verdict's code nor its
limits. The honest ways are other kernels, other borders, other fits and other precisions. The wrong
ones are what scripts, quantisers, merges, optimisers, storage and attackers do to a table, between
slight and severe: 60 kinds, three of which come in two strengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import fft, interpolate, ndimage
from torch.nn import functional

from benchmarks.ways.proper import BICUBIC, LINEAR, OTHERS, SMOOTH, Cells, Proper, Shape, two_lines
from benchmarks.ways.unseen import Wide, _each_axis, _kernel
from benchmarks.ways.unseen_later import _keys
from benchmarks.ways.unseen_third import (
    Whole,
    _back,
    _flat,
    _image,
    _on_cells,
    _on_result,
    _single,
    _with_prefix,
)

AREA, LANCZOS = OTHERS["torch area"], OTHERS["PIL lanczos"]


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(9100 + seed)


def _varying(cells: NDArray[np.floating]) -> float:
    """The deviation from the mean cell: a large common vector does not count."""
    return max(float((cells - cells.mean((0, 1))).std()), 1e-12)


def _centres(source: int, target: int) -> Wide:
    """The places of new cells among the old ones, none of them outside."""
    return np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)


def _along(weights: Wide, values: Wide, axis: int) -> Wide:
    made: Wide = np.moveaxis(np.tensordot(weights, values, (1, axis)), 0, axis)
    return made


# ------------------------------------------------------------------ honest


def _odd_border(cells: Cells, target: Shape) -> Cells:
    """Catmull-Rom, where the table goes on beyond its border as steeply as before it."""
    cells = two_lines(cells)
    sides = [(2, 2), (2, 2), (0, 0)]
    wide: Wide = np.pad(cells.astype(np.float64), sides, "reflect", reflect_type="odd")
    for axis, length in enumerate(target):
        count = cells.shape[axis]
        place = (np.arange(length) + 0.5) * count / length + 1.5
        wide = _along(_keys(-0.5)(np.arange(count + 4)[None] - place[:, None]), wide, axis)
    return _single(wide)


def _cubic(b: float, c: float) -> Callable[[Wide], Wide]:
    """The family of cubic kernels that Mitchell and Netravali described."""

    def shape(apart: Wide) -> Wide:
        x = np.abs(apart)
        near = (12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + 6 - 2 * b
        far = (-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x
        far = far + 8 * b + 24 * c
        return np.where(x < 1, near, np.where(x < 2, far, 0.0)) / 6

    return shape


def _spline36(apart: Wide) -> Wide:
    """The kernel of six cells that video tools call Spline36."""
    x = np.abs(apart)
    y, z = x - 1, x - 2
    first = ((13 / 11 * x - 453 / 209) * x - 3 / 209) * x + 1
    second = ((-6 / 11 * y + 270 / 209) * y - 156 / 209) * y
    third = ((1 / 11 * z - 45 / 209) * z + 26 / 209) * z
    return np.where(x < 1, first, np.where(x < 2, second, np.where(x < 3, third, 0.0)))


def _blackman(apart: Wide) -> Wide:
    turn = np.pi * np.clip(apart / 4, -1, 1)
    window = 0.42 + 0.5 * np.cos(turn) + 0.08 * np.cos(2 * turn)
    return np.where(np.abs(apart) < 4, np.sinc(apart) * window, 0.0)


def _magic(apart: Wide) -> Wide:
    """Costella's magic kernel, sharpened."""
    x = np.abs(apart)
    first = 17 / 16 - 7 / 4 * x**2
    second = x**2 - 11 / 4 * x + 7 / 4
    third = -(x**2) / 8 + 5 / 8 * x - 25 / 32
    return np.where(x < 0.5, first, np.where(x < 1.5, second, np.where(x < 2.5, third, 0.0)))


def _two_kernels(down: Proper, across: Proper) -> Proper:
    """Resize the height by one kernel, then the width by another."""
    return lambda c, t: across(down(two_lines(c), (t[0], max(2, c.shape[1]))), t)


def _width_first(cells: Cells, target: Shape) -> Cells:
    """Resize the width, keep that in half precision, then resize the height."""
    cells = two_lines(cells)
    between = SMOOTH(cells, (len(cells), target[1]))
    return SMOOTH(between.astype(np.float16).astype(np.float32), target)


def _double(cells: Cells, target: Shape) -> Cells:
    """Compute in double precision, channels last."""
    image = _image(cells).double().contiguous(memory_format=torch.channels_last)
    made = functional.interpolate(
        image, target, mode="bicubic", align_corners=False, antialias=True
    )
    return _back(made)


def _tapered_series(cells: Cells, target: Shape) -> Cells:
    """A cosine series whose last terms fade out, so that it rings less."""
    wide: Wide = cells.astype(np.float64)
    for axis, length in enumerate(target):
        count = wide.shape[axis]
        kept = min(count, length)
        terms = fft.dct(wide, axis=axis, norm="ortho").take(range(kept), axis)
        fade = 1 - 0.3 * (np.arange(kept) / kept) ** 4
        terms = terms * fade.reshape([-1 if a == axis else 1 for a in range(3)])
        terms = np.pad(terms, [(0, (length - kept) * (a == axis)) for a in range(3)])
        wide = fft.idct(terms, axis=axis, norm="ortho") * np.sqrt(length / count)
    return _single(wide)


def _places(cells: Cells, target: Shape) -> tuple[Wide, Wide]:
    """Both grids' places, as lists of two coordinates."""
    height, width = cells.shape[:2]
    old = np.meshgrid(np.arange(height) * 1.0, np.arange(width) * 1.0, indexing="ij")
    new = np.meshgrid(_centres(height, target[0]), _centres(width, target[1]), indexing="ij")
    return np.stack(old, -1).reshape(-1, 2), np.stack(new, -1).reshape(-1, 2)


def _matern(cells: Cells, target: Shape) -> Cells:
    """Predict by a Matérn process of both coordinates at once, around the mean cell."""
    old, new = _places(cells, target)

    def alike(one: Wide, two: Wide) -> Wide:
        apart = np.sqrt(3) * np.linalg.norm(one[:, None] - two[None], axis=-1) / 2.5
        result: Wide = (1 + apart) * np.exp(-apart)
        return result

    rows = _flat(cells).astype(np.float64)
    mean = rows.mean(0)
    solved = np.linalg.solve(alike(old, old) + 1e-4 * np.eye(len(old)), rows - mean)
    return _single((alike(new, old) @ solved + mean).reshape(*target, -1))


def _multiquadric(cells: Cells, target: Shape) -> Cells:
    cells = two_lines(cells)
    old, new = _places(cells, target)
    near = min(24, len(old))
    fitted = interpolate.RBFInterpolator(
        old, _flat(cells), neighbors=near, kernel="multiquadric", epsilon=0.8
    )
    return _single(fitted(new).reshape(*target, -1))


def _smoothing_spline(source: int, target: int) -> Wide:
    """A natural spline through cells whose second differences were damped a little."""
    if source == 1:
        return np.ones((target, 1))
    bent = np.diff(np.eye(source), n=2, axis=0)
    smooth = np.linalg.inv(np.eye(source) + 0.03 * bent.T @ bent)
    curve = interpolate.CubicSpline(np.arange(source), smooth, bc_type="natural")
    result: Wide = curve(_centres(source, target))
    return result


def _local_parabolas(source: int, target: int) -> Wide:
    """Fit a parabola to the cells around each place, the near ones more than the far ones."""
    place = _centres(source, target)
    reach = 0.9 * max(1.0, source / target)
    degree = min(2, source - 1)
    rows = []
    for at in place:
        apart = np.arange(source) - at
        powers = apart[:, None] ** np.arange(degree + 1)
        near = np.exp(-0.5 * (apart / reach) ** 2)
        rows.append(np.linalg.pinv(powers * near[:, None])[0] * near)
    result: Wide = np.stack(rows)
    return result


def _slerped(one: Cells, two: Cells, share: float) -> Cells:
    """Go from one cell to the other on the sphere, their lengths in proportion."""
    lengths = [np.linalg.norm(c, axis=-1, keepdims=True) for c in (one, two)]
    first, second = (c / np.maximum(n, 1e-12) for c, n in zip((one, two), lengths, strict=True))
    angle = np.arccos(np.clip((first * second).sum(-1, keepdims=True), -1, 1))
    sine = np.maximum(np.sin(angle), 1e-6)
    parts = np.sin((1 - share) * angle) / sine, np.sin(share * angle) / sine
    flat = angle < 1e-4
    weights = np.where(flat, 1 - share, parts[0]), np.where(flat, share, parts[1])
    length = (1 - share) * lengths[0] + share * lengths[1]
    return _single((weights[0] * first + weights[1] * second) * length)


def _mean_norm_kept(cells: Cells, target: Shape) -> Cells:
    """Scale the whole result so that its cells are as long on average as they were."""
    made = SMOOTH(cells, target)
    before, after = (float(np.linalg.norm(c, axis=-1).mean()) for c in (cells, made))
    return _single(made * (before / max(after, 1e-12)))


def _lengths_linear(cells: Cells, target: Shape) -> Cells:
    """Lanczos says where each cell points, a linear resize how long it is."""
    made = LANCZOS(cells, target)
    lengths = LINEAR(_single(np.linalg.norm(cells, axis=-1, keepdims=True)), target)
    return _single(made / np.maximum(np.linalg.norm(made, axis=-1, keepdims=True), 1e-12) * lengths)


def _directions(cells: Cells, target: Shape) -> Cells:
    """Resize directions and the logarithms of the lengths apart."""
    lengths = np.maximum(np.linalg.norm(cells, axis=-1, keepdims=True), 1e-9)
    made = BICUBIC(_single(cells / lengths), target)
    made = made / np.maximum(np.linalg.norm(made, axis=-1, keepdims=True), 1e-9)
    return _single(made * np.exp(BICUBIC(_single(np.log(lengths)), target)))


def _supersampled(cells: Cells, target: Shape) -> Cells:
    """Resize to three times the new size, and average."""
    fine = BICUBIC(cells, (3 * target[0], 3 * target[1]))
    return _single(fine.reshape(target[0], 3, target[1], 3, -1).mean((1, 3)))


def _drifted(cells: Cells, target: Shape) -> Cells:
    """A short training: four directions drift by 2.5 % of the deviation in all."""
    made = SMOOTH(cells, target)
    rng = _rng(1)
    drift = rng.normal(size=(target[0] * target[1], 4)) @ rng.normal(size=(4, made.shape[-1]))
    return _single(made + drift.reshape(made.shape) * (0.025 * _varying(made) / drift.std()))


def _rounded_at_random(cells: Cells, target: Shape) -> Cells:
    """Round to bfloat16 up or down by chance, right on average."""
    bits = SMOOTH(cells, target).view(np.uint32).astype(np.uint64)
    chance = _rng(2).integers(0, 0x10000, bits.shape, dtype=np.uint64)
    return ((bits + chance) & np.uint64(0xFFFF0000)).astype(np.uint32).view(np.float32)


def _half_weights(source: int, target: int) -> Wide:
    """A triangle's weights, kept in half precision."""
    made = _kernel(lambda x: np.maximum(1 - np.abs(x), 0), antialias=True)(source, target)
    return made.astype(np.float16).astype(np.float64)


def _in_parts(cells: Cells, target: Shape) -> Cells:
    """Resize what rows share, what columns share, and the rest, each by its own kernel."""
    mean = cells.mean((0, 1), keepdims=True)
    down = cells.mean(1, keepdims=True) - mean
    across = cells.mean(0, keepdims=True) - mean
    wide = np.repeat(across, len(cells), 0), np.repeat(down, cells.shape[1], 1)
    rest = _single(cells - wide[0] - wide[1] - mean)
    smooth = [BICUBIC(_single(part), target) for part in wide]
    return _single(mean + smooth[0] + smooth[1] + LINEAR(rest, target))


HONEST: Mapping[str, Proper] = {
    "Catmull-Rom, border continued": _odd_border,
    "Robidoux, antialias": _each_axis(_kernel(_cubic(0.3782, 0.3109), antialias=True)),
    "Spline36, antialias": _each_axis(_kernel(_spline36, antialias=True)),
    "Blackman window of 4 lobes": _each_axis(_kernel(_blackman, antialias=True)),
    "magic kernel, sharpened": _each_axis(_kernel(_magic, antialias=True)),
    "bicubic down, bilinear across": _two_kernels(BICUBIC, LINEAR),
    "antialias down alone": _two_kernels(SMOOTH, BICUBIC),
    "width first, float16 between": _width_first,
    "channels last, in double precision": _double,
    "cosine series, tapered": _tapered_series,
    "Matérn process": _matern,
    "multiquadric": _multiquadric,
    "smoothing spline": _each_axis(_smoothing_spline),
    "local parabolas": _each_axis(_local_parabolas),
    "average of Lanczos and area": lambda c, t: 0.5 * (LANCZOS(c, t) + AREA(c, t)),
    "halfway on the sphere between two": lambda c, t: _slerped(SMOOTH(c, t), LINEAR(c, t), 0.5),
    "mean norm kept": _mean_norm_kept,
    "Lanczos, lengths bilinear": _lengths_linear,
    "directions and lengths apart": _directions,
    "three times as fine, averaged": _supersampled,
    "drifted by 2.5 %": _drifted,
    "rounded at random to bfloat16": _rounded_at_random,
    "weights in half precision": _each_axis(_half_weights),
    "rows, columns and rest apart": _in_parts,
}


# ------------------------------------------------------------------ wrong: places


def _mapped(where: Callable[[Wide, Wide], tuple[Wide, Wide]]) -> Whole:
    """Read the source elsewhere: parts of the image in −1…1, down and across."""

    def damaged(cells: Cells, target: Shape) -> Cells:
        down, across = (2 * (np.arange(t) + 0.5) / t - 1 for t in target)
        v, u = where(*np.meshgrid(down, across, indexing="ij"))
        return _read(cells, ((v + 1) * cells.shape[0] - 1) / 2, ((u + 1) * cells.shape[1] - 1) / 2)

    return _on_cells(damaged)


def _read(cells: Cells, down: Wide, across: Wide) -> Cells:
    """Read a grid at places that are counted in its cells."""
    layers = [
        ndimage.map_coordinates(layer, [down, across], order=1, mode="nearest")
        for layer in np.moveaxis(cells, -1, 0)
    ]
    return np.stack(layers, -1).astype(np.float32)


def _barrel(v: Wide, u: Wide) -> tuple[Wide, Wide]:
    bent = 0.75 + 0.25 * (u**2 + v**2)
    return v * bent, u * bent


def _swirl(v: Wide, u: Wide) -> tuple[Wide, Wide]:
    angle = 0.9 * np.exp(-3 * (u**2 + v**2))
    return np.cos(angle) * v - np.sin(angle) * u, np.sin(angle) * v + np.cos(angle) * u


def _displaced(move: Callable[[Shape], tuple[Wide, Wide]]) -> Whole:
    """Read every cell some old cells away from where it should be read."""

    def damaged(cells: Cells, target: Shape) -> Cells:
        places = [_centres(s, t) for s, t in zip(cells.shape, target, strict=False)]
        down, across = np.meshgrid(*places, indexing="ij")
        more_down, more_across = move(target)
        return _read(cells, down + more_down, across + more_across)

    return _on_cells(damaged)


def _everywhere(down: float, across: float) -> Callable[[Shape], tuple[Wide, Wide]]:
    return lambda target: (np.full(target, down), np.full(target, across))


def _waving(target: Shape) -> tuple[Wide, Wide]:
    wave = np.sin(2 * np.pi * 1.5 * np.arange(target[0]) / target[0])
    return np.zeros(target), np.repeat(1.2 * wave[:, None], target[1], 1)


def _jittered(target: Shape) -> tuple[Wide, Wide]:
    moved = _rng(3).uniform(-0.9, 0.9, (2, *target))
    return moved[0], moved[1]


def _odd_rows(target: Shape) -> tuple[Wide, Wide]:
    odd = (np.arange(target[0]) % 2).astype(np.float64)
    return np.zeros(target), np.repeat(odd[:, None], target[1], 1)


def _torn(target: Shape) -> tuple[Wide, Wide]:
    """Below the diagonal, everything slipped by one and a half cells."""
    down, across = ((np.arange(t) + 0.5) / t for t in target)
    below = np.where(down[:, None] > across[None], 1.5, 0.0)
    return below, -below


def _column_doubled(cells: Cells) -> Cells:
    """A column is there twice, and the last one is lost."""
    width = cells.shape[1]
    at = np.arange(width)
    return _single(cells[:, np.where(at > width // 3, at - 1, at)])


def _overlapping_tiles(cells: Cells, target: Shape) -> Cells:
    """Four tiles were resized with their margins, which nobody cut off."""
    made = np.empty((*target, cells.shape[-1]), np.float32)
    halves = []
    for source, new in zip(cells.shape, target, strict=False):
        margin = max(1, source // 6)
        middle = min(source - 1, source // 2 + margin), max(1, source // 2 - margin)
        first = slice(0, max(1, middle[0])), slice(0, new // 2)
        second = slice(min(middle[1], source - 1), source), slice(new // 2, new)
        halves.append((first, second))
    for old_rows, new_rows in halves[0]:
        for old_columns, new_columns in halves[1]:
            size = new_rows.stop - new_rows.start, new_columns.stop - new_columns.start
            part = two_lines(_single(cells[old_rows, old_columns]))
            made[new_rows, new_columns] = LINEAR(part, size)
    return made


# ------------------------------------------------------------------ wrong: regions


def _radius(cells: Cells) -> Wide:
    down, across = (2 * (np.arange(n) + 0.5) / n - 1 for n in cells.shape[:2])
    result: Wide = np.hypot(down[:, None], across[None])
    return result


def _disc_blurred(cells: Cells) -> Cells:
    blurred = ndimage.gaussian_filter(cells, [2, 2, 0], mode="nearest")
    return _single(np.where((_radius(cells) < 0.7)[..., None], blurred, cells))


def _mosaic(cells: Cells) -> Cells:
    """The lower right quarter shows blocks of three cells a side."""
    made = cells.copy()
    height, width = cells.shape[:2]
    for top in range(height // 2, height, 3):
        for left in range(width // 2, width, 3):
            block = made[top : top + 3, left : left + 3]
            block[:] = block.mean((0, 1))
    return made


def _third_faded(cells: Cells) -> Cells:
    made = cells.copy()
    made[:, -max(1, cells.shape[1] // 3) :] = cells.mean((0, 1))
    return made


def _old_places(cells: Cells, target: Shape) -> Cells:
    """The lower half was never resized: each cell has the old one of the same row and column."""
    made = SMOOTH(cells, target).copy()
    rows = np.minimum(np.arange(target[0] // 2, target[0]), len(cells) - 1)
    columns = np.minimum(np.arange(target[1]), cells.shape[1] - 1)
    made[target[0] // 2 :] = cells[rows][:, columns]
    return made


def _vignette(cells: Cells) -> Cells:
    return _single(cells * (1 - 0.35 * np.minimum(_radius(cells), 1.4) ** 2)[..., None])


def _rows_scaled(cells: Cells) -> Cells:
    return _single(cells * _rng(4).uniform(0.5, 1.6, (len(cells), 1, 1)))


def _neighbours_exchanged(cells: Cells) -> Cells:
    """A race between two writers: one pair in four stands the wrong way round."""
    made = cells.copy()
    pairs = cells.shape[1] // 2
    swapped = np.argwhere(_rng(7).random((len(cells), pairs)) < 0.25)
    for row, pair in swapped:
        made[row, [2 * pair, 2 * pair + 1]] = cells[row, [2 * pair + 1, 2 * pair]]
    return made


def _code_book(cells: Cells) -> Cells:
    """Every cell became the nearest of as many as the root of their number, and four."""
    flat = _flat(cells).astype(np.float64)
    count = min(len(flat) // 2, round(len(flat) ** 0.5) + 4)
    book = flat[_rng(8).permutation(len(flat))[: max(2, count)]]
    for _ in range(8):
        apart = (flat**2).sum(1)[:, None] - 2 * flat @ book.T + (book**2).sum(1)[None]
        nearest = apart.argmin(1)
        for index in np.unique(nearest):
            book[index] = flat[nearest == index].mean(0)
    return _single(book[nearest].reshape(cells.shape))


# ------------------------------------------------------------------ wrong: what was added


def _direction(cells: Cells, seed: int, strength: float) -> Wide:
    """A random vector of so many deviations in each channel."""
    vector: Wide = _rng(seed).normal(0.0, 1.0, (cells.shape[-1],))
    return vector * (strength * _varying(cells))


def _slope(cells: Cells) -> Cells:
    ramp = np.linspace(-1, 1, cells.shape[1])[None, :, None]
    return _single(cells + ramp * _direction(cells, 9, 0.8))


def _stripes(cells: Cells) -> Cells:
    sign = np.where(np.arange(cells.shape[1]) % 2, 0.4, -0.4)[None, :, None]
    return _single(cells + sign * _direction(cells, 10, 1.0))


def _heads(cells: Cells) -> NDArray[np.intp]:
    """The head of each channel."""
    count = next(n for n in (8, 6, 4, 3, 2, 1) if cells.shape[-1] % n == 0)
    result: NDArray[np.intp] = np.arange(cells.shape[-1]) * count // cells.shape[-1]
    return result


def _head_constants(cells: Cells) -> Cells:
    constants = _rng(11).normal(size=8) * 0.9 * _varying(cells)
    return _single(cells + constants[_heads(cells)])


def _ghost(cells: Cells) -> Cells:
    """A weaker copy of itself, a quarter of the image further, lies over the table."""
    step = [max(1, n // 4) for n in cells.shape[:2]]
    mean = cells.mean((0, 1))
    return _single(cells + 0.35 * (np.roll(cells, step, (0, 1)) - mean))


def _hum(cells: Cells) -> Cells:
    """A wave that runs through the sequence, with another phase in each channel."""
    at = np.arange(cells.shape[0] * cells.shape[1]).reshape(*cells.shape[:2], 1)
    phase = _rng(12).uniform(0, 2 * np.pi, cells.shape[-1])
    return _single(cells + 0.8 * _varying(cells) * np.sin(2 * np.pi * at / 7.3 + phase))


def _low_rank(cells: Cells) -> Cells:
    """An adapter of rank four that belongs to another table was merged in."""
    rng = _rng(13)
    count, channels = cells.shape[0] * cells.shape[1], cells.shape[-1]
    added = rng.normal(size=(count, 4)) @ rng.normal(size=(4, channels))
    return _single(cells + added.reshape(cells.shape) * (0.5 * _varying(cells) / added.std()))


def _common_noise(cells: Cells) -> Cells:
    """One picture of noise, the same in all channels."""
    return _single(cells + _rng(14).normal(0, 0.5 * _varying(cells), (*cells.shape[:2], 1)))


def _sign_step(cells: Cells) -> Cells:
    """One step along the signs of a gradient, at a rate that was far too large."""
    noise = _rng(15).normal(size=cells.shape)
    gradient = ndimage.gaussian_filter(noise, [1.5, 1.5, 0], mode="nearest")
    return _single(cells - 0.45 * _varying(cells) * np.sign(gradient))


# ------------------------------------------------------------------ wrong: mixtures


def _with_transpose(cells: Cells, target: Shape) -> Cells:
    turned = SMOOTH(_single(cells.swapaxes(0, 1)), target)
    return _single(0.7 * SMOOTH(cells, target) + 0.3 * turned)


def _coarse(cells: Cells) -> Cells:
    """What is left after a blur."""
    return _single(ndimage.gaussian_filter(cells, [1.5, 1.5, 0], mode="nearest"))


def _stranger(cells: Cells) -> Cells:
    """Another model's table: other slow waves in each channel, as strong as here."""
    rng = _rng(16)
    height, width, channels = cells.shape
    down, across = ((np.arange(n) + 0.5) / n for n in (height, width))
    made = np.zeros(cells.shape)
    for _ in range(4):
        turns = rng.uniform(-2.5, 2.5, (2, channels))
        phase = rng.uniform(0, 2 * np.pi, channels)
        angle = down[:, None, None] * turns[0] + across[None, :, None] * turns[1]
        made += np.sin(2 * np.pi * angle / 2 + phase)
    made = made - made.mean((0, 1))
    scale = cells.std((0, 1)) / np.maximum(made.std((0, 1)), 1e-9)
    common = _rng(17).permutation(cells.mean((0, 1)))
    return _single(made * scale + common)


def _beyond(cells: Cells) -> Cells:
    """Away from another model, by the wrong sign of a merge."""
    return _single(1.5 * cells - 0.5 * _stranger(cells))


def _merged_by_signs(cells: Cells) -> Cells:
    """Two models' values are averaged where their signs agree; the larger one stays elsewhere."""
    other = _stranger(cells)
    larger = np.where(np.abs(cells) >= np.abs(other), cells, other)
    return _single(np.where(cells * other > 0, 0.5 * (cells + other), larger))


# ------------------------------------------------------------------ wrong: statistics


def _around_mean(change: Callable[[Wide], Wide]) -> Whole:
    """Change what differs from the mean cell."""

    def changed(cells: Cells) -> Cells:
        mean = cells.mean((0, 1), dtype=np.float64)
        return _single(change(cells - mean) + mean)

    return _on_result(changed)


def _mean_of_another(cells: Cells) -> Cells:
    mean = cells.mean((0, 1))
    return _single(cells - mean + _rng(18).permutation(mean))


def _equalised(cells: Wide) -> Wide:
    """Make all channels vary equally, and the table as much as before."""
    deviation = cells.std((0, 1))
    made: Wide = cells / np.maximum(deviation, 1e-9) * np.sqrt((deviation**2).mean())
    return made


def _rows_centred(cells: Wide) -> Wide:
    """Each row of cells lost its own mean."""
    made: Wide = cells - cells.mean(1, keepdims=True)
    return made


def _lowest_waves(cells: Wide) -> Wide:
    """The slowest wave of each axis is missing."""
    terms = fft.dctn(cells, axes=(0, 1), norm="ortho")
    terms[1, 0], terms[0, 1] = 0, 0
    made: Wide = fft.idctn(terms, axes=(0, 1), norm="ortho")
    return made


def _components(change: Callable[[Wide], Wide]) -> Callable[[Wide], Wide]:
    """Change the weights of the principal components: cells × components."""

    def changed(cells: Wide) -> Wide:
        left, values, right = np.linalg.svd(cells.reshape(-1, cells.shape[-1]), full_matrices=False)
        made: Wide = (change(left * values) @ right).reshape(cells.shape)
        return made

    return changed


def _first_removed(weights: Wide) -> Wide:
    made: Wide = weights * (np.arange(weights.shape[1]) >= 2)
    return made


def _first_turned(weights: Wide) -> Wide:
    """The first two components turned by 50° against the rest."""
    made = weights.copy()
    cos, sin = np.cos(np.deg2rad(50)), np.sin(np.deg2rad(50))
    made[:, 0] = cos * weights[:, 0] - sin * weights[:, 1]
    made[:, 1] = sin * weights[:, 0] + cos * weights[:, 1]
    return made


# ------------------------------------------------------------------ wrong: values


def _soft_threshold(cells: Wide) -> Wide:
    bound = 0.6 * _varying(cells)
    made: Wide = np.sign(cells) * np.maximum(np.abs(cells) - bound, 0)
    return made


def _percentiles(cells: Cells) -> Cells:
    low, high = np.percentile(cells, [12, 88], axis=(0, 1))
    return _single(np.clip(cells, low, high))


def _companded(cells: Wide) -> Wide:
    """Encoded by a logarithm as sound is, and never decoded."""
    top = float(np.abs(cells).max()) or 1.0
    made = np.sign(cells) * np.log1p(60 * np.abs(cells) / top)
    result: Wide = made / max(float(made.std()), 1e-12) * cells.std()
    return result


def _ranks(cells: Wide) -> Wide:
    """The rank of each value in its channel, over the same range of deviations."""
    flat = cells.reshape(-1, cells.shape[-1])
    order = flat.argsort(0).argsort(0) / max(1, len(flat) - 1) - 0.5
    made: Wide = (order * np.sqrt(12) * flat.std(0)).reshape(cells.shape)
    return made


def _pruned(cells: Cells) -> Cells:
    return _single(cells * (np.abs(cells) >= np.median(np.abs(cells))))


def _largest_lost(cells: Wide) -> Wide:
    made: Wide = cells * (np.abs(cells) < np.percentile(np.abs(cells), 92))
    return made


def _overflown(cells: Wide) -> Wide:
    """Beyond one and a half deviations, values came out at the other end."""
    bound = 1.5 * _varying(cells)
    made: Wide = (cells + bound) % (2 * bound) - bound
    return made


def _three_bits(cells: Cells) -> Cells:
    scale = np.maximum(np.abs(cells).max((0, 1)), 1e-12) / 3
    return _single(np.rint(cells / scale) * scale)


def _next_scale(cells: Cells) -> Cells:
    """Eight bits in groups of channels, each read with the scale of the next group."""
    group = np.arange(cells.shape[-1]) // max(2, cells.shape[-1] // 12)
    scale = np.array([max(float(np.abs(cells[..., group == g]).max()), 1e-12) for g in set(group)])
    stored = np.rint(cells / scale[group] * 127)
    return _single(stored * np.roll(scale, 1)[group] / 127)


def _signs_flipped(cells: Cells) -> Cells:
    return _single(np.where(_rng(19).random(cells.shape) < 0.06, -cells, cells))


def _powers_of_two(cells: Cells) -> Cells:
    """All bits of the mantissa are lost."""
    return _single((cells.view(np.uint32) & np.uint32(0xFF800000)).view(np.float32))


def _differences(cells: Cells) -> Cells:
    """Differences along the sequence were rounded and summed, with all errors."""
    flat = _flat(cells).astype(np.float64)
    step = 0.5 * _varying(cells)
    made = np.cumsum(np.rint(np.diff(flat, axis=0, prepend=0.0) / step) * step, 0)
    return _single(made.reshape(cells.shape))


def _as_picture(cells: Cells) -> Cells:
    """Each channel was stored as a JPEG stores a picture, of poor quality."""
    height, width = cells.shape[:2]
    sides = [(0, -height % 8), (0, -width % 8), (0, 0)]
    padded = np.pad(cells.astype(np.float64), sides, "edge")
    tall, wide = padded.shape[0] // 8, padded.shape[1] // 8
    blocks = padded.reshape(tall, 8, wide, 8, -1)
    terms = fft.dctn(blocks, axes=(1, 3), norm="ortho")
    slow = np.add.outer(np.arange(8), np.arange(8)).reshape(1, 8, 1, 8, 1)
    step = _varying(cells) * (0.6 + 0.6 * slow)
    made = fft.idctn(np.rint(terms / step) * step, axes=(1, 3), norm="ortho")
    return _single(made.reshape(padded.shape)[:height, :width])


# ------------------------------------------------------------------ wrong: channels


def _channels_scaled(cells: Cells) -> Cells:
    return _single(cells * np.exp(_rng(20).uniform(-0.8, 0.8, cells.shape[-1])))


def _heads_not_resized(cells: Cells, target: Shape) -> Cells:
    """The channels of some heads are the old sequence, begun again where it ends."""
    made, flat = SMOOTH(cells, target), _flat(cells)
    old = flat[np.arange(target[0] * target[1]) % len(flat)].reshape(made.shape)
    return _single(np.where(_heads(cells) % 4 == 2, old, made))


def _out_of_register(cells: Cells) -> Cells:
    """Each channel moved by up to one cell on its own."""
    moves = _rng(21).integers(-1, 2, (cells.shape[-1], 2))
    layers = []
    for layer, (down, across) in zip(np.moveaxis(cells, -1, 0), moves, strict=True):
        rows = np.clip(np.arange(layer.shape[0]) + down, 0, layer.shape[0] - 1)
        columns = np.clip(np.arange(layer.shape[1]) + across, 0, layer.shape[1] - 1)
        layers.append(layer[rows][:, columns])
    return _single(np.stack(layers, -1))


def _some_mirrored(cells: Cells) -> Cells:
    """One channel in six is mirrored."""
    return _single(np.where(np.arange(cells.shape[-1]) % 6 == 3, cells[:, ::-1], cells))


def _channels_averaged(cells: Cells) -> Cells:
    """Each channel is the average of itself and the next one, as a wrong axis blurs."""
    return _single(0.5 * (cells + np.roll(cells, -1, -1)))


def _heads_scaled(cells: Cells) -> Cells:
    """A factor that belongs to queries was multiplied into every second head."""
    return _single(cells * np.where(_heads(cells) % 2, 0.5, 1.0))


DAMAGE: Mapping[str, Whole] = {
    "moved by 0.8 cells": _displaced(_everywhere(-0.8, -0.8)),
    "moved down by 1.7 cells": _displaced(_everywhere(-1.7, 0.0)),
    "15 % too wide": _mapped(lambda v, u: (v, u / 1.15)),
    "barrel": _mapped(_barrel),
    "swirled in the middle": _mapped(_swirl),
    "waves in the rows": _displaced(_waving),
    "places jittered": _displaced(_jittered),
    "odd rows moved by a cell": _displaced(_odd_rows),
    "torn along the diagonal": _displaced(_torn),
    "one column doubled": _on_result(_column_doubled),
    "tiles with their margins": _on_cells(_overlapping_tiles),
    "a disc blurred": _on_result(_disc_blurred),
    "a quarter as a mosaic": _on_result(_mosaic),
    "right third faded to the mean": _on_result(_third_faded),
    "lower half at the old places": _on_cells(_old_places),
    "vignette": _on_result(_vignette),
    "rows scaled at random": _on_result(_rows_scaled),
    "some neighbours exchanged": _on_result(_neighbours_exchanged),
    "a code book of cells": _on_result(_code_book),
    "a slope added": _on_result(_slope),
    "stripes added": _on_result(_stripes),
    "a constant for each head added": _on_result(_head_constants),
    "a ghost of itself": _on_result(_ghost),
    "a hum in the sequence": _on_result(_hum),
    "a strange adapter merged": _on_result(_low_rank),
    "the same noise in all channels": _on_result(_common_noise),
    "one huge step of signs": _on_result(_sign_step),
    "30 % of its transpose": _on_cells(_with_transpose),
    "detail mirrored": _on_result(lambda c: _coarse(c) + (c - _coarse(c))[:, ::-1]),
    "detail negated": _on_result(lambda c: 2 * _coarse(c) - c),
    "coarse part halved": _on_result(lambda c: c - 0.5 * (_coarse(c) - c.mean((0, 1)))),
    "on the sphere towards another model": _on_result(lambda c: _slerped(c, _stranger(c), 0.4)),
    "15 % of another model": _on_result(lambda c: 0.85 * c + 0.15 * _stranger(c)),
    "beyond another model": _on_result(_beyond),
    "merged by signs": _on_result(_merged_by_signs),
    "mean of another table": _on_result(_mean_of_another),
    "all channels equally strong": _around_mean(_equalised),
    "each row centred": _around_mean(_rows_centred),
    "contrast of 1.5": _around_mean(lambda c: 1.5 * c),
    "contrast of 0.6": _around_mean(lambda c: 0.6 * c),
    "slowest waves missing": _around_mean(_lowest_waves),
    "two strongest components removed": _around_mean(_components(_first_removed)),
    "strongest components turned": _around_mean(_components(_first_turned)),
    "soft threshold": _around_mean(_soft_threshold),
    "clipped at percentiles": _on_result(_percentiles),
    "companded": _around_mean(_companded),
    "ranks instead of values": _around_mean(_ranks),
    "smaller half zero": _on_result(_pruned),
    "largest values lost": _around_mean(_largest_lost),
    "overflown at 1.5 deviations": _around_mean(_overflown),
    "three bits for each channel": _on_result(_three_bits),
    "scales of the next group": _on_result(_next_scale),
    "6 % of the signs flipped": _on_result(_signs_flipped),
    "powers of two": _on_result(_powers_of_two),
    "differences rounded": _on_result(_differences),
    "stored as a poor JPEG": _on_result(_as_picture),
    "channels scaled at random": _on_result(_channels_scaled),
    "some heads not resized": _on_cells(_heads_not_resized),
    "channels out of register": _on_result(_out_of_register),
    "some channels mirrored": _on_result(_some_mirrored),
    "neighbouring channels averaged": _on_result(_channels_averaged),
    "every second head halved": _on_result(_heads_scaled),
    "prefix rows doubled": _with_prefix(lambda p: 2 * p),
}


def mistakes(prefix: int) -> Iterator[tuple[str, Whole]]:
    """Give every mistake by name; those of prefix rows where a table has any."""
    for name, way in DAMAGE.items():
        if prefix or not name.startswith("prefix rows"):
            yield name, way
