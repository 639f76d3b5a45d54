"""Absolute tables: one row per patch of the image, with prefix and suffix rows around them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.patch_size import (
    Patch,
    find_patch,
    makes_the_rows,
    patch_kernels,
    read_patch,
    rows_by_width,
)
from resize_pos.families.tables import PositionTable
from resize_pos.planning.grid_solver import (
    Geometry,
    Hypothesis,
    Judge,
    Opinion,
    Reading,
    candidates,
    settle,
)
from resize_pos.planning.rules.base import Match, Surroundings, along


def settle_table(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Determine patch size, prefix, grid and suffix from all available evidence."""
    tensor, family, layout, request = match.tensor, match.family, match.layout, around.request
    patch = _patch(match, around)
    window = read_patch(family.window, match.stem, around.tensors)
    if tensor.name not in around.known:
        _require_usual_mel(match, patch, window.size if window else None)
    tiling = None if patch is None else Tiling(patch.size, window.size if window else None)
    leader = _leader(match, settled) if family.follows else None
    hypotheses = [
        replace(each, grid=along(layout, each.grid))
        for each in _hypotheses(
            tensor.name,
            tiling,
            patch.tube if patch else 1,
            around,
            None if family.scaled else leader,
        )
    ]
    if layout.grid(tensor.shape) is not None:
        geometry = _stated_by_shape(tensor, layout, hypotheses, tiling)
    else:
        geometry = _solved(match, around, hypotheses, tiling)
    evidence = (*geometry.evidence, *((patch.reason,) if patch else ()))
    if patch is None and request.from_size is not None:
        whole = _whole_patch(request.from_size, geometry.grid)
        if whole is not None:
            patch = Patch(whole, f"--from {request.from_size} over {geometry.grid} is {whole}")
            evidence = (*evidence, patch.reason)
    return PositionTable(
        tensor,
        family,
        match.stem,
        layout,
        geometry.grid,
        geometry.prefix,
        geometry.suffix,
        patch.size if patch else None,
        evidence,
        leader.name if leader else None,
        window=window.size if window else None,
        frames=geometry.frames,
        tube=patch.tube if patch else 1,
        kernel=patch.kernel if patch else None,
        stated=_stated(patch, window, layout, geometry, around) if patch else None,
    )


def _stated(
    patch: Patch, window: Patch | None, layout: Layout, geometry: Geometry, around: Surroundings
) -> Size | None:
    """Return the size that a flag or a config states, if it has the table's grid."""
    tiling = Tiling(patch.size, window.size if window else None)
    for size in (around.request.from_size, *(config.size for config in around.configs)):
        if size is not None:
            with contextlib.suppress(GeometryError):
                if along(layout, tiling.whole_patches(size)) == geometry.grid:
                    return Size(size.height, size.width)
    return None


def _leader(match: Match, settled: Mapping[str, PositionTable]) -> PositionTable | None:
    """Find the table whose grid this one shares: its sibling, or one with the same row count."""
    sibling = settled.get(f"{match.stem}{match.family.follows}")
    rows = match.layout.rows(match.tensor.shape)
    alike = (t for t in settled.values() if t.layout.rows(t.tensor.shape) == rows)
    return sibling or next(alike, None)


