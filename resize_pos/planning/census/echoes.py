"""Tensors that show the grid of a table that changes: its cells, its offsets, its rows and columns.

Only part of a model would be converted if they stayed. Reads shapes only.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.tables import Step
from resize_pos.planning.census.maps import flags_of_map, is_map, lines_of_pixels
from resize_pos.planning.census.odd_layers import (
    flat_reader_of,
    is_layer,
    is_norm_over_cells,
    mixes_one_axis,
    spectrum_of,
)
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    is_matrix_name,
    sound_of,
    sounds_like_text,
)
from resize_pos.planning.unknown_names.neutral_names import counts_something_else

FEWEST_CELLS = 36  # of a table whose rows are looked for elsewhere; smaller counts are everywhere
_FEWEST_CHANNELS = 8
MOST_HEADS = 64
FINER = (1, 2, 4, 8)  # pixels per cell of a map that is finer than the patches
_USUAL_MULTIPLE = 32  # of which the lengths of hidden layers are multiples
# Tables that are looked up by word, or that ask: their number of rows is no grid.
_LOOKED_UP = lazy_regex(
    r"quer(?:y|ies)|latent|vocab|(?:word|token)s?_?emb|embed_tokens|wte\b"
    r"|projection_matrix",  # Performer's random features
    re.IGNORECASE,
)
_DIGITS = lazy_regex(r"\d+")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tensor that looks as if it depended on the resolution, and why."""

    tensor: TensorInfo
    reason: str
    flag: str = ""  # that would convert it: --also a table with as many rows, --pattern alone
    axes: str = ""  # that go with --pattern, where the shape alone does not say them


def echoes(
    others: Sequence[TensorInfo],
    changed: Sequence[Step],
    every: Mapping[str, TensorInfo],
    tables: Collection[str],
) -> Iterator[Suspect]:
    """Find the tensors that belong to the grid of a table that changes. `tables` are explained."""
    widths = features_of(every, tables)
    found = {each.tensor.name: each for each in _counts(others, changed, widths)}
    grids = {
        step.table.grid: step.table.name
        for step in changed
        if {"h", "w"} <= step.table.layout.axes and step.table.grid.cells >= FEWEST_CELLS
    }
    volumes = {
        Grid(grid.height, grid.width, step.table.frames): step.table.name
        for step in changed
        if (grid := step.table.grid).cells * step.table.frames >= FEWEST_CELLS
    }
    for each in (
        *_offsets(others, grids | volumes, widths, every),
        *_axes(others, grids, every),
        *_per_cell_of_axes(others, changed, widths),
    ):
        found.setdefault(each.tensor.name, each)
    for each in (
        *_layers_over_cells(others, changed, every, tables),
        *_odd_layers(others, changed, grids, widths, every),
    ):
        found.setdefault(each.tensor.name, each)
    yield from found.values()


def widths_of_vectors(tensors: Iterable[TensorInfo], besides: Collection[str]) -> Counter[int]:
    """Count the lengths of norms and biases: the widths of a model, which are no grids."""
    flat = (info for info in tensors if len(info.shape) == 1 and info.name not in besides)
    return Counter(info.shape[0] for info in flat if DTYPES[info.dtype].floating)


def features_of(tensors: Mapping[str, TensorInfo], tables: Collection[str]) -> Mapping[int, int]:
    """Count the lengths of norms and biases, but not of norms over the cells.

    Such a norm has a length that no layer reads or puts out.
    """
    layers = {
        length
        for info in tensors.values()
        if len(info.shape) > 1 and info.name not in tables and DTYPES[info.dtype].floating
        for length in info.shape
    }
    over_cells = {
        info.shape[0]
        for name, info in tensors.items()
        if len(info.shape) == 1 and info.shape[0] not in layers
        if name.endswith(".weight") or not is_matrix_name(name)
    }
    widths = widths_of_vectors(tensors.values(), tables)
    return {length: count for length, count in widths.items() if length not in over_cells}


def matrix_of(info: TensorInfo) -> tuple[int, int]:
    """Return outputs and inputs of a layer without an extent; (0, 0) for anything else."""
    lengths = info.shape[:2] if len(info.shape) == 3 and info.shape[2] == 1 else info.shape[-2:]
    plain = len(info.shape) == 2 or (len(info.shape) == 3 and 1 in (info.shape[0], info.shape[2]))
    return (lengths[0], lengths[1]) if plain else (0, 0)


