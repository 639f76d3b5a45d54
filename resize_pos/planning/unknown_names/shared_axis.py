"""One table for both axes: a row of cells and a column of cells look up the same rows.

Such a table has as many rows as a square image has cells along one side. Read as a grid, 16 rows
would be 4×4 cells. Its values tell: they vary smoothly from the first row to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.planning.unknown_names.commands import command, either, from_flag, name_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS = range(7, 129)  # cells along one side: 224 pixels of 32 to 2048 of 16
_FLAT = "(p h w s)"


def line_layout(tensor: TensorInfo, layout: Layout) -> Layout | None:
    """Return how a flattened grid is laid out if it is one axis; None if it cannot be one."""
    flat = _FLAT in layout.pattern or "(h w)" in layout.pattern
    if not flat or layout.rows(tensor.shape) not in _ROWS:
        return None
    return Layout.parse(layout.pattern.replace(_FLAT, "h").replace("(h w)", "h"))


def is_line(tensor: TensorInfo, layout: Layout, read: Callable[[str], NDArray[Any]] | None) -> bool:
    """Whether the rows of a table may be one axis, and its values say so."""
    if read is None or line_layout(tensor, layout) is None:
        return False
    from resize_pos.planning.geometry.smoothness import looks_like_line, rows_of

    return looks_like_line(rows_of(read(tensor.name), layout))


def shared_axis(
    tensor: TensorInfo,
    layout: Layout,
    tensors: Mapping[str, TensorInfo],
    request: Request,
    *,
    known: bool = False,
) -> GeometryError:
    """Refuse to read such a table as a grid, with the command that resizes it.

    A table whose name is `known` is certainly one, so that it cannot be left.
    """
    line = line_layout(tensor, layout)
    flags = command(tensor, line, tensors, one_shape=True) + from_flag(request)
    rows = layout.rows(tensor.shape)
    sizes = request.from_size, request.to_size
    if line is not None and any(size and size.height != size.width for size in sizes):
        return _one_axis(tensor, line, tensors, request)
    return GeometryError(
        f"{tensor} may be one table for both axes of a square image of {rows}×{rows} cells: its "
        "values vary smoothly from the first row to the last.",
        hint=f"pass {flags} to resize it, or --from-grid HxW if it is a grid."
        if known
        else either(flags, tensor, tensors),
    )


def _one_axis(
    tensor: TensorInfo, line: Layout, tensors: Mapping[str, TensorInfo], request: Request
) -> GeometryError:
    """Refuse to choose the axis: the image is no square, so rows and columns differ in number."""
    columns = Layout.parse(line.pattern.replace("h", "w"))
    along, down = (
        command(tensor, axis, tensors, one_shape=True) + from_flag(request)
        for axis in (columns, line)
    )
    return GeometryError(
        f"{tensor} may hold one row per column of cells, or one per row of cells: its values vary "
        "smoothly from the first row to the last.",
        hint=f"if it has one row per column of cells (a line of text), pass {along}; if one per "
        f"row, pass {down}; or --leave '{name_regex(tensor.name, tensors)}' if it does not depend "
        "on the resolution.",
    )
