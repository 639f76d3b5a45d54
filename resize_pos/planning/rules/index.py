"""Tables indexed by a raw row number: they are extended or cut, never resampled."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.core.geometry import Grid
from resize_pos.core.operations import SetLength
from resize_pos.core.request import Request
from resize_pos.families.tables import Action, PositionTable, Step, keep
from resize_pos.planning.rules.base import Match, Surroundings


def settle_table(
    match: Match,
    around: Surroundings,  # noqa: ARG001
    settled: Mapping[str, PositionTable],  # noqa: ARG001
) -> PositionTable:
    """Treat every row as one coordinate."""
    rows = match.layout.grid(match.tensor.shape)
    assert rows is not None
    evidence = ("one row per coordinate, looked up as it is",)
    return PositionTable(
        match.tensor, match.family, match.stem, match.layout, rows, evidence=evidence
    )


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:  # noqa: ARG001
    """Keep the table, or change it to the number of rows that the request states."""
    if request.to_rows is None:
        return keep(table, f"{table.family.why}; --to-rows N extends or cuts it")
    if request.to_rows == table.grid.width:
        return keep(table, f"already {request.to_rows} rows")
    target = Grid(1, request.to_rows)
    shape = table.layout.shape(table.tensor.shape, 0, target, 0)
    reason = f"{table.grid.width} → {request.to_rows} rows"
    return Step(table, Action.RESIZE, target, shape, SetLength(), reason)
