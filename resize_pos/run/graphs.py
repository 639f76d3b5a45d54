"""A plan, seen by a container: what a format that holds a program must be able to follow."""

from __future__ import annotations

from resize_pos.containers.base import Container, GeometryChange
from resize_pos.core.errors import ContainerError
from resize_pos.families.family import Role
from resize_pos.planning.plan import Plan


def at_new_size(container: Container, plan: Plan) -> Container:
    """Return the container for the new size; refuse a graph that would not run at it."""
    if container.holds_graph:
        _require_image(plan)
        if not plan.changes:
            _require_input(container, plan)
    return container.at_size(_geometry_change(plan)) if plan.changes else container


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
