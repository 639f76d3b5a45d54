"""Honest and wrong ways of a fifth round, written without a look at the rules.

As in the fourth round, whoever wrote them had read the earlier ways, and neither the verdict's code
nor its limits. The 20 honest ways are further kernels, borders, mixtures and precisions. The 60
wrong ones mostly leave a plausible table: they are local, or touch some heads, waves, components or
bits alone, or are two small mistakes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from scipy import fft, interpolate, ndimage

from benchmarks.ways.proper import (
    BICUBIC,
    LIBRARIES,
    LINEAR,
    SMOOTH,
    Cells,
    Proper,
    Shape,
    asymmetric,
)
from benchmarks.ways.unseen import Wide, _each_axis, _kernel
from benchmarks.ways.unseen_fourth import (
    AREA,
    LANCZOS,
    _around_mean,
    _centres,
    _components,
    _displaced,
    _heads,
    _mapped,
    _read,
    _stranger,
    _two_kernels,
    _varying,
)
from benchmarks.ways.unseen_later import _axis_by_axis, _keys
from benchmarks.ways.unseen_third import (
    Whole,
    _flat,
    _jax,
    _on_cells,
    _on_result,
    _single,
    _with_prefix,
)

CORNERS = LIBRARIES["torch bicubic corners"]


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(15500 + seed)


# ------------------------------------------------------------------ honest


def _spline64(apart: Wide) -> Wide:
    """The kernel of eight cells that video tools call Spline64."""
    x = np.abs(apart)
    parts = (
        ((49 / 41 * x - 6387 / 2911) * x - 3 / 2911) * x + 1,
        ((-24 / 41 * (x - 1) + 4032 / 2911) * (x - 1) - 2328 / 2911) * (x - 1),
        ((6 / 41 * (x - 2) - 1008 / 2911) * (x - 2) + 582 / 2911) * (x - 2),
        ((-1 / 41 * (x - 3) + 168 / 2911) * (x - 3) - 97 / 2911) * (x - 3),
    )
    return np.select([x < 1, x < 2, x < 3, x < 4], parts, 0.0)


def _hann(apart: Wide) -> Wide:
    window = 0.5 + 0.5 * np.cos(np.pi * np.clip(apart / 3, -1, 1))
    made: Wide = np.sinc(apart) * window
    return made


def _lagrange(apart: Wide) -> Wide:
    """The cubic through the four cells around a place, as a kernel."""
    x = np.abs(apart)
    near = (1 - x**2) * (2 - x) / 2
    far = (1 - x) * (2 - x) * (3 - x) / 6
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _mirrored_border(cells: Cells, target: Shape) -> Cells:
    """Catmull-Rom with antialias, the border mirrored: MATLAB's imresize."""
    wide: Wide = cells.astype(np.float64)
    for axis, length in enumerate(target):
        count = wide.shape[axis]
        scale = count / length
        stretch = max(1.0, scale)
        place = (np.arange(length) + 0.5) * scale - 0.5
        reach = int(np.ceil(2 * stretch)) + 1
        at = np.arange(-reach, count + reach)
        weights = _keys(-0.5)((at[None] - place[:, None]) / stretch)
        weights = weights / weights.sum(1, keepdims=True)
        around = at % (2 * count)
        padded = wide.take(np.minimum(around, 2 * count - 1 - around), axis)
        wide = np.moveaxis(np.tensordot(weights, padded, (1, axis)), 0, axis)
    return _single(wide)


def _fixed_point(source: int, target: int) -> Wide:
    """Lanczos of four lobes with weights of eleven bits, as OpenCV keeps them."""
    kernel = _kernel(lambda x: np.sinc(x) * np.sinc(np.clip(x / 4, -1, 1)), antialias=False)
    made: Wide = np.rint(kernel(source, target) * 2048) / 2048
    return made


def _grown_or_shrunk(cells: Cells, target: Shape) -> Cells:
    """Each axis by itself: averages where it shrinks, bicubic where it grows."""
    for axis in (0, 1):
        size = (target[0], cells.shape[1]) if axis == 0 else target
        cells = (AREA if target[axis] < cells.shape[axis] else BICUBIC)(cells, size)
    return cells


def _median(cells: Cells, target: Shape) -> Cells:
    return _single(np.median([way(cells, target) for way in (BICUBIC, LINEAR, LANCZOS)], axis=0))


