"""Axis patterns such as `1 (p h w s) d`: how a stored tensor holds its prefix, grid and suffix.

A pattern names the axes of the stored shape from first to last. `h` and `w` are the grid, `d` the
channels, `1` an axis of length one, and any other letter an axis that is carried along unchanged.
Parentheses flatten axes into one stored axis; inside them `p` and `s` stand for the rows before
and after the grid, so `(p h w s)` has p + h·w + s rows.
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

_ROWS = ("p", "h", "w", "s")


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

    @property
    def stores_grid(self) -> bool:
        """Whether height and width are axes of their own, so that the shape states the grid."""
        return self._rows_axis is None

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
        if self._rows_axis is not None:
            return shape[self._rows_axis]
        return shape[self.terms.index("h")] * shape[self.terms.index("w")]

    def channels(self, shape: tuple[int, ...]) -> int:
        """Give the length of one position vector."""
        return shape[self.terms.index("d")]

    def grid(self, shape: tuple[int, ...]) -> Grid | None:
        """Read the grid off the shape, where the layout stores it."""
        if self._rows_axis is not None:
            return None
        return Grid(shape[self.terms.index("h")], shape[self.terms.index("w")])

    def shape(self, source: tuple[int, ...], prefix: int, grid: Grid, suffix: int) -> tuple[int, ...]:
        """Give the stored shape after the grid has become `grid`."""
        lengths = {"h": grid.height, "w": grid.width}
        rows = prefix + grid.cells + suffix
        return tuple(
            rows if isinstance(term, tuple) else lengths.get(term, length)
            for term, length in zip(self.terms, source, strict=True)
        )

    def unfold(self, array: NDArray[Any], prefix: int, grid: Grid, suffix: int) -> Unfolded:
        """Take a stored array apart. The parts are views where the memory allows it."""
        copies, channels = self._copies(array.shape), self.channels(array.shape)
        rows = array.transpose(self._canonical).reshape(copies, -1, channels)
        end = prefix + grid.cells
        assert rows.shape[1] == end + suffix, (rows.shape, prefix, grid, suffix)
        cells = rows[:, prefix:end].reshape(copies, grid.height, grid.width, channels)
        return Unfolded(rows[:, :prefix], cells, rows[:, end:])

    def fold(self, parts: Unfolded, source: tuple[int, ...]) -> NDArray[Any]:
        """Put parts together again; `source` supplies the axes that are carried unchanged."""
        import numpy as np

        copies, height, width, channels = parts.grid.shape
        cells = parts.grid.reshape(copies, height * width, channels)
        rows = np.concatenate([parts.prefix, cells, parts.suffix], axis=1)
        shape = self.shape(source, parts.prefix.shape[1], Grid(height, width), parts.suffix.shape[1])
        order = self._canonical
        stored = rows.reshape([shape[axis] for axis in order])
        return np.ascontiguousarray(stored.transpose([order.index(axis) for axis in range(len(order))]))

    @property
    def _rows_axis(self) -> int | None:
        return next((axis for axis, term in enumerate(self.terms) if isinstance(term, tuple)), None)

    @property
    def _canonical(self) -> list[int]:
        """Order the stored axes as: carried ones, rows (or h, w), channels."""
        rows = self._rows_axis
        grid = [self.terms.index("h"), self.terms.index("w")] if rows is None else [rows]
        channels = self.terms.index("d")
        carried = [a for a in range(len(self.terms)) if a not in grid and a != channels]
        return [*carried, *grid, channels]

    def _copies(self, shape: tuple[int, ...]) -> int:
        used = 2 if self._rows_axis is not None else 3
        return math.prod(shape[axis] for axis in self._canonical[:-used])

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
        elif word != "1" and not (len(word) == 1 and word.islower()):
            raise _bad(pattern, f"`{word}` is not an axis; axes are single letters, or 1")
        else:
            (terms if group is None else group).append(word)
    if group is not None:
        raise _bad(pattern, "a parenthesis is not closed")
    names = [name for term in terms for name in (term if isinstance(term, tuple) else (term,))]
    letters = [name for name in names if name != "1"]
    repeated = sorted({name for name in letters if letters.count(name) > 1})
    if repeated:
        raise _bad(pattern, f"`{repeated[0]}` appears twice")
    for needed in ("h", "w", "d"):
        if needed not in letters:
            raise _bad(pattern, f"`{needed}` is missing")
    groups = [term for term in terms if isinstance(term, tuple)]
    if len(groups) > 1 or any(
        tuple(name for name in _ROWS if name in term) != term or "h" not in term or "w" not in term
        for term in groups
    ):
        raise _bad(pattern, "a group is (h w), with p before and s after where there are such rows")
    if not groups and ({"p", "s"} & set(letters)):
        raise _bad(pattern, "p and s are rows of a flattened grid and belong inside (p h w s)")
    return Layout(" ".join(pattern.split()), tuple(terms))


def _bad(pattern: str, reason: str) -> UsageError:
    return UsageError(
        f"axis pattern {pattern!r}: {reason}.",
        hint='a flat table is "1 (p h w s) d" or "(p h w s) d"; a grid is "1 h w d" or "1 d h w".',
    )
