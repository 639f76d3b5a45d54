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
_NEAR_EACH = 0.05  # and each cell of it, relative to the usual length
_EXACT = 2e-3  # … and up to which nothing else was done to it
# Sums of the sizes of the weights: plain means have 1, kernels up to 1.6, inverses 2, series of
# waves more. The middle and the reach of the latter two say little.
_MEAN_SUM, _PLAIN_SUM, _LARGEST_SUM = 1.1, 1.5, 3.0
# In lines of the coarser grid, on average and at most: how far the middle of the weights may be
# from the place of their line. The outermost lines lean inwards, and of a few lines most are that;
# inverses lean more.
_USUALLY_APART, _MORE_APART, _APART = 0.13, 0.2, 0.35
_FEW_LINES = 4
_UPRIGHT = 0.6  # of these limits where lines are placed by their upper left corners
_ELSEWHERE = (0.24, 0.45)  # … and beyond which it is another place; area averaging has 0.22 and 0.4
_PICKED = 0.97  # weight of a line that was picked, not averaged: nearest rounds in many ways
# Squares of such lines: how far the weights reach. It is negative where far lines are subtracted.
# Three linear resizes in a row have 0.38 (on a few lines 0.24), an inverse has -0.18; tables that
# were blurred have 0.45 (0.262), sharpened ones -0.5 and less. Cubic B-splines that smooth have
# 0.32 (0.255).
_SHORTEST, _INVERSE, _FARTHEST, _FEW_FARTHEST = -0.3, -0.05, 0.42, 0.258
_SLIGHT = 0.02  # weights below this may be what the fit leaves, and far away they would count much


class Fitted(Enum):
    """What the kernel that makes a table is."""

    UNKNOWN = "none that explains it"
    HONEST = "a weighted mean around each place"
    BLURRED = "a mean around each place, over more of a few lines than one kernel takes"
    DISPLACED = "a mean around other places"


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """The kernel that comes nearest to a table, and what it leaves."""

    kind: Fitted
    rest: Wide  # the table (cells × channels) without what the kernel makes of the source
    away: float  # how far its weights are from their places; beyond 1, farther than by any rule


def fit_kernel(source: Wide, rows: Wide, target: Grid) -> KernelFit:
    """Find the kernel that made rows (cells × channels) of a grid (1, h, w, channels)."""
    cells = rows.reshape(target.height, target.width, -1)
    down, across = _nearest(source, rows, target)
    honest, last = (down, across), np.inf
    for _ in range(_ROUNDS):
        down = _fitted(along(across, source[0]), cells, honest[0])
        turned = np.swapaxes(source[0], 0, 1), np.swapaxes(cells, 0, 1)
        across = _fitted(along(down, turned[0]), turned[1], honest[1])
        apart = cells - _made(source[0], down, across)
        error = ratio(size(apart), size(cells), 1.0)
        if error > min(_SETTLED * last, _HOPELESS):
            break
        last = error
    usual = size(cells) / np.sqrt(target.cells)
    near = error <= _NEAR and float(np.sqrt((apart**2).sum(axis=-1)).max()) <= _NEAR_EACH * usual
    axes = [_Axis.of(weights) for weights in (down, across)]
    kind = _kind(axes, error) if near else Fitted.UNKNOWN
    return KernelFit(kind, apart.reshape(rows.shape), max(axis.away for axis in axes))


def _kind(axes: list[_Axis], error: float) -> Fitted:
    """Look at the matrices that explain a table."""
    in_place = all(axis.in_place for axis in axes)
    if in_place and all(axis.reach <= axis.most for axis in axes):
        return Fitted.HONEST
    if error > _EXACT:
        return Fitted.UNKNOWN
    if any(axis.elsewhere for axis in axes):
        return Fitted.DISPLACED
    blurred = in_place and any(axis.blurred for axis in axes)
    return Fitted.BLURRED if blurred else Fitted.UNKNOWN


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
    blurred: bool  # the weights reach farther than those of a kernel, on a few lines
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
            elsewhere=away > 1 and not picked and sizes <= _PLAIN_SUM,
            blurred=reach > most and lines <= _FEW_LINES and sizes <= _MEAN_SUM,
            reach=reach,
            most=most,
        )


def _places(old: int, new: int) -> Iterator[tuple[Wide, float]]:
    """Give the place of each new line by every honest rule of coordinates.

    With it comes the part of the limits that applies: kernels with upper left corners do not lean.
    """
    index = np.arange(new)
    yield np.clip((index + 0.5) * old / new - 0.5, 0, old - 1), 1.0
    yield index * (old - 1) / max(new - 1, 1), 1.0
    yield np.minimum(index * old / new, old - 1), _UPRIGHT