def _one_factor(cells: Cells, target: Shape) -> Cells:
    """Multiply what differs from the mean cell by one factor, so that it is as strong as before."""
    made = SMOOTH(cells, target)
    mean = made.mean((0, 1))
    return _single((made - mean) * (_varying(cells) / _varying(made)) + mean)


def _lengths_area(cells: Cells, target: Shape) -> Cells:
    """Bicubic says where each cell points, the average of the old cells how long it is."""
    made = BICUBIC(cells, target)
    lengths = AREA(_single(np.linalg.norm(cells, axis=-1, keepdims=True)), target)
    return _single(made / np.maximum(np.linalg.norm(made, axis=-1, keepdims=True), 1e-12) * lengths)


def _both_sides(cells: Cells, target: Shape) -> Cells:
    """The average of ONNX's `asymmetric` from the one corner and from the other."""
    back = asymmetric(_single(cells[::-1, ::-1]), target)[::-1, ::-1]
    return _single(0.5 * (asymmetric(cells, target) + back))


def _by_components(cells: Cells, target: Shape) -> Cells:
    """Resize the weights of the principal components, kept in half precision."""
    rows = _flat(cells).astype(np.float64)
    mean = rows.mean(0)
    left, values, right = np.linalg.svd(rows - mean, full_matrices=False)
    scale = max(float(values[0]), 1e-12)
    weights = _single((left * values / scale).reshape(*cells.shape[:2], -1))
    made = SMOOTH(weights.astype(np.float16).astype(np.float32), target)
    return _single(made.astype(np.float64) * scale @ right + mean)


def _blocks_of_32(cells: Cells, target: Shape) -> Cells:
    """Store in eight bits, with a scale in half precision for each 32 values."""
    made = SMOOTH(cells, target)
    flat = made.reshape(-1).astype(np.float64)
    blocks = np.pad(flat, (0, -len(flat) % 32)).reshape(-1, 32)
    top = np.maximum(np.abs(blocks).max(1, keepdims=True), 1e-5)
    scale = (top / 127).astype(np.float16).astype(np.float64)
    stored = np.clip(np.rint(blocks / np.maximum(scale, 1e-7)), -127, 127) * scale
    return _single(stored.reshape(-1)[: len(flat)].reshape(made.shape))


def _decayed(cells: Cells, target: Shape) -> Cells:
    """A short training: the weights decayed by 1 %, and moved by 2 % of the deviation."""
    made = SMOOTH(cells, target)
    return _single(0.99 * made + _rng(0).normal(0, 0.02 * _varying(made), made.shape))


def _few_updated(cells: Cells, target: Shape) -> Cells:
    """A sparse training: one value in ten moved, by 2.5 % of the deviation over all."""
    made = LINEAR(cells, target)
    chosen = _rng(1).random(made.shape) < 0.1
    noise = _rng(2).normal(0, 0.025 * _varying(made) * np.sqrt(10), made.shape)
    return _single(made + chosen * noise)


def _flat_ends(places: Wide, values: Wide) -> Callable[[Wide], Wide]:
    """A cubic spline that is level at both ends."""
    made: Callable[[Wide], Wide] = interpolate.CubicSpline(places, values, bc_type="clamped")
    return made


def _rational(source: int, target: int) -> Wide:
    """Floater and Hormann's rational interpolation, blends of parabolas."""
    degree = min(2, source - 1)
    at = np.arange(source)
    signs = np.zeros(source)
    for first in range(source - degree):
        for k in range(first, first + degree + 1):
            others = [abs(k - j) for j in range(first, first + degree + 1) if j != k]
            signs[k] += (-1.0) ** k / float(np.prod(others))
    apart = _centres(source, target)[:, None] - at[None]
    exact = np.abs(apart) < 1e-9
    made = signs / np.where(exact, 1.0, apart)
    made = np.where(exact.any(1, keepdims=True), exact * 1.0, made)
    result: Wide = made / made.sum(1, keepdims=True)
    return result


def _two_bands(cells: Cells, target: Shape) -> Cells:
    """Resize a blurred table by bicubic, and what the blur took away by bilinear."""
    slow = _single(ndimage.gaussian_filter(cells, [1, 1, 0], mode="nearest"))
    return _single(BICUBIC(slow, target) + LINEAR(_single(cells - slow), target))


