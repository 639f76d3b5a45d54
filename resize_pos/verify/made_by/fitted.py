"""Was a table made by a kernel that nobody has listed? Fit the kernel, and look at it.

A resize of a grid is linear and treats rows and columns by themselves: the table is D·S·Aᵀ for each
channel of the source S, with one matrix for each axis. All channels share the two matrices, so they
are found from the values. If they explain the table and every new line is a weighted mean of the
source lines around its place, it is an honest resize, whatever the kernel is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.proper import Kernel, along
from resize_pos.quality.measures.sampling import Wide, ratio, size, spread

_CHANNELS = 24  # that the first kernel is chosen by
_ROUNDS = 12  # of fitting one axis after the other
_SETTLED = 0.98  # of the last distance: then another round changes little
_HOPELESS = 0.2  # relative distance after the first round; honest tables have 0.06 at most
_TIED = 1e-5  # of the mean energy of a source line: how strongly an honest kernel is preferred
_NEAR = 0.01  # relative distance up to which the matrices explain a table,
_NEAR_EACH = 0.05  # and each cell and channel of it, relative to the usual length
_EXACT = 2e-3  # … and up to which nothing else was done to it
# Sums of the sizes of the weights: plain means have 1, kernels up to 1.6, inverses 2, series of
# waves more. The middle and the reach of the latter two say little.
_MEAN_SUM, _PLAIN_SUM, _LARGEST_SUM = 1.1, 1.5, 3.0
# In lines of the coarser grid, on average and at most: how far the middle of the weights may be
# from the place of their line. The outermost lines lean inwards, and of a few lines most are that;
# inverses lean more.
_USUALLY_APART, _MORE_APART, _APART = 0.13, 0.2, 0.35
_FEW_LINES = 4
_FEWEST_ZOOMED = 6  # lines: of fewer, most lean
_UPRIGHT = 0.6  # of these limits where lines are placed by their upper left corners
_ELSEWHERE = (0.24, 0.45)  # … and beyond which it is another place; area averaging has 0.22 and 0.4
_BESIDE = 0.3  # lines of the coarser grid: what the outermost lines are off by because of a zoom
_PICKED_AWAY = 1.5  # of these limits, where lines are picked
_PICKED = 0.9  # weight of a line that was picked, not averaged: nearest rounds in many ways
# Squares of such lines: how far the weights reach. It is negative where far lines are subtracted.
# Two linear resizes in a row have 0.30 (on a few lines 0.24), cubic B-splines that smooth 0.32
# (0.255), an inverse has -0.18; tables that were blurred have 0.41 (0.262), sharpened ones -0.5 and
# less. Three linear resizes have 0.34 to 0.42, and cost a network as much as a blur. On a few lines
# a blur may have no more than 0.2, and smoothing B-splines and three resizes cost as much as that;
# two resizes are recognised by name before.
_SHORTEST, _INVERSE, _FARTHEST, _FEW_FARTHEST = -0.3, -0.05, 0.345, 0.2
# A blur makes the outermost lines lean, too. Honest results that are explained to this relative
# distance, and lean more than any kernel, reach up to 0.43; one axis that was blurred has 1.3.
_TO_THE_LETTER, _SURELY_BLURRED = 5e-4, 0.8
# Lines of the coarser grid that a cell may read on each side of its place, and how strongly an
# honest kernel is preferred then.
_NEARBY, _NEARBY_TIED, _NEARBY_ROUNDS = 3.0, 1e-4, 4
_SLIGHT = 0.02  # weights below this may be what the fit leaves, and far away they would count much


class Fitted(Enum):
    """What the kernel that makes a table is."""

    UNKNOWN = "none that explains it"
    HONEST = "a weighted mean around each place"
    BLURRED = "a mean around each place, over more lines than one kernel takes"
    BESIDE = "a mean around its place in a picture that is too wide or too narrow"
    DISPLACED = "a mean around other places"


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """The kernel that comes nearest to a table."""

    kind: Fitted
    away: float  # how far its weights are from their places; beyond 1, farther than by any rule
    elsewhere: bool  # … and they are plain means around other places
    left: float  # relative distance of the table to what it makes


def fit_kernel(source: Wide, rows: Wide, target: Grid) -> KernelFit:
    """Find the kernel that made rows (cells × channels) of a grid (1, h, w, channels)."""
    whole = rows
    source, rows = _varying(source, rows)
    cells = rows.reshape(target.height, target.width, -1)
    down, across = _nearest(source, rows, target)
    honest, last = (down, across), np.inf
    for _ in range(_ROUNDS):
        down = _fitted(along(across, source[0]), cells, honest[0])
        turned = np.swapaxes(source[0], 0, 1), np.swapaxes(cells, 0, 1)
        across = _fitted(along(down, turned[0]), turned[1], honest[1])
        apart = cells - _made(source[0], down, across)
        error = ratio(size(apart), size(cells), 1.0)  # relative to how much positions differ
        if error > min(_SETTLED * last, _HOPELESS):
            break
        last = error
    near = error <= _NEAR and _each_is_near(apart.reshape(rows.shape), size(cells))
    axes = [_Axis.of(weights) for weights in (down, across)]
    kind = _kind(axes, error) if near else Fitted.UNKNOWN
    elsewhere = any(axis.elsewhere for axis in axes)
    left = ratio(size(apart), size(whole), 1.0)
    return KernelFit(kind, max(axis.away for axis in axes), elsewhere, left)


def _each_is_near(apart: Wide, whole: float) -> bool:
    """Whether no cell and no channel is far from what the matrices make of it."""
    return all(
        float(np.sqrt((apart**2).sum(axis=axis)).max()) <= _NEAR_EACH * whole / np.sqrt(count)
        for axis, count in ((1, apart.shape[0]), (0, apart.shape[1]))
    )


def _varying(source: Wide, rows: Wide) -> tuple[Wide, Wide]:
    """Leave out the source's mean, which every kernel keeps. It may be longer than the rest."""
    mean = source.mean(axis=(0, 1, 2))
    return source - mean, rows - mean


