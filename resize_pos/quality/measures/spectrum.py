"""Frequencies: imaging on a finer grid, aliasing on a coarser one, and repeating windows.

The cosine transform (even at both borders) is used, because a table does not wrap around and a
plain Fourier transform would count its two borders as a jump.
"""

from __future__ import annotations

import numpy as np

from resize_pos.core.conventions import Resampling
from resize_pos.quality.measures.loss import grid_of
from resize_pos.quality.measures.sampling import Wide, centred, ratio, resample, some_channels

_SMALLEST_WINDOW = 3  # cells; no published model has smaller attention windows
_FEWEST_WINDOWS = 6
_JUMP = 1.5  # step across windows' borders ÷ step inside; about 1 or below without windows,
_ROUGH_JUMP = 0.9  # but also 1 for windows whose cells are all unrelated
_ROUGH = 0.5  # squared step ÷ twice the variance from which cells are unrelated
_SURE = 0.75  # prominence from which no jump is needed (SAM 2's sum has 0.86 to 0.98),
_DETAIL = 0.3  # if that much of what repeats is finer than one wave per window (SAM 2: 0.77)


def cosine_transform(grid: Wide, axis: int) -> Wide:
    """Return the orthonormal DCT-II along one axis; entry k has k half-periods per image."""
    length = grid.shape[axis]
    moved = np.moveaxis(grid, axis, -1)
    mirrored = np.concatenate([moved, moved[..., ::-1]], axis=-1)
    twiddle = np.exp(-0.5j * np.pi * np.arange(length) / length)
    coefficients = (np.fft.rfft(mirrored, axis=-1)[..., :length] * twiddle).real
    coefficients *= np.where(np.arange(length) == 0, np.sqrt(0.25 / length), np.sqrt(0.5 / length))
    return np.moveaxis(coefficients, -1, axis)


def inverse_cosine_transform(coefficients: Wide, axis: int) -> Wide:
    """Undo `cosine_transform`."""
    length = coefficients.shape[axis]
    moved = np.moveaxis(coefficients, axis, -1)
    scale = np.where(np.arange(length) == 0, np.sqrt(0.25 / length), np.sqrt(0.5 / length))
    twiddle = np.exp(0.5j * np.pi * np.arange(length) / length)
    spectrum = np.zeros((*moved.shape[:-1], length + 1), complex)
    spectrum[..., :length] = moved / scale * twiddle
    return np.moveaxis(np.fft.irfft(spectrum, 2 * length, axis=-1)[..., :length], -1, axis)


def power(grid: Wide) -> Wide:
    """Return the variance at each pair of vertical and horizontal frequencies, (h, w); no mean."""
    spectrum = cosine_transform(cosine_transform(centred(grid), 1), 2)
    total: Wide = np.einsum("chwd,chwd->hw", spectrum, spectrum)
    total[0, 0] = 0.0
    return total


def frequencies(source: Wide, target: Wide, resampling: Resampling | None) -> dict[str, float]:
    """Measure imaging and, where the operator is known, aliasing."""
    before, after = some_channels(source), some_channels(target)
    height, width = before.shape[1:3]
    new_height, new_width = after.shape[1:3]
    power_after, power_before = power(after), power(before)
    measures = {
        "imaging": _outside(power_after, height, width),
        "beyond_target": _outside(power_before, new_height, new_width),
    }
    if resampling is not None:
        fine = _above(before, new_height, new_width)
        folded = resample(fine, grid_of(after), resampling)
        energy = float(power(folded).sum())
        measures["aliasing"] = ratio(energy, float(power_after.sum()))
    return measures


def _outside(values: Wide, height: int, width: int) -> float:
    total = float(values.sum())
    return ratio(total - float(values[:height, :width].sum()), total)


def _above(grid: Wide, height: int, width: int) -> Wide:
    """Keep only the frequencies that a grid of that size cannot represent."""
    spectrum = cosine_transform(cosine_transform(grid, 1), 2)
    spectrum[:, :height, :width] = 0.0
    return inverse_cosine_transform(inverse_cosine_transform(spectrum, 1), 2)