HONEST: Mapping[str, Proper] = {
    "Spline64, antialias": _each_axis(_kernel(_spline64, antialias=True)),
    "Hann window of 3 lobes, antialias": _each_axis(_kernel(_hann, antialias=True)),
    "Lagrange through four cells": _each_axis(_kernel(_lagrange, antialias=False)),
    "Catmull-Rom, antialias, border mirrored": _mirrored_border,
    "Keys a = −0.75, outside left out": _jax(_keys(-0.75), antialias=False),
    "Lanczos of 4 lobes in eleven bits": _each_axis(_fixed_point),
    "area to shrink, bicubic to grow": _grown_or_shrunk,
    "Lanczos down, area across": _two_kernels(LANCZOS, AREA),
    "average of corners and centres": lambda c, t: 0.5 * (CORNERS(c, t) + BICUBIC(c, t)),
    "median of three kernels": _median,
    "deviation kept by one factor": _one_factor,
    "bicubic, lengths by area": _lengths_area,
    "asymmetric from both corners": _both_sides,
    "components resized in float16": _by_components,
    "eight bits in blocks of 32": _blocks_of_32,
    "decayed by 1 %, moved by 2 %": _decayed,
    "one value in ten trained": _few_updated,
    "cubic spline, level at its ends": _axis_by_axis(_flat_ends),
    "rational, blended parabolas": _each_axis(_rational),
    "two bands, two kernels": _two_bands,
}


# ------------------------------------------------------------------ wrong: places


def _corner_pulled(target: Shape) -> tuple[Wide, Wide]:
    """Around the upper left corner, everything is read up to 1.6 cells further inside."""
    down, across = ((np.arange(t) + 0.5) / t for t in target)
    near = 1.6 * np.exp(-((down[:, None] / 0.35) ** 2) - (across[None] / 0.35) ** 2)
    return near, near


def _magnified(v: Wide, u: Wide) -> tuple[Wide, Wide]:
    """A round glass right of the middle magnifies what is below it."""
    far = np.hypot(v + 0.2, u - 0.3)
    kept = np.where(far < 0.6, 0.45 + 0.55 * np.minimum(far / 0.6, 1) ** 2, 1.0)
    return (v + 0.2) * kept - 0.2, (u - 0.3) * kept + 0.3


def _cut_middle(v: Wide, u: Wide) -> tuple[Wide, Wide]:
    return np.sign(v) * (0.14 + 0.86 * np.abs(v)), u


def _shown_twice(v: Wide, u: Wide) -> tuple[Wide, Wide]:
    return v, np.sign(u) * (1.16 * np.abs(u) - 0.16)


def _at_places(cells: Cells, down: Wide, across: Wide) -> Cells:
    """Read at every pair of places down and across."""
    rows, columns = np.meshgrid(down, across, indexing="ij")
    return _read(cells, rows, columns)


def _rounded_scale(cells: Cells, target: Shape) -> Cells:
    """The scale between the grids was printed with one digit, and read again."""
    places = []
    for source, new in zip(cells.shape, target, strict=False):
        scale = max(0.1, round(source / new, 1))
        if abs(scale * new / source - 1) < 0.02:
            scale = max(1, round(source / new))
        places.append((np.arange(new) + 0.5) * scale - 0.5)
    return _at_places(cells, places[0], places[1])


def _two_lines_more(cells: Cells, target: Shape) -> Cells:
    """Two rows and columns too many were made, and the last ones cut off."""
    return SMOOTH(cells, (target[0] + 2, target[1] + 2))[: target[0], : target[1]]


def _places_up(cells: Cells, target: Shape) -> Cells:
    """Each cell is the old one to the lower right of its place."""
    places = [np.ceil(_centres(s, t) + 0.3) for s, t in zip(cells.shape, target, strict=False)]
    return _at_places(cells, places[0], places[1])


def _each_channel(where: Callable[[float, Wide], Wide]) -> Whole:
    """Read the channels at places that depend on them: 0…1 from the first to the last channel."""

    def damaged(cells: Cells, target: Shape) -> Cells:
        parts = []
        for indices in np.array_split(np.arange(cells.shape[-1]), 16):
            if not len(indices):
                continue
            share = float(indices.mean()) / max(1, cells.shape[-1] - 1)
            places = []
            for source, new in zip(cells.shape, target, strict=False):
                inside = where(share, _centres(source, new) - (source - 1) / 2)
                places.append(inside + (source - 1) / 2)
            parts.append(_at_places(_single(cells[..., indices]), places[0], places[1]))
        return np.concatenate(parts, -1)

    return _on_cells(damaged)


# ------------------------------------------------------------------ wrong: regions


