"""Patch embeddings: what `--to-patch` changes besides the grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import ResampleKernel
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role
from resize_pos.families.patch_size import kernel_extent
from resize_pos.families.registry import registry
from resize_pos.families.tables import Action, PositionTable, Step, keep


def kernel_tables(
    tables: Iterable[PositionTable], tensors: Mapping[str, TensorInfo]
) -> list[PositionTable]:
    """Find the patch embeddings that determine the located grids."""
    names = {table.kernel: table for table in tables if table.kernel is not None}
    return [_kernel(tensors[name], table) for name, table in names.items()]


def _kernel(tensor: TensorInfo, table: PositionTable) -> PositionTable:
    extent = kernel_extent(tensor)
    assert extent is not None
    frames, size = extent
    grid = Grid(size.height, size.width)
    for family in registry().candidates(tensor.name):
        if family.role is Role.KERNEL and family.stem(tensor.name) is not None:
            layout = _layout(family, tensor, grid)
            if layout is not None:
                evidence = (f"{table.name} has one cell per {size} px",)
                return PositionTable(
                    tensor, family, "", layout, grid, evidence=evidence, frames=frames
                )
    raise GeometryError(f"{tensor} is no patch embedding whose layout is known.")


def _layout(family: Family, tensor: TensorInfo, grid: Grid) -> Layout | None:
    for layout in family.axes:
        if any(isinstance(term, tuple) for term in layout.terms):
            flat = next(a for a, term in enumerate(layout.terms) if isinstance(term, tuple))
            inputs = tensor.shape[flat] if flat < len(tensor.shape) else 0
            layout = layout.bind(c=max(1, inputs // grid.cells))
        if layout.mismatch(tensor.shape) is None:
            return layout
    return None


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:  # noqa: ARG001
    """Resize the kernel to the requested patch size."""
    assert request.to_patch is not None
    target = Grid(request.to_patch.height, request.to_patch.width)
    if target == table.grid:
        return keep(table, f"already patch {request.to_patch}")
    shape = table.layout.shape(table.tensor.shape, 0, target, 0, table.frames)
    return Step(
        table,
        Action.RESIZE,
        target,
        shape,
        ResampleKernel(request.resampling),
        f"patch {table.grid} → {target}",
        frames=table.frames,
    )
