"""Refusals that need a table's values: NaN, a wrong guess of the grid, an unknown buffer formula.

A dry run and the real run make the same checks. Names and shapes are enough for most plans, and
the check for NaN needs no numpy. A grid that is only "the only square that fits" is compared with
the values, and a buffer with its formula; only those two cases import numpy.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import BEGINNING
from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.operations import Rebuild
from resize_pos.core.request import Request
from resize_pos.core.tensors import numpy_dtype
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, Located, PositionTable, Step, Unsettled
from resize_pos.planning.geometry.grid_solver import (
    ONLY_SQUARE,
    Opinion,
    Reading,
    RowCount,
    readings,
)
from resize_pos.planning.geometry.sincos_detect import Peek
from resize_pos.planning.plan import Plan
from resize_pos.planning.unknown_names.shared_axis import is_line, shared_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CELLS = (Role.ABSOLUTE, Role.MIXING)
_MOST_SPLIT = 8  # rows beside the grid
_USUAL_PREFIXES = (0, 1, 2, 5)  # none, cls, cls + distillation, cls + four registers

_FLOATS = {"F32": "f", "F64": "d"}
_EXPONENTS = {"F16": ("H", 0x7C00), "BF16": ("H", 0x7F80), "F8_E5M2": ("B", 0x7C)}  # all ones: NaN
_NANS = {"F8_E4M3": (0x7F, 0xFF), "F8_E5M2FNUZ": (0x80,), "F8_E4M3FNUZ": (0x80,)}


def require_sound_values(plan: Plan, data: Callable[[str], bytes], where: str) -> None:
    """Refuse what the real run would refuse after reading the tables; `data` returns bytes."""
    for step in plan.changes:
        if not _all_finite(step.tensor.dtype, data(step.name)):
            require_finite(step.name, _as_array(step, data), where)
    for table in tables_assumed_square(plan):
        require_plausible(table, _as_array(table, data))
    for step in plan.changes:
        if isinstance(step.operation, Rebuild):
            from resize_pos.transforms.execute import transform

            transform(step, _as_array(step, data))


def tables_assumed_square(plan: Plan) -> Iterator[PositionTable]:
    """List the tables for which a wrong guess of the grid would make the plan wrong.

    This includes a table that is kept because its assumed grid equals the target.
    """
    for step in plan.steps:
        kept_at_target = plan.request.to_image and step.table.role in _CELLS
        matters = step.action is not Action.KEEP or kept_at_target
        if ONLY_SQUARE in step.table.evidence and step.state is None and matters:
            yield step.table


def check_assumed_squares(
    located: Located, read: Callable[[str], NDArray[Any]], peek: Peek
) -> Located:
    """If the values contradict an assumed square grid, move the table to the unsettled ones."""
    tables, unsettled = [], []
    for table in located.tables:
        try:
            if ONLY_SQUARE in table.evidence and not _beginning_agrees(table, peek):
                require_plausible(table, read(table.name))
            tables.append(table)
        except GeometryError as error:
            unsettled.append(Unsettled(table.tensor, table.family, error))
    if not unsettled:
        return located
    return replace(located, tables=tuple(tables), unsettled=(*located.unsettled, *unsettled))


def require_finite(name: str, values: NDArray[Any], where: str) -> None:
    """Refuse NaN and Inf, with a count and the first place."""
    import numpy as np

    bad = ~np.isfinite(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise TableError(
            f"{where}: {name} holds {int(bad.sum())} values that are NaN or Inf, the first at "
            f"{list(first)}.",
            hint="the checkpoint is damaged or diverged in training; nothing was written.",
        )


def require_plausible(table: PositionTable, values: NDArray[Any]) -> None:
    """Refuse a grid that was assumed to be square if the values contradict it."""
    if ONLY_SQUARE not in table.evidence:
        return
    if table.layout.blocks(values.shape).cells * table.frames > 1:
        return
    from resize_pos.planning.geometry.smoothness import contradiction

    if not (table.prefix or table.suffix) and is_line(table.tensor, table.layout, lambda _: values):
        others = {table.name: table.tensor}
        raise shared_axis(table.tensor, table.layout, others, Request(), known=True)
    taken, possible = _readings(table)
    rows = table.layout.rows(values.shape)
    opinion = contradiction(values, table.layout, taken, possible, assumed=True)
    if opinion is not None and opinion.choice is not None:
        best = opinion.choice
        grid = f"--from-grid {best.grid.height}x{best.grid.width}"
        raise GeometryError(
            f"{table.name} has {rows} rows, and {taken} is {ONLY_SQUARE}, but {opinion.words}.",
            hint=f"pass --prefix {best.prefix.count} --suffix {best.suffix.count} "
            f"{grid if table.patch is not None else '--from SIZE'}, or other numbers if you know "
            "them.",
        )


def unshown_square(table: PositionTable, values: NDArray[Any]) -> str:
    """Say that the values do not show a square that was assumed; empty if they do."""
    if ONLY_SQUARE not in table.evidence or table.role is not Role.ABSOLUTE:
        return ""
    if table.layout.blocks(values.shape).cells * table.frames > 1:
        return ""
    from resize_pos.planning.geometry.smoothness import hides_width

    if not hides_width(values, table.layout, _readings(table)[0]):
        return ""
    side = table.grid.width
    return (
        f"{table.grid} is {ONLY_SQUARE}, but the source's values do not show it: rows {side} apart "
        f"are less alike than rows {side - 1} or {side + 1} apart; --from-grid states the grid"
    )


def _readings(table: PositionTable) -> tuple[Reading, list[Reading]]:
    """Return how a table is read, and every way in which it could be read."""
    prefix, suffix = RowCount(table.prefix, ""), RowCount(table.suffix, "")
    rows = table.layout.rows(table.tensor.shape)
    others = {RowCount(count, "") for count in _USUAL_PREFIXES if count + table.suffix < rows}
    pairs = [(each, suffix) for each in sorted({prefix, *others}, key=lambda c: c.count)]
    if table.prefix and not table.suffix:  # a class row may also come last
        pairs.append((RowCount(0, ""), prefix))
    return Reading(prefix, table.grid, suffix), readings(rows, pairs)


def _beginning_agrees(table: PositionTable, peek: Peek) -> bool:
    """Whether the beginning of a long table supports its grid, so that the rest is not read."""
    info, layout = table.tensor, table.layout
    rows, blocks = layout.rows(info.shape), layout.blocks(info.shape).cells
    few = BEGINNING * rows // max(1, info.nbytes)
    one_after_the_other = layout.terms[-1:] == ("d",) and rows * info.shape[-1] == info.elements
    if few >= rows or not one_after_the_other or blocks * table.frames > 1:
        return False
    import numpy as np

    from resize_pos.planning.geometry.smoothness import beginning_agrees

    dtype, width = numpy_dtype(info.dtype), info.shape[-1]
    values = np.frombuffer(peek(table.name, 0, few * width * dtype.itemsize), dtype)
    return beginning_agrees(values.reshape(few, width), Layout.parse("l d"), *_readings(table))


def misplaced_rows(table: PositionTable, values: NDArray[Any]) -> Opinion | None:
    """Return how the rows beside the grid lie before and after it, if not as assumed."""
    blocks = table.layout.blocks(values.shape).cells
    total = table.prefix + table.suffix
    if not 0 < total <= _MOST_SPLIT or blocks * table.frames > 1 or table.grid.cells == 1:
        return None
    from resize_pos.planning.geometry.smoothness import contradiction

    splits = [
        Reading(RowCount(total - last, ""), table.grid, RowCount(last, ""))
        for last in range(total + 1)
    ]
    taken = splits[table.suffix]
    return contradiction(values, table.layout, taken, splits)


def _as_array(source: Step | PositionTable, data: Callable[[str], bytes]) -> NDArray[Any]:
    import numpy as np

    info = source.tensor
    return np.frombuffer(data(info.name), numpy_dtype(info.dtype)).reshape(info.shape)


def _all_finite(dtype: str, data: bytes) -> bool:
    """Whether little-endian data holds neither NaN nor Inf; integers never do."""
    if dtype in _FLOATS:
        values = _numbers(_FLOATS[dtype], data)
        # A NaN or Inf makes the sum non-finite. So does overflow: then check each value.
        return math.isfinite(sum(values)) or all(map(math.isfinite, values))
    if dtype in _EXPONENTS:
        code, exponent = _EXPONENTS[dtype]
        return all(value & exponent != exponent for value in set(_numbers(code, data)))
    return not set(data).intersection(_NANS.get(dtype, ()))


def _numbers(code: str, data: bytes) -> array[Any]:
    values: array[Any] = array(code, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
