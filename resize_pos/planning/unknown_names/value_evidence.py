"""What the values of a candidate say about a reading of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from resize_pos.core.axes import Layout
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import PositionTable
from resize_pos.planning.geometry.grid_solver import ONLY_SQUARE, Reading, RowCount, readings
from resize_pos.planning.rules.base import Match, Surroundings

if TYPE_CHECKING:
    from numpy.typing import NDArray

_USUAL_ASPECT = 4  # of a grid, where its shape can also be read as frames of another grid
_LARGEST_READ = 2**28  # bytes of a candidate whose values are read


class Values(StrEnum):
    """What the values of a candidate say about a reading of its rows."""

    AGREE = "agree"
    FORMULA = "formula"  # a sin-cos formula over this very grid
    CONTRADICT = "contradict"
    STACKED = "stacked"  # one grid after the other, such as frames
    UNTRAINED = "untrained"
    UNCLEAR = "unclear"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reading of a candidate, and what its values say about it."""

    table: PositionTable
    values: Values
    words: str
    better: Reading | None = None  # what the values support instead

    @property
    def supported(self) -> bool:
        """Whether the values speak for the reading."""
        return self.values in (Values.AGREE, Values.FORMULA)


def likely(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Prefer the readings that the values support, and among these a grid to a narrow strip."""
    best = [each for each in attempts if each.supported] or attempts
    grids = [(each, each.table.grid.height, each.table.grid.width) for each in best]
    usual = [each for each, h, w in grids if max(h, w) <= _USUAL_ASPECT * min(h, w)]
    return usual or best


def is_strip(table: PositionTable) -> bool:
    """Whether a stored grid is so narrow that its shape may be frames and rows of cells."""
    sides = sorted((table.grid.height, table.grid.width))
    return table.layout.pattern in ("1 h w d", "h w d") and sides[1] > _USUAL_ASPECT * sides[0]


def ask_values(table: PositionTable, match: Match, around: Surroundings) -> Attempt:
    """Compare the reading with the one that the values support."""
    if not _readable(table.tensor, around):
        return Attempt(table, Values.UNREAD, "its values were not read")
    if table.layout.has_time or not {"h", "w"} <= table.layout.axes:
        return Attempt(table, Values.UNCLEAR, "its values are not compared")
    from resize_pos.planning.geometry.smoothness import (
        judge_readings,
        looks_untrained,
        loose_rows,
        rows_of,
        stacked_grids,
    )

    values = _read(table.tensor, around)
    untrained = looks_untrained(rows_of(values, table.layout))
    if untrained:
        return Attempt(table, Values.UNTRAINED, f"its values do not tell: {untrained}")
    stated = Reading(RowCount(table.prefix, ""), table.grid, RowCount(table.suffix, ""))
    rows = table.layout.rows(table.tensor.shape)
    if table.layout.grid(table.tensor.shape) is not None:
        pairs = [(RowCount(0, ""), RowCount(0, ""))]
    else:
        pairs = [
            (p, s)
            for p in (match.prefixes or (stated.prefix,))
            for s in (match.suffixes or (stated.suffix,))
            if not (p.count and s.count) and p.count + s.count < rows
        ]
    opinion = judge_readings(values, table.layout, readings(rows, pairs))
    choice = opinion.choice
    if choice is None:
        return Attempt(table, Values.UNCLEAR, opinion.words)
    frames = stacked_grids(rows_of(values, table.layout), choice)
    if frames and not is_told(around):
        words = f"its values look like several grids one after the other ({frames})"
        return Attempt(table, Values.STACKED, words)
    flat = table.layout.grid(table.tensor.shape) is None
    loose = loose_rows(rows_of(values, table.layout), choice) if flat else (0, 0)
    if any(loose):
        first, last = loose
        which = [f"{name} {count}" for name, count in (("first", first), ("last", last)) if count]
        which_rows = f"its {' and '.join(which)} rows do not"
        words = f"{opinion.words}; {which_rows}, so they may belong to tokens"
        height = choice.grid.height - (first + last) // choice.grid.width
        before, after = RowCount(choice.prefix.count + first, ""), choice.suffix.count + last
        better = Reading(before, Grid(height, choice.grid.width), RowCount(after, ""))
        return Attempt(table, Values.CONTRADICT, words, better)
    same = (choice.prefix.count, choice.grid, choice.suffix.count) == (
        table.prefix,
        table.grid,
        table.suffix,
    )
    if same:
        return Attempt(table, Values.AGREE, opinion.words)
    if ONLY_SQUARE in table.evidence:  # a square was only assumed
        owners = [each.reason for each in (choice.prefix, choice.suffix) if each.count]
        table = replace(
            table,
            grid=choice.grid,
            prefix=choice.prefix.count,
            suffix=choice.suffix.count,
            evidence=(*owners, *(words for words in table.evidence if str(table.kernel) in words)),
        )
        return Attempt(table, Values.AGREE, opinion.words)
    return Attempt(table, Values.CONTRADICT, opinion.words, choice)


def is_told(around: Surroundings) -> bool:
    """Whether the user states the size or the grid of the source."""
    return around.request.from_grid is not None or around.request.from_size is not None


def _readable(tensor: TensorInfo, around: Surroundings) -> bool:
    return around.read is not None and tensor.nbytes <= _LARGEST_READ


def _read(tensor: TensorInfo, around: Surroundings) -> NDArray[Any]:
    read: Callable[[str], NDArray[Any]] | None = around.read
    assert read is not None
    return around.once(("values", tensor.name), lambda: read(tensor.name))


def looks_learned(tensor: TensorInfo, layout: Layout, around: Surroundings) -> bool:
    """Whether the values of flat rows look trained."""
    flat = {"h", "w"} <= layout.axes and layout.grid(tensor.shape) is None
    plain = flat and not layout.has_time and not {"H", "W"} & layout.axes
    if not plain or not _readable(tensor, around):
        return False
    from resize_pos.planning.geometry.smoothness import looks_untrained, rows_of

    rows = rows_of(_read(tensor, around), layout)
    return around.once(("learned", tensor.name, layout), lambda: not looks_untrained(rows))