def is_looked_up(info: TensorInfo, every: Mapping[str, TensorInfo]) -> bool:
    """Whether a weight may be a lookup table: two axes, and no bias beside it."""
    bias = info.name.removesuffix("weight") + "bias"
    return len(info.shape) == 2 and info.name.endswith(".weight") and bias not in every


def _is_pair_of_rows(info: TensorInfo, pairs: Collection[int]) -> bool:
    """Whether a mask or a bias [1, 1, n, n] covers the rows of a table. No layer has this shape."""
    square = len(info.shape) == 4 and info.shape[:2] == (1, 1) and info.shape[2] == info.shape[3]
    return square and info.shape[3] in pairs and not sounds_like_text(info.name)


def _counts(
    others: Sequence[TensorInfo], changed: Sequence[Step], widths: Mapping[int, int]
) -> Iterator[Suspect]:
    """Find tensors with an axis as long as the rows of a table that changes."""
    counts: dict[int, str] = {}
    flat: dict[int, str] = {}  # all numbers of a table in one row: what a head over all cells reads
    grids: dict[tuple[int, ...], str] = {}
    images: dict[tuple[int, ...], str] = {}  # in pixels, or in cells of a few pixels
    pairs: dict[int, str] = {}
    for step in changed:
        table = step.table
        for count in _row_counts(step):
            if count >= FEWEST_CELLS:
                pairs.setdefault(count, table.name)
            if count >= FEWEST_CELLS and count not in widths:
                counts.setdefault(count, table.name)
                flat.setdefault(count * table.tensor.shape[-1], table.name)
        if {"h", "w"} <= table.layout.axes and table.grid.cells >= FEWEST_CELLS:
            grids.setdefault((table.grid.height, table.grid.width), table.name)
            if table.patch is not None:
                image = table.grid.height * table.patch.height, table.grid.width * table.patch.width
                for pixels in FINER:
                    finer = image[0] // pixels, image[1] // pixels
                    if finer[0] > table.grid.height and finer[0] * pixels == image[0]:
                        images.setdefault(finer, table.name)
    lines = {side: name for grid, name in grids.items() for side in grid}
    layers = Counter(_DIGITS.sub("N", info.name) for info in others) if counts else Counter[str]()
    made = {info.shape[0] for info in others if info.shape} if counts else set[int]()
    outputs = {times * side for image in images for side in image for times in (1, 2)}
    yield from (Suspect(*found) for found in lines_of_pixels(others, changed))
    for info in others if counts or grids or pairs else ():
        if len(info.shape) == 2 and info.shape[1] in flat:
            words = f"reads all of {info.shape[1]} numbers of a grid, that of {flat[info.shape[1]]}"
            yield Suspect(info, words)
            continue
        if _is_pair_of_rows(info, pairs):
            yield Suspect(info, f"has a number for each two rows of {pairs[info.shape[-1]]}")
            continue
        shape = info.shape[1:] if info.shape[:1] == (1,) else info.shape
        sides = [each for each in (shape[1:], shape[:2]) if len(shape) == 3 and each in grids]
        if shape[-2:] in images and is_map(info, widths):
            words = f"is a map over the image of {images[shape[-2:]]}"
            yield Suspect(info, words, *flags_of_map(info.shape))
            continue
        if sides and DTYPES[info.dtype].floating:
            yield Suspect(info, f"has the grid of {grids[sides[0]]} in its shape")
            continue
        if shape in grids and DTYPES[info.dtype].floating and not is_layer(info):
            layout = " ".join(("1",) * (len(info.shape) - 2) + ("h", "w"))
            yield Suspect(info, f"has one number per cell of {grids[shape]}", "--pattern", layout)
            continue
        axes = [length for length in info.shape if length in counts]
        # An index is one over pairs of cells, or one number per cell. A layer that every block has
        # counts only if both its axes do; so does one whose length is a usual multiple of a width.
        index = not DTYPES[info.dtype].floating
        per_cell = index and len(axes) == 1 and math.prod(info.shape) == axes[0]
        if index and len(shape) == 2 and shape[0] == shape[1] and shape[0] in lines:
            yield Suspect(info, f"numbers pairs of rows of cells of {lines[shape[0]]}")
            continue
        weight = is_layer(info)
        repeated = weight and layers[_DIGITS.sub("N", info.name)] > 1
        kernel = weight and len(info.shape) > 3
        needed = 2 if repeated or (index and not per_cell) else 1
        if kernel or len(axes) < needed or _LOOKED_UP.search(info.name):
            continue
        # From all cells to the rows or columns of the image, perhaps at half a pixel each.
        to_image = info.shape[1:] == (axes[0],) and axes[0] not in made and info.shape[0] in outputs
        if weight and not to_image and any(_is_multiple(axes[0], width) for width in widths):
            continue
        rows = math.prod(info.shape[:-1])
        words = f"has an axis of {axes[0]}, as {counts[axes[0]]} has"
        joins = not index and len(info.shape) in (2, 3) and rows in counts and len(axes) == 1
        yield Suspect(info, words, "--also" if joins else "")


