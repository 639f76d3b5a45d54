"""Axis patterns such as `1 (p h w s) d`: how a stored tensor holds its prefix, grid and suffix.

A pattern names the axes of the stored shape from first to last:

    h w       the grid; a 1-D table has one of them, or `l`
    t         time: frames, or tubes of frames, each with a grid of its own
    H W       blocks: the grid is cut into H × W pieces and `h w` is what one piece holds
    d         the channels
    1         an axis of length one
    a … z     any other letter: an axis that is carried along unchanged

Parentheses flatten axes into one stored axis. With `p` or `s`, the rows before and after the grid,
the group is a sum: `(p t h w s)` has p + t·h·w + s rows. Without them it is a product, such as
`(h w)`, `(H W)` or `(k (p h w s) d)`. In a product, whatever is not part of the grid needs a stated
length, written `k=4`; `(H W)` alone is taken for a square. `w` before `h` is a grid that is stored
by columns.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from resize_pos.core.errors import UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.lazy_regex import lazy_regex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

Term = str | tuple["Term", ...]

_GRID = ("h", "w", "l")
_CELLS = ("t", *_GRID)
_ROWS = ("p", *_CELLS, "s")
_BLOCKS = ("H", "W")
_ROW_ORDERS = (_ROWS, ("p", "t", "w", "h", "l", "s"))  # row by row, or column by column
_SUM = "+"  # the place of a flattened sum among the axes
_WORD = lazy_regex(r"([a-zHW])(?:=([1-9][0-9]*))?|1", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A table taken apart: `grid` is (copies, h, w, d); `prefix`, `suffix` are (copies, n, d).

    Frames are copies of the grid, so a table with time has more copies of that than of the rest.
    """

    prefix: NDArray[np.generic]
    grid: NDArray[np.generic]
    suffix: NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Layout:
    """A compiled axis pattern. numpy is used only through array methods, never imported."""

    pattern: str
    terms: tuple[Term, ...]  # one per stored axis; a tuple is a flattened group
    stated: tuple[tuple[str, int], ...] = ()  # the lengths that the pattern itself gives

    @classmethod
    def parse(cls, pattern: str) -> Layout:
        """Compile a pattern, or say what is wrong with it."""
        return _parse(pattern)

    def bind(self, **lengths: int) -> Layout:
        """State lengths that the pattern leaves open, such as the channels inside a group."""
        pattern = self.pattern
        for axis, length in lengths.items():
            pattern = re.sub(rf"\b{axis}\b(?!=)", f"{axis}={length}", pattern)
        return replace(self, pattern=pattern, stated=(*self.stated, *lengths.items()))

    @property
    def axes(self) -> frozenset[str]:
        """Every axis the pattern names, wherever it stands."""
        return frozenset(_letters(self.terms))

    @property
    def exchanged(self) -> Layout:
        """Return the layout with the places of `(h w)` and `k` exchanged."""
        halves = [part.replace("k", "(h w)") for part in self.pattern.split("(h w)")]
        return Layout.parse("k".join(halves))

    @property
    def by_columns(self) -> bool:
        """Whether a column of the grid is stored after the other."""
        return [name for name in _letters(self.terms) if name in ("h", "w")] == ["w", "h"]

    @property
    def has_time(self) -> bool:
        """Whether the table has frames."""
        return "t" in self.axes

    def mismatch(self, shape: tuple[int, ...]) -> str | None:
        """Say why a shape cannot have this layout; None when it can."""
        if len(shape) != len(self.terms):
            return f"{len(shape)} axes where `{self.pattern}` has {len(self.terms)}"
        stated = dict(self.stated)
        for axis, (term, length) in enumerate(zip(self.terms, shape, strict=True)):
            if term == "1" and length != 1:
                return f"axis {axis} is {length} where `{self.pattern}` has 1"
            if isinstance(term, str) and stated.get(term, length) != length:
                return f"axis {axis} is {length} where `{self.pattern}` has {stated[term]}"
            if length < 1:
                return f"axis {axis} is empty"
            if isinstance(term, tuple):
                reason = self._misfit(term, length)
                if reason is not None:
                    return f"axis {axis}: {reason}"
        return None

    def rows(self, shape: tuple[int, ...]) -> int:
        """Count the stored rows: prefix + grid + suffix, of all frames and blocks."""
        total = 1
        for term, length in zip(self.terms, shape, strict=True):
            if isinstance(term, tuple):
                total *= length // self._besides(term)
            elif term in _CELLS or term in _BLOCKS:
                total *= length
        return total

    def blocks(self, shape: tuple[int, ...]) -> Grid:
        """Return the pieces that the grid is cut into; 1×1 for a table that is not cut."""
        lengths = self._own(shape)
        for term, length in zip(self.terms, shape, strict=True):
            if term == _BLOCKS and not {"H", "W"} <= lengths.keys():
                side = math.isqrt(length)
                return Grid(side, length // side)
        return Grid(lengths.get("H", 1), lengths.get("W", 1))

    def frames(self, shape: tuple[int, ...]) -> int | None:
        """Read the frames off the shape, where time has an axis of its own; 1 without time."""
        return self._own(shape).get("t") if self.has_time else 1

    def grid(self, shape: tuple[int, ...]) -> Grid | None:
        """Read the grid off the shape, where every axis of it is stored on its own."""
        lengths = self._own(shape)
        if any(axis not in lengths for axis in self.axes if axis in (*_GRID, *_BLOCKS)):
            return None
        height = lengths.get("h", 1) * lengths.get("H", 1)
        return Grid(height, lengths.get("w", lengths.get("l", 1)) * lengths.get("W", 1))

    def shape(
        self, source: tuple[int, ...], prefix: int, grid: Grid, suffix: int, frames: int = 1
    ) -> tuple[int, ...]:
        """Return the stored shape after the grid has become `grid`."""
        lengths = self._lengths(source, grid, frames)
        return tuple(self._length(term, lengths, prefix, suffix) for term in self.terms)

    def unfold(
        self, array: NDArray[Any], prefix: int, grid: Grid, suffix: int, frames: int = 1
    ) -> Unfolded:
        """Split a stored array into its parts. They are views where the memory layout allows it."""
        lengths = self._lengths(array.shape, grid, frames)
        assert self.shape(array.shape, prefix, grid, suffix, frames) == array.shape, (
            array.shape,
            (prefix, grid, suffix, frames),
        )
        flat = self._flat
        split = array.reshape([self._length(term, lengths, prefix, suffix) for term in flat])
        carried = self._carried
        outer = [*carried, *(axis for axis in _BLOCKS if axis in flat)]
        channels, pieces = lengths.get("d", 1), math.prod(lengths[axis] for axis in outer)
        if _SUM not in flat:
            cells, stored = split, list(flat)
            before = after = array.reshape(-1)[:0].reshape(pieces, 0, channels)
        else:
            order = [*outer, _SUM, *(["d"] if "d" in flat else [])]
            rows = split.transpose([flat.index(axis) for axis in order])
            rows = rows.reshape(*(lengths[axis] for axis in outer), -1, channels)
            end = rows.shape[-2] - suffix
            before = rows[..., :prefix, :].reshape(pieces, prefix, channels)
            after = rows[..., end:, :].reshape(pieces, suffix, channels)
            inner = [axis for axis in self._sum if axis in _CELLS]
            stored = [*outer, *inner, "d"]
            cells = rows[..., prefix:end, :].reshape([lengths.get(a, 1) for a in stored])
        wanted = [*carried, *self._ordered(stored)]
        cells = cells.transpose([stored.index(axis) for axis in wanted])
        return Unfolded(before, cells.reshape(-1, grid.height, grid.width, channels), after)

    def fold(self, parts: Unfolded, source: tuple[int, ...]) -> NDArray[Any]:
        """Put parts together again; `source` supplies the axes that are carried unchanged."""
        import numpy as np

        total, height, width, channels = parts.grid.shape
        prefix, suffix = parts.prefix.shape[1], parts.suffix.shape[1]
        grid, blocks = Grid(height, width), self.blocks(source)
        own = self._own(source)
        copies = math.prod(own[axis] for axis in self._carried)
        lengths = self._lengths(source, grid, total // copies)
        flat, carried = self._flat, self._carried
        outer = [*carried, *(axis for axis in _BLOCKS if axis in flat)]
        inner = [axis for axis in (self._sum or flat) if axis in _CELLS]
        named = [*outer, *inner, "d"] if _SUM in flat else list(flat)
        wanted = [*carried, *self._ordered(named)]
        cells = parts.grid.reshape([lengths.get(axis, 1) for axis in wanted])
        cells = cells.transpose([wanted.index(axis) for axis in named])
        shape = self.shape(source, prefix, grid, suffix, total // copies)
        if _SUM not in flat:
            return np.ascontiguousarray(cells).reshape(shape)
        pieces = copies * blocks.cells
        rows = np.concatenate(
            [parts.prefix, cells.reshape(pieces, -1, channels), parts.suffix], axis=1
        )
        order = [*outer, _SUM, *(["d"] if "d" in flat else [])]
        rows = rows.reshape([self._length(term, lengths, prefix, suffix) for term in order])
        rows = rows.transpose([order.index(axis) for axis in flat])
        return np.ascontiguousarray(rows).reshape(shape)

    @property
    def _sum(self) -> tuple[Term, ...]:
        """The group with prefix or suffix rows; empty without one."""
        return next((group for group in _groups(self.terms) if {"p", "s"} & set(group)), ())

    @property
    def _flat(self) -> tuple[str, ...]:
        """Every axis longer than one from first to last, a sum as one of them."""
        products = _products(self.terms)
        return tuple(_SUM if isinstance(t, tuple) else t for t in products if t != "1")

    @property
    def _carried(self) -> list[str]:
        """The axes that are neither rows nor channels."""
        known = (*_CELLS, *_BLOCKS, "d", _SUM)
        return [axis for axis in self._flat if axis not in known]

    def _ordered(self, present: list[str]) -> list[str]:
        """Put axes in the order in which a grid is resampled."""
        return [axis for axis in ("t", "H", "h", "W", "w", "l", "d") if axis in present]

    def _own(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Return the lengths that a shape or the pattern states outright."""
        lengths = dict(self.stated)
        for term, length in zip(self.terms, shape, strict=True):
            if isinstance(term, str) and term != "1":
                lengths[term] = length
            elif isinstance(term, tuple) and len(term) == 1 and isinstance(term[0], str):
                lengths[term[0]] = length
        return lengths

    def _lengths(self, source: tuple[int, ...], grid: Grid, frames: int) -> dict[str, int]:
        """Return the length of every axis once the grid is known."""
        blocks = self.blocks(source)
        cells = {
            "t": frames,
            "H": blocks.height,
            "W": blocks.width,
            "h": grid.height // blocks.height,
            "w": grid.width // blocks.width,
            "l": grid.width,
            "1": 1,
        }
        return self._own(source) | cells

    def _length(self, term: Term, lengths: Mapping[str, int], prefix: int, suffix: int) -> int:
        if term == _SUM:
            term = self._sum
        if isinstance(term, str):
            return lengths[term]
        extra = prefix + suffix if {"p", "s"} & set(term) else 0
        inner = [part for part in term if part not in ("p", "s")]
        return math.prod(self._length(part, lengths, prefix, suffix) for part in inner) + extra

    def _besides(self, group: tuple[Term, ...]) -> int:
        """Multiply the lengths in a product that are not rows."""
        stated = dict(self.stated)
        others = [a for a in group if isinstance(a, str) and a not in (*_ROWS, *_BLOCKS)]
        return math.prod(stated.get(axis, 1) for axis in others)

    def _misfit(self, group: tuple[Term, ...], length: int) -> str | None:
        stated = dict(self.stated)
        others = [a for a in group if isinstance(a, str) and a not in (*_ROWS, *_BLOCKS)]
        unknown = [axis for axis in others if axis not in stated]
        if unknown:
            return f"the length of `{unknown[0]}` in `{self.pattern}` is not known"
        if group == _BLOCKS and not set(_BLOCKS) <= set(stated):
            return None if math.isqrt(length) ** 2 == length else f"{length} blocks are no square"
        if length % self._besides(group):
            return f"{length} is no multiple of {self._besides(group)}"
        return None

    def __str__(self) -> str:
        return self.pattern


def _letters(terms: tuple[Term, ...]) -> Iterator[str]:
    for term in terms:
        yield from (term,) if isinstance(term, str) else _letters(term)


def _groups(terms: tuple[Term, ...]) -> Iterator[tuple[Term, ...]]:
    for term in terms:
        if isinstance(term, tuple):
            yield term
            yield from _groups(term)


def _products(terms: tuple[Term, ...]) -> Iterator[Term]:
    for term in terms:
        if isinstance(term, tuple) and not {"p", "s"} & set(term):
            yield from _products(term)
        else:
            yield term


@lru_cache(maxsize=256)
def _parse(pattern: str) -> Layout:
    stack: list[list[Term]] = [[]]
    stated: list[tuple[str, int]] = []
    for word in pattern.replace("(", " ( ").replace(")", " ) ").split():
        found = _WORD.fullmatch(word)
        if word == "(":
            stack.append([])
        elif word == ")" and len(stack) > 1:
            group = tuple(stack.pop())
            stack[-1].append(group)
        elif found is None:
            message = f"`{word}` is not an axis; axes are single letters, or 1"
            raise _bad(pattern, "parentheses do not match" if word in "()" else message)
        else:
            stack[-1].append(found[1] or "1")
            stated += [(found[1], int(found[2]))] if found[2] else []
    if len(stack) > 1:
        raise _bad(pattern, "a parenthesis is not closed")
    layout = Layout(" ".join(pattern.split()), tuple(stack[0]), tuple(stated))
    reason = _objection(layout)
    if reason is not None:
        raise _bad(pattern, reason)
    return layout


def _objection(layout: Layout) -> str | None:
    names = [name for name in _letters(layout.terms) if name != "1"]
    repeated = [name for index, name in enumerate(names) if name in names[:index]]
    if repeated:
        return f"`{repeated[0]}` appears twice"
    grid = [name for name in names if name in _GRID]
    if not (grid or "t" in names) or ("l" in grid and len(grid) > 1):
        return "it needs `h` and `w`, `t`, or `l` for a 1-D table"
    groups = list(_groups(layout.terms))
    sums = [group for group in groups if {"p", "s"} & set(group)]
    for group in groups:
        rows = tuple(name for name in group if name in _ROWS)
        orders = [tuple(name for name in order if name in rows) for order in _ROW_ORDERS]
        if rows not in orders or () in groups:
            return "a group is (h w), with p before and s after where there are such rows"
        if group in sums and (len(rows) != len(group) or not set(_CELLS) & set(group)):
            return "a group is one of rows, (p t h w s), as soon as p or s is in it"
        if set(grid) & set(group) and not set(grid) <= set(group):
            return "h and w belong into the same group"
    if sums and "t" in names and "t" not in sums[0]:
        return "frames with rows of their own are copies of a table: write `n` instead of `t`"
    if {"p", "s"} & set(layout.terms):
        return "p and s are rows of a flattened grid and belong inside (p h w s)"
    if any(len(list(_groups(group))) > 1 for group in groups):
        return "parentheses nest one level deep"
    return None


def _bad(pattern: str, reason: str) -> UsageError:
    return UsageError(
        f"axis pattern {pattern!r}: {reason}.",
        hint='a flat table is "1 (p h w s) d" or "(p h w s) d"; a grid is "1 h w d" or "1 d h w".',
    )
