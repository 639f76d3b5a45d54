"""Tables of a signal: one row per step of a series, not one per patch of an image.

A linear layer of 48 inputs reads 4×4 pixels of three colours, or 16 steps of three channels: its
shape does not tell. The values do: along a signal they vary smoothly from the first row to the
last, and in a grid they jump at the end of each row of cells. A 1-D convolution tells as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Tiling
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role
from resize_pos.families.patch_size import is_linear_embedding
from resize_pos.families.tables import Located, PositionTable
from resize_pos.planning.geometry.grid_solver import Reading, RowCount
from resize_pos.planning.geometry.other_patches import is_published
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.unknown_names.candidates import token_rows, tokens_of
from resize_pos.planning.unknown_names.commands import command, from_flag
from resize_pos.planning.unknown_names.shared_axis import line_layout as shared_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FLAT = "(p h w s)"
_MOST_BYTES = 2**28  # of a table whose values are read
_SMALL_IMAGE = 96  # pixels; below it, a size that fits a linear layer says little


def line_match(tensor: TensorInfo, family: Family, layout: Layout, around: Surroundings) -> Match:
    """Match a 1-D table that the user names; `p` asks for the rows that tokens may own."""
    stem = family.stem(tensor.name) or ""
    prefixes = _token_counts(tensor, layout, around) if "p" in layout.axes else ()
    return Match(tensor, family, stem, layout, prefixes)


def require_image(table: PositionTable, around: Surroundings) -> PositionTable:
    """Return the table, or refuse to read the steps of a signal as the cells of a grid."""
    error = signal_doubt(table, around)
    if error is not None:
        raise error
    return table


def signal_doubt(table: PositionTable, around: Surroundings) -> GeometryError | None:
    """Return why a table may be that of a signal; None if it is that of an image."""
    request, layout, info = around.request, table.layout, table.tensor
    plain = table.role is Role.ABSOLUTE and table.fixed is None and table.follows is None
    pictured = request.from_grid is not None or bool(around.configs) or _names_an_image(request)
    if not plain or pictured or table.name in around.known or line_layout(layout) is None:
        return None
    if table.frames > 1 or not around.once("flat", lambda: reads_no_image(around.tensors)):
        return None
    taken = Reading(RowCount(table.prefix, ""), table.grid, RowCount(table.suffix, ""))
    shown = _shown(info, layout, taken, around)
    if shown == "line":
        words = "its values vary smoothly from row to row, without ends of rows of cells"
        return _refusal(info, layout, words, around)
    if shown == "grid":
        return None
    kernel = _kernel_of_steps(info, layout, around)
    if kernel is not None:
        return _refusal(info, layout, f"{kernel} reads steps of a series, not pixels", around)
    linear = _linear_embedding(info, layout, around)
    if linear is None or table.patch is None:
        return None
    size = Tiling(table.patch).pixels(table.grid)
    inputs = linear.shape[1]
    if inputs % (table.patch.height * table.patch.width):
        pixels = f"{table.patch.height}×{table.patch.width} pixels"
        words = f"{linear} does not read {pixels} of whole channels"
        return _refusal(info, layout, words, around)
    likely = is_published(size) and min(size.height, size.width) >= _SMALL_IMAGE
    likely = likely or "transformers" in table.family.source  # Llama 4: its name says what it is
    if request.from_size is not None or likely:
        return None
    flags = _flags(info, layout, around)
    return GeometryError(
        f"{info} may hold {table.grid} cells of an image of {size} px, or "
        f"{table.grid.cells} steps of a signal: {linear} fits both, and its values do not tell.",
        hint=f"for an image, pass --from SIZE; for a signal, pass {flags}.",
    )


def as_signal(
    error: GeometryError, tensor: TensorInfo, layout: Layout, around: Surroundings
) -> GeometryError:
    """Say in a refusal that the rows may be the steps of a signal, if they may."""
    if _names_an_image(around.request) or line_layout(layout) is None:
        return error
    if not around.once("flat", lambda: reads_no_image(around.tensors)):
        return error
    kernel = _kernel_of_steps(tensor, layout, around)
    shown = _shown(tensor, layout, None, around)
    if shown == "line":
        return _refusal(tensor, layout, "its values vary smoothly from row to row", around)
    if kernel is not None:
        return _refusal(tensor, layout, f"{kernel} reads steps of a series, not pixels", around)
    linear = _linear_embedding(tensor, layout, around)
    if linear is None:
        return error
    size = around.request.from_size
    if (
        size is not None
        and size.height == size.width
        and _steps_fit(tensor, layout, linear, around)
    ):
        words = f"--from {size} is a whole number of its rows, and {linear} may read one of them"
        return _refusal(tensor, layout, words, around)
    hint = (error.hint or "").rstrip(".")
    flags = _flags(tensor, layout, around)
    return GeometryError(error.message, hint=f"{hint}; for a signal, pass {flags}.")


def _names_an_image(request: Request) -> bool:
    """Whether flags say what the rows are. A height and a width are not those of a signal."""
    sizes = (request.from_size, request.to_size)
    return request.axes is not None or any(s and s.height != s.width for s in sizes)


def reads_steps(tensor: TensorInfo, layout: Layout, around: Surroundings) -> bool:
    """Whether a 1-D convolution makes the rows of a table."""
    return _kernel_of_steps(tensor, layout, around) is not None


def require_unit(located: Located, request: Request) -> None:
    """Ask whether `--to` counts steps or rows, if a row of a table stands for several steps."""
    if request.to_size is None or request.from_size is not None or request.from_length is not None:
        return
    for table in located.tables:
        if table.role is not Role.SEQUENCE or table.family.name != "custom":
            continue
        width = _width(table.tensor, table.layout)
        kernels = (*_step_kernels(width, located.others), *_linear(width, located.others))
        if kernels and reads_no_image(located.others):
            raise GeometryError(
                f"--to {request.to_size}: {table.name} has {table.length} rows, and {kernels[0]} "
                "may read several steps of a signal for each of them.",
                hint="pass --from SIZE, the length of the signal in this file; or --to-length N "
                "instead of --to, which counts rows.",
            )


def line_layout(layout: Layout) -> Layout | None:
    """Return how flattened rows are laid out if they are the steps of a signal."""
    if _FLAT not in layout.pattern:
        return None
    return Layout.parse(layout.pattern.replace(_FLAT, "(p l)"))


def reads_no_image(tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether no kernel of a file has an extent along two axes."""
    return not any(
        len(info.shape) > 3 and info.shape[0] > 1 and min(info.shape[2:]) > 1
        for info in tensors.values()
    )


