"""Carry one planned step out on arrays."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.errors import TableError
from resize_pos.core.operations import (
    Lengthen,
    Rebuild,
    Resample,
    ResampleKernel,
    ResampleOffsets,
    SetLength,
    SinCos,
)
from resize_pos.families.tables import Step, stored_grid
from resize_pos.transforms.absolute import resize_absolute
from resize_pos.transforms.derived import rebuild
from resize_pos.transforms.patch_kernel import resize_kernel
from resize_pos.transforms.relative import resize_relative
from resize_pos.transforms.rows import set_rows
from resize_pos.transforms.sequence import resize_sequence
from resize_pos.transforms.sincos import regenerate

_TOGETHER = 1 << 20  # new elements of alike tables that are computed as one
_FEWEST = 4  # tables for which that pays

_PerChannel = (Resample, ResampleOffsets)


def transform_all(
    steps: Iterable[Step], arrays: Mapping[str, NDArray[Any]], device: str = "cpu"
) -> dict[str, NDArray[Any]]:
    """Carry out many steps. Those that are alike are done together, side by side as channels.

    Channels know nothing of each other, so that the bits are the same; but a thousand small tables
    cost what one costs.
    """
    alike: dict[object, list[Step]] = {}
    for step in steps:
        alike.setdefault(_likeness(step, arrays[step.table.name]), []).append(step)
    new: dict[str, NDArray[Any]] = {}
    for group in alike.values():
        for some in _portions(group):
            new |= _together(some, arrays, device)
    return new


def _portions(steps: Iterable[Step]) -> Iterator[list[Step]]:
    portion: list[Step] = []
    size = 0
    for step in steps:
        added = math.prod(step.target_shape)
        if portion and size + added > _TOGETHER:
            yield portion
            portion, size = [], 0
        portion.append(step)
        size += added
    yield portion


def _likeness(step: Step, array: NDArray[Any]) -> object:
    table = step.table
    if not isinstance(step.operation, _PerChannel) or "d" not in table.layout.terms:
        return table.name
    axis = table.layout.terms.index("d")
    shape = array.shape[:axis] + array.shape[axis + 1 :]
    geometry = (table.layout, table.grid, table.prefix, table.suffix, table.frames)
    return (step.operation, step.target, step.frames, table.role, geometry, shape, array.dtype)


def _together(
    steps: Sequence[Step], arrays: Mapping[str, NDArray[Any]], device: str
) -> dict[str, NDArray[Any]]:
    if len(steps) >= _FEWEST:
        axis = steps[0].table.layout.terms.index("d")
        parts = [arrays[step.table.name] for step in steps]
        ends = np.cumsum([part.shape[axis] for part in parts])
        with contextlib.suppress(TableError):  # one by one it is raised again, with a name
            whole = transform(steps[0], np.concatenate(parts, axis), device)
            pieces = np.split(whole, ends[:-1], axis)
            return {s.table.name: p for s, p in zip(steps, pieces, strict=True)}
    return {s.table.name: transform(s, arrays[s.table.name], device) for s in steps}


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