def window_period(grid: Wide) -> dict[str, float]:
    """Find the side of the windows that repeat in a table, as windowed attention makes them.

    A window must divide the grid on both axes and fit at least six times. First the slow variation
    is subtracted: the mean over a window's area around each cell. The mean of the rest over all
    windows is the part that repeats. The prominence is its share of the energy, above the 1/n that
    n unrelated windows would have. Smooth tables may also repeat (DINOv2's do), but they are smooth
    at the border between two periods, and windows are not; and what repeats in them is one wave. So
    the prominence is 0 without a jump at the borders on both axes, unless nearly everything repeats
    and has detail.
    """
    values = centred(some_channels(grid))
    height, width = values.shape[1:3]
    best, clearest = 0, 0.0
    rough = min(_roughness(values, axis) for axis in (1, 2)) > _ROUGH
    for side in range(_SMALLEST_WINDOW, min(height, width) // 2 + 1):
        if height % side or width % side or height * width < _FEWEST_WINDOWS * side * side:
            continue
        share, window = _repeating(values, side)
        jump = min(_jump(values, axis, side) for axis in (1, 2))
        if jump < (_ROUGH_JUMP if rough else _JUMP) and not (
            share > _SURE and _detail(window) > _DETAIL
        ):
            continue
        if share > clearest:
            best, clearest = side, share
    return {"window_period": float(best), "window_prominence": clearest}


def _repeating(values: Wide, side: int) -> tuple[float, Wide]:
    """Return the share of the fine structure that is the same in every window, above chance.

    Also that window: (copies, side, side, channels).
    """
    copies, height, width, channels = values.shape
    smooth = values
    for axis in (1, 2):
        smooth = _moving_mean(smooth, axis, side)
    fine = values - smooth
    rows, columns = height // side, width // side
    cut = fine.reshape(copies, rows, side, columns, side, channels)
    energy = float(np.sum(cut**2))
    common = cut.mean(axis=(1, 3))
    repeated = float(np.sum(common**2)) * rows * columns
    chance = 1 / (rows * columns)
    share = (ratio(repeated, energy) - chance) / (1 - chance)
    return float(max(0.0, share)), common


def _detail(window: Wide) -> float:
    """Return the share of a window's variance in waves that are shorter than its side."""
    spectrum = (np.abs(np.fft.fft2(window, axes=(1, 2))) ** 2).sum(axis=(0, 3))
    spectrum[0, 0] = 0.0
    side = len(spectrum)
    waves = np.minimum(np.arange(side), side - np.arange(side))
    fine = np.maximum(waves[:, None], waves) > 1
    return ratio(float(spectrum[fine].sum()), float(spectrum.sum()))


def _jump(values: Wide, axis: int, side: int) -> float:
    """Mean squared step across the windows' borders ÷ that inside of them, along one axis."""
    moved = np.moveaxis(values, axis, 0)
    steps = ((moved[1:] - moved[:-1]) ** 2).reshape(len(moved) - 1, -1).mean(axis=1)
    across = np.arange(1, len(moved)) % side == 0
    inside = float(steps[~across].mean())
    return ratio(float(steps[across].mean()), inside)


def _roughness(values: Wide, axis: int) -> float:
    """Mean squared step ÷ twice the variance: 1 where neighbours are unrelated, 0 if they agree."""
    moved = np.moveaxis(values, axis, 0)
    if len(moved) < 2:
        return 0.0
    return ratio(float(np.mean((moved[1:] - moved[:-1]) ** 2)), 2 * float(np.mean(values**2)))


def _moving_mean(values: Wide, axis: int, side: int) -> Wide:
    """Mean over `side` positions around each one; at the borders over fewer positions."""
    length = values.shape[axis]
    total = np.cumsum(np.concatenate([np.zeros_like(values.take([0], axis)), values], axis), axis)
    position = np.arange(length)
    first = np.maximum(position - side // 2, 0)
    last = np.minimum(position - side // 2 + side, length)
    shape = [1] * values.ndim
    shape[axis] = length
    mean: Wide = (total.take(last, axis) - total.take(first, axis)) / (last - first).reshape(shape)
    return mean
