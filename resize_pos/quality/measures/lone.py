"""Measures of a single table, without a source to compare it with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.quality.measures.place import merged
from resize_pos.quality.measures.sampling import Single, Wide, median, products, ratio, spread

_ROWS = 256  # rows used for the covariance
_CHANNELS = 96  # channels that are searched for a period
_BLOCK = 1 << 17  # numbers converted to float64 at a time
_CHUNKS = 8  # parts of the table whose smoothness is compared
_SHORT = 0.3  # of the usual distance from the mean


def measure_lone(grid: NDArray[Any]) -> dict[str, float]:
    """Measure a grid (copies, h, w, d) as stored; `quality/table_health.py` reads the names."""
    cells = merged(grid)
    height, width = cells.shape[:2]
    rows = cells.reshape(height * width, -1)
    norms, mean = _norms(rows)
    lengths, steps = _steps(rows, mean)
    varying = float(np.sqrt(np.sum(lengths**2)))
    values = {
        "cells": float(len(rows)),
        "mean_norm": float(norms.mean()),
        "varying_share": ratio(varying, float(np.sqrt(np.sum(norms**2)))),
        "zero_rows": float(np.count_nonzero(norms == 0)),
        "repeated_rows": _repeated(rows),
        "norm_variation": ratio(float(norms.std()), float(norms.mean())),
        "row_energy": float(np.mean(norms**2)) / rows.shape[1],
    }
    if not varying or len(rows) < 4:
        return values
    values["participation"], dimensions = participation(rows, mean)
    values["lag1_cosine"] = _within_rows(steps, width)
    values["lag1_z"] = values["lag1_cosine"] * float(np.sqrt(rows.size))
    # Vectors in few dimensions are similar by chance, so the order is measured relative to chance.
    values["order_z"] = values["lag1_cosine"] * float(np.sqrt(len(rows) * dimensions))
    values |= _chunks(steps)
    values |= _row_ends(_told(steps, lengths), width)
    chosen = spread(rows.shape[1], _CHANNELS)
    vectors = rows[:, chosen].astype(np.float64) - mean[chosen]
    values |= _row_period(_divided(vectors, lengths[:, None]), width)
    return values


def _blocks(rows: NDArray[Any], overlap: int) -> Iterator[tuple[slice, Wide]]:
    """Convert some rows at a time: allocating a whole large table costs more than the sums."""
    count = max(1, _BLOCK // max(1, rows.shape[1]))
    for first in range(0, len(rows), count):
        block = slice(first, min(first + count + overlap, len(rows)))
        yield block, rows[block].astype(np.float64)


def _norms(rows: NDArray[Any]) -> tuple[Wide, Wide]:
    """Return the length of every row, and the mean of all."""
    squares, total = np.zeros(len(rows)), np.zeros(rows.shape[1])
    for block, wide in _blocks(rows, 0):
        squares[block] = np.einsum("nd,nd->n", wide, wide)
        total += wide.sum(axis=0)
    return np.sqrt(squares), total / len(rows)


def _steps(rows: NDArray[Any], mean: Wide) -> tuple[Wide, Wide]:
    """Return each row's distance from the mean, and the cosine of its deviation with the next's."""
    squares, dots = np.zeros(len(rows)), np.zeros(len(rows) - 1)
    for block, wide in _blocks(rows, 1):
        wide -= mean
        squares[block] = np.einsum("nd,nd->n", wide, wide)
        dots[block.start : block.stop - 1] = np.einsum("nd,nd->n", wide[:-1], wide[1:])
    lengths = np.sqrt(squares)
    return lengths, _divided(dots, lengths[:-1] * lengths[1:])


def _divided(values: Wide, by: Wide) -> Wide:
    return np.divide(values, by, out=np.zeros_like(values), where=by > 0)


def participation(rows: NDArray[Any], mean: Wide) -> tuple[float, float]:
    """Participation ratio of the covariance spectrum: divided by that of white noise, and raw.

    (Σλ)²/Σλ² = tr(G)²/tr(G²) for the Gram matrix G, and N·D/(N + D) for white noise.
    """
    varying = rows[spread(len(rows), _ROWS)].astype(np.float64) - mean
    sample: Single = varying.astype(np.float32)
    gram = products(sample, sample).astype(np.float64)
    count, channels = sample.shape
    total = float(np.trace(gram))
    spectrum = ratio(total * total, float(np.einsum("ij,ij->", gram, gram)))
    return float(spectrum * (count + channels) / (count * channels)), float(spectrum)


def _repeated(rows: NDArray[Any]) -> float:
    """Share of rows that equal the row before them."""
    if len(rows) == 1:
        return 0.0
    alike = sum(
        np.count_nonzero(np.all(wide[1:] == wide[:-1], axis=1)) for _, wide in _blocks(rows, 1)
    )
    return float(alike / (len(rows) - 1))


def _within_rows(steps: Wide, width: int) -> float:
    if width == 1:
        return float(steps.mean())
    inside = np.arange(len(steps)) % width != width - 1
    return float(steps[inside].mean())


def _chunks(steps: Wide) -> dict[str, float]:
    """Smoothness of each part of the table: a part that was filled in differs from the others."""
    if len(steps) < 4 * _CHUNKS:
        return {}
    means = [median(part) for part in np.array_split(steps, _CHUNKS)]
    rough = [value < 0.1 for value in means]
    start = next((i for i in range(_CHUNKS) if all(rough[i:])), _CHUNKS)
    return {
        "smoothest_part": max(means),
        "roughest_part": min(means),
        "rough_from": start / _CHUNKS,
    }


def _told(steps: Wide, lengths: Wide) -> Wide:
    """Replace the steps to and from cells that are near the mean: these have no direction.

    Cells at the border of a table stay so if the model never saw anything there.
    """
    short = lengths < _SHORT * median(lengths)
    return np.where(short[:-1] | short[1:], median(steps), steps)


def _row_ends(steps: Wide, width: int) -> dict[str, float]:
    """Find the column at which the flattened table jumps; it should be the end of a row.

    Steps are summed per column. The depth of the deepest dip below the median, divided by the
    deviation of the other columns, says how clearly rows end there.
    """
    rows = (len(steps) + 1) // width
    if width < 4 or rows < 3:
        return {}
    whole = steps[: (rows - 1) * width].reshape(rows - 1, width)
    columns = whole.mean(axis=0)
    deepest = int(columns.argmin())
    return {
        "row_end_column": float(deepest),
        "row_end_dip": median(columns) - float(columns[deepest]),
        "row_end_spread": _spread_elsewhere(columns, deepest),
        "row_end_dip_expected": median(columns) - float(columns[-1]),
    }


def _spread_elsewhere(columns: Wide, deepest: int) -> float:
    """Deviation of the columns, without the deepest, its neighbours, and the last."""
    apart = np.abs(np.arange(len(columns) - 1) - deepest) > 2
    others = columns[:-1][apart]
    return float(others.std()) if len(others) > 3 else 1.0


def lag_cosines(vectors: Wide, longest: int) -> Wide:
    """Mean cosine of rows at lag 0 … longest in the flattened table, by a Fourier transform."""
    count = len(vectors)
    spectrum = np.abs(np.fft.rfft(vectors, 2 * count, axis=0)) ** 2
    total = np.fft.irfft(spectrum.sum(axis=1), 2 * count)
    lags = np.arange(longest + 1)
    mean = total[lags] / (count - lags)
    curve: Wide = mean / mean[0] if mean[0] > 0 else np.zeros(longest + 1)
    return curve


def _row_period(vectors: Wide, width: int) -> dict[str, float]:
    """Find the lag at which the flattened table repeats; in a sound table this is the width."""
    longest = min(3 * width + 2, len(vectors) // 2)
    if width < 4 or longest < width + 2:
        return {}
    curve = lag_cosines(vectors, longest)
    rises = _prominences(curve)
    lag = int(rises.argmax())
    return {
        "row_period": float(lag),
        "row_period_rise": float(rises[lag]),
        "row_period_rise_expected": float(rises[max(width - 1, 0) : width + 2].max()),
    }


def _prominences(curve: Wide) -> Wide:
    """How far each peak of a curve rises above the lower of the valleys beside it."""
    rises = np.zeros_like(curve)
    inside: NDArray[np.intp] = np.arange(3, len(curve) - 1)
    for lag in inside:
        if curve[lag] < max(curve[lag - 1], curve[lag + 1]):
            continue
        reach = max(2, int(lag) // 2)
        left = curve[max(lag - reach, 1) : lag].min()
        right = curve[lag + 1 : lag + 1 + reach].min()
        rises[lag] = curve[lag] - max(left, right)
    return rises
