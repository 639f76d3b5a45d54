"""Tables of an image under names that say something else: `query_pos`, `anchors`, `token_embed`.

Such names lower the chance of a table, and most tensors that have them count queries, words or
codes. But before a run says that nothing depends on the resolution, their values are asked. Only
values that vary smoothly over a grid speak against the name, so queries and codes are no suspects.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from resize_pos.core.errors import GeometryError
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import name_pattern
from resize_pos.families.tables import Unsettled
from resize_pos.planning.rules.base import Surroundings
from resize_pos.planning.unknown_names.by_value import attempt_of, reading_of, refusal
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    has_pixels,
    is_matrix_name,
    layouts_of,
    sound_of,
    sounds_like_text,
    widths_of,
)
from resize_pos.planning.unknown_names.commands import FAMILY
from resize_pos.planning.unknown_names.neutral_names import counts_something_else, sounds_like_layer
from resize_pos.planning.unknown_names.shared_axis import is_line, shared_axis

_ROWS = range(16, 20_000)  # from 4×4 cells; larger counts are vocabularies
_MOST_BYTES = 2**24  # of one tensor whose values are read
_MOST_READ = 16  # tensors; a model with more of them has no table among them


def find_despite_names(around: Surroundings, explained: Collection[str]) -> list[Unsettled]:
    """List the tensors whose values show a grid although their names say something else."""
    if around.read is None or not has_pixels(around.tensors.values()):
        return []
    candidates = list(_candidates(around, explained))
    found = []
    for tensor in candidates if len(candidates) <= _MOST_READ else ():
        error = _shown_by_values(tensor, around)
        if error is not None:
            found.append(Unsettled(tensor, FAMILY, error))
    return found


def _candidates(around: Surroundings, explained: Collection[str]) -> Iterator[TensorInfo]:
    leave = around.request.leave
    left = None if leave is None else name_pattern("--leave", *leave)
    for name, info in around.tensors.items():
        if len(info.shape) < 2 or name in explained or info.nbytes > _MOST_BYTES:
            continue
        if not DTYPES[info.dtype].floating or (left is not None and left.search(name)):
            continue
        if _is_layer(info, around) or sounds_like_text(name):
            continue
        short = 1 < math.prod(info.shape[:-1]) < _ROWS.start  # too few rows for a grid
        if sound_of(name) is Sound.OTHER or counts_something_else(name) or short:
            yield info


def _says_nothing(name: str) -> bool:
    return sound_of(name) is Sound.NOTHING and not counts_something_else(name)


def _is_layer(info: TensorInfo, around: Surroundings) -> bool:
    """Whether a tensor has the name of a layer's weight, and may have the shape of one."""
    name = info.name
    if not is_matrix_name(name) or (info.shape[0] == 1 and len(info.shape) > 2):
        return False
    module, _, last = name.rpartition(".")
    return last != "weight" or f"{module}.bias" in around.tensors or sounds_like_layer(module)


def _shown_by_values(tensor: TensorInfo, around: Surroundings) -> GeometryError | None:
    widths = around.once("widths", lambda: widths_of(around.tensors.values()))
    for layout in layouts_of(tensor.shape, widths):
        if is_line(tensor, layout, around.read) and _says_nothing(tensor.name):
            return shared_axis(tensor, layout, around.tensors, around.request)
        if math.prod(tensor.shape) < _ROWS.start or layout.rows(tensor.shape) not in _ROWS:
            continue
        try:
            attempt = attempt_of(tensor, layout, around, {})
        except GeometryError:
            continue
        if attempt.supported:
            words = f"{tensor} may be a position table of {reading_of(attempt.table)}"
            reason = f"its name says something else, but {attempt.words}"
            return refusal(f"{words}; {reason}", None, attempt.table, around)
    return None
