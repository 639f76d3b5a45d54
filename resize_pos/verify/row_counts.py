"""Find the grid in a table with too many or too few rows, by the values of its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from resize_pos.core.conventions import Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, Step
from resize_pos.planning.geometry.grid_solver import Reading, RowCount, readings, rows_in_words
from resize_pos.quality.measures.sampling import Wide, ratio, resample, size, some_channels
from resize_pos.verify.made_by.turned import flat, resamplings

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HONEST = 0.05  # of how much positions differ: up to it, the cells are those of an honest resize
_MOST_PREFIX = 8  # rows before the grid that are tried beside the source's own
_MOST_EXTRA = 64  # rows; of more, the grid is looked for at both ends alone


@dataclass(frozen=True, slots=True)
class TableRows:
    """The cells of a source, and the rows of an output: rows × channels, some channels."""

    source: Wide  # (1, h, w, d)
    after: Wide

    @classmethod
    def of(
        cls, table: PositionTable, before: NDArray[Any], after: NDArray[Any]
    ) -> TableRows | None:
        """Take the rows of two plain tables apart; None if they are no such tables."""
        plain = table.role is Role.ABSOLUTE and not table.layout.has_time
        if not plain or not is_row_table(table, after.shape):
            return None
        old, new = (
            some_channels(array.reshape(-1, array.shape[-1]).astype(np.float64))
            for array in (before, after)
        )
        cells = old[table.prefix : table.prefix + table.grid.cells]
        return cls(cells.reshape(1, table.grid.height, table.grid.width, -1), new)

    def honest(self, target: Grid) -> Iterator[tuple[Resampling, Wide]]:
        """Resize the source as libraries do."""
        for resampling in resamplings():
            yield resampling, flat(resample(self.source, target, resampling))

    def distance(self, start: int, cells: Wide) -> float:
        """Return how far rows from `start` on are from some cells, of how much these differ."""
        apart = self.after[start : start + len(cells)] - cells
        return ratio(size(apart), size(cells - cells.mean(axis=0)), np.inf)


def is_row_table(table: PositionTable, shape: tuple[int, ...]) -> bool:
    """Whether a shape is that of the table with another number of rows, and rows are one axis."""
    own = table.tensor.shape
    one_axis = own[-1] * table.layout.rows(own) == table.tensor.elements
    return table.layout.mismatch(shape) is None and one_axis and shape[-1] == own[-1]


def find_reading(table: PositionTable, rows: TableRows) -> Reading | None:
    """Find the grid, and the rows around it, with which a table is an honest resize."""
    behind = (table.suffix, 0, _zeros_at_the_end(rows.after))
    prefixes = dict.fromkeys((table.prefix, *range(_MOST_PREFIX + 1)))
    pairs = [
        (RowCount(prefix, ""), RowCount(suffix, ""))
        for prefix in prefixes
        for suffix in dict.fromkeys(behind)
        if prefix + suffix < len(rows.after)
    ]
    best: tuple[float, Reading] | None = None
    for reading in readings(len(rows.after), pairs):
        if min(reading.grid.height, reading.grid.width) < 2:
            continue
        for _, cells in rows.honest(reading.grid):
            error = rows.distance(reading.prefix.count, cells)
            if best is None or error < best[0]:
                best = error, reading
    return best[1] if best is not None and best[0] <= _HONEST else None


def own_readings(table: PositionTable, info: TensorInfo) -> list[Reading]:
    """List the grids of a table that has as many rows around its grid as the source's."""
    pair = RowCount(table.prefix, ""), RowCount(table.suffix, "")
    found = readings(table.layout.rows(info.shape), [pair])
    return [each for each in found if min(each.grid.height, each.grid.width) > 1]


def in_words(step: Step, rows: TableRows) -> str:
    """Say which rows are too many or missing; empty if no honest grid is found among them."""
    table, target = step.table, step.target
    extra = len(rows.after) - target.cells
    starts = range(extra + 1) if extra <= _MOST_EXTRA else (0, table.prefix, extra - table.suffix)
    for resampling, cells in rows.honest(target):
        for start in starts:
            if rows.distance(start, cells) <= _HONEST:
                around = start, extra - start
                return f"{_around(table, around, rows.after)} ({resampling})"
        kept = len(rows.after) - table.prefix
        begun = target.cells // 2 < kept < target.cells
        if begun and rows.distance(table.prefix, cells[:kept]) <= _HONEST:
            return f"the last {target.cells - kept} cells are missing ({resampling})"
    return ""


def _around(table: PositionTable, found: tuple[int, int], after: Wide) -> str:
    """Compare the rows before and after the grid with the source's."""
    parts = []
    for count, usual, place in zip(
        found, (table.prefix, table.suffix), ("before", "behind"), strict=True
    ):
        if count == usual:
            continue
        some = after[:count] if place == "before" else after[len(after) - count :]
        zero = " (all zero)" if count and not some.any() else ""
        parts.append(f"{rows_in_words(count)}{zero} {place} the grid, not {usual}")
    if not any(found):
        return "the prefix rows are gone"
    return f"{' and '.join(parts)}; the grid is honest"


def _zeros_at_the_end(after: Wide) -> int:
    used = np.flatnonzero(after.any(axis=1))
    return len(after) - 1 - int(used[-1]) if len(used) else 0
