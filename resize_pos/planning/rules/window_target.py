"""Plan a relative table: the new window for a request, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from resize_pos.core.conventions import OffsetResampling, RelativeConvention, Spacing
from resize_pos.core.errors import GeometryError, TableError, UsageError
from resize_pos.core.geometry import Grid, Tiling
from resize_pos.core.operations import Extent, Rebuild, ResampleOffsets
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, PositionTable, Step, keep, stored_frames, stored_grid
from resize_pos.families.windows import Clamp, Follows, clamp_window
from resize_pos.planning.rules.base import along
from resize_pos.planning.rules.target import cut_target
from resize_pos.planning.rules.window import rule_of
from resize_pos.transforms.progression import reach


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:
    """Change the window with what it depends on, resampled as the family's own library does."""
    rule = rule_of(table.family)
    if table.family.refuse and request.to_image and request.to_size != request.from_size:
        raise TableError(f"{table.name} cannot be transferred: {table.family.refuse}.")
    target, reason = _PLAN[rule.follows](table, request, steps)
    frames = _frames(table, request, steps)
    if (target, frames) == (table.grid, table.frames):
        return keep(table, reason)
    if table.layout.has_time:
        reason = _deep_words(table, target, frames)
    stored, slices = stored_grid(table.role, target), stored_frames(table.role, frames)
    shape = table.layout.shape(table.tensor.shape, table.prefix, stored, table.suffix, slices)
    computed = table.family.derived
    if computed is not None:
        extents = Extent(grid=table.grid), Extent(grid=target)
        operation = Rebuild(computed.formula, *extents, computed.normaliser)
        return Step(table, Action.REGENERATE, target, shape, operation, reason)
    own = table.family.convention
    chosen = request.relative or own
    assert isinstance(chosen, RelativeConvention)
    differs = own is not None and own.resampling != chosen.resampling
    return Step(
        table,
        Action.RESIZE,
        target,
        shape,
        ResampleOffsets(chosen.resampling, signed=table.role is Role.RELATIVE),
        reason + _remark(table, target, chosen.resampling),
        own.name if own is not None and differs else None,
        frames,
    )


def _deep_words(table: PositionTable, target: Grid, frames: int) -> str:
    if not {"h", "w"} & table.layout.axes:
        return f"offsets in depth of {table.frames} → {frames}"
    old, new = replace(table.grid, depth=table.frames), replace(target, depth=frames)
    return f"offsets of {old} → {new}"


