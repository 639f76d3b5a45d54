"""Refusals of a plan without a table: what came near, and the command that names it."""

from __future__ import annotations

import math
import re

from resize_pos.core.axes import Layout
from resize_pos.core.errors import TableError
from resize_pos.core.request import Request
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import Located
from resize_pos.planning.unknown_names.candidates import Sound, sound_of, sounds_like_sequence
from resize_pos.planning.unknown_names.commands import (
    NAME,
    UNKNOWN_NAME,
    has_words,
    name_regex,
    reads_sequences,
    text_layout,
)

_FEWEST_ROWS = 9  # of a tensor that may be a table


def require_patterns(located: Located, request: Request) -> None:
    """Refuse a --pattern that names no table: the rest would be converted without it."""
    found = [*((t.name, t.family) for t in located.tables)]
    found += ((u.tensor.name, u.family) for u in located.unsettled)
    for number, pattern in enumerate(request.pattern or ()):
        stated = request.axes is not None  # a table that was found in another layout is not meant
        names = [name for name, family in found if not stated or family.name != NAME]
        if not any(re.search(pattern, name) for name in names):
            axes = request.axes and request.axes[number if len(request.axes) > 1 else 0]
            raise TableError(
                f"--pattern {pattern!r} with --axes {axes!r} matches no tensor."
                if axes
                else f"--pattern {pattern!r} matches no tensor that can be a table.",
                hint="`resize-pos inspect` lists what there is.",
            )


def nothing_found(located: Located, request: Request) -> TableError:
    """Return the error for a file without a table of an image."""
    if not located.near_misses:
        return TableError(
            "no position table was found.",
            hint="`resize-pos inspect -v` lists every tensor; name a table with --pattern and "
            "--axes.",
        )
    misses = sorted(
        located.near_misses,
        key=lambda miss: (not _may_be_table(miss.tensor), miss.reason == UNKNOWN_NAME),
    )
    miss = misses[0]
    regex = name_regex(miss.tensor.name, located.others)
    every = dict.fromkeys(name_regex(each.tensor.name, located.others) for each in misses)
    leave = f"--leave '{'|'.join(every)}' if it does not depend on the resolution"
    message = f"no position table was found; {miss.tensor} is near: {miss.reason}."
    layout = text_layout(miss.tensor, None, located.others.values())
    sequence = sounds_like_sequence(miss.tensor.name) or reads_sequences(located.others)
    known = miss.reason != UNKNOWN_NAME and sequence
    if known and (has_words(located.others) or not _may_be_table(miss.tensor)):
        return TableError(message, hint=f"convert it with its own library, or pass {leave}.")
    if sequence and layout is not None:
        return TableError(message, hint=f"{_as_length(regex, layout)}, or pass {leave}.")
    line = len(miss.tensor.shape) == 1 and miss.tensor.shape[0] >= _FEWEST_ROWS
    if sound_of(miss.tensor.name) is Sound.OTHER or not (_may_be_table(miss.tensor) or line):
        return TableError(message, hint=f"convert it with its own library, or pass {leave}.")
    size = "" if request.from_size is not None else " --from SIZE"
    named = f"--pattern '{regex}'{_ONE_CHANNEL if line else ''}{size}"
    return TableError(message, hint=f"pass {named} to resize it, or {leave}.")


def _as_length(regex: str, layout: Layout) -> str:
    return (
        f"pass --pattern '{regex}' --axes '{layout}' to change its length (--to-length N), if its "
        "rows are words or frames"
    )


def require_length_table(located: Located) -> None:
    """Refuse a length if only a tensor under an unknown name may have one."""
    if any(table.role is Role.SEQUENCE for table in located.tables):
        return
    for entry in located.unsettled:
        layout = text_layout(entry.tensor, None, located.others.values())
        if entry.family.name == NAME and layout is not None:
            regex = name_regex(entry.tensor.name, located.others)
            raise TableError(
                f"no text table was found; {entry.tensor} may be one; no family knows its name.",
                hint=f"{_as_length(regex, layout)}.",
            )


_ONE_CHANNEL = " --axes '(p h w s)'"


def _may_be_table(tensor: TensorInfo) -> bool:
    rows = math.prod(tensor.shape[:-1])
    if not DTYPES[tensor.dtype].floating:  # an index into a table
        return False
    return len(tensor.shape) in (2, 3) and rows >= _FEWEST_ROWS and tensor.shape[-1] > 1
