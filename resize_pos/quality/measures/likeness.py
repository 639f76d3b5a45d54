"""How much a table looks like an honest resize of its source, and how much honest ones differ.

Every proper kernel is applied to the source at a sample of the new cells. The table is compared
with the one that it resembles most. The same comparison of the honest results with each other gives
the envelope: what is normal for *this* table between *these* two grids. A rough table that shrinks
to a few cells has a wide envelope, a smooth one that grows has a narrow one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import Method
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.place import merged
from resize_pos.quality.measures.proper import Kernel
from resize_pos.quality.measures.sampling import (
    Wide,
    median,
    products,
    some_channels,
    spread,
    unit,
)

_LINES = 16  # rows, and columns, of new cells that are compared
FOREIGN = 0.5  # below this cosine, a cell counts as unlike
HIDING = 0.79  # of the variation: a larger difference fails by itself (an `unlikeness` of 0.62)
ALIKE = 1.5  # times the median difference of channels: so much may be the same movement
NEGLIGIBLE = 0.05  # of the mean variation of channels: so small a difference is none
_SHORT = 0.3  # of the usual distance from the mean
_EIGHT_BITS = 256  # different values at most
_ROUNDED = 0.08  # of a value, on average, with two bits of mantissa
ENVELOPE: tuple[Kernel, ...] = (
    *proper.CONVENTIONAL,
    proper.AREA,
    proper.BOX,
    proper.NEAREST_EXACT,
    proper.LANCZOS,
)
# A table may resemble these, and its norms may be theirs. They do not widen the other limits.
EXTREMES: tuple[Kernel, ...] = (proper.SMOOTHEST, proper.SHARPEST)
# Nearest picks single cells, so if a table shrinks a lot, no other kernel gives a similar result. A
# table may resemble it, but it does not widen the envelope.
_WIDENING = tuple(
    kernel is not proper.NEAREST_EXACT
    and (kernel.resampling is None or kernel.resampling.method is not Method.NEAREST)
    for kernel in ENVELOPE
)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The same cells of the table and of every honest result, centred by the source's mean."""

    places: Wide  # (n, 2): row and column as parts of the image
    table: Wide  # (n, channels)
    honest: tuple[Wide, ...]  # one per kernel of `ENVELOPE`
    extremes: tuple[Wide, ...]  # by the kernels that make a rough table smoothest and sharpest
    mean: Wide  # (channels,): the source's


def take_sample(source: Wide, target: Wide) -> Sample:
    """Resample a sample of channels to a sample of cells, as every kernel does it."""
    before = some_channels(merged(source)[None])[0]
    after = some_channels(merged(target)[None])[0]
    (height, width), (new_height, new_width) = before.shape[:2], after.shape[:2]
    rows, columns = spread(new_height, _LINES), spread(new_width, _LINES)
    mean = before.mean(axis=(0, 1))
    varying = np.swapaxes(before - mean, 0, 1)  # (w, h, channels)
    honest = []
    for kernel in (*ENVELOPE, *EXTREMES):
        down = proper.matrix(kernel, height, new_height)[rows]
        across = proper.matrix(kernel, width, new_width)[columns]
        lines = np.swapaxes(proper.along(down, varying), 0, 1)
        honest.append(proper.along(across, lines).reshape(len(rows) * len(columns), -1))
    places = np.stack(np.meshgrid(rows / new_height, columns / new_width, indexing="ij"), axis=-1)
    table = (after[rows][:, columns] - mean).reshape(len(rows) * len(columns), -1)
    count = len(ENVELOPE)
    return Sample(places.reshape(-1, 2), table, tuple(honest[:count]), tuple(honest[count:]), mean)


def likeness(source: Wide, target: Wide) -> dict[str, float]:
    """Compare a table with the honest results, and those with each other."""
    sample = take_sample(source, target)
    cosines = _cosines(sample)
    results = (*sample.honest, *sample.extremes)
    best = int(cosines[-1, :-1].argmax())
    envelope = _Compared.widest(_left_out(sample, cosines))
    own = _compare(sample.table, results[best], sample, float(cosines[-1, best]))
    norms = [_mean_norm(rows, sample.mean) for rows in results]
    scale = _mean_norm(sample.table, sample.mean)
    before = merged(source)
    source_norm = _mean_norm(some_channels(before[None])[0].reshape(-1, len(sample.mean)), 0.0)
    cells = min(source.shape[1] * source.shape[2], target.shape[1] * target.shape[2])
    return {
        "fewest_cells": float(cells),
        "unlikeness": own.unlikeness,
        "unlikeness_honest": envelope.unlikeness,
        "misplaced": own.misplaced,
        "misplaced_honest": envelope.misplaced,
        "foreign_cells": own.foreign_cells,
        "foreign_cells_honest": envelope.foreign_cells,
        "foreign_channels": own.foreign_channels,
        "foreign_channels_honest": envelope.foreign_channels,
        "mean_shift": own.mean_shift,
        "mean_shift_honest": envelope.mean_shift,
        "gain": own.gain,
        "norm_sampled": scale / source_norm if source_norm else 1.0,
        "norm_honest_low": min(norms) / source_norm if source_norm else 1.0,
        "norm_honest_high": max(norms) / source_norm if source_norm else 1.0,
    }


