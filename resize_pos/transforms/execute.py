"""Carry one planned step out on arrays."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.errors import TableError
from resize_pos.core.operations import (
    Lengthen,
    Rebuild,
    Resample,
    ResampleKernel,
    ResampleMixing,
    ResampleOffsets,
    ResampleTiled,
    ResizeState,
    ScaleQueries,
    SetLength,
    SinCos,
)
from resize_pos.families.tables import Step, stored_frames, stored_grid
from resize_pos.transforms.absolute import resize_absolute
from resize_pos.transforms.derived import rebuild
from resize_pos.transforms.mixing import resize_mixing
from resize_pos.transforms.optimizer_state import keep_sign
from resize_pos.transforms.patch_kernel import resize_kernel
from resize_pos.transforms.queries import scale_queries
from resize_pos.transforms.relative import resize_relative
from resize_pos.transforms.rows import set_rows
from resize_pos.transforms.sequence import resize_sequence
from resize_pos.transforms.sincos import regenerate
from resize_pos.transforms.tiled import resize_tiled

_TOGETHER = 1 << 20  # new elements of alike tables that are computed as one
_FEWEST = 4  # tables for which that pays

_PerChannel = (Resample, ResampleOffsets)


def transform_all(
    steps: Iterable[Step], arrays: Mapping[str, NDArray[Any]], device: str = "cpu"
) -> dict[str, NDArray[Any]]:
    """Carry out many steps. Tables of one geometry are concatenated along their channels.

    Channels are resampled independently, so the result is the same bit for bit, and a thousand
    small tables cost as much as one large one.
    """
    groups: dict[object, list[Step]] = {}
    for step in steps:
        groups.setdefault(_group_key(step, arrays[step.name]), []).append(step)
    new: dict[str, NDArray[Any]] = {}
    for group in groups.values():
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


def _group_key(step: Step, array: NDArray[Any]) -> object:
    """Return a key that steps share if they can be carried out on concatenated channels."""
    table, how = step.table, _of_table(step).operation
    if not isinstance(how, _PerChannel) or "d" not in table.layout.terms:
        return step.name
    if isinstance(how, Resample) and how.restore_norms:
        return step.name  # a norm takes in every channel of its own table
    axis = table.layout.terms.index("d")
    shape = array.shape[:axis] + array.shape[axis + 1 :]
    geometry = (table.layout, table.grid, table.prefix, table.suffix, table.frames)
    return (step.operation, step.target, step.frames, table.role, geometry, shape, array.dtype)


def _together(
    steps: Sequence[Step], arrays: Mapping[str, NDArray[Any]], device: str
) -> dict[str, NDArray[Any]]:
    if len(steps) >= _FEWEST:
        axis = steps[0].table.layout.terms.index("d")
        parts = [arrays[step.name] for step in steps]
        ends = np.cumsum([part.shape[axis] for part in parts])
        with contextlib.suppress(TableError):  # one by one it is raised again, with a name
            whole = transform(_of_table(steps[0]), np.concatenate(parts, axis), device)
            pieces = np.split(whole, ends[:-1], axis)
            each = zip(steps, parts, pieces, strict=True)
            return {step.name: _finished(step, old, new) for step, old, new in each}
    return {s.name: transform(s, arrays[s.name], device) for s in steps}


def _of_table(step: Step) -> Step:
    """Return the step that does to an optimizer's state just what is done to its table."""
    how = step.operation
    return replace(step, operation=how.how) if isinstance(how, ResizeState) else step


def _finished(step: Step, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    return keep_sign(old, new) if isinstance(step.operation, ResizeState) else new


def transform(step: Step, array: NDArray[Any], device: str = "cpu") -> NDArray[Any]:
    """Carry out what the step says; relative tables are resampled in offset space."""
    table = step.table
    source, target = (stored_grid(table.role, grid) for grid in (table.grid, step.target))
    match step.operation:
        case Resample(resampling, restore_norms):
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
                restore_norms=restore_norms,
            )
        case ResampleTiled(resampling, window):
            rows = (table.prefix, table.suffix)
            return resize_tiled(
                array,
                table.layout,
                rows,
                source,
                target,
                resampling,
                window,
                table.frames,
                device,
            )
        case ResampleMixing(resampling, mixing):
            return resize_mixing(array, table.layout, source, target, resampling, mixing)
        case ResampleOffsets(how, signed):
            frames = (
                stored_frames(table.role, table.frames),
                stored_frames(table.role, step.frames),
            )
            return resize_relative(
                array, table.layout, source, table.suffix, target, how, signed=signed, frames=frames
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
        case ScaleQueries(factor, rows):
            return scale_queries(array, factor, rows)
        case ResizeState():
            return _finished(step, array, transform(_of_table(step), array, device))
        case None:
            return array