def _row_counts(step: Step) -> tuple[int, int, int]:
    table = step.table
    rows = table.layout.rows(table.tensor.shape)
    return rows, table.frames * table.grid.cells, table.grid.cells


def _is_multiple(count: int, width: int) -> bool:
    """Whether a count is what layers make of a width: keys and values, or a hidden layer."""
    return count in (2 * width, 3 * width, 4 * width)


def _offsets(
    others: Sequence[TensorInfo],
    grids: Mapping[Grid, str],
    widths: Mapping[int, int],
    every: Mapping[str, TensorInfo],
) -> Iterator[Suspect]:
    """Find tables of relative offsets in the grid: (2h-1)(2w-1) rows, or as many on two axes.

    Three more rows stand for the class token.
    """
    names: dict[int | tuple[int, ...], str] = {}
    for grid, name in grids.items():
        both: tuple[int, ...] = (2 * grid.height - 1, 2 * grid.width - 1)
        if grid.depth:
            both = (2 * grid.depth - 1, *both)
        names |= {math.prod(both): name, math.prod(both) + 3: name}
        names |= {both: name}
    for info in others if names else ():
        lengths = tuple(length for length in info.shape if length > 1)
        if not _may_be_table(info, every) or len(lengths) > 3:
            continue
        pairs = (lengths[:2], lengths[1:]) if len(lengths) == 3 else (lengths,)
        matching: list[int | tuple[int, ...]] = [each for each in pairs if each in names]
        if len(lengths) <= 2 and math.prod(lengths) <= MOST_HEADS * max(lengths, default=0):
            matching += [n for n in lengths if n in names and n not in widths]
        if matching:
            words = f"has one number for each offset in the grid of {names[matching[0]]}"
            yield Suspect(info, words)


def _per_cell_of_axes(
    others: Sequence[TensorInfo], changed: Sequence[Step], widths: Mapping[int, int]
) -> Iterator[Suspect]:
    """Find what counts the cells of a grid whose rows and columns have a table each."""
    heights = [s.table for s in changed if s.table.layout.axes & {"h", "w"} == {"h"}]
    lines = [s.table for s in changed if s.table.layout.axes & {"h", "w"} == {"w"}]
    counts = {
        rows.grid.height * columns.grid.width: f"{rows.name} and {columns.name}"
        for rows in heights
        for columns in lines
        if rows.name.rpartition(".")[0] == columns.name.rpartition(".")[0] or len(heights) == 1
    }
    for info in others if counts else ():
        for cells in counts.keys() & set(info.shape):
            layer = is_layer(info) or _LOOKED_UP.search(info.name)
            if cells >= FEWEST_CELLS and cells not in widths and not layer:
                yield Suspect(info, f"has one row for each of {cells} cells of {counts[cells]}")


