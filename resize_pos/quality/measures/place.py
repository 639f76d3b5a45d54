"""Check that every vector is in its place: retrieval, affine fit, neighbours, structure.

The source's mean is subtracted from all vectors. If a table is stored in several copies (one per
head, for example), the copies of a cell are joined to one vector.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.measures.sampling import Wide, median, products, size, spread, unit

_Number = TypeVar("_Number", bound=np.generic)

_CELLS = 320  # new cells looked up
_SOURCES = 4096  # source cells to search in; of a larger table a sample is used
_LINES = 12  # rows, or columns, in which neighbours are compared
_LATTICE = 8  # places per axis at which structure is compared
LOST = 0.3  # a best cosine below this is no match
_SHORTEST_FIT = 6  # positions; a slope over fewer means little


@dataclass(frozen=True, slots=True)
class Retrieval:
    """For sampled new cells: where they should be found, and where they were, in source cells."""

    expected: Wide  # (n, 2): row, column; half-pixel coordinates
    found: Wide  # (n, 2): the cell of highest cosine
    between: Wide  # (n, 2): the same, refined to parts of a cell
    cosine: Wide  # (n,)


def merged(grid: NDArray[_Number]) -> NDArray[_Number]:
    """Return (h, w, vectors): the copies of a cell side by side."""
    copies, height, width, channels = grid.shape
    if copies == 1:
        return grid.reshape(height, width, channels)
    return np.moveaxis(grid, 0, 2).reshape(height, width, copies * channels)


def retrieve(source: Wide, target: Wide) -> Retrieval:
    """Find, for each sampled new cell, the source cell of highest cosine."""
    before, after = merged(source), merged(target)
    mean = before.mean(axis=(0, 1))
    (height, width), (new_height, new_width) = before.shape[:2], after.shape[:2]
    cells = spread(new_height * new_width, _CELLS)
    among = spread(height * width, _SOURCES)
    rows = before.reshape(height * width, -1)
    known = unit((rows if len(among) == len(rows) else rows[among]) - mean)
    sample = unit(after.reshape(new_height * new_width, -1)[cells] - mean)
    cosines = products(sample.astype(np.float32), known.astype(np.float32))
    best = cosines.argmax(axis=1)
    place = np.stack(np.divmod(cells, new_width), axis=1)
    scale = np.array([height / new_height, width / new_width])
    expected = np.clip((place + 0.5) * scale - 0.5, 0, [height - 1, width - 1])
    found = np.stack(np.divmod(among[best], width), axis=1).astype(np.float64)
    top = cosines[np.arange(len(cells)), best].astype(np.float64)
    between = found
    if len(among) == height * width:
        between = _refined(cosines.reshape(len(cells), height, width), found.astype(np.intp))
    return Retrieval(expected, found, between, top)


def _refined(cosines: NDArray[np.float32], found: NDArray[np.intp]) -> Wide:
    """Refine the best cell: fit a parabola through it and its neighbours, and take the maximum.

    Without this, places are whole cells, and a slope over four positions is too inexact.
    """
    each = np.arange(len(found))
    top = cosines[each, found[:, 0], found[:, 1]].astype(np.float64)
    refined = found.astype(np.float64)
    for axis, length in ((0, cosines.shape[1]), (1, cosines.shape[2])):
        step = np.zeros((1, 2), np.intp)
        step[0, axis] = 1
        inside = (found[:, axis] > 0) & (found[:, axis] < length - 1)
        if not inside.any():
            continue
        here, which = found[inside], each[inside]
        below, above = here - step, here + step
        low = cosines[which, below[:, 0], below[:, 1]]
        high = cosines[which, above[:, 0], above[:, 1]]
        bend = low - 2 * top[inside] + high
        shift = np.divide(0.5 * (low - high), bend, out=np.zeros_like(bend), where=bend < -1e-9)
        refined[inside, axis] += np.clip(shift, -0.5, 0.5)
    return refined


def places(source: Wide, target: Wide) -> dict[str, float]:
    """Measure displacement and the affine map from expected to retrieved places."""
    height, width = source.shape[1:3]
    looked = retrieve(source, target)
    distance = np.linalg.norm(looked.found - looked.expected, axis=1)
    # A coarse grid has no cell exactly at the expected place. This does not count as displacement.
    nearest = np.linalg.norm(np.round(looked.expected) - looked.expected, axis=1)
    excess = np.maximum(distance - nearest, 0.0)
    measures = {
        "displacement": float(excess.mean()) / max(height, width),
        "best_cosine": median(looked.cosine),
        "lost_cells": float(np.mean(looked.cosine < LOST)),
    }
    fit = affine(looked, (height, width))
    for axis, name in ((0, "h"), (1, "w")):
        if not np.isnan(fit[axis, axis]):
            measures[f"affine_scale_{name}"] = float(fit[axis, axis])
            coarser = max(1.0, source.shape[1 + axis] / target.shape[1 + axis])
            measures[f"affine_shift_{name}"] = float(fit[axis, 2]) / coarser
    residual = _residual(looked, fit, (height, width))
    if residual is not None:
        measures["affine_residual"] = residual
    cross = [abs(fit[0, 1]), abs(fit[1, 0])]
    if not np.isnan(cross).any():
        measures["affine_cross"] = float(max(cross))
    return measures


def affine(looked: Retrieval, lengths: tuple[int, int]) -> Wide:
    """Fit found = A · expected + b robustly; rows of [A | b at the centre], NaN for short axes."""
    result = np.full((2, 3), np.nan)
    usable = [axis for axis in (0, 1) if lengths[axis] >= _SHORTEST_FIT]
    usable = [axis for axis in usable if np.ptp(looked.expected[:, axis]) >= 1]
    centre = (np.array(lengths) - 1) / 2
    design = np.column_stack(
        [*((looked.expected - centre)[:, usable]).T, np.ones(len(looked.expected))]
    )
    for axis in usable:
        slopes = _robust_fit(design, looked.between[:, axis] - centre[axis])
        result[axis, usable] = slopes[:-1]
        result[axis, 2] = slopes[-1]
    return result


def _residual(looked: Retrieval, fit: Wide, lengths: tuple[int, int]) -> float | None:
    """Median distance of retrieved places from the fit, in source cells."""
    known = [axis for axis in (0, 1) if not np.isnan(fit[axis, axis])]
    if not known:
        return None
    centre = (np.array(lengths) - 1) / 2
    slopes = np.nan_to_num(fit[:, :2])
    predicted = np.einsum("nj,ij->ni", looked.expected - centre, slopes) + fit[:, 2] + centre
    return median(np.sqrt(((looked.between - predicted)[:, known] ** 2).sum(axis=1)))


def _robust_fit(design: Wide, values: Wide) -> Wide:
    """Least squares with Cauchy weights, so that a few wrong retrievals have little influence."""
    weights = np.ones(len(values))
    solution = np.zeros(design.shape[1])
    for _ in range(10):
        weighted = design * weights[:, None]
        normal = np.einsum("ni,nj->ij", weighted, design)
        solution = np.linalg.lstsq(normal, np.einsum("ni,n->i", weighted, values), rcond=None)[0]
        residual = np.abs(values - np.einsum("ni,i->n", design, solution))
        scale = max(1.4826 * median(residual), 0.25)  # cells: retrieval is in whole ones
        weights = 1 / (1 + (residual / (2.385 * scale)) ** 2)
    return solution


def neighbour_cosines(source: Wide, target: Wide) -> dict[str, float]:
    """Mean cosine of neighbours at one physical distance: the coarser grid's cell.

    A neighbour on a finer grid is nearer in the image, so cosines at lag one cannot be compared.
    """
    before, after = merged(source), merged(target)
    mean = before.mean(axis=(0, 1))
    pairs = []
    for axis in (0, 1):
        coarse = min(before.shape[axis], after.shape[axis])
        if coarse > 1:
            pairs.append(
                [
                    _cosine_at(_lines(x, axis) - mean, x.shape[axis] / coarse)
                    for x in (before, after)
                ]
            )
    if not pairs:
        return {}
    cosines = np.mean(pairs, axis=0)
    return {
        "neighbour_cosine_source": float(cosines[0]),
        "neighbour_cosine": float(cosines[1]),
        "neighbour_deficit": float(cosines[0] - cosines[1]),
    }


def _lines(grid: Wide, axis: int) -> Wide:
    """Take a sample of the lines along an axis, as (lines, positions, channels)."""
    chosen = spread(grid.shape[1 - axis], _LINES)
    return grid[chosen] if axis == 1 else np.moveaxis(grid[:, chosen], 1, 0)


def _cosine_at(lines: Wide, lag: float) -> float:
    """Mean cosine at any lag, interpolated linearly between the two nearest integer lags."""
    vectors = unit(lines)
    below = int(lag)
    share = lag - below
    value = (1 - share) * _cosine_at_whole(vectors, below)
    return value + (share * _cosine_at_whole(vectors, below + 1) if share else 0.0)


def _cosine_at_whole(vectors: Wide, lag: int) -> float:
    first, second = vectors[:, : vectors.shape[1] - lag], vectors[:, lag:]
    return float(np.einsum("lnd,lnd->ln", first, second).mean())


def lattices(source: NDArray[Any], target: NDArray[Any], per_axis: int) -> tuple[Wide, Wide]:
    """Read two tables at the same places of the image, each as (places, vectors).

    Along an axis on which one of them has a single cell, there is one place.
    """
    shortest = [min(source.shape[axis], target.shape[axis]) for axis in (1, 2)]
    rows, columns = (per_axis if length > 1 else 1 for length in shortest)
    return _lattice(source, rows, columns), _lattice(target, rows, columns)


def _lattice(grid: NDArray[Any], row_count: int, column_count: int) -> Wide:
    values = merged(grid)
    height, width = values.shape[:2]
    rows = _at(height, row_count)
    columns = _at(width, column_count)

    def across(column: NDArray[np.intp]) -> Wide:
        top, bottom = (values[row[:, None], column].astype(np.float64) for row in rows[:2])
        return top + (bottom - top) * rows[2][:, None, None]

    left, right = across(columns[0]), across(columns[1])
    read: Wide = left + (right - left) * columns[2][:, None]
    return read.reshape(-1, values.shape[-1])


def _at(length: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Wide]:
    where = np.clip((np.arange(count) + 0.5) / count * length - 0.5, 0, length - 1)
    below = np.minimum(where.astype(np.intp), max(length - 2, 0))
    return below, np.minimum(below + 1, length - 1), where - below


def structure(source: Wide, target: Wide) -> dict[str, float]:
    """Correlate the Gram matrices of both tables, read at the same places."""
    coarsest = min(max(source.shape[1:3]), max(target.shape[1:3]), _LATTICE)
    if coarsest < 2:
        return {}
    mean = merged(source).mean(axis=(0, 1))
    grams = []
    for read in lattices(source, target, coarsest):
        vectors = (read - mean).astype(np.float32)
        grams.append(products(vectors, vectors)[np.triu_indices(len(vectors), 1)])
    first, second = (gram - gram.mean() for gram in grams)
    scale = size(first) * size(second)
    return {"structure": float(np.einsum("i,i->", first, second)) / scale} if scale else {}
