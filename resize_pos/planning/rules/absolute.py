"""Absolute tables: one row per patch of the image, with prefix and suffix rows around them."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Owner
from resize_pos.families.patch_size import (
    Patch,
    read_patch,
)
from resize_pos.families.tables import PositionTable
from resize_pos.planning.geometry.grid_solver import (
    Geometry,
    Hypothesis,
    Judge,
    Opinion,
    Reading,
    RowCount,
    candidates,
    settle,
)
from resize_pos.planning.rules.base import Match, Surroundings, along
from resize_pos.planning.rules.patch_of_table import (
    overlapping_patch,
    overlapping_steps,
    patch_of,
    require_usual_mel,
    timed,
)
from resize_pos.planning.unknown_names.candidates import widths_of
from resize_pos.planning.unknown_names.shared_axis import is_line, shared_axis

_SWAPPED = {"1 (p h w s) d": "1 d (p h w s)", "(p h w s) d": "d (p h w s)"}
_FEWEST_CELLS = 9  # of a grid of which a table may hold several
_MOST_TIMES = 8  # kernels along each side of a cell


def settle_table(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Determine patch size, prefix, grid and suffix from all available evidence."""
    tensor, family, layout, request = match.tensor, match.family, match.layout, around.request
    _require_width(match, around)
    patch = patch_of(match, around)
    window = read_patch(family.window, match.stem, around.tensors)
    if (overlapping := overlapping_patch(match, patch, around)) is not None:
        patch, window = overlapping
    if tensor.name not in around.known:
        require_usual_mel(match, patch, window.size if window else None)
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
        if tensor.name not in around.known and request.from_size is None and not around.configs:
            require_usual_mel(match, patch, window.size if window else None, geometry.grid)
    evidence = (*geometry.evidence, *((patch.reason,) if patch else ()))
    if patch is None and request.from_size is not None:
        whole = _whole_patch(request.from_size, geometry.grid, layout)
        if whole is not None:
            patch = Patch(whole, f"--from {request.from_size} over {geometry.grid} is {whole}")
            evidence = (*evidence, patch.reason)
    led = leader is not None and leader.grid == geometry.grid and not family.scaled
    if led and leader is not None and patch is not None and leader.patch not in (None, patch.size):
        # One grid has cells of one size, even if a family knows more of it than another.
        patch = Patch(leader.patch, f"one cell of {leader.name} is {leader.patch} px wide")
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


def _require_width(match: Match, around: Surroundings) -> None:
    """Refuse a table whose rows are as long as a width of the model, and whose channels are not."""
    tensor, layout = match.tensor, match.layout
    custom = match.family.name == "custom"  # the user has said which axis is which
    if custom or layout.pattern not in _SWAPPED or tensor.name in around.known:
        return
    widths = around.once("widths", lambda: widths_of(around.tensors.values()))
    rows, channels = tensor.shape[-2:]
    if rows in widths and channels not in widths and widths[rows] > 1:
        name = re.escape(tensor.name)
        raise GeometryError(
            f"{tensor}: {rows} is a width of this model and {channels} is not, so its channels may "
            "come before its rows.",
            hint=f"pass --pattern '^{name}$' --axes '{_SWAPPED[layout.pattern]}' --from SIZE, or "
            f"the same with --axes '{layout}'.",
        )


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
    rows = layout.rows(tensor.shape) // pieces
    prefixes, suffixes = _tokens(match, around)
    shape = request.from_size if tiling is None and pieces == 1 else None
    if shape is not None and not shape.depth:
        inside += _of_square_patches(shape, rows, prefixes, suffixes)
        if inside and is_line(tensor, layout, around.read):
            raise shared_axis(tensor, layout, around.tensors, request, known=True)
    _require_plane(match, inside, rows, prefixes)
    try:
        geometry = settle(
            tensor.name,
            rows,
            prefixes,
            suffixes,
            inside,
            tiling,
            timed=frames is None,
            volume=family.volume and frames is None,
            judge=_judge(match, around) if pieces == 1 else None,
            square=shape is None or shape.height == shape.width,
        )
    except GeometryError as error:
        if pieces == 1 and is_line(tensor, layout, around.read):
            raise shared_axis(tensor, layout, around.tensors, request, known=True) from None
        own = {one.count + other.count for one in prefixes for other in suffixes}
        more = _other_step(rows, own, tiling, request) if pieces == 1 else ""
        if not more:
            raise
        hint = (error.hint or "").rstrip(".")
        correct = "drop --from" in hint  # an image of another size is likelier
        both = f"{hint}; {more}." if correct else f"{more}; or {hint}."
        raise GeometryError(error.message, hint=both) from None
    whole = Grid(geometry.grid.height * blocks.height, geometry.grid.width * blocks.width)
    return replace(geometry, grid=whole, frames=geometry.frames if frames is None else frames)


