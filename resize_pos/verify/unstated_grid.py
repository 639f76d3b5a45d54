"""Judge an output whose grid neither a flag nor its own values tell, if the source's values can.

Damage may hide the grid: cells in another order vary smoothly over none, and a row too many fits
none. A table that fails with every possible grid is damaged, whichever is right. An honest one is
not accepted here: its grid has to be stated, because the model may have another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import PositionTable
from resize_pos.planning.locate import locate_in
from resize_pos.planning.plan import Plan
from resize_pos.quality.checks import Check, Level
from resize_pos.verify.output_plan import of_output, plan_between, without_target
from resize_pos.verify.row_counts import TableRows, find_reading, is_row_table, own_readings

_MOST_READINGS = 12  # the squarest ones; each takes as long as the check of one table

# Judges the table of that name with a plan: whether it fails, and the name of the mistake if known.
FailsWith = Callable[[Plan, str], tuple[bool, str]]


def plan_despite_doubt(
    source: Container,
    output: Container,
    request: Request,
    doubt: GeometryError,
    fails_with: FailsWith,
) -> tuple[Plan, Check]:
    """Plan with the grid that the values show, or with any grid if the table fails with all.

    `doubt` is raised again if the table may be honest.
    """
    if request.to_image:
        raise doubt
    theirs = {
        entry.tensor.name: entry.tensor for entry in locate_in(output, of_output(request)).unsettled
    }
    ours = locate_in(source, without_target(request)).tables
    table = next((each for each in ours if each.name in theirs), None)
    if table is None or not is_row_table(table, theirs[table.name].shape):
        raise doubt
    info = theirs[table.name]
    rows = TableRows.of(table, source.read(table.name), output.read(table.name))
    if rows is None:
        raise doubt

    def plan_to(grid: Grid) -> Plan:
        return plan_between(source, output, replace(request, to_grid=grid))

    found = find_reading(table, rows)
    if found is not None:
        if (found.prefix.count, found.suffix.count) == (table.prefix, table.suffix):
            raise _unstated(doubt, found.grid)
        return plan_to(found.grid), _note(table, info, f"its cells show {found.grid}")
    possible = own_readings(table, info)[:_MOST_READINGS]
    if not possible:
        raise doubt
    named: Grid | None = None
    for reading in possible:
        fails, mistake = fails_with(plan_to(reading.grid), table.name)
        if not fails:
            raise _unstated(doubt, reading.grid)
        named = named or (reading.grid if mistake else None)
    grid = named or possible[0].grid
    others = f" and with {len(possible) - 1} others that fit" if len(possible) > 1 else ""
    return plan_to(grid), _note(table, info, f"it fails with {grid}{others}")


def _unstated(doubt: GeometryError, grid: Grid) -> GeometryError:
    flag = f"--to-grid {grid.height}x{grid.width}"
    return GeometryError(
        doubt.message,
        hint=f"with {flag} it may be a resize of the source; pass that if it is the model's grid.",
    )


def _note(table: PositionTable, info: TensorInfo, words: str) -> Check:
    rows = table.layout.rows(info.shape)
    return Check(
        "geometry",
        Level.WARN,
        f"{table.name}: no flag states how its {rows} rows are read; {words}",
    )
