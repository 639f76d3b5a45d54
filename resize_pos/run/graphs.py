"""A plan, seen by a container: what a format that holds a program must be able to follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from resize_pos.containers.base import Container, GeometryChange
from resize_pos.core.errors import ContainerError
from resize_pos.core.geometry import Size
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.planning.plan import Plan


def at_new_size(container: Container, plan: Plan, planned: Callable[[Request], Plan]) -> Container:
    """Return the container for the new size; refuse a graph that would not run at it.

    `planned` makes the plan of another request for the same model.
    """
    if container.holds_graph:
        _require_image(plan)
        if not plan.changes:
            _require_input(container, plan)
    if not plan.changes:
        return container
    change = _geometry_change(plan)
    between = _size_between(change) if container.image_sizes else None
    if between is not None:
        asked = replace(plan.request, to_size=between, to_grid=None)
        change = replace(change, via=_geometry_change(planned(asked)))
    return container.at_size(change)


def _size_between(change: GeometryChange) -> Size | None:
    """Return a size with another number of cells, if the new one has as many as the old one.

    Both sides fit the model: twice the new height, and the old width.
    """
    turned = any(old != new and old.cells == new.cells for old, new in change.grids)
    if not turned or change.from_size is None or change.to_size is None:
        return None
    return Size(2 * change.to_size.height, change.from_size.width)


def _geometry_change(plan: Plan) -> GeometryChange:
    grids = dict.fromkeys((step.table.grid, step.target) for step in plan.changes)
    shapes = {step.name: step.target_shape for step in plan.changes}
    return GeometryChange(shapes, plan.from_size, plan.to_size, tuple(grids))


def _require_image(plan: Plan) -> None:
    """Refuse another text length: only the axes of images are followed through the graph."""
    for step in plan.changes:
        if step.table.role is Role.SEQUENCE:
            raise ContainerError(
                f"{step.name} would get another length, but the inputs and buffers of an exported "
                "graph keep theirs.",
                "Change the length of the checkpoint, and export it again.",
            )


def _require_input(container: Container, plan: Plan) -> None:
    """Refuse a graph in which no tensor changes, but whose input has another size."""
    fixed, size = container.image_sizes, plan.to_size or plan.request.to_size
    if size is None or not fixed or size in fixed.values():
        return
    shown = ", ".join(f"{name} has {stated} px" for name, stated in fixed.items())
    raise ContainerError(
        f"no tensor has to be resized, but the graph is fixed to its size: {shown}, not {size}.",
        "Export the model again at that size, or with named axes for height and width.",
    )