def settle_reference(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Determine the geometry of a reference table, which is usually kept.

    If it is ambiguous, fall back to one row per cell: the table is kept, so this is harmless.
    """
    try:
        return settle_table(match, around, settled)
    except GeometryError:
        if around.request.reference_grids == "resize":
            raise
        rows = match.layout.rows(match.tensor.shape)
        evidence = ("its rows need not be interpreted, because it stays as it is",)
        return PositionTable(
            match.tensor, match.family, match.stem, match.layout, Grid(1, rows), evidence=evidence
        )


def _solved(
    match: Match, around: Surroundings, hypotheses: Sequence[Hypothesis], tiling: Tiling | None
) -> Geometry:
    """Solve for the grid of flattened rows. For a table in blocks, solve for one block."""
    tensor, family, layout, request = match.tensor, match.family, match.layout, around.request
    blocks, frames = layout.blocks(tensor.shape), layout.frames(tensor.shape)
    pieces = blocks.cells * (frames or 1)
    inside = [
        replace(each, grid=Grid(each.grid.height // blocks.height, each.grid.width // blocks.width))
        for each in hypotheses
        if each.grid.height % blocks.height == 0 and each.grid.width % blocks.width == 0
    ]
    geometry = settle(
        tensor.name,
        layout.rows(tensor.shape) // pieces,
        candidates(family.prefix, match.stem, around.tensors, request.prefix, "--prefix"),
        candidates(family.suffix, match.stem, around.tensors, request.suffix, "--suffix"),
        inside,
        tiling,
        timed=frames is None,
        volume=family.volume and frames is None,
        judge=_judge(match, around) if pieces == 1 else None,
    )
    whole = Grid(geometry.grid.height * blocks.height, geometry.grid.width * blocks.width)
    return replace(geometry, grid=whole, frames=geometry.frames if frames is None else frames)


def _judge(match: Match, around: Surroundings) -> Judge | None:
    read = around.read
    if read is None:
        return None

    def judge(readings: Sequence[Reading]) -> Opinion:
        from resize_pos.planning.smoothness import (
            judge_readings,  # imports numpy: only if several readings fit
        )

        return judge_readings(read(match.tensor.name), match.layout, readings)

    return judge


def _patch(match: Match, around: Surroundings) -> Patch | None:
    stated = around.request.patch
    overlapping = _overlapping(match, around)
    if overlapping is not None:
        return overlapping
    found = _read_patch(match, around)
    for config in around.configs if match.family.window and stated is None else ():
        if config.step is not None:
            return Patch(config.step, f"{config.file} says one patch every {config.step}")
    if stated is not None and (found is None or found.kernel is not None):
        if found is not None and found.size != stated and around.request.from_size is None:
            raise GeometryError(
                f"--patch {stated}, but {found.reason}.",
                hint="drop --patch; for overlapping patches pass --from SIZE as well.",
            )
        same = found is not None and found.size == stated
        return found if found and same else Patch(stated, f"--patch {stated}")
    if found is not None:
        return found
    for config in around.configs:
        if config.patch is not None:
            return Patch(config.patch, f"{config.file} says patch {config.patch}")
    return None


def _overlapping(match: Match, around: Surroundings) -> Patch | None:
    """Derive the step between overlapping patches from `--from` and a stored number of cells."""
    size, grid = around.request.from_size, match.layout.grid(match.tensor.shape)
    window = read_patch(match.family.window, match.stem, around.tensors)
    if size is None or grid is None or window is None or around.request.patch is not None:
        return None
    sides = (
        ("h", size.height, window.size.height, grid.height),
        ("w", size.width, window.size.width, grid.width),
    )
    steps = []
    for axis, pixels, seen, cells in sides:
        step = (
            seen if axis not in match.layout.axes or cells == 1 else (pixels - seen) // (cells - 1)
        )
        if axis in match.layout.axes and (step < 1 or (pixels - seen) // step + 1 != cells):
            return None
        steps.append(step)
    every = Size(*steps)
    return Patch(every, f"--from {size} over {grid} cells is one patch every {every}")


def _require_usual_mel(match: Match, patch: Patch | None, window: Size | None) -> None:
    """Refuse a step that is only a family's default, if 128 mel bins would not give these rows."""
    rows = match.layout.grid(match.tensor.shape)
    if match.family.audio != "mel time" or rows is None or patch is None or window is None:
        return
    default = patch.kernel is None and patch.reason.startswith("one cell")
    usual = (_USUAL_MEL - window.height) // patch.size.height + 1
    if default and "h" in match.layout.axes and rows.height != usual:
        raise GeometryError(
            f"{match.tensor.name} has {rows.height} rows, which {_USUAL_MEL} mel bins at the usual "
            f"step of {patch.size.height} do not give; the step is not in the file.",
            hint="pass --from MELxTIME, the size of the spectrogram, for example --from 128x998.",
        )


_USUAL_MEL = 128


def _read_patch(match: Match, around: Surroundings) -> Patch | None:
    """Read the kernel that the family names, if it makes the table's rows; else look for one."""
    tensor, layout = match.tensor, match.layout
    found = read_patch(match.family.patch, match.stem, around.tensors)
    width = dict(zip(layout.terms, tensor.shape, strict=False)).get("d")
    if width is not None and found is not None and found.kernel is not None:
        kernel = around.tensors[found.kernel]
        tables = around.once("rows by width", lambda: rows_by_width(around.tensors.values()))
        if not makes_the_rows(kernel, layout.rows(tensor.shape), width, tables):
            found = None
    if found is None and width is not None and not match.family.window:
        kernels = around.once(
            ("patch kernels", width), lambda: patch_kernels(width, around.tensors.values())
        )
        found = find_patch(match.stem, kernels)
    flat = match.family.role is Role.ABSOLUTE and "spatial" not in tensor.name
    if found is not None and found.kernel is not None and flat and not layout.has_time:
        kernel = around.tensors[found.kernel]
        if len(kernel.shape) == 5:
            # A tube of frames is read by a kernel of another depth; which axis of a cube is which
            # cannot be told.
            cube = len(set(kernel.shape[2:])) == 1
            flags = f"--pattern '^{re.escape(tensor.name)}$' --axes '{_timed(layout)}' --from SIZE"
            raise GeometryError(
                f"{tensor.name}: {kernel} reads a volume or a video, so its rows also count "
                "depth or frames, and the layout of this table has no such axis.",
                hint=None if cube else f"pass {flags}, if frames come first.",
            )
    return found


def _timed(layout: Layout) -> str:
    return layout.pattern.replace(" h ", " t h ") if "(p h" in layout.pattern else "1 (p t h w s) d"


def _hypotheses(
    name: str,
    tiling: Tiling | None,
    tube: int,
    around: Surroundings,
    leader: PositionTable | None,
) -> Iterator[Hypothesis]:
    request = around.request
    if request.from_grid is not None:
        yield Hypothesis(
            request.from_grid.plane,
            f"--from-grid {request.from_grid}",
            binding=True,
            frames=request.from_grid.depth or None,
        )
    if request.from_size is not None and tiling is not None:
        yield _from_size(name, request.from_size, tiling, tube, stated=request.patch is not None)
    if name in around.known:
        yield Hypothesis(around.known[name].grid, "; ".join(around.known[name].evidence))
    if leader is not None:
        yield Hypothesis(leader.grid, f"{leader.name} has this grid")
    for config in around.configs:
        cut = tiling or (None if config.patch is None else Tiling(config.patch))
        if cut is None:
            continue
        try:
            grid = cut.whole_patches(config.size)
        except GeometryError:
            continue
        how = f"at patch {cut}{_rounded(cut, config.size, grid)}"
        yield Hypothesis(grid, f"{config.file} says {config.key} {config.size}, {how}")


def _from_size(name: str, size: Size, tiling: Tiling, tube: int, *, stated: bool) -> Hypothesis:
    try:
        grid = tiling.whole_patches(size)
    except GeometryError as error:
        raise GeometryError(f"{name}: --from {error.message}", hint=error.hint) from None
    reason = f"{size} px at patch {tiling}{_rounded(tiling, size, grid)}"
    slices = size.depth // tube or None
    return Hypothesis(grid, reason, True, size if stated else None, slices)


def _rounded(tiling: Tiling, size: Size, grid: Grid) -> str:
    """Say that a remainder was dropped, if there is one."""
    exact = tiling.window is not None or tiling.divides(size)
    return "" if exact else f" ({grid}, rounded down)"


def _stated_by_shape(
    tensor: TensorInfo, layout: Layout, hypotheses: Sequence[Hypothesis], tiling: Tiling | None
) -> Geometry:
    stored, frames = layout.grid(tensor.shape), layout.frames(tensor.shape)
    assert stored is not None and frames is not None
    for hypothesis in hypotheses:
        same = hypothesis.grid == stored and hypothesis.frames in (None, frames)
        if hypothesis.binding and not same:
            truth = f" ({tiling.pixels(stored)} px at patch {tiling})" if tiling else ""
            raise GeometryError(
                f"{tensor.name} stores a {stored} grid{truth}; "
                f"{hypothesis.reason} would be {hypothesis.grid}.",
                hint="drop --from, or correct it.",
            )
    evidence = (f"its shape {list(tensor.shape)} states the grid",)
    return Geometry(0, stored, 0, evidence, frames)


def _whole_patch(size: Size, grid: Grid) -> Size | None:
    if size.height % grid.height or size.width % grid.width:
        return None
    return Size(size.height // grid.height, size.width // grid.width)
