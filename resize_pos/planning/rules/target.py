"""Plan a table with a grid: the target grid for a request, and the step to it."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.core.errors import GeometryError, TableError, UsageError
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.operations import Resample, ResampleTiled
from resize_pos.core.request import Request
from resize_pos.families.tables import Action, PositionTable, Step, keep
from resize_pos.planning.rules.base import along

_FEWEST_SLICES = 4  # of a cube
_LATENTS = " * 8"  # how families state that a kernel reads latents of 8 pixels each


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:
    """Resize to the grid that follows from the request and this table's patch size."""
    target, frames = target_grid(table, request, steps), _frames(table, request)
    if (target, frames) == (table.grid, table.frames):
        return keep(table, _unchanged(table, request))
    family = table.family
    if family.refuse and not (family.forcible and request.force_interpolate):
        hint = "pass --force-interpolate to do it anyway." if family.forcible else None
        raise TableError(f"{table.name} cannot be transferred: {family.refuse}.", hint=hint)
    operation = _operation(table, target, frames, request)
    own = family.convention
    differs = own is not None and own.resampling != request.resampling
    shape = table.layout.shape(table.tensor.shape, table.prefix, target, table.suffix, frames)
    return Step(
        table,
        Action.RESIZE,
        target,
        shape,
        operation,
        f"{_extent(table.grid, table.frames)} → {_extent(target, frames)}",
        own.name if own is not None and differs else None,
        frames,
    )


def _operation(
    table: PositionTable, target: Grid, frames: int, request: Request
) -> Resample | ResampleTiled:
    """Tile what repeats with a window, unless a flag asks to interpolate it like any table."""
    side = table.family.tiles
    window = request.tile_window or (Grid(side, side) if side else None)
    plain = request.force_interpolate or (request.like is not None and not request.tile_window)
    if window is None or plain or target == table.grid:
        return Resample(request.resampling, request.restore_norms)
    if request.restore_norms:
        raise UsageError(
            f"--restore-norms: {table.name} repeats with a window, and norms are restored only of "
            "tables that are interpolated as a whole."
        )
    for grid, flag in ((table.grid, "the file"), (target, "the target")):
        if grid.height % window.height or grid.width % window.width:
            raise GeometryError(
                f"{table.name} repeats with windows of {window} cells, and the {grid} grid of "
                f"{flag} does not hold whole windows.",
                hint=_whole_windows(table, target, window)
                if flag == "the target"
                else "pass --force-interpolate to interpolate it as a whole.",
            )
    if frames != table.frames:
        raise TableError(
            f"{table.name} repeats with windows of {window} cells; size and frames of such a table "
            "are changed in two runs.",
            hint="pass --to first, then --to-frames.",
        )
    return ResampleTiled(request.resampling, window)