def _axes(
    others: Sequence[TensorInfo], grids: Mapping[Grid, str], every: Mapping[str, TensorInfo]
) -> Iterator[Suspect]:
    """Find two tables of one module, over rows and columns of the grid or over their offsets."""
    modules: dict[tuple[str, int], list[TensorInfo]] = {}
    for info in others if grids else ():
        lengths = tuple(length for length in info.shape if length > 1)
        if len(lengths) == 2 and lengths[1] >= _FEWEST_CHANNELS and _may_be_table(info, every):
            module = info.name.removesuffix(".weight").rpartition(".")[0]
            modules.setdefault((module, lengths[1]), []).append(info)
    for infos in modules.values():
        heights = sorted(next(n for n in info.shape if n > 1) for info in infos)
        for grid, name in grids.items():
            sides = sorted((grid.height, grid.width))
            offsets = [2 * side - 1 for side in sides]
            if heights in (sides, offsets):
                what = "row and column" if heights == sides else "offset along rows and columns"
                for info in infos:
                    yield Suspect(info, f"has one row for each {what} of the grid of {name}")


def _odd_layers(
    others: Sequence[TensorInfo],
    changed: Sequence[Step],
    grids: Mapping[Grid, str],
    widths: Mapping[int, int],
    every: Mapping[str, TensorInfo],
) -> Iterator[Suspect]:
    """Find heads that read all cells at once, norms over cells, and filters over frequencies.

    These need no number of cells that differs from every width of the model.
    """
    counts = {n: step.name for step in changed for n in _row_counts(step) if n >= FEWEST_CELLS}
    for info in others:
        cells, channels = flat_reader_of(info, counts, widths)
        if cells:
            words = f"reads {cells} cells of {channels} channels at once, as {counts[cells]} has"
            yield Suspect(info, words)
        elif is_norm_over_cells(info, every) and any(length in counts for length in info.shape):
            yield Suspect(info, "has one weight for each cell and channel")
        elif mixes_one_axis(info, every):
            yield Suspect(info, f"mixes rows or columns of {info.shape[0]} cells")
        elif table := spectrum_of(info, grids):
            yield Suspect(info, f"may be a filter over the frequencies of the grid of {table}")


def _may_be_table(info: TensorInfo, every: Mapping[str, TensorInfo]) -> bool:
    if not DTYPES[info.dtype].floating or counts_something_else(info.name):
        return False
    return not is_layer(info) or (
        is_looked_up(info, every) and sound_of(info.name) is not Sound.OTHER
    )


def _layers_over_cells(
    others: Sequence[TensorInfo],
    changed: Sequence[Step],
    every: Mapping[str, TensorInfo],
    tables: Collection[str],
) -> Iterator[Suspect]:
    """Find layers from cells to cells: what reads them also puts them out, and no norm is as long.

    A gate halves what the first of two layers puts out. Layers over as many tokens as the model
    has learned (the groups of GroupViT) are not over cells.
    """
    counts = {n: step.name for step in changed for n in _row_counts(step) if n >= FEWEST_CELLS}
    biases = {name for name in every if name.endswith("bias")}
    norms = widths_of_vectors(every.values(), {*biases, *tables})
    layers = {
        info.name: matrix_of(info)
        for info in every.values()
        if info.name not in tables and is_matrix_name(info.name) and len(info.shape) > 1
    }
    pairs = set(layers.values())
    tokens = {
        length
        for info in others
        if not is_matrix_name(info.name) and counts_something_else(info.name)
        for length in info.shape
    }
    for cells, table in counts.items():
        of_cells = {name for name, pair in layers.items() if cells in pair}
        if cells in tokens:
            continue
        if cells not in norms and all(_goes_back(layers[n], cells, pairs, norms) for n in of_cells):
            words = f"is a layer over {cells} cells, as {table} has"
            yield from (Suspect(info, words) for info in others if info.name in of_cells)


def _goes_back(
    pair: tuple[int, int], cells: int, pairs: Collection[tuple[int, int]], norms: Collection[int]
) -> bool:
    """Whether a layer is one of two that make cells of cells.

    Two layers from a width to 256 and back are usual; two from a width to 196 and back are not.
    """
    out, reads = pair
    if out == reads:
        return True
    hidden = out if reads == cells else reads
    if hidden in norms and cells % _USUAL_MULTIPLE == 0:
        return False
    if reads == cells:
        return (cells, out) in pairs or (cells, out // 2) in pairs
    return (reads, cells) in pairs or (2 * reads, cells) in pairs