def _hole(cells: Cells) -> Cells:
    """A block of 0.45 of each side was lost, and filled smoothly from its edge."""
    made = cells.astype(np.float64)
    spans = []
    for length in cells.shape[:2]:
        size = max(1, round(0.45 * length))
        start = max(0, (length - size) // 2 + 1 * (length > 4))
        spans.append(slice(start, start + size))
    made[spans[0], spans[1]] = cells.mean((0, 1))
    for _ in range(200):
        around = ndimage.uniform_filter(made, [3, 3, 1], mode="nearest")
        made[spans[0], spans[1]] = around[spans[0], spans[1]]
    return _single(made)


def _equal_rows(cells: Cells) -> Cells:
    """A third of the rows is the first of them, again and again."""
    made = cells.copy()
    start, count = len(cells) // 2, max(2, len(cells) // 3)
    made[start : start + count] = cells[start]
    return made


def _block_moved(cells: Cells) -> Cells:
    """The middle of the image, 0.6 of each side, moved by one cell to the lower right."""
    made = cells.copy()
    top, left = (max(1, round(0.2 * n)) for n in cells.shape[:2])
    bottom, right = (max(2, round(0.8 * n)) for n in cells.shape[:2])
    made[top:bottom, left:right] = cells[top - 1 : bottom - 1, left - 1 : right - 1]
    return made


def _from_elsewhere(cells: Cells, share: float, seed: int) -> Cells:
    """Some cells, at least one, were written with the content of others."""
    flat = _flat(cells).copy()
    rng = _rng(seed)
    places = rng.permutation(len(flat))[: max(1, round(share * len(flat)))]
    flat[places] = _flat(cells)[
        (places + rng.integers(1, max(2, len(flat)), len(places))) % len(flat)
    ]
    return flat.reshape(cells.shape)


def _soft_patch(cells: Cells) -> Cells:
    """A copy of the upper left, with soft edges, lies over the lower right."""
    height, width = cells.shape[:2]
    down, across = ((np.arange(n) + 0.5) / n - 0.7 for n in (height, width))
    mask = 0.9 * np.exp(-((down[:, None] / 0.22) ** 2) - (across[None] / 0.22) ** 2)[..., None]
    steps = max(1, round(0.4 * height)), max(1, round(0.4 * width))
    return _single(cells * (1 - mask) + np.roll(cells, steps, (0, 1)) * mask)


def _by_turns(cells: Cells) -> Cells:
    """Cells are a quarter longer and shorter by turns, as strided layers leave them."""
    odd = np.add.outer(np.arange(len(cells)), np.arange(cells.shape[1])) % 2
    return _single(cells * np.where(odd, 1.25, 0.75)[..., None])


def _quarters_centred(cells: Cells) -> Cells:
    """Each quarter of the image was normalised by itself: its mean moved to that of all."""
    made = cells.astype(np.float64)
    mean = cells.mean((0, 1))
    middle = [max(1, n // 2) for n in cells.shape[:2]]
    for rows in (slice(0, middle[0]), slice(middle[0], None)):
        for columns in (slice(0, middle[1]), slice(middle[1], None)):
            part = made[rows, columns]
            part += 0.6 * (mean - part.mean((0, 1)))
    return _single(made)


def _dark_seams(cells: Cells) -> Cells:
    """Tiles were faded at their borders and added, without the division by their weights."""
    fades = []
    for length in cells.shape[:2]:
        apart = np.abs((np.arange(length) + 0.5) / length * 3 % 1 - 0.5) * 2
        fades.append(1 - 0.6 * apart**3)
    return _single(cells * (fades[0][:, None] * fades[1][None])[..., None])


def _strange_border(cells: Cells) -> Cells:
    """The cells at the border are for the most part another model's."""
    inside = np.zeros(cells.shape[:2])
    inside[1:-1, 1:-1] = 1
    share = np.where(inside, 0.0, 0.6)[..., None]
    return _single(cells * (1 - share) + _stranger(cells) * share)


def _mean_fades(cells: Cells) -> Cells:
    """The mean cell is 1.8 times as strong at the left border, and nearly gone at the right one."""
    ramp = np.linspace(0.8, -0.8, cells.shape[1])[None, :, None]
    return _single(cells + ramp * cells.mean((0, 1)))


# ------------------------------------------------------------------ wrong: heads and channels


def _in_head(change: Callable[[Cells], Cells], head: int = 1) -> Whole:
    """Change the channels of one head."""

    def changed(cells: Cells) -> Cells:
        heads = _heads(cells)
        chosen = heads == min(head, int(heads.max()))
        made = cells.copy()
        made[..., chosen] = change(_single(cells[..., chosen]))
        return made

    return _on_result(changed)


def _two_heads(cells: Cells) -> tuple[slice, slice]:
    """The channels of the first two heads, or both halves."""
    size = max(1, cells.shape[-1] // max(2, int(_heads(cells).max()) + 1))
    return slice(0, size), slice(size, 2 * size)


def _heads_exchanged(cells: Cells) -> Cells:
    first, second = _two_heads(cells)
    made = cells.copy()
    made[..., first], made[..., second] = cells[..., second], cells[..., first]
    return made


def _heads_averaged(cells: Cells) -> Cells:
    first, second = _two_heads(cells)
    made = cells.copy()
    made[..., first] = made[..., second] = 0.5 * (cells[..., first] + cells[..., second])
    return made


def _drawn_anew(cells: Cells) -> Cells:
    """As random as a fresh head: the deviation and the mean are right."""
    noise = _rng(3).normal(size=cells.shape)
    return _single(noise * cells.std((0, 1)) + cells.mean((0, 1)))


def _strong_channels_strange(cells: Cells) -> Cells:
    """The tenth of the channels that varies most is another model's."""
    deviation = cells.std((0, 1))
    strong = deviation >= np.sort(deviation)[-max(1, cells.shape[-1] // 10)]
    return _single(np.where(strong, _stranger(cells), cells))


def _alike_exchanged(cells: Cells) -> Cells:
    """Channels that look alike were taken for each other, pair by pair."""
    rows = _flat(cells).astype(np.float64)
    rows = rows - rows.mean(0)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=0), 1e-12)
    alike = rows.T @ rows
    np.fill_diagonal(alike, -2)
    order = np.arange(cells.shape[-1])
    for _ in range(cells.shape[-1] // 4):
        one, two = np.unravel_index(int(alike.argmax()), alike.shape)
        order[one], order[two] = two, one
        for gone in (one, two):
            alike[gone], alike[:, gone] = -2, -2
    return _single(cells[..., order])


def _some_centred(cells: Cells) -> Cells:
    """One channel in five was centred at zero."""
    chosen = np.arange(cells.shape[-1]) % 5 == 1
    return _single(cells - chosen * cells.mean((0, 1)))


def _heads_equal(cells: Cells) -> Cells:
    """In each cell, all heads were made equally long; the cell's length is right."""
    heads = _heads(cells)
    made = cells.astype(np.float64)
    whole = np.linalg.norm(made, axis=-1, keepdims=True)
    for head in range(int(heads.max()) + 1):
        part = made[..., heads == head]
        length = np.maximum(np.linalg.norm(part, axis=-1, keepdims=True), 1e-12)
        made[..., heads == head] = part / length * whole / np.sqrt(heads.max() + 1)
    return _single(made)


def _small_turn(cells: Wide) -> Wide:
    """A small rotation of all channels: what cells have to do with each other stays the same."""
    count = cells.shape[-1]
    noise = _rng(4).normal(size=(count, count)) * (0.35 / np.sqrt(count))
    skew = (noise - noise.T) / 2
    turn = np.linalg.solve(np.eye(count) + skew, np.eye(count) - skew)
    made: Wide = cells @ turn
    return made


def _half_row_lower(cells: Cells) -> Cells:
    """Moved by 0.6 of a cell downwards."""
    lower = cells[np.minimum(np.arange(len(cells)) + 1, len(cells) - 1)]
    return _single(0.4 * cells + 0.6 * lower)


# ------------------------------------------------------------------ wrong: waves


def _waves(change: Callable[[Wide, Wide], Wide]) -> Whole:
    """Change the cosine terms, given how fast each is: 0 for the mean, about 1 for the fastest."""

    def changed(cells: Wide) -> Wide:
        terms = fft.dctn(cells, axes=(0, 1), norm="ortho")
        down, across = (np.arange(n) / n for n in cells.shape[:2])
        speed = np.hypot(down[:, None], across[None])[..., None] / np.sqrt(2)
        made: Wide = fft.idctn(change(terms, speed), axes=(0, 1), norm="ortho")
        return made

    return _around_mean(changed)


def _middle_scrambled(terms: Wide, speed: Wide) -> Wide:
    """The signs of the middle waves are random; their strengths are right."""
    signs = _rng(5).choice([-1.0, 1.0], terms.shape)
    return np.where((speed > 0.15) & (speed < 0.4), terms * signs, terms)


def _second_third(terms: Wide, speed: Wide) -> Wide:
    """The second and the third wave across stand for each other."""
    order = np.arange(terms.shape[1])
    if len(order) > 3:
        order[[2, 3]] = order[[3, 2]]
    elif len(order) > 2:
        order[[1, 2]] = order[[2, 1]]
    return terms[:, order]


def _faint_raised(terms: Wide, speed: Wide) -> Wide:
    """Strong waves are weaker and faint ones stronger; each channel varies as before."""
    made = np.sign(terms) * np.abs(terms) ** 0.7
    energy = [np.sqrt((each**2).sum((0, 1))) for each in (terms, made)]
    result: Wide = made * energy[0] / np.maximum(energy[1], 1e-12)
    return result


def _tenth_negated(terms: Wide, speed: Wide) -> Wide:
    """One term in ten has the wrong sign, the slow ones too."""
    return np.where(_rng(6).random(terms.shape) < 0.1, -terms, terms)


# ------------------------------------------------------------------ wrong: components


def _spread(change: Callable[[Wide], Wide]) -> Whole:
    """Change the pictures of the principal components: h × w × components."""

    def changed(cells: Wide) -> Wide:
        shape = cells.shape[:2]
        return _components(lambda w: change(w.reshape(*shape, -1)).reshape(w.shape))(cells)

    return _around_mean(changed)


def _first_blurred(weights: Wide) -> Wide:
    made = weights.copy()
    made[..., 0] = ndimage.gaussian_filter(weights[..., 0], 2.0, mode="nearest")
    return made


def _first_late(weights: Wide) -> Wide:
    made = weights.copy()
    made[..., 0] = np.roll(weights[..., 0].reshape(-1), 1).reshape(weights.shape[:2])
    return made


def _middle_negated(weights: Wide) -> Wide:
    """The fourth component to the seventh are negated, or the second of a few."""
    at = np.arange(weights.shape[-1])
    chosen = (at >= 3) & (at < 7) if len(at) > 5 else at == 1
    made: Wide = weights * np.where(chosen, -1.0, 1.0)
    return made


def _fine_shuffled(weights: Wide) -> Wide:
    """From the sixth component on, the cells are in another order."""
    flat = weights.reshape(-1, weights.shape[-1]).copy()
    first = min(5, max(1, weights.shape[-1] // 2))
    flat[:, first:] = flat[_rng(7).permutation(len(flat)), first:]
    return flat.reshape(weights.shape)


def _reflected(weights: Wide) -> Wide:
    """The table is reflected in one direction among the first six components."""
    vector = np.zeros(weights.shape[-1])
    count = min(6, len(vector))
    vector[:count] = _rng(8).normal(size=count)
    vector /= np.linalg.norm(vector)
    made: Wide = weights - 2 * (weights @ vector)[..., None] * vector
    return made


def _most_variance(weights: Wide) -> Wide:
    """As many components as have 80 % of the variance."""
    strength = (weights**2).sum((0, 1))
    before = np.cumsum(strength) - strength
    made: Wide = weights * (before < 0.8 * strength.sum())
    return made


# ------------------------------------------------------------------ wrong: noise


def _shuffled_on_top(cells: Cells) -> Cells:
    """Half as strong as the table, its own cells in another order lie on top."""
    flat = _flat(cells)
    other = flat[_rng(9).permutation(len(flat))].reshape(cells.shape)
    return _single(cells + 0.5 * (other - cells.mean((0, 1))))


def _clouds(cells: Cells) -> Cells:
    """Slow noise along the directions in which cells of this table differ."""
    rng = _rng(10)
    flat = _flat(cells) - cells.mean((0, 1))
    directions = flat[rng.permutation(len(flat))[:8]]
    fields = ndimage.gaussian_filter(
        rng.normal(size=(*cells.shape[:2], len(directions))), [1.2, 1.2, 0], mode="reflect"
    )
    added = fields @ directions
    return _single(cells + added * (0.6 * _varying(cells) / max(float(added.std()), 1e-12)))


def _growing_noise(cells: Cells) -> Cells:
    """No noise at the left border, and as much as the table varies at the right one."""
    ramp = ((np.arange(cells.shape[1]) + 0.5) / cells.shape[1])[None, :, None] ** 2
    return _single(cells + ramp * _rng(11).normal(0, _varying(cells), cells.shape))


def _quiet_filled(cells: Cells) -> Cells:
    """The quieter half of the channels got noise as strong as a usual channel."""
    deviation = cells.std((0, 1))
    usual = float(np.median(deviation))
    noise = _rng(12).normal(0, usual, cells.shape)
    return _single(cells + np.where(deviation <= usual, noise, 0.0))


def _times_noise(cells: Cells) -> Cells:
    return _single(cells * _rng(13).normal(1, 0.4, cells.shape))


def _salt_and_pepper(cells: Cells) -> Cells:
    """One value in a hundred is four deviations too large or too small."""
    rng = _rng(14)
    grains = rng.choice([-1.0, 1.0], cells.shape) * (rng.random(cells.shape) < 0.01)
    return _single(cells + 4 * _varying(cells) * grains)


# ------------------------------------------------------------------ wrong: numbers


def _four_bits(cells: Cells) -> Cells:
    """Four bits of floating point, and a power of two for each 32 values of a cell."""
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    flat = cells.reshape(-1).astype(np.float64)
    blocks = np.pad(flat, (0, -len(flat) % 32)).reshape(-1, 32)
    top = np.maximum(np.abs(blocks).max(1, keepdims=True), 1e-20)
    scale = 2.0 ** (np.floor(np.log2(top)) - 2)
    nearest = np.abs(np.abs(blocks / scale)[..., None] - levels).argmin(-1)
    made = np.sign(blocks) * levels[nearest] * scale
    return _single(made.reshape(-1)[: len(flat)].reshape(cells.shape))


def _bit_stuck(cells: Cells) -> Cells:
    """The last bit of every exponent is zero: some values are half of what they were."""
    return (cells.view(np.uint32) & np.uint32(0xFF7FFFFF)).view(np.float32)


def _stray_bits(cells: Cells) -> Cells:
    """In one value of 25, a bit of the exponent's end or of the mantissa's beginning flipped."""
    rng = _rng(15)
    bits = np.uint32(1) << rng.integers(21, 25, cells.shape).astype(np.uint32)
    flips = np.where(rng.random(cells.shape) < 0.04, bits, np.uint32(0))
    return (cells.view(np.uint32) ^ flips.astype(np.uint32)).view(np.float32)


def _skewed(cells: Wide) -> Wide:
    """A little of the square was added to the values, by a wrong activation."""
    scaled = cells / _varying(cells)
    bent = scaled + 0.3 * scaled**2
    made: Wide = (bent - bent.mean((0, 1))) * _varying(cells) * scaled.std() / bent.std()
    return made


# ------------------------------------------------------------------ wrong: mixtures, two at once


def _along_sequence(cells: Cells) -> Cells:
    """A moving average that belongs to training steps ran along the sequence."""
    made = _flat(cells).astype(np.float64)
    for row in range(1, len(made)):
        made[row] = 0.45 * made[row - 1] + 0.55 * made[row]
    return _single(made.reshape(cells.shape))


def _smoothed(cells: Cells, width: float) -> Cells:
    return _single(ndimage.gaussian_filter(cells, [width, width, 0], mode="nearest"))


def _noise_smoothed(cells: Cells) -> Cells:
    """Noise as strong as the table was noticed, and blurred away with the detail."""
    return _smoothed(_single(cells + _rng(16).normal(0, _varying(cells), cells.shape)), 0.8)


def _off_and_weak(cells: Cells, target: Shape) -> Cells:
    """Half a cell too far right, and 15 % too weak."""
    places = [_centres(s, t) for s, t in zip(cells.shape, target, strict=False)]
    return _single(0.85 * _at_places(cells, places[0], places[1] - 0.5))


def _turned_and_wide(v: Wide, u: Wide) -> tuple[Wide, Wide]:
    """Turned by 6°, and 8 % too wide."""
    cos, sin = np.cos(np.deg2rad(6)), np.sin(np.deg2rad(6))
    return cos * v - sin * u, (sin * v + cos * u) / 1.08


def _mirror_and_noise(cells: Cells) -> Cells:
    """A fifth of the table turned upside down, and noise of a fifth of the deviation."""
    noise = _rng(17).normal(0, 0.2 * _varying(cells), cells.shape)
    return _single(0.8 * cells + 0.2 * cells[::-1] + noise)


DAMAGE: Mapping[str, Whole] = {
    "one corner pulled in": _displaced(_corner_pulled),
    "squeezed towards the middle": _mapped(
        lambda v, u: (v + 0.1 * np.sin(np.pi * v), u + 0.1 * np.sin(np.pi * u))
    ),
    "a strip of the middle cut out": _mapped(_cut_middle),
    "the middle shown twice": _mapped(_shown_twice),
    "a magnifying glass": _mapped(_magnified),
    "scale rounded to one digit": _on_cells(_rounded_scale),
    "two lines too many, cut off": _on_cells(_two_lines_more),
    "places rounded up": _on_cells(_places_up),
    "channels fan out": _each_channel(lambda share, at: at + 2 * (share - 0.5)),
    "chromatic aberration": _each_channel(lambda share, at: at * (0.85 + 0.3 * share)),
    "a hole filled from its edge": _on_result(_hole),
    "a third of the rows equal": _on_result(_equal_rows),
    "a block moved by one cell": _on_result(_block_moved),
    "some cells from elsewhere": _on_result(lambda c: _from_elsewhere(c, 0.06, 20)),
    "a soft patch from elsewhere": _on_result(_soft_patch),
    "longer and shorter by turns": _on_result(_by_turns),
    "each quarter half centred": _on_result(_quarters_centred),
    "dark seams between tiles": _on_result(_dark_seams),
    "border of another model": _on_result(_strange_border),
    "mean fades across": _on_result(_mean_fades),
    "two heads exchanged": _on_result(_heads_exchanged),
    "two heads averaged": _on_result(_heads_averaged),
    "one head read by columns": _in_head(lambda c: _single(c.swapaxes(0, 1).reshape(c.shape))),
    "one head drawn anew": _in_head(_drawn_anew),
    "one head three cells behind": _in_head(
        lambda c: np.roll(_flat(c), 3, 0).reshape(c.shape), head=0
    ),
    "one head without signs": _in_head(lambda c: _single(np.abs(c))),
    "one head lower by half a row": _in_head(_half_row_lower),
    "strongest channels of another model": _on_result(_strong_channels_strange),
    "channels that look alike exchanged": _on_result(_alike_exchanged),
    "some channels centred": _on_result(_some_centred),
    "heads of equal length": _on_result(_heads_equal),
    "a small turn of all channels": _around_mean(_small_turn),
    "middle waves scrambled": _waves(_middle_scrambled),
    "two waves exchanged": _waves(_second_third),
    "faint waves raised": _waves(_faint_raised),
    "a tenth of the waves negated": _waves(_tenth_negated),
    "strongest component blurred": _spread(_first_blurred),
    "strongest component one cell late": _spread(_first_late),
    "middle components negated": _spread(_middle_negated),
    "fine components shuffled": _spread(_fine_shuffled),
    "one direction reflected": _spread(_reflected),
    "components of 80 % of the variance": _spread(_most_variance),
    "its own cells shuffled on top": _on_result(_shuffled_on_top),
    "clouds of its own colours": _on_result(_clouds),
    "noise that grows to the right": _on_result(_growing_noise),
    "quiet channels filled with noise": _on_result(_quiet_filled),
    "values times noise": _on_result(_times_noise),
    "salt and pepper": _on_result(_salt_and_pepper),
    "four bits of floating point": _on_result(_four_bits),
    "a bit of the exponent stuck": _on_result(_bit_stuck),
    "stray bits flipped": _on_result(_stray_bits),
    "values skewed": _around_mean(_skewed),
    "averaged along the sequence": _on_result(_along_sequence),
    "difference of two kernels tenfold": _on_cells(
        lambda c, t: SMOOTH(c, t) + 10 * (BICUBIC(c, t) - LINEAR(c, t))
    ),
    "noise, then smoothed": _on_result(_noise_smoothed),
    "half a cell off and weaker": _on_cells(_off_and_weak),
    "turned and stretched a little": _mapped(_turned_and_wide),
    "mixed with its reflection and noise": _on_result(_mirror_and_noise),
    "cells from elsewhere, smoothed": _on_result(
        lambda c: _smoothed(_from_elsewhere(c, 0.2, 21), 0.6)
    ),
    "prefix rows drawn towards their mean": _with_prefix(
        lambda p: _single(0.4 * p + 0.6 * p.mean(1, keepdims=True))
    ),
}


def mistakes(prefix: int) -> Iterator[tuple[str, Whole]]:
    """Give every mistake by name; those of prefix rows where a table has any."""
    for name, way in DAMAGE.items():
        if prefix or not name.startswith("prefix rows"):
            yield name, way
