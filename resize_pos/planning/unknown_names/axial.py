"""Two tables that give one position together: one row per row of cells, one per column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from resize_pos.core.errors import GeometryError
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, Unsettled
from resize_pos.planning.census.echoes import is_looked_up
from resize_pos.planning.rules import RULES
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    axial_layout,
    axial_pair_names,
    is_matrix_name,
    sound_of,
    sounds_axial,
)
from resize_pos.planning.unknown_names.commands import (
    FAMILY,
    OpenCase,
    command,
    from_flag,
    name_regex,
)
from resize_pos.planning.unknown_names.neutral_names import counts_something_else

_AXIS_ROWS = range(7, 129)  # rows or columns of cells: 224 pixels of 32 to 2048 of 16
_FEWEST_USES = 2  # norms and biases as long as a width of the model


def axial_pair(
    tensor: TensorInfo, around: Surroundings, widths: Mapping[int, int]
) -> tuple[Match, Match] | None:
    """Find two tables that together give one position: by names such as pos_h and pos_w."""
    named = axial_pair_names(tensor.name, around.tensors)
    named = named or _crossed_pair(tensor, around.tensors)
    names = named or neutral_pair(tensor, around, widths)
    if names is None:
        return None
    tensor, other = (around.tensors[name] for name in names)
    if named and any(_is_layer(each, around.tensors, widths) for each in (tensor, other)):
        return None
    spectrogram = "freq" in tensor.name and len(tensor.shape) == 4
    if sound_of(tensor.name) is Sound.OTHER and not spectrogram:
        return None
    if named:  # rows and columns may be joined: each is half as wide as the model
        widths = {n // 2: count for n, count in widths.items()} | dict(widths)
    layouts = axial_layout(tensor, "h", widths), axial_layout(other, "w", widths)
    if layouts[0] is None or layouts[1] is None or len(tensor.shape) != len(other.shape):
        return None
    counted = "0" in tensor.name[-1:] and sound_of(tensor.name) is not Sound.POSITION
    if counted and widths and len(tensor.shape) < 4:  # weights.0 and weights.1 of anything
        return None
    listed = tensor.name.endswith((".0", ".1"))
    if listed and len(tensor.shape) < 4 and _are_scales(tensor, other):
        return None
    stem = tensor.name.rpartition(".")[0]
    first, second = (
        Match(info, replace(FAMILY, axes=(layout,)), stem, layout)
        for info, layout in ((tensor, layouts[0]), (other, layouts[1]))
        if layout is not None
    )
    return first, second


def _crossed_pair(tensor: TensorInfo, tensors: Mapping[str, TensorInfo]) -> tuple[str, str] | None:
    """Find two numbered tables, one over rows and one over columns: weights_0 and weights_1."""
    first, second = (f"{tensor.name[:-1]}{number}" for number in "01")
    if not tensor.name.endswith("_0") or second not in tensors or f"{first[:-1]}2" in tensors:
        return None
    shapes = tensor.shape, tensors[second].shape
    crossed = all(len(shape) == 4 and shape[0] == 1 for shape in shapes)
    crossed = crossed and shapes[0][2] == 1 == shapes[1][1] and shapes[0][3] == shapes[1][3]
    return (first, second) if crossed else None


def _are_scales(tensor: TensorInfo, other: TensorInfo) -> bool:
    """Whether two numbered tables are those of two branches or scales: CrossViT's pos_embed.0."""
    rows = [each.shape[-2] for each in (tensor, other)]
    if tensor.shape[-1] != other.shape[-1] or max(rows) not in _AXIS_ROWS:
        return True
    return rows[0] != rows[1] and all(math.isqrt(n) ** 2 == n for n in rows)


def neutral_pair(
    tensor: TensorInfo, around: Surroundings, widths: Mapping[int, int]
) -> tuple[str, str] | None:
    """Find two lookup tables of one module, as wide as the model, with few rows each.

    Their names say nothing, so the first one is taken for the rows of cells.
    """
    pairs = around.once("neutral pairs", lambda: _neutral_pairs(around.tensors, widths))
    return pairs.get(tensor.name)


