"""A table that shows another window of the source than all of it: cropped, zoomed out or shifted.

Along each axis the window is where the new grid begins and ends, as parts of the source: 0 and 1 in
an honest resize. The window that explains the table best is searched for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.measures.sampling import Wide, ratio, size, spread

_LINES = 12  # rows, and columns, of new cells that are compared
_STARTS = (-0.25, 0.0, 0.12, 0.25, 0.4)
_ENDS = tuple(1 - start for start in _STARTS)
_FIRST_STEP, _HALVINGS = 0.08, 5
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (1, 1), (-1, -1))  # of the start and of the end
_SMALLEST_WINDOW = 0.1
_FEWEST = 4  # cells of an axis on which a window can be told from an honest rule
# Honest coordinate rules move a border by up to half a cell of the coarser grid.
_CELLS, _LEAST = 0.75, 0.04
_EXPLAINS = 0.5  # of the distance to the honest resize that may be left
_ROUGH = 0.3  # distance, in deviations of the table, beyond which a window explains too little
_NEAR = 0.1  # up to this distance to the honest resize, no window is searched for

Span = tuple[float, float]
_WHOLE: Span = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the source that a table shows."""

    rows: Span
    columns: Span
    error: float  # relative L2 distance of the table to the source seen through it

    @property
    def name(self) -> str:
        """What happened, in a word."""
        lengths = [end - start for start, end in (self.rows, self.columns)]
        if all(abs(length - 1) < _LEAST for length in lengths):
            return "shifted"
        return "cropped" if min(lengths) < 1 - _LEAST else "zoomed out"

    @property
    def detail(self) -> str:
        """The window in words."""
        (top, bottom), (left, right) = self.rows, self.columns
        return (
            f"the new grid shows {top:.0%} to {bottom:.0%} of the source's height and "
            f"{left:.0%} to {right:.0%} of its width"
        )


def find_window(source: Wide, table: Wide) -> Window | None:
    """Search the window of `source` (h, w, d) that `table` (h′, w′, d) shows; None: all of it."""
    picked = [spread(length, _LINES) for length in table.shape[:2]]
    mean = source.mean(axis=(0, 1))
    shown = table[picked[0]][:, picked[1]] - mean
    view = _View(source - mean, shown, (table.shape[0], table.shape[1]), (picked[0], picked[1]))
    honest = min(view.error(_WHOLE, _WHOLE, kernel) for kernel in _KERNELS)
    if honest < _NEAR:
        return None
    rows, columns = view.search()
    error = min(view.error(rows, columns, kernel) for kernel in _KERNELS)
    if error > min(_EXPLAINS * honest, _ROUGH) or not view.is_moved(rows, columns):
        return None
    return Window(rows, columns, error)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """How a window is resampled."""

    cubic: bool
    antialias: bool


_PLAIN = _Kernel(cubic=False, antialias=True)
_KERNELS = tuple(
    _Kernel(cubic, antialias) for cubic in (False, True) for antialias in (False, True)
)


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A source and a sample of the cells of the table that was made from it."""

    source: Wide
    shown: Wide
    shape: tuple[int, int]
    picked: tuple[NDArray[np.intp], NDArray[np.intp]]  # rows and columns of the new grid

    def error(self, rows: Span, columns: Span, kernel: _Kernel) -> float:
        down, across = self._weights(0, rows, kernel), self._weights(1, columns, kernel)
        halfway = np.tensordot(down, self.source, 1)
        return ratio(size(self.shown - across @ halfway), size(self.shown), 1.0)

    def search(self) -> tuple[Span, Span]:
        """Try windows of every size roughly, then move the borders of the best one."""
        best = self._roughly()
        error, step = self.error(*best, _PLAIN), _FIRST_STEP
        for _ in range(_HALVINGS):
            better = True
            while better:
                better = False
                for spans in self._moved(best, step):
                    found = self.error(*spans, _PLAIN)
                    if found < error * (1 - 1e-6):
                        best, error, better = spans, found, True
            step /= 2
        return best

    def _roughly(self) -> tuple[Span, Span]:
        """Return the best window of a few, all columns computed at once."""
        across = self._spans(1)
        weights = np.concatenate([self._weights(1, span, _PLAIN) for span in across])
        best, least = (_WHOLE, _WHOLE), np.inf
        for rows in self._spans(0):
            halfway = np.tensordot(self._weights(0, rows, _PLAIN), self.source, 1)
            seen = (weights @ halfway).reshape(len(halfway), len(across), -1, halfway.shape[-1])
            apart = self.shown[:, None] - seen
            errors = np.einsum("icjd,icjd->c", apart, apart)
            if errors.min() < least:
                best, least = (rows, across[int(errors.argmin())]), float(errors.min())
        return best

    def is_moved(self, rows: Span, columns: Span) -> bool:
        """Whether a border lies where no honest rule puts it."""
        return any(
            max(abs(start), abs(end - 1)) > max(_LEAST, _CELLS / min(old, new))
            for (start, end), old, new in zip(
                (rows, columns), self.source.shape[:2], self.shape, strict=True
            )
        )

    def _spans(self, axis: int) -> list[Span]:
        if min(self.source.shape[axis], self.shape[axis]) < _FEWEST:
            return [_WHOLE]
        return [(start, end) for start in _STARTS for end in _ENDS]

    def _moved(self, spans: tuple[Span, Span], step: float) -> list[tuple[Span, Span]]:
        found = []
        for axis in range(2):
            if len(self._spans(axis)) == 1:
                continue
            start, end = spans[axis]
            for first, last in _MOVES:
                moved = (start + first * step, end + last * step)
                if moved[1] - moved[0] > _SMALLEST_WINDOW:
                    found.append((moved, spans[1]) if axis == 0 else (spans[0], moved))
        return found

    def _weights(self, axis: int, span: Span, kernel: _Kernel) -> Wide:
        old, new = self.source.shape[axis], self.shape[axis]
        start, end = span
        centres = (start + (self.picked[axis] + 0.5) / new * (end - start)) * old - 0.5
        centres = centres.clip(0, old - 1)
        widest = max(1.0, (end - start) * old / new) if kernel.antialias else 1.0
        apart = np.abs(np.arange(old)[None] - centres[:, None]) / widest
        weights = cubic(apart, -0.5) if kernel.cubic else np.maximum(1 - apart, 0.0)
        result: Wide = weights / weights.sum(axis=1, keepdims=True)
        return result


def cubic(apart: Wide, sharpness: float) -> Wide:
    """Return the weights of Keys' cubic kernel at distances from its middle."""
    a = sharpness
    near = ((a + 2) * apart - (a + 3)) * apart * apart + 1
    far = a * (((apart - 5) * apart + 8) * apart - 4)
    result: Wide = np.where(apart < 1, near, np.where(apart < 2, far, 0.0))
    return result
