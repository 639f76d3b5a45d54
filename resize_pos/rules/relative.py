"""Relative tables: one row per offset between two patches, so 2n − 1 along an axis of n."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.errors import GeometryError
from resize_pos.geometry import Grid
from resize_pos.operations import Resample
from resize_pos.request import Request
from resize_pos.rules.base import Match, Surroundings
from resize_pos.tables import Action, PositionTable, Step, keep, stored_grid


def settle_table(
    match: Match,
    around: Surroundings,  # noqa: ARG001
    settled: Mapping[str, PositionTable],
) -> PositionTable:
    """Read the window off the offsets; it follows the image only where it equals the grid."""
    tensor, layout, family = match.tensor, match.layout, match.family
    offsets = layout.grid(tensor.shape)
    if offsets is None or offsets.height % 2 == 0 or offsets.width % 2 == 0:
        raise GeometryError(f"{tensor} should hold 2n − 1 offsets per axis, an odd number.")
    window = Grid((offsets.height + 1) // 2, (offsets.width + 1) // 2)
    leader = settled.get(match.stem + family.follows) if family.follows else None
    if leader is not None and window == _along(layout.terms, leader.grid):
        evidence = f"its window {window} is the grid of {leader.name}: global attention"
        follows: str | None = leader.name
    else:
        evidence = f"its window {window} is not the image grid: windowed attention"
        follows = None
    return PositionTable(
        tensor, family, match.stem, layout, window, evidence=(evidence,), follows=follows
    )


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:  # noqa: ARG001
    """Follow the absolute table's new grid, resampled as the family's own library does it."""
    if table.follows is None:
        return keep(table, table.evidence[0])
    target = _along(table.layout.terms, steps[table.follows].target)
    if target == table.grid:
        return keep(table, f"already {target}")
    assert table.family.convention is not None
    stored = stored_grid(table.role, target)
    return Step(
        table,
        Action.RESIZE,
        target,
        table.layout.shape(table.tensor.shape, table.prefix, stored, table.suffix),
        Resample(table.family.convention.resampling),
        f"offsets of {table.grid} → {target}, with {table.follows}",
    )


def _along(axes: tuple[str | tuple[str, ...], ...], grid: Grid) -> Grid:
    """Restrict a grid to the axes that a table has."""
    return Grid(grid.height if "h" in axes else 1, grid.width if "w" in axes else 1)
