"""Tensors of any name whose values show a grid, where shapes alone cannot tell.

A model whose grid has as many cells as one of its layers has features (16×16 cells, 256 features)
gives every layer an axis of that length. Then the values decide: features come in no order, so that
neighbours are not alike, but what belongs to cells varies smoothly along rows and along columns. A
file without any table may hold the coordinates of cells, or statistics of each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, Shown
from resize_pos.planning.census.echoes import FEWEST_CELLS
from resize_pos.planning.census.odd_layers import is_layer, is_pair_of_cells, long_axes
from resize_pos.planning.geometry.coordinates import MOST_COORDINATES, coordinates
from resize_pos.planning.geometry.grid_solver import Reading, RowCount
from resize_pos.planning.rules.base import Surroundings
from resize_pos.planning.unknown_names.candidates import widths_of
from resize_pos.planning.unknown_names.commands import name_regex, reads_sequences

if TYPE_CHECKING:
    from numpy.typing import NDArray

ReadValues = Callable[[str], "NDArray[Any]"]

_IMAGE = frozenset({Role.ABSOLUTE, Role.MIXING, Role.RELATIVE, Role.DISTANCE, Role.REFERENCE})
_MOST_BYTES = 2**24
_MOST_BYTES_OF_LAYER = 2**20  # layers are many, and nearly none of them is over cells
_ALIKE = 0.5  # correlation of neighbours; of 36 numbers in no order it is below .4
_JUMP = 0.2  # between the correlation inside a row of cells and across its end
_FEWEST_SIDE = 4  # cells
_WIDEST_ASPECT = 8
_INTEGERS = ("I64", "I32")
_MOST_ORDERED = 2**16
_FEWEST_VALUES = 17  # of a map; a mask has fewer different ones
_MOST_PLANES = 16  # of a map that is no table: colours, classes
_PLANES: Mapping[int, Sequence[str]] = {2: ("hw",), 3: ("dhw", "hwd")}
_DIGITS = lazy_regex(r"\d+")
# Fixed filters, which are smooth and have no cells; queries and words, which have no order.
_FILTER = lazy_regex(
    r"mel|fbank|filter|dct|stft|fft|window|hann|basis|wavelet|gabor|sobel|kernel|quer(?:y|ies)"
    r"|vocab|word|codebook|inv_freq"
)


def find_shown(
    around: Surroundings, tables: Mapping[str, PositionTable], explained: Collection[str]
) -> Mapping[str, Shown]:
    """Return the tensors, besides tables and what is explained, whose values show a grid."""
    if around.read is None or not around.request.to_image:
        return {}
    besides = {*tables, *explained}
    if any(table.role in _IMAGE for table in tables.values()):
        widths = around.once("widths", lambda: widths_of(around.tensors.values()))
        found = shown_beside(tables, around.tensors, besides, widths, around.read)
        return {name: Shown(f"varies with the cells of {table}", table) for name, table in found}
    if tables or around.configs or reads_sequences(around.tensors):
        return {}
    return dict(shown_alone(around.tensors, besides, around.read))


def shown_beside(
    tables: Mapping[str, PositionTable],
    tensors: Mapping[str, TensorInfo],
    explained: Collection[str],
    widths: Mapping[int, int],
    read: ReadValues,
) -> Iterator[tuple[str, str]]:
    """Find what varies over the grid of a table that has as many cells as the model features.

    Yields the name of the tensor and that of the table.
    """
    grids = {
        table.grid: table.name
        for table in tables.values()
        if table.role in (Role.ABSOLUTE, Role.MIXING) and {"h", "w"} <= table.layout.axes
        if table.grid.cells >= FEWEST_CELLS and table.grid.cells in widths
    }
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for name, info in tensors.items() if grids else ():
        shape = long_axes(info.shape)
        if name in explained or not shape or not DTYPES[info.dtype].floating:
            continue
        if _FILTER.search(name.lower()):
            continue
        kind = _DIGITS.sub("0", name), info.shape
        layer = is_layer(info)
        if layer and kind in seen:
            continue
        seen.add(kind)
        for grid, table in grids.items():
            if is_pair_of_cells(info, grid.cells):
                yield name, table
                break
            most = _MOST_BYTES_OF_LAYER if layer and len(shape) > 1 else _MOST_BYTES
            if grid.cells not in shape or info.nbytes > most or len(info.shape) > 3:
                continue
            if _varies(read(name), shape, grid):
                yield name, table
                break


def shown_alone(
    tensors: Mapping[str, TensorInfo], explained: Collection[str], read: ReadValues
) -> Iterator[tuple[str, Shown]]:
    """Find what holds cells in a file in which no table was found: the tensor, and the reason."""
    seen: set[tuple[str, tuple[int, ...]]] = set()
    yield from _orders(tensors, explained, read)
    for name, info in tensors.items():
        shape = long_axes(info.shape)
        if name in explained or not DTYPES[info.dtype].floating or not 1 <= len(shape) <= 3:
            continue
        if 0 in info.shape:  # an option of the model that is off: no keys, no registers
            continue
        kind = _DIGITS.sub("0", name), info.shape
        layer = is_layer(info)
        if (layer and (len(shape) > 1 or kind in seen)) or _most_cells(shape) < FEWEST_CELLS:
            continue
        seen.add(kind)
        if info.nbytes > _MOST_BYTES or _FILTER.search(name.lower()):
            continue
        values = read(name)
        if len(shape) > 1 and (reason := coordinates(values, shape)):
            yield name, Shown(reason)
        elif len(shape) > 1 and (plane := _plane(values, shape)):
            sides = "×".join(str(shape[plane.index(axis)]) for axis in "hw")
            reason = f"varies smoothly over {sides} cells or pixels"
            yield name, Shown(reason, axes=_axes_of(info.shape, plane))
        elif reason := _smooth(values, shape):
            yield name, Shown(reason)


def _orders(
    tensors: Mapping[str, TensorInfo], explained: Collection[str], read: ReadValues
) -> Iterator[tuple[str, Shown]]:
    """Find orders in which cells are read, one number each: no layer has as many features."""
    indices = {
        name: shape[0]
        for name, info in tensors.items()
        if name not in explained and info.dtype in _INTEGERS
        if len(shape := long_axes(info.shape)) == 1 and FEWEST_CELLS <= shape[0] <= _MOST_ORDERED
    }
    if not indices:
        return
    import numpy as np

    features = {n for info in tensors.values() if DTYPES[info.dtype].floating for n in info.shape}
    for name, count in indices.items():
        values = read(name).ravel() if count not in features else np.arange(0)
        numbers = np.arange(len(values))
        if len(values) and (np.sort(values) == numbers).all() and (values != numbers).any():
            yield name, Shown(f"holds an order of {count} cells")


def _most_cells(shape: tuple[int, ...]) -> int:
    """Return how many cells a tensor may have: along one axis, or beside their coordinates."""
    ends = [shape[1:] if shape[0] <= MOST_COORDINATES else ()]
    ends.append(shape[:-1] if shape[-1] <= MOST_COORDINATES else ())
    return max(*shape, *map(math.prod, ends))


def _varies(values: NDArray[Any], shape: tuple[int, ...], grid: Grid) -> bool:
    """Whether values vary smoothly over a grid along one of the axes with as many cells."""
    import numpy as np

    plain = values.reshape(shape).astype(np.float64)
    if not np.all(np.isfinite(plain)):
        return False
    return any(
        varies_over(np.moveaxis(plain, axis, 0).reshape(grid.height, grid.width, -1))
        for axis, length in enumerate(shape)
        if length == grid.cells
    )


def varies_over(cells: NDArray[Any]) -> bool:
    """Whether (height, width, channels) is smooth in both directions and jumps at row ends."""
    import numpy as np

    if min(cells.shape[:2]) < _FEWEST_SIDE:
        return False
    centred = cells - cells.mean(axis=(0, 1))
    scale = np.sqrt((centred**2).mean(axis=(0, 1)))
    used = scale > 1e-9 * max(1.0, float(np.abs(cells).max()))
    if not used.any():
        return False
    unit = centred[:, :, used] / scale[used]
    rows = _alike(unit[:, 1:] - unit[:, :-1])
    columns = _alike(unit[1:] - unit[:-1])
    ends = _alike(unit[1:, 0] - unit[:-1, -1])
    return min(rows, columns) >= _ALIKE and rows - ends >= _JUMP


def _alike(differences: NDArray[Any]) -> float:
    """Return how alike neighbours of unit variance are: 1 if equal, 0 if they do not depend."""
    return 1.0 - float((differences**2).mean()) / 2


def _axes_of(shape: tuple[int, ...], plane: str) -> str:
    """Return the axes of a map for --axes; empty if its sides may be pairs of cells.

    One plane alone may also have one row for each cell, as stored angles have.
    """
    letters = iter(plane)
    axes = [next(letters) if length > 1 else "1" for length in shape]
    height, width = (shape[axes.index(axis)] for axis in "hw")
    squares = all(math.isqrt(side) ** 2 == side for side in (height, width))
    return "" if squares or height == width or "d" not in axes else " ".join(axes)


def _plane(values: NDArray[Any], shape: tuple[int, ...]) -> str:
    """Name the axes of a map over an image: `dhw`; empty if values do not vary over a plane.

    A mask has two values, or few, and says nothing about an image.
    """
    import numpy as np

    plain = values.reshape(shape).astype(np.float64)
    if not np.all(np.isfinite(plain)) or len(np.unique(plain)) < _FEWEST_VALUES:
        return ""
    for plane in _PLANES[len(shape)]:
        axes = plane.index("h"), plane.index("w")
        height, width = (shape[axis] for axis in axes)
        low, high = sorted((height, width))
        if low < _FEWEST_SIDE or high > _WIDEST_ASPECT * low or height * width < FEWEST_CELLS:
            continue
        cells = np.moveaxis(plain, axes, (0, 1)).reshape(height, width, -1)
        if cells.shape[2] <= _MOST_PLANES and varies_over(cells):
            return plane
    return ""


def _smooth(values: NDArray[Any], shape: tuple[int, ...]) -> str:
    """Say that values vary smoothly over one clear grid of cells; empty if they do not."""
    import numpy as np

    from resize_pos.planning.geometry.smoothness import judge_readings

    plain = values.reshape(shape).astype(np.float64)
    if not np.all(np.isfinite(plain)):
        return ""
    none = RowCount(0, "")
    for axis, rows in enumerate(shape):
        channels = math.prod(shape) // rows
        grids = [
            Grid(rows // width, width)
            for width in range(_FEWEST_SIDE, rows // _FEWEST_SIDE + 1)
            if rows >= FEWEST_CELLS and rows % width == 0
        ]
        table = np.moveaxis(plain, axis, 0).reshape(rows, channels)
        if channels > 1 and grids:  # the jumps at the ends of rows tell the widths apart
            readings = [Reading(none, grid, none) for grid in grids]
            choice = judge_readings(table, Layout.parse("(h w) d"), readings).choice
            grids = [] if choice is None else [choice.grid]
        for grid in grids:
            if varies_over(table.reshape(grid.height, grid.width, channels)):
                return f"varies smoothly over {grid} cells"
    return ""


def require_rows_first(table: PositionTable, around: Surroundings) -> PositionTable:
    """Refuse a table of as many cells as channels if its values show that channels come first."""
    shape, cells = table.tensor.shape, table.grid.cells
    square = long_axes(shape) == (cells, cells) and table.layout.terms[-1:] == ("d",)
    if not square or around.read is None or table.fixed is not None:
        return table
    import numpy as np

    values = around.read(table.name).reshape(cells, cells).astype(np.float64)
    grid = table.grid.height, table.grid.width, cells
    if varies_over(values.reshape(grid)) or not varies_over(values.T.reshape(grid)):
        return table
    axes = " ".join(("1",) * (len(shape) - 2) + ("d", "(p h w s)"))
    raise GeometryError(
        f"{table.tensor} has as many cells as channels, and its values vary smoothly over "
        f"{table.grid} along the last axis, so its channels come first.",
        hint=f"pass --pattern '{name_regex(table.name, around.tensors)}' --axes '{axes}'.",
    )
