"""Maps and lines over the pixels of the image of a table: [h, w], [d, h, w], one number per row.

Reads shapes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.tables import Step
from resize_pos.planning.census.odd_layers import long_axes
from resize_pos.planning.unknown_names.candidates import is_matrix_name

_FEWEST_PIXELS = 32  # along one side of an image


def lines_of_pixels(
    others: Sequence[TensorInfo], changed: Sequence[Step]
) -> Iterator[tuple[TensorInfo, str]]:
    """Find what has one number for each row or column of pixels, if nothing else is as long.

    It has a second axis, of length 1: a vector alone may be anything.
    """
    sides = {
        side: step.name
        for step in changed
        if step.table.patch is not None and {"h", "w"} <= step.table.layout.axes
        for side in (
            step.table.grid.height * step.table.patch.height,
            step.table.grid.width * step.table.patch.width,
        )
        if side >= _FEWEST_PIXELS
    }
    alike = Counter(n for info in others for n in set(info.shape) if n in sides)
    for info in others if alike else ():
        (length,) = lengths if len(lengths := long_axes(info.shape)) == 1 else (0,)
        layer = info.name.endswith((".weight", ".bias"))
        column = len(info.shape) > 1 and DTYPES[info.dtype].floating and not layer
        if alike[length] == 1 and column:
            where = f"the image of {sides[length]}"
            yield info, f"has one number for each row or column of pixels of {where}"


def is_map(info: TensorInfo, widths: Mapping[int, int]) -> bool:
    """Whether a tensor is one plane of numbers or several of them, and no layer."""
    planes = len(info.shape) < 4 or info.shape[0] == 1
    return (
        planes
        and not is_matrix_name(info.name)
        and not any(side in widths for side in info.shape[-2:])
    )


def flags_of_map(shape: tuple[int, ...]) -> tuple[str, str]:
    """Return the flag and the axes with which a map is resized; empty if it has other axes."""
    planes = {2: "h w", 3: "d h w", 4: "1 d h w"}.get(len(shape), "")
    if len(shape) > 2 and shape[-3] == 1:
        planes = " ".join(("1",) * (len(shape) - 2) + ("h", "w"))
    return ("--pattern", planes) if planes else ("", "")
