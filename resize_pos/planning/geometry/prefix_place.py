"""Rows beside the grid that come last, where a class row before the grid was expected.

A shape cannot show it, so the values are asked. Five rows are compared first, without numpy: at the
end of a table where two cells lie side by side, neighbouring rows are similar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import BEGINNING
from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.tensors import DTYPES
from resize_pos.families.family import Role
from resize_pos.families.tables import Located, PositionTable, Unsettled
from resize_pos.planning.geometry.grid_solver import rows_in_words
from resize_pos.planning.geometry.sincos_detect import Peek, floats_of
from resize_pos.planning.rules.base import Surroundings

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEWEST_CELLS = 16
_CLEARLY = 0.15  # difference of two cosines; of noise with 64 channels it is below


def check_prefix_places(located: Located, around: Surroundings) -> Located:
    """Move tables whose prefix rows seem to come last to the unsettled ones."""
    read, peek, request = around.read, around.peek, around.request
    told = request.prefix is not None or request.suffix is not None
    if told or read is None or peek is None:
        return located
    found = {
        table.name: Unsettled(table.tensor, table.family, error)
        for table in located.tables
        if table.name not in around.known
        and _may_come_last(table, peek)
        and (error := _objection(table, read)) is not None
    }
    if not found:
        return located
    tables = tuple(table for table in located.tables if table.name not in found)
    return replace(located, tables=tables, unsettled=(*located.unsettled, *found.values()))


def _objection(table: PositionTable, read: Callable[[str], NDArray[Any]]) -> GeometryError | None:
    from resize_pos.planning.geometry.value_checks import misplaced_rows

    opinion = misplaced_rows(table, read(table.name))
    if opinion is None or opinion.choice is None:
        return None
    before, after = opinion.choice.prefix.count, opinion.choice.suffix.count
    return GeometryError(
        f"{table.tensor}: {rows_in_words(table.prefix)} should stand before the grid, but "
        f"{opinion.words}.",
        hint=f"pass --prefix {before} --suffix {after}; or --prefix {table.prefix}, if they are.",
    )


def _may_come_last(table: PositionTable, peek: Peek) -> bool:
    """Whether the first two rows are more alike than the last two."""
    rows = table.layout.rows(table.tensor.shape)
    flat = table.layout.terms[-1:] == ("d",) and table.layout.grid(table.tensor.shape) is None
    plain = table.role is Role.ABSOLUTE and flat and table.frames == 1
    if not plain or not table.prefix or table.suffix or table.grid.cells < _FEWEST_CELLS:
        return False
    # Of an object in a store, the beginning of a long table has been read already.
    between = min(rows // 2, BEGINNING * rows // max(1, table.tensor.nbytes) - 1)
    try:
        first, second, middle, last_but_one, last = (
            _row(table, number, peek) for number in (0, 1, between, rows - 2, rows - 1)
        )
    except (TableError, KeyError):  # the rows are not contiguous, or of an unusual dtype
        return False
    begin = _likeness(first, second, middle)
    return begin - _likeness(last_but_one, last, middle) > _CLEARLY


def _row(table: PositionTable, number: int, peek: Peek) -> Sequence[float]:
    size = table.tensor.shape[-1] * (DTYPES[table.tensor.dtype].bits // 8)
    return floats_of(peek(table.name, number * size, size), table.tensor.dtype)


def _likeness(one: Sequence[float], other: Sequence[float], base: Sequence[float]) -> float:
    """Return the cosine of two rows, each as its difference from a third one."""
    a = [x - z for x, z in zip(one, base, strict=True)]
    b = [y - z for y, z in zip(other, base, strict=True)]
    norms = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0.0
