"""Check an output against its plan and its source, before it is renamed into place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from resize_pos.configs.model_types import config_models
from resize_pos.configs.read import ConfigSize, config_sizes
from resize_pos.containers.base import Container
from resize_pos.core.errors import OutputError
from resize_pos.core.geometry import Size
from resize_pos.core.json_edit import Document
from resize_pos.core.operations import (
    Rebuild,
    ResampleKernel,
    ResampleMixing,
    ResizeState,
    ScaleQueries,
    SetLength,
)
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, Step, stored_frames, stored_grid
from resize_pos.planning.geometry.value_checks import require_finite
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.provenance import planned_geometry, recorded_geometry
from resize_pos.planning.rules.base import Surroundings, with_rows_around


def check_output(
    output: Container,
    source: Container,
    plan: Plan,
    tables: Mapping[str, NDArray[Any]],
    around: Surroundings,
    documents: Mapping[str, Document] | None = None,
) -> None:
    """Check what was written: same tensors, shapes as planned, tables sound, nothing left to do.

    `around` is what the plan was made from. `documents` are the config files that were written
    with the weights; None: no config was changed.
    """
    _check_shapes(output.tensors, source.tensors, plan)
    for step in plan.changes:
        array = output.read(step.name)
        require_finite(step.name, array, "the output")
        _check_kept_rows(step, tables[step.name], array)
    request = plan.request
    again = replace(
        request,
        pattern=around.request.pattern,  # also what the graph itself named
        prefix=around.request.prefix,
        suffix=around.request.suffix,
        from_size=_from_size(plan) if request.from_size else None,
        from_grid=None,
        from_length=request.to_length if request.from_length else None,
        from_window=(request.to_window or request.from_window) if request.from_window else None,
    )
    if request.from_size != around.request.from_size:  # the graph said it, and these rows
        again = with_rows_around(again, around.graph_rows)
    layers = output.layer_weights
    known = {**planned_geometry(plan), **recorded_geometry(output.metadata)}
    around_output = Surroundings(
        {name: tensor for name, tensor in output.tensors.items() if name not in layers},
        again,
        _edited_sizes(around.configs, plan) if documents is None else config_sizes(documents),
        known,
        output.read,
        output.peek,
        around.models if documents is None else config_models(documents),
        many=around.many,
        states=around.states,
    )
    after = make_plan(locate_tables(around_output), again, documents)
    if after.config_edits:
        raise OutputError(f"the configs written are not final: {after.config_edits[0]}.")
    left = after.changes
    if left:
        raise OutputError(
            f"the output would be resized again: {left[0].table.name} reads as "
            f"{left[0].table.grid}, not {left[0].target}; nothing was kept."
        )


def _from_size(plan: Plan) -> Size | None:
    """Return the new size; without the rest, if the patch size follows from the source's size."""
    for step in plan.steps:
        tiling = step.table.tiling
        absolute = step.table.role is Role.ABSOLUTE and step.table.kernel is None
        absolute = absolute and bool({"h", "w"} & step.table.layout.axes)  # not over time alone
        if tiling is None or plan.to_size is None or not absolute:
            continue
        if tiling.window is None and not tiling.divides(plan.to_size):
            return tiling.pixels(step.target)
    return plan.to_size


def _edited_sizes(sizes: Sequence[ConfigSize], plan: Plan) -> Sequence[ConfigSize]:
    """Return the sizes that configs will state after the user has edited them as advised."""
    if plan.to_size is None:
        return sizes
    old, new = plan.from_size, plan.to_size
    return [replace(each, size=new) if each.size == old else each for each in sizes]


def _check_shapes(
    output: Mapping[str, TensorInfo], source: Mapping[str, TensorInfo], plan: Plan
) -> None:
    planned = {step.name: step.target_shape for step in plan.changes}
    expected = [
        TensorInfo(info.name, planned.get(info.name, info.shape), info.dtype)
        for info in source.values()
    ]
    if expected != list(output.values()):
        wrong = next(
            (pair for pair in zip(expected, output.values(), strict=False) if pair[0] != pair[1]),
            (len(expected), len(output)),
        )
        raise OutputError(f"the output is not as planned: expected {wrong[0]}, found {wrong[1]}.")


def _check_kept_rows(step: Step, before: NDArray[Any], after: NDArray[Any]) -> None:
    table = step.table
    how = step.operation.how if isinstance(step.operation, ResizeState) else step.operation
    # These have no prefix and no suffix.
    without_rows = (Rebuild, ResampleKernel, ResampleMixing, SetLength, ScaleQueries)
    if isinstance(how, without_rows) or step.action is Action.KEEP:
        return
    if not table.prefix and not table.suffix:
        return
    source, target = (stored_grid(table.role, grid) for grid in (table.grid, step.target))
    frames = [stored_frames(table.role, count) for count in (table.frames, step.frames)]
    old = table.layout.unfold(before, table.prefix, source, table.suffix, frames[0])
    new = table.layout.unfold(after, table.prefix, target, table.suffix, frames[1])
    for kept, written in ((old.prefix, new.prefix), (old.suffix, new.suffix)):
        if kept.tobytes() != written.tobytes():
            raise OutputError(f"{step.name}: prefix or suffix rows were not kept bit for bit.")
