"""Request + tables → a `Plan`, which holds every decision. No geometry is refused after this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resize_pos.configs.read import NO_CONFIG
from resize_pos.configs.values import ConfigEdit, Transfer
from resize_pos.core.errors import TableError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, Tiling, size_of
from resize_pos.core.json_edit import Document
from resize_pos.core.notes import Note
from resize_pos.core.operations import ResampleKernel, SetLength, SinCos, SinCosMode
from resize_pos.core.request import Request, as_lengths
from resize_pos.core.tensors import DTYPES
from resize_pos.families.family import Role
from resize_pos.families.tables import (
    Action,
    LeftAlone,
    Located,
    NearMiss,
    PositionTable,
    Step,
    Unsettled,
    keep,
)
from resize_pos.planning.census.suspects import require_whole
from resize_pos.planning.geometry.image_size import require_image_size
from resize_pos.planning.nothing_found import nothing_found, require_length_table, require_patterns
from resize_pos.planning.plan_notes import plan_notes
from resize_pos.planning.rules import RULES
from resize_pos.planning.towers import of_another_tower, require_one_size, require_tower
from resize_pos.planning.unknown_names.commands import reads_sequences

_CELLS = frozenset({Role.ABSOLUTE, Role.MIXING})  # one row or column per cell of the image
IMAGE_ROLES = _CELLS | {Role.RELATIVE, Role.DISTANCE}
_GRIDS = _CELLS | {Role.REFERENCE, Role.KERNEL}
_BY_THEMSELVES = frozenset({Role.REFERENCE, Role.INDEX})  # changed only by their own flags


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run will do, decided from names, shapes and configs alone."""

    request: Request
    steps: tuple[Step, ...]
    from_size: Size | None  # of the first table whose patch size is known
    to_size: Size | None
    near_misses: tuple[NearMiss, ...]
    config_edits: tuple[ConfigEdit, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    notes: tuple[Note, ...] = ()
    looks_like: tuple[NearMiss, ...] = ()  # may be position tables, and are not changed

    @property
    def depends(self) -> bool:
        """Whether anything in the file depends on the resolution."""
        apart = (*_BY_THEMSELVES, Role.SEQUENCE)
        return any(step.table.role not in apart for step in self.steps)

    @property
    def changes(self) -> tuple[Step, ...]:
        """The steps that alter a tensor."""
        untouched = (Action.KEEP, Action.DROP)
        return tuple(step for step in self.steps if step.action not in untouched)

    @property
    def drops(self) -> tuple[str, ...]:
        """The names of the optimizer entries that are removed."""
        states = (step.state for step in self.steps if step.action is Action.DROP)
        return tuple(dict.fromkeys(state.entry for state in states if state is not None))


def make_plan(
    located: Located,
    request: Request,
    documents: Mapping[str, Document] | None = None,
    *,
    needs_target: bool = True,
) -> Plan:
    """Decide what happens to every table. Refuse if only a part of the model could be converted.

    `documents` are the config files of the weights. Edits to them are part of the plan. A request
    without a target is refused, unless the run does something else, such as changing the format.
    """
    stated = request
    if located.graph_size is not None:
        request = replace(request, from_size=located.graph_size)
    if request.to_time is not None or request.to_mel is not None:
        from resize_pos.planning.spectrogram import as_image_or_length  # only for audio

        request = as_image_or_length(request, located, documents or {})
    if located.all_text:
        if request.axes is not None:
            from resize_pos.planning.unknown_names.signals import require_unit

            require_unit(located, request)
        request = as_lengths(request)
    if not _asked(request) and needs_target:
        raise UsageError(
            "no target is given.",
            hint="pass --to SIZE, for example --to 384; to change only the file format, name the "
            "output, for example -o NAME.safetensors.",
        )
    asked = _asked(request)
    blocking = asked | IMAGE_ROLES if asked & IMAGE_ROLES else asked
    for unsettled in located.unsettled:
        if unsettled.family.role in blocking:
            raise unsettled.error
    require_patterns(located, request)
    of_images = IMAGE_ROLES | _BY_THEMSELVES
    if asked & IMAGE_ROLES and not any(t.role in of_images for t in located.tables):
        named = request.family is not None
        has_text = any(t.role is Role.SEQUENCE for t in located.tables)
        text_tables = has_text and not (located.pictured or located.many)
        # In a batch, sizes are pixels, so a model of words or sound stays as it is.
        stays = located.many and not named and reads_sequences(located.others)
        if named or (located.near_misses and not stays) or text_tables:
            raise nothing_found(located, request)
    require_tower(located, request)
    _require_windows(located, request)
    _require_time(located, request)
    _require_patches(located, request)
    if asked == {Role.SEQUENCE}:
        require_length_table(located)
        if located.near_misses and not located.tables:
            raise nothing_found(located, request)
    images_too = located.many and request.to_image
    if request.to_length is not None:
        from resize_pos.planning.rules.sequence import require_lengths  # only with a length

        require_lengths(located.tables, located.unsettled, request, images_too=images_too)
    planned: dict[str, Step] = {}
    for role, rule in RULES.items():
        of_role = [table for table in located.tables if table.role is role]
        if role in _GRIDS:
            # A table that uses the geometry or the patch size of another table is planned after it.
            of_role.sort(key=lambda t: (t.follows is not None, t.patch is None))
        follows = role in asked or role is Role.DERIVED or role in _BY_THEMSELVES
        for table in of_role:
            if of_another_tower(table, request):
                planned[table.name] = keep(table, f"not of the tower {request.tower}")
                continue
            step = rule.plan(table, request, planned) if follows else _unasked(table)
            planned[table.name] = _regenerated(step, request)
    steps = tuple(planned[table.name] for table in located.tables)
    steps += tuple(_left_open(entry) for entry in located.unsettled)
    for step in steps:
        if step.action is Action.RESIZE:
            _require_floating(step.table)
    _require_one_grid(steps, request)
    require_one_size(steps, request)
    if asked & IMAGE_ROLES:
        require_image_size(located, steps, request)
        require_whole(located, steps, request)
    from_size, to_size = _sizes(steps, request)
    if request.attention_scale:
        from resize_pos.planning.rules import attention  # only with the flag

        steps += attention.scale_steps(steps, located.others)
    _require_no_config(steps, documents or {})
    edits: tuple[ConfigEdit, ...] = ()
    if documents:
        from resize_pos.configs.edits import plan_config_edits  # only with configs

        transfer = Transfer.of(steps, request)
        edits = plan_config_edits(documents, transfer)
    notes = tuple(plan_notes(located, steps, stated))
    if request.attention_scale:
        attention.require_scaled(steps, edits)
        notes += tuple(attention.scale_notes(steps))
        # What is not done is not recorded as done.
        scaled = any(step.action is Action.SCALE for step in steps)
        request = replace(request, attention_scale=scaled)
    return Plan(
        request,
        steps,
        from_size,
        to_size or request.to_size,
        located.near_misses,
        edits,
        located.left_alone,
        notes,
        located.looks_like if asked & IMAGE_ROLES else (),
    )


def _asked(request: Request) -> frozenset[Role]:
    """Return the roles that a request is about. Derived buffers always follow their table."""
    roles: set[Role] = {Role.SEQUENCE} if request.to_length is not None else set()
    if request.to_image:
        roles |= {*IMAGE_ROLES, Role.DERIVED}
    if request.to_window is not None:
        roles |= {Role.RELATIVE, Role.DISTANCE, Role.DERIVED}
    if request.to_patch is not None or request.to_frames is not None:
        roles |= {*_CELLS, Role.DERIVED}
    if request.to_patch is not None:
        roles.add(Role.KERNEL)
    if request.to_rows is not None:
        roles.add(Role.INDEX)
    return frozenset(roles)


def _unasked(table: PositionTable) -> Step:
    if table.family.kept is not None:
        return keep(table, table.family.kept)
    if table.role is Role.SEQUENCE:
        return keep(table, "a text table; no length was asked for (--to-length)")
    return keep(table, "an image table; no size was asked for (--to)")


def _left_open(unsettled: Unsettled) -> Step:
    """Keep a table of unknown geometry: the request does not change it, so that is harmless."""
    tensor, family = unsettled.tensor, unsettled.family
    layout = family.layout(tensor.shape) or family.axes[0]
    grid = Grid(1, layout.rows(tensor.shape))
    table = PositionTable(tensor, family, "", layout, grid, evidence=(unsettled.error.message,))
    return _unasked(table)


def _regenerated(step: Step, request: Request) -> Step:
    """Compute a fixed sin-cos grid from its formula, unless a flag asks to interpolate it."""
    fixed = step.table.fixed
    if step.table.role is not Role.ABSOLUTE or step.action is not Action.RESIZE or fixed is None:
        return step
    mode = request.sincos
    if mode is None and request.like is not None:
        reason = f"{step.reason}; a fixed sin-cos table, interpolated as --like {request.like} asks"
        return replace(step, reason=reason)
    if mode is SinCosMode.INTERPOLATE:
        return step
    flat = fixed.dimensions == 1  # the formula numbers the flattened cells
    if mode is SinCosMode.RESCALED and flat:
        raise TableError(
            f"{step.table.name} follows a sin-cos formula over the flattened index "
            f"({fixed.formula}), which has no coordinates that a new grid could rescale.",
            hint="pass --sincos absolute (what its library does) or --sincos interpolate.",
        )
    chosen = mode or (SinCosMode.ABSOLUTE if flat else SinCosMode.RESCALED)
    return replace(
        step,
        action=Action.REGENERATE,
        operation=SinCos(fixed, chosen),
        reason=f"{step.reason}: a fixed sin-cos table, computed from its formula",
        own_convention=None,
    )


def _sizes(steps: tuple[Step, ...], request: Request) -> tuple[Size | None, Size | None]:
    for step in steps:
        table, tiling = step.table, step.table.tiling
        if of_another_tower(table, request):
            continue
        if tiling is not None and table.follows is None and {"h", "w"} <= table.layout.axes:
            cut = Tiling(request.to_patch) if request.to_patch and table.kernel else tiling
            old = table.stated or tiling.pixels(table.grid)
            new = size_of(cut, step.target, request.to_size or table.stated)
            deep = table.tube if table.family.volume else 0
            return replace(old, depth=deep * table.frames), replace(new, depth=deep * step.frames)
    return None, None


def _require_windows(located: Located, request: Request) -> None:
    windows = [table for table in located.tables if table.reach and table.reach.nominal]
    if request.to_window is None:
        return
    if windows and request.to_window.depth and not any(t.layout.has_time for t in windows):
        raise UsageError(
            f"--to-window {request.to_window}: no window in this file has a depth.",
            hint="write height × width only.",
        )
    if windows:
        return
    raise UsageError(
        f"--to-window {request.to_window}: no table in this file follows a window.",
        hint="pass --to SIZE; `resize-pos inspect` shows what each table follows.",
    )


def _require_time(located: Located, request: Request) -> None:
    timed = [table for table in located.tables if table.layout.has_time]
    if any(table.role is not Role.RELATIVE for table in timed):
        return
    if request.to_frames is not None and not located.filmed:
        raise TableError(
            "--to-frames: no table in this file has a time axis, and no patch embedding reads "
            "frames.",
            hint="`resize-pos inspect` shows what there is.",
        )
    target = request.to_size or request.to_grid
    if target is not None and target.depth and not timed:
        raise TableError(
            f"the target {target} has a depth, and no table in this file has one.",
            hint="write height × width only.",
        )


def _require_patches(located: Located, request: Request) -> None:
    """Refuse `--to-patch` if a relative table follows the image in cells of the old patch size."""
    if request.to_patch is None:
        return
    from resize_pos.families.windows import Follows

    for table in located.tables:
        rule = table.family.windows
        tied = rule is not None and rule.follows in (Follows.IMAGE, Follows.GLOBAL)
        if tied and table.role in IMAGE_ROLES:
            raise TableError(
                f"--to-patch {request.to_patch}: {table.name} is a relative table that follows "
                "the image, and such tables are only transferred at their own patch size."
            )


def _require_no_config(steps: Sequence[Step], documents: Mapping[str, Document]) -> None:
    """Refuse changes that cannot be written into the configs: patch sizes, depths, rows."""
    for step in steps:
        unsaid = isinstance(step.operation, ResampleKernel | SetLength)
        video = step.table.role is Role.ABSOLUTE and not step.table.family.volume
        deeper = step.frames != step.table.frames and not video
        if documents and (unsaid or deeper):
            raise TableError(
                f"{step.table.name} changes ({step.reason}), but the config files cannot be "
                "updated for this change and would be stale.",
                hint=f"{NO_CONFIG[:-1]}, and edit the configs by hand.",
            )


def _require_one_grid(steps: Sequence[Step], request: Request) -> None:
    """Refuse `--to-grid` if stages or branches have different grids."""
    grids = {
        step.table.grid: step.table.name
        for step in steps
        if step.table.role in _CELLS
        and {"h", "w"} <= step.table.layout.axes
        and not of_another_tower(step.table, request)
    }
    if request.to_grid is not None and len(grids) > 1:
        shown = ", ".join(f"{name} {grid}" for grid, name in grids.items())
        raise UsageError(
            f"--to-grid {request.to_grid}: the tables have different grids ({shown}).",
            hint="pass --to SIZE, from which each grid follows.",
        )


def _require_floating(table: PositionTable) -> None:
    dtype = DTYPES[table.tensor.dtype]
    if not dtype.floating:
        raise TableError(
            f"{table.name} is stored as {dtype.name}; integer and quantised tables cannot be "
            "interpolated.",
            hint="convert it to a floating dtype first.",
        )