def _refusal(tensor: TensorInfo, layout: Layout, words: str, around: Surroundings) -> GeometryError:
    named, size = command(tensor, layout, around.tensors), from_flag(around.request)
    hint = f"pass {_flags(tensor, layout, around)}, with --from and --to in steps of the signal; "
    line = None if _prefix(tensor, layout, around) else shared_line(tensor, layout)
    if line is not None:
        hint += f"if rows and columns of an image share it, {command(tensor, line, around.tensors)}"
        hint += f"{size}; "
    return GeometryError(
        f"{tensor} probably holds one row per step of a signal, not per cell of an image: {words}.",
        hint=f"{hint}if it is a grid of an image after all, {named}{size}.",
    )


def _flags(tensor: TensorInfo, layout: Layout, around: Surroundings) -> str:
    prefix = _prefix(tensor, layout, around)
    line = layout.pattern.replace(_FLAT, "(p l)" if prefix else "l")
    flags = command(tensor, Layout.parse(line), around.tensors)
    flags += f" --prefix {prefix}" if prefix else ""
    return f"{flags} --length-method linear{from_flag(around.request)}"


def _prefix(tensor: TensorInfo, layout: Layout, around: Surroundings) -> int:
    """Choose how many rows belong to tokens: by the values, by --from, by the tokens there are."""
    rows = layout.rows(tensor.shape)
    counts = [each.count for each in _token_counts(tensor, layout, around) if each.count < rows]
    if _readable(tensor, around):
        from resize_pos.planning.geometry.smoothness import looks_untrained, rows_before_line

        values = _rows(tensor, layout, around)
        if not looks_untrained(values):
            return rows_before_line(values, counts)
    size = around.request.from_size
    fits = [n for n in counts if size is not None and size.height % (rows - n) == 0]
    return max(fits or counts, default=0)


