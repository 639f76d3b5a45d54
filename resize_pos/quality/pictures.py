"""The small arrays that a page draws: maps, curves and spectra. Computed only on request.

Everything is plain lists of floats, ready for JSON. Maps are row by row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.families.tables import PositionTable, Step, stored_frames, stored_grid
from resize_pos.quality.measures.energy import norm_map
from resize_pos.quality.measures.place import merged
from resize_pos.quality.measures.sampling import Wide, products, some_channels, spread, unit
from resize_pos.quality.measures.spectrum import power

Map = tuple[tuple[float, ...], ...]

_REFERENCES = ((0.5, 0.5), (0.15, 0.15), (0.15, 0.85), (0.85, 0.5))  # down, across; of the image
_BINS = 16
_CELLS = 400  # cells whose pairs make up the curve of similarity against distance


@dataclass(frozen=True, slots=True)
class SimilarityMap:
    """Cosine of one reference cell with every cell of its grid: the figure of the ViT paper."""

    row: int
    column: int
    values: Map


@dataclass(frozen=True, slots=True)
class Curve:
    """y against x."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TablePictures:
    """Everything that can be drawn of one table."""

    grid: Grid
    similarity: tuple[SimilarityMap, ...]
    norms: Map
    prefix_norms: tuple[float, ...]
    distance: Curve  # mean cosine of two cells against their distance, as a part of the image
    spectrum: Curve  # share of variance against half-periods per image
    slices: tuple[SimilarityMap, ...] = ()  # of a volume: the three planes through its centre


@dataclass(frozen=True, slots=True)
class StepPictures:
    """The same table before and after, for drawing side by side."""

    name: str
    before: TablePictures
    after: TablePictures


def picture_table(table: PositionTable, array: NDArray[Any]) -> TablePictures:
    """Compute everything that can be drawn of a stored table."""
    stored = stored_grid(table.role, table.grid)
    frames = stored_frames(table.role, table.frames)
    parts = table.layout.unfold(array, table.prefix, stored, table.suffix, frames)
    grid = parts.grid.astype(np.float64)
    pictures = picture_grid(grid, parts.prefix.astype(np.float64))
    return replace(pictures, slices=middle_slices(grid)) if table.family.volume else pictures


def picture_step(step: Step, before: NDArray[Any], after: NDArray[Any]) -> StepPictures:
    """Compute both sides of a step; the reference cells are at the same places of the image."""
    return StepPictures(
        step.table.name,
        picture_table(step.table, before),
        picture_table(replace(step.table, grid=step.target, frames=step.frames), after),
    )


def picture_grid(grid: Wide, prefix: Wide | None = None) -> TablePictures:
    """Compute everything that can be drawn of a grid (copies, h, w, d)."""
    rows = np.zeros((1, 0, 1)) if prefix is None else prefix
    return TablePictures(
        Grid(grid.shape[1], grid.shape[2]),
        tuple(similarity_map(grid, *place) for place in _REFERENCES),
        _as_map(norm_map(grid).mean(axis=0)),
        tuple(float(n) for n in np.sqrt((rows**2).sum(axis=-1)).mean(axis=0)),
        similarity_by_distance(grid),
        spectrum(grid),
    )


def similarity_map(grid: Wide, down: float, across: float) -> SimilarityMap:
    """Compare the cell at a place (fractions of height and width) with every other; centred."""
    cells = merged(grid)
    height, width = cells.shape[:2]
    row, column = min(int(down * height), height - 1), min(int(across * width), width - 1)
    vectors = unit(cells - cells.mean(axis=(0, 1)))
    cosines = np.einsum("hwd,d->hw", vectors, vectors[row, column])
    return SimilarityMap(row, column, _as_map(cosines))


def middle_slices(volume: Wide) -> tuple[SimilarityMap, ...]:
    """Compare the centre of a (depth, h, w, d) volume with the three planes through it."""
    deep, down, across = (side // 2 for side in volume.shape[:3])
    vectors = unit(volume - volume.mean(axis=(0, 1, 2)))
    cosines = np.einsum("thwd,d->thw", vectors, vectors[deep, down, across])
    return (
        SimilarityMap(down, across, _as_map(cosines[deep])),
        SimilarityMap(deep, across, _as_map(cosines[:, down])),
        SimilarityMap(deep, down, _as_map(cosines[:, :, across])),
    )


def similarity_by_distance(grid: Wide) -> Curve:
    """Average the cosine of pairs of cells in bins of their distance on the unit square."""
    cells = merged(grid)
    height, width = cells.shape[:2]
    vectors = unit(cells - cells.mean(axis=(0, 1))).reshape(height * width, -1)
    chosen = spread(len(vectors), _CELLS)
    sample = vectors[chosen].astype(np.float32)
    cosines = products(sample, sample)
    place = np.stack(np.divmod(chosen, width), axis=1) + 0.5
    place = place / np.array([height, width])
    apart = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=-1))
    pairs = np.triu_indices(len(chosen), 1)
    bins = np.minimum((apart[pairs] / np.sqrt(2) * _BINS).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    total = np.bincount(bins, weights=cosines[pairs].astype(np.float64), minlength=_BINS)
    filled = np.flatnonzero(count)
    centres = (filled + 0.5) / _BINS * np.sqrt(2)
    return Curve(_floats(centres), _floats(total[filled] / count[filled]))


def spectrum(grid: Wide) -> Curve:
    """Share of the variance at each frequency (the larger of both axes'), in half-periods."""
    values = power(some_channels(grid))
    height, width = values.shape
    radius = np.maximum(np.arange(height)[:, None], np.arange(width)[None, :])
    shares = np.bincount(radius.ravel(), weights=values.ravel())[1:]
    scale = float(shares.sum()) or 1.0
    return Curve(_floats(np.arange(1, len(shares) + 1)), _floats(shares / scale))


def _as_map(values: Wide) -> Map:
    return tuple(_floats(row) for row in values)


def _floats(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)
