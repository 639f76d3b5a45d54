"""The other way to a new image size: keep the grid, and resize the patch embedding."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError, ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, grid_of
from resize_pos.core.operations import ResampleKernel
from resize_pos.core.options import Section, request_options
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, Step
from resize_pos.planning.locate import locate_in
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.quality.measures.sampling import ratio, resample, size
from resize_pos.transforms.execute import transform


@dataclass(frozen=True, slots=True)
class KeptGrid:
    """What `--to-patch` would do for the same image size; `obstacle` says why it cannot."""

    grid: Grid
    instead_of: Grid  # what the same image size needs with the old patch
    patch: Size
    new_patch: Size | None = None
    response_error: float | None = None  # of the kernel, for patches of white noise
    command: str = ""
    obstacle: str = ""

    @property
    def spares_growth(self) -> bool:
        """Whether the old patch would need a larger grid, and on neither side a smaller one."""
        old, new = self.grid, self.instead_of
        return new != old and new.height >= old.height and new.width >= old.width


def keep_the_grid(source: Container, plan: Plan) -> KeptGrid | None:
    """Try `--to-patch` for the planned size; None where no patch embedding is known."""
    step = next((step for step in plan.changes if _has_kernel(step.table)), None)
    wanted = plan.to_size
    if step is None or wanted is None or step.table.patch is None:
        return None
    kept = KeptGrid(step.table.grid, step.target, step.table.patch)
    try:
        cells = grid_of(wanted, Size(kept.grid.height, kept.grid.width))
    except GeometryError as error:
        return replace(kept, obstacle=f"{wanted} px is no multiple of {kept.grid}; {error.hint}")
    patch = Size(cells.height, cells.width)
    request = replace(plan.request, to_grid=None, to_size=wanted, to_patch=patch)
    try:
        other = make_plan(locate_in(source, request), request)
    except ResizePosError as error:
        return replace(kept, obstacle=error.message)
    kernel = next(s for s in other.changes if isinstance(s.operation, ResampleKernel))
    return replace(
        kept,
        new_patch=patch,
        response_error=_response_error(kernel, source.read(kernel.name)),
        command=_command(source, request, wanted, patch),
    )


def _has_kernel(table: PositionTable) -> bool:
    return table.role is Role.ABSOLUTE and table.kernel is not None and table.window is None


def _command(source: Container, request: Request, wanted: Size, patch: Size) -> str:
    """Return the command that does it, with everything that was stated about the source."""
    parts = ["resize-pos", str(source.path)]
    for option in request_options():
        value = getattr(request, option.field_name) if option.field_name else None
        if option.section is not Section.SOURCE or value is None or value is False:
            continue
        plain = f"{value.height}x{value.width}" if isinstance(value, Grid) else str(value)
        parts += [option.long_flag] if value is True else [option.long_flag, plain]
    if source.is_folder:
        parts.append("--no-config")  # configs cannot be updated for another patch size
    return shlex.join([*parts, "--to", str(wanted), "--to-patch", str(patch)])


def _response_error(step: Step, before: NDArray[Any]) -> float:
    """Relative change of the response to random patches: ‖k − Rᵀk′‖ ÷ ‖k‖."""
    assert isinstance(step.operation, ResampleKernel)
    table = step.table
    after = transform(step, before)
    old = table.layout.unfold(before, 0, table.grid, 0, table.frames).grid.astype(np.float64)
    new = table.layout.unfold(after, 0, step.target, 0, table.frames).grid.astype(np.float64)
    # Each pixel of the old patch, seen through the resize that the new kernel expects.
    pixels = np.eye(table.grid.cells).reshape(1, table.grid.height, table.grid.width, -1)
    seen = resample(pixels, step.target, step.operation.resampling)
    back = np.einsum("hwp,khwd->kpd", seen[0], new)
    return ratio(size(old.reshape(len(old), table.grid.cells, -1) - back), size(old))