def _whole_windows(table: PositionTable, target: Grid, window: Grid) -> str:
    """Name the nearest sizes whose grids hold whole windows."""
    wide, tall = window.width, window.height
    below = Grid(max(1, target.height // tall) * tall, max(1, target.width // wide) * wide)
    above = Grid(-(-target.height // tall) * tall, -(-target.width // wide) * wide)
    if table.tiling is None:
        return f"the nearest grids that do are {below} and {above}."
    sizes = [f"{table.tiling.pixels(grid)} px" for grid in (below, above)]
    return f"the nearest sizes that do are {' and '.join(sizes)}."


def plan_reference(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:
    """Keep a grid that the library resamples at run time, unless a flag asks to resize it."""
    if request.reference_grids == "resize":
        return plan_step(table, request, steps)
    return keep(table, f"{table.family.why}; --reference-grids resize changes it")


def _unchanged(table: PositionTable, request: Request) -> str:
    if not {"h", "w"} & table.layout.axes:
        return f"already {table.frames} in time" if request.to_frames else "time is kept"
    return f"already {table.grid}"


def target_grid(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Grid:
    """Return the grid of a table at the size, grid or patch size that is asked for."""
    if not {"h", "w"} & table.layout.axes:
        return table.grid
    if request.to_grid is not None:
        grid = along(table.layout, request.to_grid)
    elif request.to_size is None and request.to_patch is None:
        return table.grid
    elif table.tiling is None:
        twin = next((s for s in steps.values() if s.table.grid == table.grid), None)
        if twin is None or table.grid.cells == 1:
            raise _no_patch(table, request)
        grid = twin.target
    else:
        grid = along(table.layout, _cut(table, table.tiling, request, steps))
    blocks = table.layout.blocks(table.tensor.shape)
    if grid.height % blocks.height or grid.width % blocks.width:
        raise GeometryError(
            f"{table.name}: a {grid} grid cannot be cut into {blocks} blocks, as this model does.",
            hint=f"choose a size with a grid that is a multiple of {blocks}.",
        )
    return grid


def _cut(table: PositionTable, tiling: Tiling, request: Request, steps: Mapping[str, Step]) -> Grid:
    size = request.to_size or tiling.pixels(table.grid)
    leader = steps[table.follows].table if table.follows and table.follows in steps else None
    if table.family.scaled and leader is not None and request.to_size is not None:
        size = _scaled(size, tiling.pixels(table.grid), leader)
        return Grid(size.height // tiling.step.height, size.width // tiling.step.width)
    if request.to_patch is not None:
        if table.kernel is None:
            raise GeometryError(
                f"{table.name}: --to-patch needs the patch embedding that this table's cells come "
                "from, and the file has none that is exactly one patch large.",
            )
        tiling = Tiling(request.to_patch)
    own = table.stated if request.to_size is not None else size
    whole = own is not None and table.tiling is not None and table.tiling.divides(own)
    if not request.floor and any(text.endswith(_LATENTS) for text in table.family.patch):
        _require_whole_latents(table, tiling, size)
    if table.family.stepwise:
        _require_a_row_each(table, tiling, size)
    try:
        return cut_target(tiling, size, request, source_is_whole=whole)
    except GeometryError as error:
        # Without a patch kernel, nothing shows that a convolution would drop the rest.
        hint = error.hint if table.kernel else (error.hint or "").partition(";")[0] or None
        raise GeometryError(f"{table.name}: --to {error.message}", hint=hint) from None


def _require_whole_latents(table: PositionTable, tiling: Tiling, size: Size) -> None:
    """Refuse a rest that an autoencoder would have to drop: the size is probably in latents."""
    if tiling.divides(size):
        return
    side = int(_LATENTS.split()[-1])
    pixels = Size(size.height * side, size.width * side)
    raise GeometryError(
        f"{table.name}: --to {size} is no multiple of {tiling.step} px; the cells of this model "
        f"are made of latents, {side} px each.",
        hint=f"pass --to {pixels} if {size} counts latents, or a multiple of {tiling.step}.",
    )


def _require_a_row_each(table: PositionTable, tiling: Tiling, size: Size) -> None:
    """Refuse a size at which the library would make a table with more rows than patches."""
    for axis, step, seen, side in (
        ("h", tiling.step.height, (tiling.window or tiling.step).height, size.height),
        ("w", tiling.step.width, (tiling.window or tiling.step).width, size.width),
    ):
        if axis in table.layout.axes and (side - seen) // step + 1 != side // step:
            below, above = side // step * step - 1, side // step * step + seen - step
            raise GeometryError(
                f"{table.name}: at {side} the model makes {(side - seen) // step + 1} patches, and "
                f"a table of {side // step} rows.",
                hint=f"the nearest that fit are {below} and {above}.",
            )


def cut_target(tiling: Tiling, size: Size, request: Request, *, source_is_whole: bool) -> Grid:
    """Cut the target image into patches.

    A convolution drops a remainder, and some models are trained so: 384 px at patch 14. If the
    source is known to have no remainder, one in the target is probably a mistake.
    """
    if request.floor or not source_is_whole:
        return tiling.whole_patches(size)
    try:
        return tiling.grid(size)
    except GeometryError as error:
        nearest = (error.hint or "").removesuffix(".")
        hint = f"{nearest}; --floor drops the rest, as a patch convolution does."
        raise GeometryError(error.message, hint=hint) from None


def _scaled(size: Size, own: Size, leader: PositionTable) -> Size:
    """Scale an image size for a second branch as the library does, by the ratio in the file."""
    assert leader.tiling is not None
    whole = leader.tiling.pixels(leader.grid)
    return Size(size.height * own.height // whole.height, size.width * own.width // whole.width)


def _frames(table: PositionTable, request: Request) -> int:
    if not table.layout.has_time:
        return table.frames
    if request.to_grid is not None and request.to_grid.depth:
        return request.to_grid.depth
    depth = request.to_size.depth if request.to_size is not None else 0
    if depth:
        return _slices(table, depth, request)
    if request.to_image and (table.family.volume or _is_cubic(table, request)):
        raise UsageError(
            f"{table.name} is a volume of {table.frames}×{table.grid} patches; --to needs three "
            "sides.",
            hint="write depth × height × width, for example --to 64x96x96 or --to-grid 4x6x6.",
        )
    if request.to_frames is None:
        return table.frames
    if request.to_frames % table.tube:
        raise GeometryError(
            f"{table.name}: --to-frames {request.to_frames} is not a multiple of the "
            f"{table.tube} frames that one cell takes in."
        )
    return request.to_frames // table.tube


def _is_cubic(table: PositionTable, request: Request) -> bool:
    """Whether cubes of pixels make a cube of patches, so that one number may mean all three sides.

    Videos are cut into tubes of a few frames.
    """
    told = request.from_size
    if request.to_frames is not None or table.patch is None:
        return False
    if told is not None and told.depth == told.height == told.width:
        return True
    if table.tube < _FEWEST_SLICES:
        return False
    patch = {table.tube, table.patch.height, table.patch.width}
    return len(patch) == len({table.frames, table.grid.height, table.grid.width}) == 1


def _slices(table: PositionTable, depth: int, request: Request) -> int:
    told, tube = request.from_size, table.tube
    if tube == 1 and told is not None and told.depth > table.frames:
        raise GeometryError(
            f"{table.name}: no kernel states the depth of a patch, so a depth of {depth} cannot be "
            "turned into patches.",
            hint="state the patches along each side, for example --to-grid 4x6x6.",
        )
    if depth % tube:
        below, above = depth // tube * tube, -(-depth // tube) * tube
        nearest = f"{below} or {above}" if below else str(above)
        raise GeometryError(
            f"{table.name}: a depth of {depth} is not a multiple of the {tube} that one "
            "patch takes in.",
            hint=f"the nearest depths that fit are {nearest}.",
        )
    return depth // tube


def _extent(grid: Grid, frames: int) -> str:
    return str(grid) if frames == 1 else f"{frames}×{grid}"


def _no_patch(table: PositionTable, request: Request) -> GeometryError:
    told = request.from_size
    if told is not None:
        return GeometryError(
            f"{table.name}: {told} px cannot be divided into its {table.grid} cells, so nothing "
            f"says how large a patch is, or how {request.to_size} px are divided.",
            hint="if the rest of the image is cut off, pass --patch N; else --to-grid HxW.",
        )
    return GeometryError(
        f"{table.name}: the patch size is not in the file, so {request.to_size} px cannot be "
        "turned into patches.",
        hint="pass --from SIZE, --patch N, or --to-grid HxW."
        if request.from_grid is None
        else "pass --from SIZE instead of --from-grid, or --patch N, or --to-grid HxW.",
    )