def _kind(axes: list[_Axis], error: float) -> Fitted:
    """Look at the matrices that explain a table."""
    in_place = all(axis.in_place for axis in axes)
    if in_place and all(axis.reach <= axis.most for axis in axes):
        return Fitted.HONEST
    if any(axis.elsewhere for axis in axes):
        return Fitted.DISPLACED
    # Of many lines, the reach is uncertain where a table is smooth.
    certain = [axis for axis in axes if axis.few or error <= _EXACT]
    surely = error <= _TO_THE_LETTER and any(a.blurred and a.reach > _SURELY_BLURRED for a in axes)
    if surely or (in_place and any(axis.blurred for axis in certain)):
        return Fitted.BLURRED
    beside = error <= _EXACT and any(axis.beside for axis in axes)
    return Fitted.BESIDE if beside else Fitted.UNKNOWN


def _nearest(source: Wide, rows: Wide, target: Grid) -> tuple[Wide, Wide]:
    """Return the matrices of the known kernel that comes nearest, by some channels."""
    some = spread(rows.shape[1], _CHANNELS)
    mine, theirs = rows[:, some], source[..., some]

    def apart(kernel: Kernel) -> float:
        return size(mine - proper.resized(theirs, target, kernel).reshape(mine.shape))

    extremes = (proper.SMOOTHEST, proper.SHARPEST)
    best = min((*proper.CONVENTIONAL, *proper.OTHERS, *extremes), key=apart)
    height, width = source.shape[1:3]
    return proper.matrix(best, height, target.height), proper.matrix(best, width, target.width)


def _made(source: Wide, down: Wide, across: Wide) -> Wide:
    """Resample both axes of (h, w, channels)."""
    lines = along(across, source)
    return np.swapaxes(along(down, np.swapaxes(lines, 0, 1)), 0, 1)


def fit_nearby(source: Wide, rows: Wide, target: Grid) -> Wide:
    """Return what no weights on the source cells around each place explain of a table.

    The arguments are those of `fit_kernel`. It reads a whole line, which may hide that a table was
    mixed with something from elsewhere.
    """
    source, rows = _varying(source, rows)
    cells = rows.reshape(target.height, target.width, -1)
    down, across = honest = _nearest(source, rows, target)
    turned = np.swapaxes(source[0], 0, 1), np.swapaxes(cells, 0, 1)
    for _ in range(_NEARBY_ROUNDS):
        down = _fitted_nearby(along(across, source[0]), cells, honest[0])
        across = _fitted_nearby(along(down, turned[0]), turned[1], honest[1])
    return np.asarray((cells - _made(source[0], down, across)).reshape(rows.shape))


def _fitted_nearby(lines: Wide, wanted: Wide, honest: Wide) -> Wide:
    """Fit a matrix as `_fitted` does, from the source lines around the place of each new line."""
    known, rest = lines.reshape(len(lines), -1), wanted.reshape(len(wanted), -1)
    new, old = honest.shape
    gram, missing = known @ known.T, known @ (rest - honest @ known).T
    gram[np.diag_indices(old)] += _NEARBY_TIED * np.trace(gram) / old or 1.0
    middle, reach = honest @ np.arange(old), _NEARBY * max(1.0, old / new) + 0.5
    result = honest.copy()
    for line in range(new):
        near = np.flatnonzero(np.abs(np.arange(old) - middle[line]) <= reach)
        sides = np.stack([missing[near, line], np.ones(len(near))], axis=1)
        change, level = np.linalg.solve(gram[np.ix_(near, near)], sides).T
        result[line, near] += change - level * (change.sum() / level.sum())
    return result


