"""Layers over patches: weights and biases of a fully connected layer over all cells."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Mixing, ResampleMixing
from resize_pos.core.request import Request
from resize_pos.families.tables import Action, PositionTable, Step, keep
from resize_pos.planning.rules import absolute
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.rules.target import target_grid


def settle_table(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Determine the grid of the cells like that of an absolute table without a prefix."""
    table = absolute.settle_table(match, around, settled)
    if match.family.mixes is Mixing.BOTH:
        shape = match.tensor.shape
        read = match.layout.exchanged.rows(shape)
        if read != table.grid.cells:
            raise GeometryError(
                f"{match.tensor} is not a layer from cells to cells: it writes "
                f"{table.grid.cells} and reads {read}."
            )
    return table


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:
    """Transfer the weights to the grid that the request gives."""
    mixing = table.family.mixes
    assert mixing is not None
    target = target_grid(table, request, steps)
    if target == table.grid:
        return keep(table, f"already {table.grid}")
    return Step(
        table,
        Action.RESIZE,
        target,
        _shape(table, target, mixing),
        ResampleMixing(request.resampling, mixing),
        f"{table.grid} → {target}",
    )


def _shape(table: PositionTable, target: Grid, mixing: Mixing) -> tuple[int, ...]:
    shape = table.layout.shape(table.tensor.shape, 0, target, 0)
    return table.layout.exchanged.shape(shape, 0, target, 0) if mixing is Mixing.BOTH else shape
