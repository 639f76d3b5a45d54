"""Refuse a plan whose tables do not fit into memory, before any of them is computed."""

from __future__ import annotations

from resize_pos.core.errors import GeometryError
from resize_pos.core.printable import human_size
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import Step
from resize_pos.planning.plan import Plan

_CERTAINLY_FITS = 1 << 28  # bytes; below this the system is not asked
_WORKING_COPIES = 3  # the new table, its bytes, and the rows of float64 that it is computed from


def require_memory(plan: Plan) -> None:
    """Refuse tables that need more memory than there is; name the largest."""
    sizes = {step.name: new_bytes(step) for step in plan.changes}
    needed = _WORKING_COPIES * sum(sizes.values())
    if needed < _CERTAINLY_FITS:
        return
    from resize_pos.core.memory import available_memory  # only for large tables

    available = available_memory()
    if available is None or needed <= available:
        return
    largest = max(plan.changes, key=lambda step: sizes[step.name])
    others = f" and {len(sizes) - 1} other tables" if len(sizes) > 1 else ""
    raise GeometryError(
        f"{largest.name} would grow from {largest.table.grid} to {largest.target}, which takes "
        f"{human_size(sizes[largest.name])}; computing it{others} needs "
        f"{human_size(needed)} of memory, and {human_size(available)} are available.",
        hint=f"is {_target(plan)} what you meant? Otherwise use a machine with more memory.",
    )


def new_bytes(step: Step) -> int:
    """Return how many bytes the tensor of a step takes afterwards."""
    return TensorInfo(step.name, step.target_shape, step.tensor.dtype).nbytes


def _target(plan: Plan) -> str:
    request = plan.request
    for flag, value in (
        ("--to", request.to_size),
        ("--to-grid", request.to_grid),
        ("--to-window", request.to_window),
        ("--to-length", request.to_length),
    ):
        if value is not None:
            return f"{flag} {value}"
    return "this target"
