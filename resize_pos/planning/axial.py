"""Two tables that give one position together: one row per row of cells, one per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resize_pos.core.errors import GeometryError
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, Unsettled
from resize_pos.planning.candidates import (
    Sound,
    axial_layout,
    axial_pair_names,
    is_matrix_name,
    sound_of,
    sounds_axial,
)
from resize_pos.planning.neutral_names import counts_something_else
from resize_pos.planning.rules import RULES
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.unknown_names import FAMILY, OpenCase, command, from_flag, name_regex


def axial_pair(
    tensor: TensorInfo, around: Surroundings, widths: Mapping[int, int]
) -> tuple[Match, Match] | None:
    """Find two tables that together give one position: by names such as pos_h and pos_w."""
    names = axial_pair_names(tensor.name, around.tensors)
    if names is None:
        return None
    tensor, other = (around.tensors[name] for name in names)
    if any(_is_layer(each, around.tensors, widths) for each in (tensor, other)):
        return None
    spectrogram = "freq" in tensor.name and len(tensor.shape) == 4
    if sound_of(tensor.name) is Sound.OTHER and not spectrogram:
        return None
    layouts = axial_layout(tensor, "h", widths), axial_layout(other, "w", widths)
    if layouts[0] is None or layouts[1] is None or len(tensor.shape) != len(other.shape):
        return None
    counted = "0" in tensor.name[-1:] and sound_of(tensor.name) is not Sound.POSITION
    if counted and len(tensor.shape) < 4:  # weights.0 and weights.1 of anything
        return None
    stem = tensor.name.rpartition(".")[0]
    first, second = (
        Match(info, replace(FAMILY, axes=(layout,)), stem, layout)
        for info, layout in ((tensor, layouts[0]), (other, layouts[1]))
        if layout is not None
    )
    return first, second


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
    flags = " ".join(command(match.tensor, match.layout, around.tensors) for match in pair)
    names = " and ".join(match.tensor.name for match in pair)
    lengths = "×".join(
        str(match.tensor.shape[match.layout.terms.index(axis)])
        for match, axis in zip(pair, "hw", strict=True)
    )
    leave = "|".join(name_regex(match.tensor.name, around.tensors) for match in pair)
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
    if known or told or request.from_grid is not None:
        return tables
    objection = GeometryError(
        f"{names} may hold one row per row and per column of a {lengths} grid; no family knows "
        "their names.",
        hint=hint,
    )
    return OpenCase(Unsettled(pair[0].tensor, family, objection))
