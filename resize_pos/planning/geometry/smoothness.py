"""Geometry from the weights: which reading of a table's rows makes its values vary smoothly.

A learned table changes little from one cell to the next, and jumps at the end of a row of cells. So
for the right width, neighbouring table rows differ most at the row ends, and table rows one width
apart are similar. Thresholds: docs/artifacts.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.planning.geometry.grid_solver import Opinion, Reading, RowCount

SCORE_CONFIDENT = 4.5
STEP_CONFIDENT = 0.2  # cosine inside a row of cells minus cosine across its end
RATIO_CONFIDENT = 1.15  # to the best score of another width
_VERTICAL_SHARE = 0.05
_UNTRAINED = 0.5  # share of white noise's participation ratio; trained tables have .01–.22
_LINE_LOWEST = 0.4  # cosine; at the end of a row of cells, grids have 0 or less
_LINE_USUAL = 0.6
_RARE_ENDS = 0.02  # share of neighbours; a grid has more ends of rows of cells
_LEAST_ALIKE = 0.15  # mean cosine of neighbours that is no chance
_ALIKE_AT_ENDS = 0.65  # of that inside rows of cells; grids have 0.6 at most, lines about 1
_LOOSE = 0.25  # of the usual cosine of neighbours in a row of cells; tokens have none
_FEWEST_ALIKE = 0.2  # that cosine, below which tokens cannot be told from cells
_FEWEST_TALL = 4  # rows of cells that are alike one after the other, if their mean is subtracted
_FEWEST_CELLS = 36  # of fewer, some are alike by chance
_SHOWN = 3

_Rows = NDArray[np.float64]
_Cosines = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """How smooth a table is under one reading."""

    reading: Reading
    score: float
    step: float
    apart: int = 0  # table rows from a cell to the one below it, or beside it if stored by columns
    below: float = 0.0  # mean cosine of table rows so far apart
    peak: bool = False  # whether it is higher than that of one table row less, and of one more


def judge_readings(array: NDArray[Any], layout: Layout, readings: Sequence[Reading]) -> Opinion:
    """Choose the reading that the values support, if they support one clearly."""
    rows = rows_of(array, layout)
    if not np.all(np.isfinite(rows)):
        return Opinion(None, "Its values are not finite, so they cannot tell")
    untrained = looks_untrained(rows)
    if untrained:
        return Opinion(None, f"Its values do not tell: {untrained}")
    if any(reading.frames > 1 for reading in readings):
        return _judge_volumes(rows, readings)
    scores = _rank_stored(rows, readings, layout)
    if not scores:
        return Opinion(None, "Its values cannot tell grids this narrow apart")
    words = _words(scores)
    best = scores[0]
    if is_confident(scores):
        return Opinion(best.reading, f"the values vary smoothly over {best.reading.grid}: {words}")
    doubter = next((score for score in scores if _doubts(score, best)), None)
    if doubter is not None:
        apart = f"{doubter.apart} rows apart than {best.apart} rows apart"
        words += f", but the values are more alike {apart}"
    return Opinion(None, f"Its values do not settle it: {words}")


def _judge_volumes(rows: _Rows, readings: Sequence[Reading]) -> Opinion:
    """Determine three sides one after the other: first the width, then the height.

    A volume is a table of frames × height rows, each as long as the width. Once the width is known,
    whole rows are the cells of a table of frames × height. Each side is chosen among all that
    divide the table: otherwise the best of several wrong ones could win.
    """
    ends = dict.fromkeys((reading.prefix, reading.suffix) for reading in readings)
    planes = [
        Reading(prefix, grid, suffix)
        for prefix, suffix in ends
        for grid in _grids(len(rows) - prefix.count - suffix.count)
    ]
    first = _clearest(rows, planes)
    if first is None:
        return Opinion(None, "Its values do not tell how wide a row of cells is")
    width, start = first.grid.width, first.prefix.count
    lines = rows[start : start + first.grid.cells].reshape(first.grid.height, -1)
    nothing = RowCount(0, "")
    second = _clearest(lines, [Reading(nothing, grid, nothing) for grid in _grids(len(lines))])
    if second is None:
        words = f"Its values vary smoothly along rows of {width} cells, but do not tell the slices"
        return Opinion(None, words)
    found = Grid(second.grid.width, width, second.grid.height)
    words = f"the values vary smoothly over {found}"
    wanted = (found.depth, found.plane, start)
    choice = next((r for r in readings if (r.frames, r.grid, r.prefix.count) == wanted), None)
    return Opinion(choice, words if choice is not None else f"Its values look like {found}")


def _grids(cells: int) -> list[Grid]:
    """List the grids with so many cells and at least two rows and columns."""
    small = [side for side in range(2, math.isqrt(cells) + 1) if cells % side == 0]
    widths = sorted({*small, *(cells // side for side in small)})
    return [Grid(cells // width, width) for width in widths]


def _clearest(rows: _Rows, readings: Sequence[Reading]) -> Reading | None:
    # In a volume, cells of the next slice may be more alike than cells of the next row.
    scores = [replace(score, peak=False) for score in rank(rows, readings, plane=False)]
    return scores[0].reading if scores and is_confident(scores) else None


def contradiction(
    array: NDArray[Any],
    layout: Layout,
    reading: Reading,
    others: Sequence[Reading],
    *,
    assumed: bool = False,
) -> Opinion | None:
    """Return which reading the values support, if it is clearly not the given one.

    `assumed`: nobody has stated the reading, so that a doubt about its width is enough.
    """
    rows = rows_of(array, layout)
    if not np.all(np.isfinite(rows)) or looks_untrained(rows):
        return None
    scores = _rank_stored(rows, others, layout)
    if not scores or not is_confident(scores):
        return _more_alike(scores, reading) if assumed else None
    best = scores[0].reading
    if _same_columns(*_turned((best, reading), layout)):
        return None
    words = f"its values vary smoothly over {best.grid} instead: {_words(scores)}"
    return Opinion(best, words)


def _more_alike(scores: Sequence[Score], reading: Reading) -> Opinion | None:
    """Return a reading of another width at which cells one row apart are clearly more alike.

    Multiples of the width do not count: in some tables every second row of cells is more alike.
    Nor do much smaller widths: cells of one row may repeat every few columns.
    """
    own = next((score for score in scores if score.reading == reading), None)
    if own is None or reading.grid.cells < _FEWEST_CELLS:
        return None
    others = [s for s in scores if 2 * s.apart > own.apart and s.apart % own.apart]
    doubting = [score for score in others if _doubts(score, own)]
    clearest = max(doubting, key=lambda score: score.below, default=None)
    if clearest is None or clearest.below < _LINE_LOWEST:
        return None
    best = next(score for score in scores if score.apart == clearest.apart)
    words = (
        f"its values are more alike {best.apart} rows apart (as in {best.reading}; mean cosine "
        f"{best.below:.2f}) than {own.apart} rows apart ({own.below:.2f})"
    )
    return Opinion(best.reading, words)


def hides_width(array: NDArray[Any], layout: Layout, reading: Reading) -> bool:
    """Whether a learned table is no more alike one row of cells apart than a cell beside that."""
    rows = rows_of(array, layout)
    if reading.grid.cells < _FEWEST_CELLS or not np.all(np.isfinite(rows)) or looks_untrained(rows):
        return False
    scores = _rank_stored(rows, [reading], layout)
    return bool(scores) and not scores[0].peak


def beginning_agrees(
    array: NDArray[Any], layout: Layout, reading: Reading, others: Sequence[Reading]
) -> bool:
    """Whether the first rows of a table are enough to see that nothing contradicts a reading."""
    rows = rows_of(array, layout)
    if not np.all(np.isfinite(rows)):
        return False
    if looks_untrained(rows):
        return True
    scores = rank(rows, others)
    return bool(scores) and is_confident(scores) and _same_columns(scores[0].reading, reading)


def _rank_stored(rows: _Rows, readings: Sequence[Reading], layout: Layout) -> list[Score]:
    """Score readings of a grid that may be stored column by column."""
    scores = rank(rows, _turned(readings, layout))
    turned = _turned([score.reading for score in scores], layout)
    return [replace(score, reading=back) for score, back in zip(scores, turned, strict=True)]


def _turned(readings: Sequence[Reading], layout: Layout) -> Sequence[Reading]:
    """Exchange height and width if columns are stored one after the other."""
    if not layout.by_columns:
        return readings
    return [replace(r, grid=Grid(r.grid.width, r.grid.height)) for r in readings]


def rank(rows: _Rows, readings: Sequence[Reading], *, plane: bool = True) -> list[Score]:
    """Score every reading of (rows, channels), best first."""
    found = [_score(rows, reading) for reading in readings]
    scores = [score for score in found if score is not None]
    # Prefixes p and p + width give the same columns. The smaller prefix comes first.
    ranked = sorted(scores, key=lambda s: (-round(s.score, 6), s.reading.prefix.count))
    return sorted(ranked, key=lambda s: plane and any(_refutes(other, s) for other in ranked))


def is_confident(scores: Sequence[Score]) -> bool:
    """Apply the confidence rule to ranked scores."""
    best = scores[0]
    rivals = [s for s in scores if not _same_columns(s.reading, best.reading)]
    rival = max((s.score for s in rivals if not _refutes(best, s)), default=-math.inf)
    clear = rival <= 0 or best.score / rival >= RATIO_CONFIDENT
    doubted = any(_doubts(other, best) for other in rivals)
    high = best.score >= SCORE_CONFIDENT and best.step >= STEP_CONFIDENT
    return high and clear and not doubted


def _doubts(one: Score, other: Score) -> bool:
    """Whether cells are clearly more alike one width apart under the first reading.

    A jump inside every row of cells looks like the end of a row of cells; cells below each other
    tell them apart. Cells a few columns apart are alike in any case, so there must be a peak.
    """
    return one.peak and one.below - other.below >= STEP_CONFIDENT


def _refutes(one: Score, other: Score) -> bool:
    """Whether cells one row apart are not alike at all under the second reading.

    In grids of two or three rows of cells they may differ, as their mean has been subtracted.
    """
    tall = other.reading.grid.cells >= _FEWEST_TALL * other.apart
    return tall and other.below < _LEAST_ALIKE and _doubts(one, other)


def _same_columns(one: Reading, other: Reading) -> bool:
    """Whether two readings give the same columns: their prefixes differ by whole rows of cells."""
    shift = one.prefix.count - other.prefix.count
    return one.grid.width == other.grid.width and shift % one.grid.width == 0


def stacked_grids(rows: _Rows, reading: Reading) -> str:
    """Return how a tall grid falls apart into equal grids, one below the other; empty if not.

    Frames of a video are stored this way. At the end of a frame, cells one row apart differ.
    """
    height, width = reading.grid.height, reading.grid.width
    start = reading.prefix.count
    unit = _unit(rows[start : start + reading.grid.cells] - rows.mean(axis=0))
    below = _cosines(unit, width).reshape(height - 1, width).mean(axis=1)
    for count in range(height // 2, 1, -1):
        if height % count:
            continue
        each = height // count
        ends = np.arange(1, height) % each == 0
        if float(below[~ends].mean() - below[ends].max()) >= STEP_CONFIDENT:
            return f"{count} × {Grid(each, width)}"
    return ""


def looks_like_line(rows: _Rows) -> bool:
    """Whether every row resembles the next one, so that there are no ends of rows of cells."""
    if not np.all(np.isfinite(rows)) or looks_untrained(rows):
        return False
    beside = _cosines(_unit(rows - rows.mean(axis=0)), 1)
    return float(beside.min()) >= _LINE_LOWEST and float(np.median(beside)) >= _LINE_USUAL


def shown_shape(rows: _Rows, reading: Reading) -> str:
    """Say whether rows in a row look alike also at the ends of rows of cells: `line` or `grid`.

    Of a reading as one row of cells, only a line can be said. Empty: the values show neither.
    """
    grid = rows[reading.prefix.count : reading.prefix.count + reading.grid.cells]
    beside = _cosines(_unit(grid - grid.mean(axis=0)), 1)
    ends = np.arange(1, len(grid)) % reading.grid.width == 0
    inside, across = float(beside[~ends].mean()), float(beside[ends].mean()) if ends.any() else 1.0
    if inside < _LEAST_ALIKE:
        return ""
    if not ends.any():
        rare = float(np.quantile(beside, _RARE_ENDS))
        return "line" if inside >= _LINE_LOWEST and rare >= _LINE_LOWEST / 2 else ""
    if across >= _ALIKE_AT_ENDS * inside:
        return "line"
    return "grid" if inside >= _LINE_LOWEST else ""


def rows_before_line(rows: _Rows, counts: Sequence[int]) -> int:
    """Return how many rows, of the counts that may be, differ from the line after them."""
    unit = _unit(rows - rows.mean(axis=0))
    beside = _cosines(unit, 1)
    apart = [n for n in counts if 0 < n < len(rows) - 1 and beside[n - 1] < _LINE_LOWEST]
    return max(apart, default=0)


def loose_rows(rows: _Rows, reading: Reading) -> tuple[int, int]:
    """Count the cells at both ends of a grid that do not vary smoothly, in whole rows of cells.

    Tokens before or after the grid look like this if they fill whole rows.
    """
    height, width = reading.grid.height, reading.grid.width
    start = reading.prefix.count
    cells = rows[start : start + reading.grid.cells].reshape(height, width, -1)
    inside = [float(_cosines(_unit(row - row.mean(axis=0)), 1).mean()) for row in cells]
    usual = float(np.median(inside))
    first = last = 0
    while first < height // 2 and inside[first] < _LOOSE * usual:
        first += 1
    while last < height // 2 - first and inside[height - 1 - last] < _LOOSE * usual:
        last += 1
    return (first * width, last * width) if usual >= _FEWEST_ALIKE else (0, 0)


def looks_untrained(rows: _Rows) -> str:
    """Return why a table looks untrained; empty if it looks learned."""
    if not rows.any():
        return "they are all zero, so the table looks untrained"
    centred = rows - rows.mean(axis=0)
    count, channels = centred.shape
    # The smaller of the two Gram matrices has the same spectrum.
    gram = centred @ centred.T if count < channels else centred.T @ centred
    total = float(np.trace(gram))
    if total == 0.0:
        return "all rows are equal, so the table looks untrained"
    ratio = total**2 / float(np.sum(gram * gram))
    white = count * channels / (count + channels)
    if ratio / white < _UNTRAINED:
        return ""
    return f"they look like noise ({ratio / white:.2f} of white noise's spread), so untrained"


def rows_of(array: NDArray[Any], layout: Layout) -> _Rows:
    """Return a table as (rows, channels), scaled so that no square overflows."""
    grid = layout.grid(array.shape) or Grid(1, layout.rows(array.shape))
    plane = layout.unfold(array, 0, grid, 0).grid[0]
    with np.errstate(invalid="ignore"):  # numpy warns of some bit patterns that are no numbers
        cells: _Rows = plane.reshape(grid.cells, plane.shape[-1]).astype(np.float64)
    largest = float(np.max(np.abs(cells), initial=0.0))
    # Every score is a ratio; without scaling, squares of huge values would overflow.
    return cells / largest if 0.0 < largest < math.inf else cells


def _score(rows: _Rows, reading: Reading) -> Score | None:
    width = reading.grid.width
    grid = rows[reading.prefix.count : reading.prefix.count + reading.grid.cells]
    cells = len(grid)  # of the beginning of a table, fewer than the reading has
    if width < 2 or cells < 2 * width:
        return None
    unit = _unit(grid - grid.mean(axis=0))
    next_one = _cosines(unit, 1)
    ends = np.arange(1, cells) % width == 0
    inside, across = next_one[~ends], next_one[ends]
    step = float(inside.mean() - across.mean())
    # Pool the variance of both groups: a wide reading has too few row ends for its own.
    freedom = max(1, inside.size + across.size - 2)
    pooled = (inside.var() * inside.size + across.var() * across.size) / freedom
    error = math.sqrt(pooled * (1 / inside.size + 1 / across.size))
    horizontal = step / error if error else 0.0
    less, below, more = (_cosines(unit, width + n) for n in (-1, 0, 1))
    score = horizontal + _VERTICAL_SHARE * _vertical(less, below, more)
    mean = float(below.mean())
    peak = mean > max(float(less.mean()), float(more.mean()))
    return Score(reading, score, step, width, mean, peak)


def _vertical(less: _Cosines, below: _Cosines, more: _Cosines) -> float:
    """Compare the cosines at one width's distance with nearby ones, in standard errors."""
    count = len(more)
    excess = below[:count] - (less[:count] + more) / 2
    error = math.sqrt(_variance(excess) / count)
    return float(excess.mean()) / error if error else 0.0


def _cosines(unit: _Rows, lag: int) -> NDArray[np.float64]:
    products: NDArray[np.float64] = unit[: len(unit) - lag] * unit[lag:]
    return np.asarray(products.sum(axis=1), np.float64)


def _variance(values: NDArray[np.float64]) -> float:
    return float(values.var(ddof=1)) if values.size > 1 else 0.0


def _unit(rows: _Rows) -> _Rows:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: _Rows = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return unit


def _words(scores: Sequence[Score]) -> str:
    return ", ".join(f"{s.reading} scores {s.score:.1f}" for s in scores[:_SHOWN])