def _frames(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> int:
    """Return the new depth of a window, or of the volume that a block sees."""
    if not table.layout.has_time:
        return table.frames
    if table.follows is not None:
        return steps[table.follows].frames
    window = table.reach is not None and table.reach.nominal is not None
    cube = table.frames == table.grid.height == table.grid.width
    if window and cube and request.to_window is not None and not request.to_window.depth:
        raise UsageError(
            f"--to-window {request.to_window}: {table.name} has a window of "
            f"{replace(table.grid, depth=table.frames)}; its new window needs three sides.",
            hint="write depth × height × width, for example --to-window 5x7x7.",
        )
    if window and request.to_window is not None and request.to_window.depth:
        return request.to_window.depth
    if table.reach is not None and not window:
        raise GeometryError(
            f"{table.name} follows the depth of the volume, and no table in this file states it."
        )
    return table.frames


def _plan_image(
    table: PositionTable, request: Request, steps: Mapping[str, Step]
) -> tuple[Grid, str]:
    if table.follows is not None:
        target = along(table.layout, steps[table.follows].target)
        return target, _words(table, target, f", with {table.follows}")
    if table.reach is None:
        return table.grid, table.evidence[0]
    if not request.to_image:
        return table.grid, "it follows the image, and no image size was asked for"
    rule = rule_of(table.family)
    try:
        if request.to_grid is not None:
            if table.reach.patch is None:
                raise GeometryError("--to-grid does not say how large the image is.")
            target = request.to_grid
        else:
            assert request.to_size is not None
            whole = table.reach.patch is not None
            image = table.reach.image
            known = image is not None and Tiling(table.reach.stride).divides(image)
            stride = table.reach.stride
            target = (
                cut_target(Tiling(stride), request.to_size, request, source_is_whole=known)
                if whole
                else rule.cells(request.to_size, stride)
            )
    except GeometryError as error:
        message = f"{table.name}: {error.message}"
        raise GeometryError(message, hint=error.hint or "pass --to SIZE.") from None
    target = along(table.layout, target)
    return target, _words(table, target, "")


def _plan_global(
    table: PositionTable, request: Request, steps: Mapping[str, Step]
) -> tuple[Grid, str]:
    if table.reach is None:
        return table.grid, table.evidence[0]
    return _plan_image(table, request, steps)


def _plan_window(
    table: PositionTable,
    request: Request,
    steps: Mapping[str, Step],  # noqa: ARG001
) -> tuple[Grid, str]:
    rule, found = rule_of(table.family), table.reach
    assert found is not None and found.nominal is not None
    model = request.to_window or found.nominal
    wanted = Grid(model.height * found.multiple, model.width * found.multiple)
    target = wanted
    if rule.clamp is not Clamp.NEVER:
        target = _clamped(table, request, wanted)
    if target != table.grid:
        tied = " (no larger than its stage)" if target != wanted else ""
        return target, _words(table, target, tied)
    if request.to_window is not None:
        return target, f"already {target}"
    shown = replace(target, depth=table.frames if table.layout.has_time else 0)
    return target, f"its window {shown} does not follow the image; --to-window changes it"


def _clamped(table: PositionTable, request: Request, wanted: Grid) -> Grid:
    rule, found = rule_of(table.family), table.reach
    assert found is not None and found.nominal is not None
    size = request.to_size or found.image
    if request.to_grid is not None and found.patch is not None:
        size = request.to_grid.pixels(found.patch)
    if size is None:
        if wanted.height > found.nominal.height * found.multiple or wanted.width > (
            found.nominal.width * found.multiple
        ):
            raise GeometryError(
                f"{table.name}: a window of {wanted} may be larger than its stage, and the image "
                "size is not known.",
                hint="pass --to SIZE, the image size of the converted model, as well.",
            )
        return Grid(min(wanted.height, table.grid.height), min(wanted.width, table.grid.width))
    try:
        cells = rule.cells(size, found.stride)
    except GeometryError as error:
        raise GeometryError(f"{table.name}: {error.message}", hint=error.hint) from None
    target = clamp_window(wanted, cells, rule.clamp)
    grows = target.height > table.grid.height or target.width > table.grid.width
    if grows and found.clamped and request.to_window is None:
        raise GeometryError(
            f"{table.name} has the window {table.grid}: either the model's own, or a larger one "
            "that was reduced to fit a small image. The two give different new tables.",
            hint="state the model's window with --to-window N, or the source image with --from.",
        )
    return target


def _plan_nothing(
    table: PositionTable,
    request: Request,  # noqa: ARG001
    steps: Mapping[str, Step],  # noqa: ARG001
) -> tuple[Grid, str]:
    return table.grid, rule_of(table.family).why


def _words(table: PositionTable, target: Grid, tail: str) -> str:
    if target == table.grid:
        return f"already {target}"
    kind = "offsets" if table.role is Role.RELATIVE else "distances"
    return f"{kind} of {table.grid} → {target}{tail}"


def _remark(table: PositionTable, target: Grid, how: OffsetResampling) -> str:
    """Return a remark if a convention drops offsets or moves offset zero."""
    if how.folded and table.role is Role.DISTANCE:
        return "; this convention shifts distance zero, --relative-like swin keeps it in place"
    if how.spacing is not Spacing.GEOMETRIC:
        return ""
    lost = []
    for axis in ("height", "width"):
        source, goal = (2 * getattr(g, axis) - 1 for g in (table.grid, target))
        outermost, limit = reach(source, goal, how.ratio)
        if outermost > limit + 0.5:
            lost.append(f"{axis}: ±{limit} of ±{outermost:.1f}")
    if not lost:
        return ""
    return (
        f"; the geometric rule crops here ({'; '.join(lost)} is kept), --relative-like swin "
        "stretches instead"
    )


_PLAN = {
    Follows.IMAGE: _plan_image,
    Follows.GLOBAL: _plan_global,
    Follows.WINDOW: _plan_window,
    Follows.UNKNOWN: _plan_nothing,
    Follows.NOTHING: _plan_nothing,
}
