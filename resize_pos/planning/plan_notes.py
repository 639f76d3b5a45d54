"""What a user should know about a plan besides its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.notes import Note
from resize_pos.core.operations import Lengthen, LengthMethod, Resample
from resize_pos.core.request import Request
from resize_pos.families.family import Role, name_pattern
from resize_pos.families.tables import Action, Located, PositionTable, Step, is_all_text
from resize_pos.planning.census.suspects import weak_suspects
from resize_pos.planning.geometry.image_size import size_notes
from resize_pos.planning.rules.base import NO_MASK

# Roles whose rows are vectors or numbers that a user may expect to be restored.
_HAVE_NORMS = frozenset(
    {Role.ABSOLUTE, Role.REFERENCE, Role.RELATIVE, Role.DISTANCE, Role.SEQUENCE}
)


def plan_notes(located: Located, steps: Sequence[Step], stated: Request) -> Iterator[Note]:
    """List them; `stated` is the request before `--to` was read as a length."""
    yield from dict.fromkeys(
        [
            *_text_notes(located, steps, stated),
            *_remainder_notes(steps, stated),
            *_window_notes(steps, stated),
            *_mask_notes(located, steps),
            *size_notes(located, steps, stated),
            *_norm_notes(steps, stated),
            *_leave_notes(steps, stated),
            *_suspect_notes(located, steps, stated),
        ]
    )


def _norm_notes(steps: Sequence[Step], stated: Request) -> Iterator[Note]:
    """Say which changed tables `--restore-norms` does not apply to, or that it changes nothing."""
    if not stated.restore_norms:
        return
    changed = (Action.RESIZE, Action.REGENERATE)
    tables = [s for s in steps if s.action in changed and s.table.role in _HAVE_NORMS]
    restored = [
        step
        for step in tables
        if isinstance(step.operation, Resample) and step.operation.restore_norms
    ]
    others = [step.name for step in tables if step not in restored]
    reason = "it applies to learned absolute tables that are interpolated"
    if not restored:
        yield Note(f"--restore-norms changes nothing here: {reason}, and no such table changes.")
    elif others:
        yield Note(f"--restore-norms does not apply to {_names(others)}: {reason}.")


def _leave_notes(steps: Sequence[Step], stated: Request) -> Iterator[Note]:
    """Say which tables change although `--leave` names them: it only answers a question."""
    if stated.leave is None:
        return
    named = name_pattern("--leave", *stated.leave)
    changed = [s.name for s in steps if s.action is not Action.KEEP and named.search(s.name)]
    if changed:
        yield Note(
            f"--leave does not keep {_names(changed)}: tables of a known layout follow the size. "
            "--tower TEXT changes only tables whose name contains TEXT."
        )


def _suspect_notes(located: Located, steps: Sequence[Step], stated: Request) -> Iterator[Note]:
    """Name the tensors that look as if they depended on the size, and are not changed."""
    for suspect in weak_suspects(located, steps, stated):
        yield Note(
            f"{suspect.tensor} {suspect.reason}; it stays as it is, which is right if these are "
            "classes or features (--leave accepts that).",
            warning=True,
        )
    for miss in located.looks_like if stated.to_image else ():
        reason = miss.reason.rstrip(".")
        yield Note(f"{reason}; it stays as it is (--leave accepts that).", warning=True)


def _text_notes(located: Located, steps: Sequence[Step], stated: Request) -> Iterator[Note]:
    """Say what `--to` means for text: nothing in a batch, otherwise the number of positions."""
    text_only = is_all_text(step.table.role for step in steps)
    if located.many and stated.to_image and stated.to_length is None and text_only:
        yield Note(
            "a text model: in a batch --to is an image size, so its length stays; pass "
            "--to-length N to change it."
        )
    for step in steps if located.all_text and stated.to_size is not None else ():
        lost = step.table.grid.cells - step.target.cells
        if step.action is Action.RESIZE and isinstance(step.operation, Lengthen) and lost > 0:
            yield Note(
                f"{step.name}: --to {stated.to_size} is the length of a text model; "
                f"{_removed(step.operation, lost)}.",
                warning=True,
            )


def _removed(how: Lengthen, lost: int) -> str:
    if how.method is LengthMethod.KEEP:
        return f"the last {lost} positions are removed"
    return f"it has {lost} positions less than before"


def _remainder_notes(steps: Sequence[Step], request: Request) -> Iterator[Note]:
    """Say which pixels a patch convolution drops, and which sizes have no remainder."""
    size = request.to_size
    if size is None:
        return
    for step in steps:
        table, tiling = step.table, step.table.tiling
        if tiling is None or table.role is not Role.ABSOLUTE or table.family.scaled:
            continue
        if request.to_patch is not None:
            tiling = Tiling(request.to_patch)
        if tiling.window is not None or tiling.divides(size) or not {"h", "w"} <= table.layout.axes:
            continue
        whole = tiling.whole_patches(size)
        if whole == step.target:
            yield Note(
                f"{size} px is no multiple of the patch size {tiling}: the grid is {whole} "
                f"({tiling.pixels(whole)} px), and the patch convolution drops the rest. "
                f"Nearest sizes without a rest: {tiling.nearest(size)}."
            )


def _window_notes(steps: Sequence[Step], request: Request) -> Iterator[Note]:
    """Say that windows stay while the image changes, and how to change them, too."""
    windowed = [s.table for s in steps if s.table.reach is not None and s.table.reach.nominal]
    size = request.to_size
    if size is None or request.to_window is not None or not windowed:
        return
    windows = [table.reach.nominal for table in windowed if table.reach and table.reach.nominal]
    window = Grid(max(w.height for w in windows), max(w.width for w in windows))
    images = [table.reach.image for table in windowed if table.reach]
    if size in images:
        return
    other = _window_for(windowed, window, size)
    flag = f"--to {size} --to-window {'N' if other is None else other}"
    yield Note(
        f"the windows stay {window}, as timm and transformers keep them at another image size; "
        f"{flag} changes them, too."
    )


def _window_for(tables: Sequence[PositionTable], window: Grid, size: Size) -> Size | None:
    """Return the window that grows with the image; None if the file does not show its size.

    The coarsest stage of published models is one window: 7 cells at 224 px, 12 at 384.
    """
    reaches = [table.reach for table in tables if table.reach is not None]
    image = next((reach.image for reach in reaches if reach.image is not None), None)
    if image is not None:
        height, width = window.height * size.height, window.width * size.width
        exact = not (height % image.height or width % image.width)
        return Size(height // image.height, width // image.width) if exact else None
    coarsest = max(reaches, key=lambda reach: reach.stride.height).stride
    whole = not (size.height % coarsest.height or size.width % coarsest.width)
    if coarsest.height <= 1 or not whole:
        return None
    found = Size(size.height // coarsest.height, size.width // coarsest.width)
    return None if found == Size(window.height, window.width) else found


_BLOCK_OF_MASK = lazy_regex(r"(.*\.)(\d+)\.attn_mask")


def _mask_notes(located: Located, steps: Sequence[Step]) -> Iterator[Note]:
    """Say which masks of shifted windows the model has and the file has not, or the reverse."""
    masks = [step for step in steps if step.name.endswith(".attn_mask")]
    missing = _missing_masks(located, steps, masks)
    stale = [step.name for step in masks if step.reason == NO_MASK]
    tail = "load it with strict=False; the model computes its masks itself"
    if missing:
        yield Note(
            f"at the new size the model also stores {_names(missing)}, which the file has not, "
            f"because there the window was the whole stage: {tail}.",
            warning=True,
        )
    if stale:
        yield Note(
            f"at the new size the model does not store {_names(stale)}, because there the window "
            f"is the whole stage; the file keeps it: {tail}.",
            warning=True,
        )


def _missing_masks(located: Located, steps: Sequence[Step], masks: Sequence[Step]) -> list[str]:
    """Find blocks that shift their windows at the new size only.

    Their number inside a stage is that of blocks that shift in other stages.
    """
    grown = [step for step in masks if step.target.cells > step.table.grid.cells]
    numbers = {found[2] for step in masks if (found := _BLOCK_OF_MASK.fullmatch(step.name))}
    missing = []
    for step in steps if grown else ():
        block, tail, _ = step.name.partition(".attn.relative_position_bias_table")
        mask = f"{block}.attn_mask"
        shifts = bool(tail) and block.rpartition(".")[2] in numbers
        if shifts and step.action is Action.KEEP and mask not in located.others:
            missing.append(mask)
    return missing


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