def _other_step(rows: int, own: Collection[int], tiling: Tiling | None, request: Request) -> str:
    """Name the --patch with which --from gives these rows; empty if there is none."""
    size = request.from_size
    if size is None or size.depth or tiling is None or tiling.window or request.patch is not None:
        return ""
    seen = tiling.step
    for step in overlapping_steps(seen, size, rows, own, usual=True):
        return f"if patches of {seen} px overlap, pass --patch {step} as well"
    for times in range(2, _MOST_TIMES + 1):
        cells = (size.height // (seen.height * times)) * (size.width // (seen.width * times))
        if cells >= _FEWEST_CELLS and rows - cells in own:
            whole = Size(seen.height * times, seen.width * times)
            return f"if one cell is {whole} px wide, pass --patch {whole} as well"
    return ""


def _of_square_patches(
    size: Size, rows: int, prefixes: Sequence[RowCount], suffixes: Sequence[RowCount]
) -> list[Hypothesis]:
    """Where no kernel states the patch, assume a square one: the grid has the image's shape."""
    counts = {p.count + s.count for p in prefixes for s in suffixes if p.count + s.count < rows}
    grids = {
        Grid(size.height // side, size.width // side)
        for side in range(1, min(size.height, size.width) + 1)
        if size.height % side == 0 == size.width % side
        and rows - (size.height // side) * (size.width // side) in counts
    }
    reason = f"--from {size}, if patches are square"
    return [Hypothesis(grid, reason) for grid in grids] if len(grids) == 1 else []


def _require_plane(
    match: Match, hypotheses: Sequence[Hypothesis], rows: int, prefixes: Sequence[RowCount]
) -> None:
    """Refuse a table with the rows of several frames, if its layout has none."""
    if match.layout.has_time or "(p h w s)" not in match.layout.pattern:
        return
    for each in hypotheses:
        cells = each.grid.cells
        counts = [prefix.count for prefix in prefixes]
        if not each.binding or cells < _FEWEST_CELLS or rows - cells in counts:
            continue
        # Rows of another kind, such as those of a text, may stand before the frames, too.
        square = any(math.isqrt(rows - n) ** 2 == rows - n for n in counts if n < rows)
        counts += [rows % cells] if match.prefixes and not square else []
        count = next((n for n in counts if rows - n > cells and (rows - n) % cells == 0), None)
        if count is not None:
            frames, name = (rows - count) // cells, re.escape(match.tensor.name)
            prefix = "" if count == counts[0] else f" --prefix {count}"
            raise GeometryError(
                f"{match.tensor.name} has {rows} rows, and {each.reason} is {each.grid}: "
                f"{rows} = {count} + {frames} × {each.grid}.",
                hint=f"if these are {frames} frames, one after the other, pass --pattern "
                f"'^{name}$' --axes '{timed(match.layout)}'{prefix}.",
            )


def _tokens(match: Match, around: Surroundings) -> tuple[Sequence[RowCount], Sequence[RowCount]]:
    """List how many rows may stand before the grid, and after it."""
    family, stem, request = match.family, match.stem, around.request
    return (
        _counts(match.prefixes, family.prefix, stem, around, request.prefix, "--prefix"),
        _counts(match.suffixes, family.suffix, stem, around, request.suffix, "--suffix"),
    )


def _counts(
    own: Sequence[RowCount],
    owners: Sequence[Owner],
    stem: str,
    around: Surroundings,
    stated: int | None,
    flag: str,
) -> Sequence[RowCount]:
    if own and stated is None:
        return own
    return candidates(owners, stem, around.tensors, stated, flag)


def _judge(match: Match, around: Surroundings) -> Judge | None:
    read = around.read
    if read is None:
        return None

    def judge(readings: Sequence[Reading]) -> Opinion:
        from resize_pos.planning.geometry.smoothness import (
            judge_readings,  # imports numpy: only if several readings fit
        )

        return judge_readings(read(match.tensor.name), match.layout, readings)

    return judge


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
        deep = hypothesis.frames if layout.has_time else None
        same = hypothesis.grid == stored and deep in (None, frames)
        if hypothesis.binding and not same:
            truth = f" ({tiling.pixels(stored)} px at patch {tiling})" if tiling else ""
            raise GeometryError(
                f"{tensor.name} stores a {stored} grid{truth}; "
                f"{hypothesis.reason} would be {hypothesis.grid}.",
                hint=f"drop --from, or correct it{_by_columns(tensor, layout, hypothesis.grid)}.",
            )
    evidence = (f"its shape {list(tensor.shape)} states the grid",)
    return Geometry(0, stored, 0, evidence, frames)


def _by_columns(tensor: TensorInfo, layout: Layout, wanted: Grid) -> str:
    """Return the flags for a map that is stored column by column; empty if that does not fit."""
    pattern = layout.pattern.replace("h w", "w h")
    if pattern == layout.pattern or Layout.parse(pattern).grid(tensor.shape) != wanted:
        return ""
    flags = f"--pattern '^{re.escape(tensor.name)}$' --axes '{pattern}'"
    return f"; if the model stores one column of cells after the other, pass {flags} as well"


def _whole_patch(size: Size, grid: Grid, layout: Layout) -> Size | None:
    """Divide an image into a grid; a table of one axis alone shows one side of the patch."""
    if "w" not in layout.axes:
        return None if size.height % grid.height else Size(*[size.height // grid.height] * 2)
    if "h" not in layout.axes:
        return None if size.width % grid.width else Size(*[size.width // grid.width] * 2)
    if size.height % grid.height or size.width % grid.width:
        return None
    return Size(size.height // grid.height, size.width // grid.width)
