"""Whether the size of the image that a table was made for is known, or only assumed.

`--to` in pixels is divided by the size of one cell. If that may be another one than the kernel
says, and no usual size of the image speaks for the kernel, the run is refused with a command for
each size. A rectangle is refused if the target lies the other way, else it is warned about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Size, Tiling
from resize_pos.core.notes import Note
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, Located, PositionTable, Step
from resize_pos.planning.geometry.other_patches import (
    CellKind,
    OtherPatch,
    doubts,
    is_usual,
    other_patches,
    overlapping_reading,
)

_FEWEST_CELLS = 36
_LARGEST_PATCH = 16  # pixels; cells that are larger than that are rare
_RECORDED = "recorded in the file by an earlier conversion"


def require_image_size(located: Located, steps: Sequence[Step], request: Request) -> None:
    """Refuse to guess the size of a cell, if another one than the kernel's fits as well."""
    for table in _assumed(steps, request):
        now = _pixels(table)
        cells = f"{table.name} has {table.grid} cells: an image of {now} px"
        for other in doubts(table, located.others):
            then = other.pixels(table.grid)
            likely = other.likely or is_usual(then)
            if other.kind is CellKind.CHANNELS or not (likely or other.side <= _LARGEST_PATCH):
                continue
            first, second = (then, now) if likely else (now, then)
            raise GeometryError(
                f"{cells} at patch {table.patch} ({table.kernel}); but {other.words}, and then the "
                f"image has {then} px.",
                hint=f"{'instead of --from-grid ' if request.from_grid else ''}pass --from {first} "
                f"or --from {second}, or --to-grid HxW.",
            )
        overlapping = overlapping_reading(table, located.others)
        if overlapping is not None:
            then, step = overlapping
            raise GeometryError(
                f"{cells} in patches of {table.patch} side by side ({table.kernel}); but if they "
                f"overlap, with one patch every {step} px, the image has {then} px.",
                hint=f"pass --from {then} --patch {step}, or --from {now}, or --to-grid HxW.",
            )
        _require_same_way(table, request)


def _require_same_way(table: PositionTable, request: Request) -> None:
    """Refuse a rectangle that only the values show, if the target lies the other way.

    The values show how long a run of cells is, but not whether it is a row or a column. A volume
    has a third side, so its cells do not lie one way or the other.
    """
    target, grid, now = request.to_size, table.grid, _pixels(table)
    if target is None or table.layout.has_time or not _is_shown_rectangle(table):
        return
    lies, will = now.width - now.height, target.width - target.height
    if lies * will >= 0:
        return
    turned = Size(now.width, now.height)
    rows = f" --prefix {table.prefix}" if table.prefix else ""
    rows += f" --suffix {table.suffix}" if table.suffix else ""
    axes = table.layout.pattern.replace("h w", "w h")
    pattern = f"--pattern '^{re.escape(table.name)}$' --axes '{axes}'{rows}"
    raise GeometryError(
        f"{table.name} has runs of {grid.width} cells: {grid} cells (height × width), an image of "
        f"{now} px; but {target} px lie the other way. If the runs are columns, the image has "
        f"{turned} px.",
        hint=f"pass --from {now}, or {pattern} --from {turned}.",
    )


def _is_shown_rectangle(table: PositionTable) -> bool:
    flat = table.layout.grid(table.tensor.shape) is None and {"h", "w"} <= table.layout.axes
    return flat and not table.grid.is_square and table.grid.cells >= _FEWEST_CELLS


def size_notes(located: Located, steps: Sequence[Step], request: Request) -> Iterator[Note]:
    """Warn about a size that was assumed, if another one fits as well."""
    for table in _assumed(steps, request):
        if (words := _other_reading(table, located)) is not None:
            yield Note(words, warning=True)


def _assumed(steps: Sequence[Step], request: Request) -> Iterator[PositionTable]:
    """List the tables that change by a size that neither a flag nor a config confirms."""
    told = request.from_size is not None or request.patch is not None
    for step in steps if request.to_size is not None and not told else ():
        table = step.table
        changes = step.action is not Action.KEEP and step.state is None
        alone = table.role is Role.ABSOLUTE and table.follows is None and table.stated is None
        if changes and alone and table.patch is not None and _RECORDED not in table.evidence:
            yield table


def _other_reading(table: PositionTable, located: Located) -> str | None:
    kernel = None if table.kernel is None else located.others.get(table.kernel)
    now = _pixels(table)
    if kernel is None or table.patch is None:
        return None
    width = dict(zip(table.layout.terms, table.tensor.shape, strict=False)).get("d", 0)
    if len(kernel.shape) == 2:
        for other in other_patches(kernel, table.patch, width, ()):
            return _of_channels(table, kernel, other)
    for other in doubts(table, located.others):
        then = other.pixels(table.grid)
        return (
            f"{table.name}: an image of {now} px was assumed, but {other.words}: then it has "
            f"{then} px. Pass --from {now} or --from {then}."
        )
    if _is_shown_rectangle(table):
        return (
            f"{table.name} has {table.grid} cells, and nothing states the size of the image; {now} "
            f"px (height × width) were assumed, in patches side by side. Pass --from {now} to "
            "confirm it, or the right size."
        )
    return None


def _pixels(table: PositionTable) -> Size:
    assert table.patch is not None
    return Tiling(table.patch).pixels(table.grid)


def _of_channels(table: PositionTable, kernel: TensorInfo, other: OtherPatch) -> str:
    patch, now, then = table.patch, _pixels(table), other.pixels(table.grid)
    assert patch is not None
    numbers = max(n for n in kernel.shape if n % other.side**2 == 0)
    return (
        f"{kernel.name} reads {numbers} numbers per patch: {patch.height}×{patch.width} pixels of "
        f"{numbers // patch.height**2} channels were assumed (an image of {now}), but "
        f"{other.words} fit as well (an image of {then}). Pass --from {now} "
        f"or --from {then}."
    )
