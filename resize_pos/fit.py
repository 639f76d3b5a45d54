"""Does a checkpoint fit a size? Answered from its header; no value is read, numpy is not needed."""

from __future__ import annotations

from dataclasses import dataclass

from resize_pos.errors import GeometryError
from resize_pos.plan import make_plan
from resize_pos.request import Request
from resize_pos.tables import Located


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer, in one line."""

    fits: bool
    detail: str


def fit(located: Located, request: Request) -> Fit:
    """Plan the transfer to that size: a checkpoint that fits needs no step."""
    wanted = request.to_size if request.to_size is not None else request.to_grid
    try:
        plan = make_plan(located, request)
    except GeometryError as error:
        if located.unsettled:
            raise
        return Fit(False, f"does not fit {wanted}: {error.message}")
    for step in plan.changes:
        table = step.table
        own = f"{table.grid}"
        if table.pixels is not None:
            own += f" ({table.pixels} px at patch {table.tiling})"
        return Fit(False, f"does not fit {wanted}: {table.name} is {own}, not {step.target}")
    names = ", ".join(f"{step.table.name} {step.target}" for step in plan.steps[:3])
    more = f" and {len(plan.steps) - 3} more" if len(plan.steps) > 3 else ""
    return Fit(True, f"fits {wanted}: {names}{more}")
