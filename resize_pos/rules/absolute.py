"""Absolute tables: one row per patch of the image, with prefix and suffix rows around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from resize_pos.errors import GeometryError
from resize_pos.geometry import Grid, Size, grid_of
from resize_pos.infer import Geometry, Hypothesis, candidates, kernel_patch, settle
from resize_pos.operations import Resample
from resize_pos.request import Request
from resize_pos.rules.base import Match, Surroundings
from resize_pos.tables import Action, PositionTable, Step, keep
from resize_pos.tensors import TensorInfo


def settle_table(
    match: Match,
    around: Surroundings,
    settled: Mapping[str, PositionTable],  # noqa: ARG001
) -> PositionTable:
    """Settle patch size, prefix, grid and suffix from everything around the table."""
    tensor, family, layout, request = match.tensor, match.family, match.layout, around.request
    patch, patch_evidence = _patch(match, around)
    hypotheses = list(_hypotheses(tensor.name, patch, around))
    stored = layout.grid(tensor.shape)
    if stored is not None:
        geometry = _stated_by_shape(tensor, stored, hypotheses, patch)
    else:
        geometry = settle(
            tensor.name,
            layout.rows(tensor.shape),
            candidates(family.prefix, match.stem, around.tensors, request.prefix, "--prefix"),
            candidates(family.suffix, match.stem, around.tensors, request.suffix, "--suffix"),
            hypotheses,
            patch,
        )
    if patch is None and request.from_size is not None:
        patch = _whole_patch(request.from_size, geometry.grid)
        if patch is not None:
            patch_evidence = (f"--from {request.from_size} over {geometry.grid} is patch {patch}",)
    return PositionTable(
        tensor,
        family,
        match.stem,
        layout,
        geometry.grid,
        geometry.prefix,
        geometry.suffix,
        patch,
        (*geometry.evidence, *patch_evidence),
    )


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:  # noqa: ARG001
    """Resize to the grid that the request means for this table's patch size."""
    target = _target(table, request)
    if target == table.grid:
        return keep(table, f"already {target}")
    own = table.family.convention
    differs = own is not None and own.resampling != request.resampling
    return Step(
        table,
        Action.RESIZE,
        target,
        table.layout.shape(table.tensor.shape, table.prefix, target, table.suffix),
        Resample(request.resampling),
        f"{table.grid} → {target}",
        own.name if own is not None and differs else None,
    )


def _target(table: PositionTable, request: Request) -> Grid:
    if request.to_grid is not None:
        return request.to_grid
    assert request.to_size is not None
    if table.patch is None:
        raise GeometryError(
            f"{table.name}: the patch size is not in the file, so {request.to_size} px cannot be "
            "turned into patches.",
            hint="pass --patch N, --from SIZE, or --to-grid HxW.",
        )
    try:
        return grid_of(request.to_size, table.patch)
    except GeometryError as error:
        raise GeometryError(f"{table.name}: --to {error.message}", hint=error.hint) from None


def _patch(match: Match, around: Surroundings) -> tuple[Size | None, tuple[str, ...]]:
    stated = around.request.patch
    kernel = kernel_patch(match.family, match.stem, around.tensors)
    if stated is not None:
        if kernel is not None and kernel[0] != stated and around.request.from_size is None:
            raise GeometryError(
                f"--patch {stated}, but {kernel[1]}.",
                hint="drop --patch; for overlapping patches pass --from SIZE as well.",
            )
        return stated, (f"--patch {stated}",)
    if kernel is not None:
        return kernel[0], (kernel[1],)
    for config in around.configs:
        if config.patch is not None:
            return config.patch, (f"{config.file} says patch {config.patch}",)
    return None, ()


def _hypotheses(name: str, patch: Size | None, around: Surroundings) -> Iterator[Hypothesis]:
    request = around.request
    if request.from_grid is not None:
        yield Hypothesis(request.from_grid, f"--from-grid {request.from_grid}", binding=True)
    if request.from_size is not None and patch is not None:
        yield _from_size(name, request.from_size, patch, stated=request.patch is not None)
    if name in around.known:
        yield Hypothesis(around.known[name].grid, "; ".join(around.known[name].evidence))
    for config in around.configs:
        step = patch or config.patch
        if step is None or config.size.height % step.height or config.size.width % step.width:
            continue
        reason = f"{config.file} says {config.key} {config.size}, at patch {step}"
        yield Hypothesis(grid_of(config.size, step), reason)


def _from_size(name: str, size: Size, patch: Size, *, stated: bool) -> Hypothesis:
    reason = f"{size} px at patch {patch}"
    try:
        grid = grid_of(size, patch)
        return Hypothesis(grid, reason, binding=True, size=size if stated else None)
    except GeometryError as error:
        raise GeometryError(f"{name}: --from {error.message}", hint=error.hint) from None


def _stated_by_shape(
    tensor: TensorInfo, stored: Grid, hypotheses: Sequence[Hypothesis], patch: Size | None
) -> Geometry:
    for hypothesis in hypotheses:
        if hypothesis.binding and hypothesis.grid != stored:
            truth = f" ({stored.pixels(patch)} px at patch {patch})" if patch else ""
            raise GeometryError(
                f"{tensor.name} stores a {stored} grid{truth}; "
                f"{hypothesis.reason} would be {hypothesis.grid}.",
                hint="drop --from, or correct it.",
            )
    return Geometry(0, stored, 0, (f"its shape {list(tensor.shape)} states the grid",))


def _whole_patch(size: Size, grid: Grid) -> Size | None:
    if size.height % grid.height or size.width % grid.width:
        return None
    return Size(size.height // grid.height, size.width // grid.width)
