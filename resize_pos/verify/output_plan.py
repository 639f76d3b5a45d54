"""The transfer that an output claims to be: what changed between it and its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from resize_pos.containers.arrays import native
from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.operations import Lengthen, LengthMethod
from resize_pos.core.request import Request, as_lengths
from resize_pos.families.family import Role
from resize_pos.families.tables import Located, PositionTable
from resize_pos.planning.geometry.grid_solver import Geometry
from resize_pos.planning.locate import locate_in
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.provenance import (
    digest,
    recorded_digest,
    recorded_source_geometry,
    restored_request,
)


def plan_between(source: Container, output: Container, request: Request) -> Plan:
    """Plan the transfer that the output claims to be.

    A record in the output states the geometry of both, if it was made from this source.
    """
    known: Mapping[str, Geometry] = {}
    if _made_from(output, source):
        request = restored_request(request, output.metadata)
        known = recorded_source_geometry(output.metadata)
    theirs = locate_in(output, of_output(request))
    ours = locate_in(source, without_target(request), known)
    return make_plan(ours, target_request(ours, theirs, request, output.path))


def _made_from(output: Container, source: Container) -> bool:
    """Whether the record in an output has the digest of this source's tables."""
    recorded = recorded_digest(output.metadata)
    if recorded is None or not all(name in source.tensors for name in recorded[1]):
        return False
    data = {name: native(source.read(name)).tobytes() for name in recorded[1]}
    return digest(source.tensors, data) == recorded[0]


def look_swapped(output: Container, source: Container) -> bool:
    """Whether the record in the source says that it was made from the output, and not reversed."""
    recorded = recorded_digest(source.metadata)
    if recorded is None or not recorded[1]:
        return False  # the digest of no table says nothing
    return _made_from(source, output) and not _made_from(output, source)


def of_output(request: Request) -> Request:
    """Return the request for the output alone: its `to_…` values become `from_…` values."""
    return replace(
        request,
        to_size=None,
        to_grid=None,
        to_window=None,
        to_length=None,
        from_size=request.to_size,
        from_grid=request.to_grid,
        from_window=request.to_window,
        from_length=request.to_length,
    )


def without_target(request: Request) -> Request:
    """Return the request for the source alone."""
    return replace(
        request, to_frames=None, to_size=None, to_grid=None, to_window=None, to_length=None
    )


def image_size(container: Container, request: Request) -> Size:
    """Return the image size that a checkpoint is for."""
    located = locate_in(container, replace(request, to_size=None, to_grid=None))
    for table in located.tables:
        if table.pixels is not None:
            return table.pixels
    if request.from_size is not None:
        return request.from_size
    raise GeometryError(
        f"{container.path.name}: its image size is not known, and a model needs one.",
        hint="pass --patch N, or --from and --to.",
    )


def target_request(ours: Located, theirs: Located, request: Request, output: Path) -> Request:
    """State the target in the terms of the source: the size, grid or length that the output has."""
    request = _with_length(ours, theirs, request)
    if request.to_image:
        return request
    windows = {_window(table) for table in theirs.tables if table.reach is not None}
    if request.to_window is None and len(windows) == 1 and None not in windows:
        request = replace(request, to_window=windows.pop())
    cells = (Role.ABSOLUTE, Role.MIXING)
    image = (*cells, Role.RELATIVE, Role.DISTANCE)
    known = {table.name: table for table in theirs.tables if table.role in image}
    for table in ours.tables:
        tied = table.role in cells or table.patch is not None
        if table.name not in known or not tied:
            continue
        found = known[table.name]
        if table.layout.has_time and not table.family.volume and found.frames != table.frames:
            request = replace(request, to_frames=found.frames * table.tube)
        slices = found.frames if table.family.volume else 0
        if table.pixels is not None and table.tiling is not None:
            size = table.tiling.pixels(found.grid)
            return replace(request, to_size=replace(size, depth=slices * table.tube))
        return replace(request, to_grid=replace(found.grid, depth=slices))
    if request.to_window is not None or request.to_length is not None:
        return request
    for unsettled in ours.unsettled:
        raise GeometryError(
            f"The source of {output.name}: {unsettled.error.message}",
            hint="state the source's geometry with --from SIZE, and the output's with --to SIZE.",
        )
    for unsettled in theirs.unsettled:
        raise GeometryError(
            f"{output.name}: {unsettled.error.message}",
            hint="state the output's geometry with --to SIZE or --to-grid HxW.",
        )
    raise TableError(
        f"{output.name}: no table of the source was found in it.",
        hint="`resize-pos inspect` shows what each of the two files holds.",
    )


def _window(table: PositionTable) -> Grid | None:
    """Return the model's window, with its depth if it has one."""
    nominal = table.reach.nominal if table.reach is not None else None
    deep = table.layout.has_time and nominal is not None
    return replace(nominal, depth=table.frames) if deep and nominal is not None else nominal


def _with_length(ours: Located, theirs: Located, request: Request) -> Request:
    """Add the new length of a text table; the recipe is determined later."""
    known = {table.name: table.length for table in theirs.tables if table.role is Role.SEQUENCE}
    text_tables = [t for t in ours.tables if t.name in known and t.family.kept is None]
    changed = [table for table in text_tables if table.length != known[table.name]]
    if not changed and not (text_tables and ours.all_text):
        return request
    table = (changed or text_tables)[0]
    stated = as_lengths(request) if ours.all_text else request
    return replace(
        stated,
        to_length=stated.to_length or known[table.name],
        from_length=stated.from_length or table.length,
        lengthen=stated.lengthen or Lengthen(LengthMethod.LINEAR),
    )
