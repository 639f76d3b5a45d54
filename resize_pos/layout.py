"""Axis patterns such as `1 (p h w s) d`: how a stored tensor holds its prefix, grid and suffix.

A pattern names the axes of the stored shape from first to last. `h` and `w` are the grid (a 1-D
table has one of them, or `l`), `d` the channels, `1` an axis of length one, and any other letter an
axis that is carried along unchanged. Parentheses flatten axes into one stored axis; inside them `p`
and `s` stand for the rows before and after the grid, so `(p h w s)` has p + h·w + s rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from resize_pos.errors import UsageError
from resize_pos.geometry import Grid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GRID = ("h", "w", "l")
_ROWS = ("p", *_GRID, "s")


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A table taken apart: `grid` is (copies, h, w, d); `prefix`, `suffix` are (copies, n, d)."""

    prefix: NDArray[np.generic]
    grid: NDArray[np.generic]
    suffix: NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Layout:
    """A compiled axis pattern. Pure bookkeeping: numpy is touched only through array methods."""

    pattern: str
    terms: tuple[str | tuple[str, ...], ...]  # one per stored axis; a tuple is a flattened group

    @classmethod
    def parse(cls, pattern: str) -> Layout:
        """Compile a pattern, or say what is wrong with it."""
        return _parse(pattern)

    def mismatch(self, shape: tuple[int, ...]) -> str | None:
        """Say why a shape cannot have this layout; None when it can."""
        if len(shape) != len(self.terms):
            return f"{len(shape)} axes where `{self.pattern}` has {len(self.terms)}"
        for axis, (term, length) in enumerate(zip(self.terms, shape, strict=True)):
            if term == "1" and length != 1:
                return f"axis {axis} is {length} where `{self.pattern}` has 1"
            if length < 1:
                return f"axis {axis} is empty"
        return None

    def rows(self, shape: tuple[int, ...]) -> int:
        """Count the stored rows: prefix + grid + suffix."""
        return math.prod(shape[axis] for axis in self._row_axes)

    def grid(self, shape: tuple[int, ...]) -> Grid | None:
        """Read the grid off the shape, where every axis of it is stored on its own."""
        if self._group is not None and len(self._group) > 1:
            return None
        lengths = {term[0]: shape[axis] for axis, term in enumerate(self.terms)}
        return Grid(lengths.get("h", 1), lengths.get("w", lengths.get("l", 1)))

    def shape(
        self, source: tuple[int, ...], prefix: int, grid: Grid, suffix: int
    ) -> tuple[int, ...]:
        """Give the stored shape after the grid has become `grid`."""
        lengths = {"h": grid.height, "w": grid.width, "l": grid.width}
        rows = prefix + grid.cells + suffix
        return tuple(
            rows if isinstance(term, tuple) else lengths.get(term, length)
            for term, length in zip(self.terms, source, strict=True)
        )

    def unfold(self, array: NDArray[Any], prefix: int, grid: Grid, suffix: int) -> Unfolded:
        """Take a stored array apart. The parts are views where the memory allows it."""
        order = self._canonical
        copies = math.prod(array.shape[axis] for axis in self._carried_axes)
        rows = array.transpose(order).reshape(copies, self.rows(array.shape), -1)
        end = prefix + grid.cells
        assert rows.shape[1] == end + suffix, (array.shape, prefix, grid, suffix)
        cells = rows[:, prefix:end].reshape(copies, grid.height, grid.width, -1)
        return Unfolded(rows[:, :prefix], cells, rows[:, end:])

    def fold(self, parts: Unfolded, source: tuple[int, ...]) -> NDArray[Any]:
        """Put parts together again; `source` supplies the axes that are carried unchanged."""
        import numpy as np

        copies, height, width, channels = parts.grid.shape
        cells = parts.grid.reshape(copies, height * width, channels)
        rows = np.concatenate([parts.prefix, cells, parts.suffix], axis=1)
        prefix, suffix = parts.prefix.shape[1], parts.suffix.shape[1]
        shape = self.shape(source, prefix, Grid(height, width), suffix)
        order = self._canonical
        stored = rows.reshape([shape[axis] for axis in order])
        back = [order.index(axis) for axis in range(len(order))]
        return np.ascontiguousarray(stored.transpose(back))

    @property
    def _group(self) -> tuple[str, ...] | None:
        return next((term for term in self.terms if isinstance(term, tuple)), None)

    @property
    def _row_axes(self) -> list[int]:
        return [a for a, term in enumerate(self.terms) if isinstance(term, tuple) or term in _GRID]

    @property
    def _carried_axes(self) -> list[int]:
        rows = self._row_axes
        return [a for a, term in enumerate(self.terms) if a not in rows and term != "d"]

    @property
    def _canonical(self) -> list[int]:
        """Order the stored axes as: carried ones, rows (or h, w), channels."""
        channels = [self.terms.index("d")] if "d" in self.terms else []
        return [*self._carried_axes, *self._row_axes, *channels]

    def __str__(self) -> str:
        return self.pattern


@lru_cache(maxsize=256)
def _parse(pattern: str) -> Layout:
    terms: list[str | tuple[str, ...]] = []
    group: list[str] | None = None
    for word in pattern.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group is not None:
            terms.append(tuple(group))
            group = None
        elif word in "()":
            raise _bad(pattern, "parentheses do not nest or do not match")
        elif word != "1" and not (len(word) == 1 and word.isascii() and word.islower()):
            raise _bad(pattern, f"`{word}` is not an axis; axes are single letters, or 1")
        else:
            (terms if group is None else group).append(word)
    if group is not None:
        raise _bad(pattern, "a parenthesis is not closed")
    layout = Layout(" ".join(pattern.split()), tuple(terms))
    reason = _objection(layout)
    if reason is not None:
        raise _bad(pattern, reason)
    return layout


def _objection(layout: Layout) -> str | None:
    names = [name for term in layout.terms for name in term if name != "1"]
    repeated = [name for index, name in enumerate(names) if name in names[:index]]
    if repeated:
        return f"`{repeated[0]}` appears twice"
    grid = [name for name in names if name in _GRID]
    if not grid or ("l" in grid and len(grid) > 1):
        return "it needs `h` and `w`, or `l` for a 1-D table"
    groups = [term for term in layout.terms if isinstance(term, tuple)]
    in_order = all(tuple(name for name in _ROWS if name in term) == term for term in groups)
    whole = all(set(grid) <= set(term) for term in groups)
    if len(groups) > 1 or not in_order or not whole:
        return "a group is (h w), with p before and s after where there are such rows"
    if not groups and {"p", "s"} & set(names):
        return "p and s are rows of a flattened grid and belong inside (p h w s)"
    if not groups and grid == ["w", "h"]:
        return "h comes before w"
    return None


def _bad(pattern: str, reason: str) -> UsageError:
    return UsageError(
        f"axis pattern {pattern!r}: {reason}.",
        hint='a flat table is "1 (p h w s) d" or "(p h w s) d"; a grid is "1 h w d" or "1 d h w".',
    )
