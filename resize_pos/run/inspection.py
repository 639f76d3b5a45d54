"""Look into a checkpoint: find its tables, and on request read and draw their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.containers.base import Container
from resize_pos.containers.detect import open_container
from resize_pos.containers.io.remote_path import place
from resize_pos.containers.metering import Meter
from resize_pos.containers.sources import resolve_source
from resize_pos.core.request import Request
from resize_pos.core.tensors import DTYPES
from resize_pos.families.family import Role
from resize_pos.families.tables import Located
from resize_pos.planning.locate import locate_in
from resize_pos.report.groups import group_key
from resize_pos.report.inspection import Inspection

if TYPE_CHECKING:
    from resize_pos.quality.pictures import TablePictures


def inspect(
    path: Path, request: Request, *, health: bool = False, pictures: bool = False
) -> Inspection:
    """Find the position tables of a checkpoint. Values are read only for health and pictures."""
    path = place(path)
    metered = Meter.of(path)
    source = resolve_source(path)
    container = open_container(source.path)
    located = locate_in(container, request)
    found = {}
    if health:
        from resize_pos.quality.table_health import examine

        for table in located.tables:
            if DTYPES[table.tensor.dtype].floating:
                found[table.name] = examine(table, container.read(table.name))
    drawn = _draw(container, located) if pictures else {}
    shown = container.path if source.path == path else path
    return Inspection(
        shown, container.format, container.tensors, located, found, drawn, metered.used()
    )


def _draw(container: Container, located: Located) -> dict[str, TablePictures]:
    """Compute what there is to see of each kind of table; of several alike, of the first."""
    from resize_pos.quality.pictures import picture_table

    first = {group_key(table): table for table in reversed(located.tables)}
    return {
        table.name: picture_table(table, container.read(table.name))
        for table in first.values()
        if DTYPES[table.tensor.dtype].floating and table.role is not Role.DERIVED
    }
