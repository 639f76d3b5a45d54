"""Tensors that `--also` names: they are resized along with the table that has as many rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import USUAL_AXES, Family, Role, name_pattern
from resize_pos.families.tables import PositionTable
from resize_pos.planning.rules.base import Surroundings


def joined_tables(
    around: Surroundings, settled: Mapping[str, PositionTable]
) -> Iterator[PositionTable]:
    """Give every tensor that `--also` names the geometry of a table that was found."""
    assert around.request.also is not None
    wanted = name_pattern("--also", *around.request.also)
    leaders = [table for table in settled.values() if table.role is Role.ABSOLUTE]
    for tensor in around.tensors.values():
        if wanted.search(tensor.name) and tensor.name not in settled:
            yield _joined(tensor, leaders)


def _joined(tensor: TensorInfo, leaders: list[PositionTable]) -> PositionTable:
    rows = math.prod(tensor.shape[:-1])
    for leader in leaders:
        own = leader.layout.rows(leader.tensor.shape)
        cells = leader.frames * leader.grid.cells
        if rows not in (own, cells) or len(tensor.shape) not in (2, 3):
            continue
        whole = rows == own
        family = Family(
            name="also",
            title="given by --also",
            role=Role.ABSOLUTE,
            key=".*",
            axes=(_layout(tensor, leader),),
            source="the command line",
        )
        return PositionTable(
            tensor,
            family,
            "",
            family.axes[0],
            leader.grid,
            leader.prefix if whole else 0,
            leader.suffix if whole else 0,
            leader.patch,
            (f"--also: it has the rows of {leader.name}",),
            leader.name,
            window=leader.window,
            frames=leader.frames,
            tube=leader.tube,
        )
    raise GeometryError(
        f"--also: {tensor} has not as many rows as a table of this file, so nothing says how they "
        "are to be read.",
        hint="convert it by itself, with --pattern and --axes.",
    )


def _layout(tensor: TensorInfo, leader: PositionTable) -> Layout:
    time = leader.layout.has_time
    usual = (axes.replace(" h ", " t h ") if time else axes for axes in USUAL_AXES if "(" in axes)
    fits = (layout for layout in map(Layout.parse, usual) if layout.mismatch(tensor.shape) is None)
    return next(fits)