def _neutral_pairs(
    tensors: Mapping[str, TensorInfo], widths: Mapping[int, int]
) -> Mapping[str, tuple[str, str]]:
    used = {width for width, count in widths.items() if count >= _FEWEST_USES}
    if not widths:  # a file without norms and biases holds the tables alone
        used = {info.shape[1] for info in tensors.values() if len(info.shape) == 2}
    modules: dict[tuple[str, int], list[str]] = {}
    for name, info in tensors.items():
        if len(info.shape) != 2 or info.shape[1] not in used or info.shape[0] not in _AXIS_ROWS:
            continue
        plain = not is_matrix_name(name) or is_looked_up(info, tensors)
        if plain and sound_of(name) is Sound.NOTHING and not counts_something_else(name):
            module = name.removesuffix(".weight").rpartition(".")[0]
            modules.setdefault((module, info.shape[1]), []).append(name)
    # What no layer reads is no width. Classes are put out only.
    features = {info.shape[1] for info in tensors.values() if len(info.shape) > 1}
    return {
        name: (names[0], names[1])
        for names in modules.values()
        if len(names) == 2 and not any(tensors[each].shape[0] in features for each in names)
        for name in names
    }


def _is_layer(
    tensor: TensorInfo, tensors: Mapping[str, TensorInfo], widths: Mapping[int, int]
) -> bool:
    """Whether a weight is no lookup table: it has a bias, or puts out a width of the model."""
    name = tensor.name
    if not is_matrix_name(name) or sound_of(name) is Sound.POSITION or sounds_axial(name):
        return False
    biased = f"{name.removesuffix('weight')}bias" in tensors
    return biased or tensor.shape[0] in widths or counts_something_else(name)


def axial_tables(
    pair: tuple[Match, Match], around: Surroundings, settled: Mapping[str, PositionTable]
) -> Sequence[PositionTable] | OpenCase:
    """Accept both tables if the stated size agrees with them; else ask."""
    rule = RULES[Role.ABSOLUTE].settle
    alike = {name_regex(match.tensor.name, around.tensors) for match in pair}
    numbered = len(alike) == 1
    flags = " ".join(
        command(match.tensor, match.layout, around.tensors, numbered=numbered) for match in pair
    )
    names = " and ".join(match.tensor.name for match in pair)
    lengths = "×".join(
        str(match.tensor.shape[match.layout.terms.index(axis)])
        for match, axis in zip(pair, "hw", strict=True)
    )
    leave = "|".join(sorted(alike))
    flags += from_flag(around.request)
    hint = (
        f"pass {flags} to resize them, or --leave '{leave}' if they do not depend on the "
        "resolution."
    )
    family = pair[0].family
    try:
        tables = [rule(match, around, settled) for match in pair]
    except GeometryError as error:
        return OpenCase(Unsettled(pair[0].tensor, family, GeometryError(error.message, hint=hint)))
    request = around.request
    known = all(match.tensor.name in around.known for match in pair)
    # Tables of 50 rows and 50 columns, as DETR has them, fit every square image of 50·n pixels.
    # A kernel shows the patch; so do two different lengths that give the same one.
    size = request.from_size
    told = size is not None and (
        all(table.kernel is not None for table in tables)
        or (size.height != size.width and tables[0].patch == tables[1].patch is not None)
    )
    # Names that say nothing do not say either which table has the rows; different lengths do.
    named = axial_pair_names(pair[0].tensor.name, around.tensors) is not None
    clear = named or pair[0].tensor.shape != pair[1].tensor.shape
    if known or (clear and (told or request.from_grid is not None)):
        return tables
    objection = GeometryError(
        f"{names} may hold one row per row and per column of a {lengths} grid; no family knows "
        "their names.",
        hint=hint,
    )
    return OpenCase(Unsettled(pair[0].tensor, family, objection))
