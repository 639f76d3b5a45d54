"""Frequencies: what a finer grid invents, what a coarser one folds, and repeating windows.

The cosine transform (even at both borders) is used, because a table does not wrap around and a
plain Fourier transform would count its two borders as a jump.
"""

from __future__ import annotations

import numpy as np

from resize_pos.core.conventions import Resampling
from resize_pos.quality.measures.loss import grid_of
from resize_pos.quality.measures.sampling import Wide, centred, ratio, resample, some_channels

_SHORTEST = 6  # a window that repeats needs room to do so


def cosine_transform(grid: Wide, axis: int) -> Wide:
    """Give the orthonormal DCT-II along one axis; entry k has k half-periods per image."""
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
    """Give the variance at each pair of vertical and horizontal frequencies, (h, w); no mean."""
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
    """Keep only what a grid of that size cannot hold."""
    spectrum = cosine_transform(cosine_transform(grid, 1), 2)
    spectrum[:, :height, :width] = 0.0
    return inverse_cosine_transform(inverse_cosine_transform(spectrum, 1), 2)


def autocorrelation(grid: Wide, axis: int) -> Wide:
    """Give the mean correlation at lags 0 … n/2 along one axis, 1 at lag 0."""
    values = np.moveaxis(centred(some_channels(grid)), axis, -1)
    length = values.shape[-1]
    spectrum = np.fft.rfft(values, 2 * length, axis=-1)
    energy = np.abs(spectrum) ** 2
    total = np.fft.irfft(energy.sum(axis=tuple(range(energy.ndim - 1))), 2 * length)
    lags = np.arange(length // 2 + 1)
    mean = total[lags] / (length - lags)
    result: Wide = mean / mean[0] if mean[0] > 0 else np.zeros(len(lags))
    return result


def window_period(grid: Wide) -> dict[str, float]:
    """Find the lag at which the table repeats itself most clearly, on either axis."""
    best_period, best_height = 0, 0.0
    for axis in (1, 2):
        if grid.shape[axis] < 2 * _SHORTEST:
            continue
        curve = autocorrelation(grid, axis)
        for lag in range(3, len(curve) - 1):
            reach = max(1, lag // 4)
            around = max(curve[lag - reach], curve[min(lag + reach, len(curve) - 1)])
            height = float(curve[lag] - around)
            peak = curve[lag] >= max(curve[lag - 1], curve[lag + 1])
            if peak and height > best_height:
                best_period, best_height = lag, height
    return {"window_period": float(best_period), "window_prominence": best_height}