def best_kernel(source: Wide, target: Wide) -> Kernel:
    """Return the kernel whose result a table resembles most."""
    cosines = _cosines(take_sample(source, target))
    return (*ENVELOPE, *EXTREMES)[int(cosines[-1, :-1].argmax())]


@dataclass(frozen=True, slots=True)
class _Compared:
    """One result compared with another."""

    unlikeness: float
    misplaced: float
    foreign_cells: float
    foreign_channels: float
    mean_shift: float
    gain: float

    @classmethod
    def widest(cls, found: list[_Compared]) -> _Compared:
        """Return the largest of each."""
        if not found:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
        return cls(
            max(one.unlikeness for one in found),
            max(one.misplaced for one in found),
            max(one.foreign_cells for one in found),
            max(one.foreign_channels for one in found),
            max(one.mean_shift for one in found),
            1.0,
        )


def _left_out(sample: Sample, cosines: Wide) -> list[_Compared]:
    """Compare each honest result with the nearest of the other ones."""
    found = []
    count = len(sample.honest)
    for index in np.flatnonzero(_WIDENING):
        others = cosines[index, :count].copy()
        others[index] = -1.0
        nearest = int(others.argmax())
        cosine = float(others[nearest])
        if cosine < 1 - 1e-9:
            rows = sample.honest[index], sample.honest[nearest]
            found.append(_compare(*rows, sample, cosine))
    return found


def _cosines(sample: Sample) -> Wide:
    """Cosines of all results with each other, each as one long vector; the table is last."""
    every = (*sample.honest, *sample.extremes, sample.table)
    flat = np.stack([rows.reshape(-1) for rows in every])
    gram = np.einsum("in,jn->ij", flat, flat)
    sizes = np.sqrt(np.maximum(np.diag(gram), 0.0))
    scale = sizes[:, None] * sizes[None]
    result: Wide = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    return result


def _compare(table: Wide, other: Wide, sample: Sample, cosine: float) -> _Compared:
    mine, theirs = unit(table), unit(other)
    each = np.einsum("nd,nd->n", mine, theirs)
    cosines = products(mine.astype(np.float32), theirs.astype(np.float32))
    found = cosines.argmax(axis=1)
    apart = np.sqrt(((sample.places[found] - sample.places) ** 2).sum(axis=1))
    apart *= _explained(1 - each, 1 - cosines[np.arange(len(found)), found])
    # A cell near the mean has no direction: models leave cells so that never show anything.
    own, lengths = (np.sqrt(np.einsum("nd,nd->n", rows, rows)) for rows in (table, other))
    least = _SHORT * median(lengths)
    apart[lengths < least] = 0.0
    short = np.maximum(own, lengths) < least
    energy = float(np.einsum("nd,nd->", other, other))
    shift = np.sqrt(np.sum((table.mean(axis=0) - other.mean(axis=0)) ** 2))
    return _Compared(
        float(np.sqrt(max(0.0, 1 - cosine * cosine))) if cosine > 0 else 1.0,
        float(apart.mean()),
        float(np.mean((each < FOREIGN) & ~short)),
        float(np.mean(_channel_cosines(table, other, sample.mean) < FOREIGN)),
        float(shift / np.sqrt(energy / len(other))) if energy else 0.0,
        float(np.einsum("nd,nd->", table, other) / energy) if energy else 1.0,
    )


def _explained(own: Wide, best: NDArray[np.float32]) -> Wide:
    """Return how much of a cell's distance to its own place another place explains: 0 to 1.

    Noise is about as far from one cell as from another, and where cells are alike it decides which
    is nearest. A cell that was really moved is much nearer to where it came from.
    """
    moved = own > 1e-6
    share = 1 - np.divide(best, own, out=np.ones_like(own), where=moved)
    return np.where(moved, share.clip(0.0, 1.0), 0.0)


def _channel_cosines(table: Wide, other: Wide, mean: Wide) -> Wide:
    """Correlation of each channel over the cells; 1 where a channel hardly varies or differs."""
    first, second = table - table.mean(axis=0), other - other.mean(axis=0)
    energy = (second**2).sum(axis=0)
    scale = np.sqrt((first**2).sum(axis=0) * energy)
    product = np.einsum("nd,nd->d", first, second)
    # A channel that is constant in the honest result is ignored.
    alive = np.sqrt(energy) > 1e-3 * np.sqrt(energy.max())
    result = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
    # A slow sine varies so little that a step of training hides it, and that changes nothing.
    apart = np.sqrt(((first - second) ** 2).sum(axis=0))
    small = apart <= NEGLIGIBLE * float(np.sqrt(energy).mean())
    values = np.sort((table + mean).astype(np.float32), axis=None)
    if np.count_nonzero(values[1:] != values[:-1]) < _EIGHT_BITS:
        # Then each value may be rounded by up to an eighth of it, with its mean.
        small |= apart <= _ROUNDED * np.sqrt(((other + mean) ** 2).sum(axis=0))
    # Training moves all channels alike. It hides the weak ones, and the others are still there.
    if float((apart**2).sum()) <= HIDING**2 * float(energy.sum()):
        small |= apart <= ALIKE * median(apart)
    return np.where(alive & ~small, result, 1.0)


def _mean_norm(rows: Wide, mean: NDArray[np.float64] | float) -> float:
    whole = rows + mean
    return float(np.sqrt(np.einsum("nd,nd->n", whole, whole)).mean())
