"""Whether the size of the image that a table was made for is known, or only assumed.

`--to` in pixels is divided by the size of one cell. If that may be another one than the kernel
says, the run warns and names both sizes; if the other one is more likely, the run asks.
"""

from __future__ import annotations

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
_RECORDED = "recorded in the file by an earlier conversion"


def require_image_size(located: Located, steps: Sequence[Step], request: Request) -> None:
    """Refuse to guess the size of a cell, if the kernel alone is not the likeliest answer."""
    for table in _assumed(steps, request):
        for other in doubts(table, located.others):
            now, then = _pixels(table), other.pixels(table.grid)
            if other.kind is CellKind.CHANNELS or not (other.likely or is_usual(then)):
                continue
            raise GeometryError(
                f"{table.name} has {table.grid} cells: an image of {now} px at patch {table.patch} "
                f"({table.kernel}); but {other.words}, and then the image has {then} px.",
                hint=f"pass --from {then} or --from {now}, or --to-grid HxW.",
            )


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
    overlapping = overlapping_reading(table, located.others)
    if overlapping is not None:
        then, step = overlapping
        return (
            f"{table.name}: an image of {now} px was assumed, in patches side by side. If patches "
            f"of {table.kernel} overlap, it may have {then} px, with one patch every {step} px. "
            f"Pass --from {now}, or --from {then} --patch {step}."
        )
    flat = table.layout.grid(table.tensor.shape) is None and {"h", "w"} <= table.layout.axes
    if flat and not table.grid.is_square and table.grid.cells >= _FEWEST_CELLS:
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