def _fitted(lines: Wide, wanted: Wide, honest: Wide) -> Wide:
    """Fit the matrix that makes `wanted` (new, …) out of `lines` (old, …), near an honest one.

    The weights of a new line keep their sum of one, as those of every kernel.
    """
    known, rest = lines.reshape(len(lines), -1), wanted.reshape(len(wanted), -1)
    gram = known @ known.T
    gram[np.diag_indices(len(gram))] += _TIED * np.trace(gram) / len(gram) or 1.0
    missing = known @ (rest - honest @ known).T
    solved = np.linalg.solve(gram, np.concatenate([missing, np.ones((len(gram), 1))], axis=1))
    change, level = solved[:, :-1], solved[:, -1:]
    result: Wide = honest + (change - level * (change.sum(axis=0) / level.sum())).T
    return result


@dataclass(frozen=True, slots=True)
class _Axis:
    """What the weights of one axis do."""

    in_place: bool  # every new line is a weighted mean around its place
    away: float  # how far from it, ÷ the most by any rule of coordinates
    elsewhere: bool  # … so far away that it is another place
    beside: bool  # the lines are too near to each other, or too far apart
    blurred: bool  # the weights reach farther than those of a kernel
    few: bool  # there are only a few lines
    reach: float  # how far the weights of a line reach
    most: float  # how far those of a kernel do

    @classmethod
    def of(cls, weights: Wide) -> _Axis:
        """Look at a (new, old) matrix."""
        new, old = weights.shape
        middle = weights @ np.arange(old)
        pace, lines = max(1.0, old / new), min(old, new)
        clear = np.where(np.abs(weights) < _SLIGHT, 0.0, weights)
        each = (clear * (np.arange(old) - middle[:, None]) ** 2).sum(axis=1) / pace**2
        reach, most = float(each.mean()), _FARTHEST if lines > _FEW_LINES else _FEW_FARTHEST
        usual = _USUALLY_APART if lines >= _FEW_LINES and reach > _INVERSE else _MORE_APART
        far = [np.abs(middle - rule) / pace / strict for rule, strict in _places(old, new)]
        near = any(each.mean() <= usual and each.max() <= _APART for each in far)
        usually, most_away = _ELSEWHERE
        away = min(max(float(e.mean()) / usually, float(e.max()) / most_away) for e in far)
        picked = float(weights.max(axis=1).min()) > _PICKED
        sizes = float(np.abs(weights).sum(axis=1).max())
        return cls(
            in_place=near and sizes <= _LARGEST_SUM and reach >= _SHORTEST,
            away=away,
            elsewhere=away > (_PICKED_AWAY if picked else 1) and sizes <= _PLAIN_SUM,
            beside=sizes <= _PLAIN_SUM and _zoomed(middle, old, new) > _BESIDE,
            blurred=reach > most and sizes <= (_PLAIN_SUM if lines > _FEW_LINES else _MEAN_SUM),
            few=lines <= _FEW_LINES,
            reach=reach,
            most=most,
        )


def _zoomed(middle: Wide, old: int, new: int) -> float:
    """Return how far outermost lines are off because all lines are too near or too far apart.

    In lines of the coarser grid. Any pace between those of the rules of coordinates is right.
    """
    lines = min(old, new)
    inner = np.arange(new)[1:-1]  # the outermost lines lean inwards
    if lines < _FEWEST_ZOOMED:
        return 0.0
    pace = float(np.polyfit(inner, middle[inner], 1)[0])
    paces = sorted((old / new, (old - 1) / max(new - 1, 1)))
    beyond = max(paces[0] - pace, pace - paces[1], 0.0)
    return beyond * new / 2 / max(1.0, old / new)


def _places(old: int, new: int) -> Iterator[tuple[Wide, float]]:
    """Give the place of each new line by every honest rule of coordinates.

    With it comes the part of the limits that applies: kernels with upper left corners do not lean.
    """
    index = np.arange(new)
    yield np.clip((index + 0.5) * old / new - 0.5, 0, old - 1), 1.0
    yield index * (old - 1) / max(new - 1, 1), 1.0
    yield np.minimum(index * old / new, old - 1), _UPRIGHT
