"""The places that a known kernel read, fitted: are they those of any rule of coordinates?

Honest rules put a cell up to half a line apart, so where the weights of a fitted kernel lie says
little about less than that. But if a known kernel explains a table exactly at some places, these
places are known exactly. On a grid of a few lines, a quarter of one is much of the image.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.sampling import Wide, ratio, size, spread
from resize_pos.verify.made_by.window import Span, Window, cubic

_LINES, _CHANNELS = 16, 24  # rows, columns and channels that are compared
_FEWEST = 3  # lines of an axis, in both grids: on fewer, other kernels look like moved places
_STEPS, _STEP = 8, 1e-3  # of the fit, and of a source line, for its slope
_EXACT = 2e-3  # of how much positions differ: what the kernel may leave at these places,
_BETTER = 0.1  # … and of what every proper kernel leaves at the places of its own rule
# Lines of the coarser grid that a line may be off by every rule. Some libraries add 0.1 to the
# target's length before they divide, which is a rule here, too.
_OFF, _ADDED = 0.08, 0.1


@dataclass(frozen=True, slots=True)
class _Line:
    """The places of the new lines of one axis, in source lines: at · pace + first."""

    first: float
    pace: float
    old: int
    new: int

    @property
    def span(self) -> Span:
        """The part of the source that the new lines show."""
        start = (self.first + 0.5 - self.pace / 2) / self.old
        return start, start + self.new * self.pace / self.old

    @property
    def off(self) -> float:
        """How far a line is from its place by every rule, in lines of the coarser grid."""
        at, last = np.arange(self.new), self.old - 1
        places = np.clip(self.first + self.pace * at, 0, last)
        found = min(float(np.abs(places - np.clip(rule, 0, last)).max()) for rule in self._rules())
        return found / max(1.0, self.old / self.new)

    def _rules(self) -> Iterator[Wide]:
        at = np.arange(self.new, dtype=np.float64)
        yield (at + 0.5) * self.old / self.new - 0.5
        yield at * (self.old - 1) / max(self.new - 1, 1)
        yield at * self.old / self.new
        yield (at + 0.5) * self.old / (self.new + _ADDED) - 0.5


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel that libraries use."""

    sharpness: float | None  # Keys' parameter of a cubic kernel; None: linear
    antialias: bool

    def weights(self, line: _Line, picked: NDArray[np.intp]) -> Wide:
        """Return the weights of some new lines on all source lines; the border is repeated."""
        places, lines = line.first + line.pace * picked, np.arange(line.old)
        if self.antialias:
            apart = np.abs(lines - places[:, None]) / max(1.0, line.pace)
            weights = self._values(apart)
            return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12))
        base = np.floor(places)
        result = np.zeros((len(places), line.old))
        for step in (-1, 0, 1, 2):
            at = np.clip(base + step, 0, line.old - 1).astype(np.intp)
            np.add.at(
                result, (np.arange(len(places)), at), self._values(np.abs(places - base - step))
            )
        return result

    def _values(self, apart: Wide) -> Wide:
        if self.sharpness is None:
            return np.asarray(np.maximum(1 - apart, 0.0))
        return cubic(apart, self.sharpness)


_KERNELS = (
    *(_Kernel(sharpness, antialias=False) for sharpness in (None, -0.5, -0.75)),
    *(_Kernel(sharpness, antialias=True) for sharpness in (None, -0.5)),
)


def find_places(source: Wide, table: Wide) -> Window | None:
    """Say which part of `source` (h, w, d) `table` (h′, w′, d) shows, if a kernel shows it exactly.

    None: no kernel does, or the places are those of a rule.
    """
    shapes = list(zip(source.shape[:2], table.shape[:2], strict=True))
    if min(min(shape) for shape in shapes) < _FEWEST:
        return None
    picked = [spread(new, _LINES) for _, new in shapes]
    channels, mean = spread(source.shape[2], _CHANNELS), source.mean(axis=(0, 1))
    seen = _Seen(
        (source - mean)[..., channels],
        (table[picked[0]][:, picked[1]] - mean)[..., channels],
        (table.shape[0], table.shape[1]),
        (picked[0], picked[1]),
    )
    down, across = (_Line(0.5 * old / new - 0.5, old / new, old, new) for old, new in shapes)
    limit = min(_EXACT, _BETTER * seen.honest_error())
    for kernel in _KERNELS:
        rows, columns = seen.fitted(kernel, (down, across))
        if max(rows.off, columns.off) > _OFF and seen.error(kernel, (rows, columns)) < limit:
            return Window(rows.span, columns.span, seen.error(kernel, (rows, columns)))
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """A source, and a sample of the cells of the table that was made from it."""

    source: Wide
    shown: Wide
    shape: tuple[int, int]  # of the new grid
    picked: tuple[NDArray[np.intp], NDArray[np.intp]]  # its rows and columns

    def honest_error(self) -> float:
        """Return what the nearest proper kernel leaves, of how much positions differ."""
        found = np.inf
        for kernel in (*proper.CONVENTIONAL, *proper.OTHERS, proper.SMOOTHEST, proper.SHARPEST):
            down, across = (
                proper.matrix(kernel, old, new)[picked]
                for old, new, picked in zip(
                    self.source.shape, self.shape, self.picked, strict=False
                )
            )
            found = min(found, size(self._apart(down, across)))
        return ratio(found, size(self.shown), 1.0)

    def error(self, kernel: _Kernel, axes: tuple[_Line, _Line]) -> float:
        """Return what the kernel leaves at these places, of how much positions differ."""
        return ratio(size(self._rest(kernel, axes)), size(self.shown), 1.0)

    def fitted(self, kernel: _Kernel, axes: tuple[_Line, _Line]) -> tuple[_Line, _Line]:
        """Move the places to where the kernel explains most (by the method of Gauss and Newton)."""
        best, least = axes, self._rest(kernel, axes)
        for _ in range(_STEPS):
            slopes = [
                (self._rest(kernel, _moved(best, number, _STEP)) - least).ravel() / _STEP
                for number in range(4)
            ]
            inner = np.array([[float(a @ b) for a in slopes] for b in slopes])
            inner[np.diag_indices(4)] *= 1 + 1e-6
            wanted = np.array([-float(slope @ least.ravel()) for slope in slopes])
            change = np.linalg.lstsq(inner, wanted, rcond=None)[0]
            moved = best
            for number in range(4):
                moved = _moved(moved, number, float(change[number]))
            if min(axis.pace for axis in moved) <= 0:
                break
            rest = self._rest(kernel, moved)
            if size(rest) >= size(least):
                break
            best, least = moved, rest
        return best

    def _rest(self, kernel: _Kernel, axes: tuple[_Line, _Line]) -> Wide:
        down, across = (
            kernel.weights(axis, at) for axis, at in zip(axes, self.picked, strict=True)
        )
        return self._apart(down, across)

    def _apart(self, down: Wide, across: Wide) -> Wide:
        return np.asarray(self.shown - across @ np.tensordot(down, self.source, 1))


def _moved(axes: tuple[_Line, _Line], number: int, by: float) -> tuple[_Line, _Line]:
    """Change the first place, or the pace, of one axis; the pace about the middle line."""
    index, is_pace = divmod(number, 2)
    axis = axes[index]
    middle = (axis.new - 1) / 2
    if is_pace:
        by /= max(middle, 1.0)
        changed = _Line(axis.first - by * middle, axis.pace + by, axis.old, axis.new)
    else:
        changed = _Line(axis.first + by, axis.pace, axis.old, axis.new)
    return (changed, axes[1]) if index == 0 else (axes[0], changed)
