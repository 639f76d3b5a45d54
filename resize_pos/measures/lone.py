"""What one table says about itself, with nothing to compare it to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resize_pos.measures.place import merged
from resize_pos.measures.sampling import Single, Wide, products, ratio, size, spread, unit

_ROWS = 256  # rows whose covariance is looked at
_CHUNKS = 8  # parts of the table whose smoothness is compared


def measure_lone(grid: Wide) -> dict[str, float]:
    """Measure a grid (copies, h, w, d); the names are those that `health.py` reads."""
    cells = merged(grid)
    height, width = cells.shape[:2]
    rows = cells.reshape(height * width, -1)
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    mean = rows.mean(axis=0)
    varying = rows - mean
    values = {
        "mean_norm": float(norms.mean()),
        "varying_share": ratio(size(varying), size(rows)),
        "zero_rows": float(np.count_nonzero(norms == 0)),
        "repeated_rows": _repeated(rows),
        "norm_variation": ratio(float(norms.std()), float(norms.mean())),
        "row_energy": float(np.mean(norms**2)) / rows.shape[1],
    }
    if not size(varying) or len(rows) < 4:
        return values
    vectors = unit(varying)
    steps = np.einsum("nd,nd->n", vectors[:-1], vectors[1:])
    values["participation"], dimensions = participation(varying)
    values["lag1_cosine"] = _within_rows(steps, width)
    values["lag1_z"] = values["lag1_cosine"] * float(np.sqrt(rows.size))
    # Vectors in few dimensions are similar by chance: against those odds, is there any order?
    values["order_z"] = values["lag1_cosine"] * float(np.sqrt(len(rows) * dimensions))
    values |= _chunks(steps)
    values |= _row_ends(steps, width)
    values |= _row_period(vectors, width)
    return values


def participation(varying: Wide) -> tuple[float, float]:
    """Participation ratio of the covariance spectrum over that of white noise, and as it is.

    (Σλ)²/Σλ² = tr(G)²/tr(G²) for the Gram matrix G, and N·D/(N + D) for white noise.
    """
    sample: Single = varying[spread(len(varying), _ROWS)].astype(np.float32)
    gram = products(sample, sample).astype(np.float64)
    count, channels = sample.shape
    total = float(np.trace(gram))
    spectrum = ratio(total * total, float(np.einsum("ij,ij->", gram, gram)))
    return float(spectrum * (count + channels) / (count * channels)), float(spectrum)


def _repeated(rows: Wide) -> float:
    """Share of rows that equal the row before them bit for bit."""
    return float(np.mean(np.all(rows[1:] == rows[:-1], axis=1))) if len(rows) > 1 else 0.0


def _within_rows(steps: Wide, width: int) -> float:
    if width == 1:
        return float(steps.mean())
    inside = np.arange(len(steps)) % width != width - 1
    return float(steps[inside].mean())


def _chunks(steps: Wide) -> dict[str, float]:
    """Smoothness of the table's parts from first to last: a patched-up end shows."""
    if len(steps) < 4 * _CHUNKS:
        return {}
    means = [float(np.median(part)) for part in np.array_split(steps, _CHUNKS)]
    rough = [value < 0.1 for value in means]
    start = next((i for i in range(_CHUNKS) if all(rough[i:])), _CHUNKS)
    return {
        "smoothest_part": max(means),
        "roughest_part": min(means),
        "rough_from": start / _CHUNKS,
    }


def _row_ends(steps: Wide, width: int) -> dict[str, float]:
    """Where along a row the flattened table jumps; it should be where the row ends.

    Steps are added up per column; the deepest dip against the median, over the spread of the
    others, is how clearly rows end there.
    """
    rows = (len(steps) + 1) // width
    if width < 4 or rows < 3:
        return {}
    whole = steps[: (rows - 1) * width].reshape(rows - 1, width)
    columns = whole.mean(axis=0)
    deepest = int(columns.argmin())
    return {
        "row_end_column": float(deepest),
        "row_end_dip": float(np.median(columns) - columns[deepest]),
        "row_end_dip_expected": float(np.median(columns) - columns[-1]),
    }


def lag_cosines(vectors: Wide, longest: int) -> Wide:
    """Mean cosine of rows at lag 0 … longest in the flattened table, by a Fourier transform."""
    count = len(vectors)
    chosen = vectors[:, spread(vectors.shape[1], 96)]
    spectrum = np.abs(np.fft.rfft(chosen, 2 * count, axis=0)) ** 2
    total = np.fft.irfft(spectrum.sum(axis=1), 2 * count)
    lags = np.arange(longest + 1)
    mean = total[lags] / (count - lags)
    curve: Wide = mean / mean[0] if mean[0] > 0 else np.zeros(longest + 1)
    return curve


def _row_period(vectors: Wide, width: int) -> dict[str, float]:
    """The lag at which the flattened table resembles itself again: the width, if all is well."""
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