def _token_counts(tensor: TensorInfo, layout: Layout, around: Surroundings) -> tuple[RowCount, ...]:
    stem = tensor.name.rpartition(".")[0] + "." if "." in tensor.name else ""
    width = _width(tensor, layout)
    return around.once(
        ("token rows", stem, width), lambda: token_rows(stem, width, tokens_of(around))
    )[0]


def _width(tensor: TensorInfo, layout: Layout) -> int:
    return tensor.shape[layout.terms.index("d")] if "d" in layout.terms else 0


def _readable(tensor: TensorInfo, around: Surroundings) -> bool:
    return around.read is not None and tensor.nbytes <= _MOST_BYTES


def _shown(tensor: TensorInfo, layout: Layout, taken: Reading | None, around: Surroundings) -> str:
    """Say what the values show: a `line`, a `grid`, or nothing."""
    if not _readable(tensor, around):
        return ""
    from resize_pos.planning.geometry.smoothness import looks_untrained, shown_shape

    values = _rows(tensor, layout, around)
    if looks_untrained(values):
        return ""
    prefix = RowCount(_prefix(tensor, layout, around), "")
    cells = layout.rows(tensor.shape) - prefix.count
    whole = taken or Reading(prefix, Grid(1, cells), RowCount(0, ""))
    return shown_shape(values, whole)


def _rows(tensor: TensorInfo, layout: Layout, around: Surroundings) -> NDArray[np.float64]:
    from resize_pos.planning.geometry.smoothness import rows_of

    read = around.read
    assert read is not None
    values = around.once(("values", tensor.name), lambda: read(tensor.name))
    return rows_of(values, layout)


def _kernel_of_steps(tensor: TensorInfo, layout: Layout, around: Surroundings) -> TensorInfo | None:
    width = _width(tensor, layout)
    return around.once(("steps", width), lambda: next(_step_kernels(width, around.tensors), None))


def _step_kernels(width: int, tensors: Mapping[str, TensorInfo]) -> Iterator[TensorInfo]:
    """List the 1-D convolutions that make the rows of a table out of fewer channels."""
    return (
        info
        for info in tensors.values()
        if len(info.shape) == 3
        and info.name.endswith("weight")
        and info.shape[0] == width > info.shape[1]
        and info.shape[2] > 1
    )


def _linear_embedding(
    tensor: TensorInfo, layout: Layout, around: Surroundings
) -> TensorInfo | None:
    width = _width(tensor, layout)
    return around.once(("linear", width), lambda: next(_linear(width, around.tensors), None))


def _linear(width: int, tensors: Mapping[str, TensorInfo]) -> Iterator[TensorInfo]:
    return (i for i in tensors.values() if is_linear_embedding(i) and i.shape[0] == width)


def _steps_fit(
    tensor: TensorInfo, layout: Layout, linear: TensorInfo, around: Surroundings
) -> bool:
    """Whether --from as a number of steps gives the rows, and one row has whole channels."""
    size, rows = around.request.from_size, layout.rows(tensor.shape)
    total = 0 if size is None else size.height
    counts = [each.count for each in _token_counts(tensor, layout, around) if each.count < rows]
    steps = [total // (rows - n) for n in counts if total % (rows - n) == 0]
    return any(step > 1 and linear.shape[1] % step == 0 for step in steps)
