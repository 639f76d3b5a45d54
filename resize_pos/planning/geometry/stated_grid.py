"""A grid that the user states, held against the values of its table.

Height and width are easily exchanged, and both readings have as many cells. So the values of a
table that is not square are asked. They must be clear: a user's word counts more than a score.
"""

from __future__ import annotations

import re

from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable
from resize_pos.planning.geometry.grid_solver import Reading, RowCount, readings
from resize_pos.planning.rules.base import Surroundings
from resize_pos.planning.unknown_names.commands import NAME

_FEWEST_CELLS = 36  # fewer are smooth in some reading by chance


def require_stated_grid(table: PositionTable, around: Surroundings) -> PositionTable:
    """Return the table, or refuse a stated grid that its values clearly contradict."""
    read = around.read
    if read is None or not _may_be_turned(table, around):
        return table
    from resize_pos.planning.geometry.smoothness import contradiction

    prefix, suffix = RowCount(table.prefix, ""), RowCount(table.suffix, "")
    rows = table.layout.rows(table.tensor.shape)
    taken = Reading(prefix, table.grid, suffix)
    possible = readings(rows, [(prefix, suffix)])
    opinion = contradiction(read(table.name), table.layout, taken, possible)
    if opinion is None or opinion.choice is None:
        return table
    best = opinion.choice.grid
    raise GeometryError(
        f"{table.name}: {_told(around.request)} is a grid of {table.grid} (height × width), but "
        f"{opinion.words}.",
        hint=_hint(table, best, around.request),
    )


def _may_be_turned(table: PositionTable, around: Surroundings) -> bool:
    """Whether the user has stated the shape of a flattened grid, but not how it is laid out."""
    request, layout = around.request, table.layout
    stated = request.from_size is not None or request.from_grid is not None
    by_all_means = request.axes is not None and request.from_grid is not None
    flat = layout.grid(table.tensor.shape) is None and {"h", "w"} <= layout.axes
    one = layout.blocks(table.tensor.shape).cells * table.frames == 1 and not layout.has_time
    plain = table.role is Role.ABSOLUTE and table.fixed is None and table.follows is None
    unknown = table.family.name == NAME  # its values have been asked
    return (
        stated
        and not by_all_means
        and flat
        and one
        and plain
        and not table.grid.is_square
        and table.grid.cells >= _FEWEST_CELLS
        and not unknown
        and table.name not in around.known
    )


def _told(request: Request) -> str:
    if request.from_size is not None:
        return f"--from {request.from_size}"
    return f"--from-grid {request.from_grid}".replace("×", "x")


def _hint(table: PositionTable, best: Grid, request: Request) -> str:
    taken, size = table.grid, request.from_size
    turned = best == Grid(taken.width, taken.height)
    grid = f"--from-grid {best.height}x{best.width}"
    right = f"--from {Size(size.width, size.height)}" if turned and size is not None else grid
    named, layout = f"--pattern '^{re.escape(table.name)}$'", table.layout
    by_columns = (
        f"if the model stores one column of cells after the other, pass {named} --axes "
        f"'{layout.pattern.replace('h w', 'w h')}' as well; "
        if turned and not layout.by_columns
        else ""
    )
    beside = f" --prefix {table.prefix}" if table.prefix else ""
    beside += f" --suffix {table.suffix}" if table.suffix else ""
    anyway = f"{named} --axes '{layout}'{beside} --from-grid {taken.height}x{taken.width}"
    return f"pass {right} instead; {by_columns}if the values mislead, pass {anyway} instead."
