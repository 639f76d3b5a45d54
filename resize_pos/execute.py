"""Carry one planned step out on arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from resize_pos.operations import (
    Lengthen,
    Rebuild,
    Resample,
    ResampleKernel,
    ResampleOffsets,
    SetLength,
    SinCos,
)
from resize_pos.tables import Step, stored_grid
from resize_pos.transforms.absolute import resize_absolute
from resize_pos.transforms.derived import rebuild
from resize_pos.transforms.kernel import resize_kernel
from resize_pos.transforms.relative import resize_relative
from resize_pos.transforms.rows import set_rows
from resize_pos.transforms.sequence import resize_sequence
from resize_pos.transforms.sincos import regenerate


def transform(step: Step, array: NDArray[Any], device: str = "cpu") -> NDArray[Any]:
    """Carry out what the step says; relative tables are resampled in offset space."""
    table = step.table
    source, target = (stored_grid(table.role, grid) for grid in (table.grid, step.target))
    match step.operation:
        case Resample(resampling):
            return resize_absolute(
                array,
                table.layout,
                table.prefix,
                source,
                table.suffix,
                target,
                resampling,
                device,
                (table.frames, step.frames),
            )
        case ResampleOffsets(how, signed):
            return resize_relative(
                array, table.layout, source, table.suffix, target, how, signed=signed
            )
        case Lengthen() as how:
            length = table.length
            return resize_sequence(
                array, table.layout, table.prefix, length, table.suffix, target.cells, how
            )
        case SinCos() as how:
            rows, frames = (table.prefix, table.suffix), (table.frames, step.frames)
            return regenerate(array, table.layout, rows, source, target, how, frames)
        case Rebuild() as how:
            return rebuild(table.name, array, how, step.target_shape)
        case ResampleKernel(resampling):
            return resize_kernel(array, table.layout, source, target, resampling, table.frames)
        case SetLength():
            return set_rows(array, table.layout, target.width)
        case None:
            return array
