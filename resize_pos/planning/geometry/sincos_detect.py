"""Detect fixed sin-cos tables, reading as little as possible.

At position 0 every sine is 0 and every cosine is 1. So one row, a few kB compared as bytes, rules
out most tables. At any other position, the squares of a sine and its cosine add up to 1, so a row
of d channels has the squared norm d/2. This test also finds tables that an earlier conversion
computed in rescaled coordinates. The whole table is read only if its first row passes a test.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from resize_pos.core.errors import TableError
from resize_pos.core.tensors import DTYPES
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

Peek = Callable[[str, int, int], bytes]
ReadTable = Callable[[str], "NDArray[Any]"]

_ONE = {
    "F64": struct.pack("<d", 1.0),
    "F32": struct.pack("<f", 1.0),
    "F16": struct.pack("<e", 1.0),
    "BF16": struct.pack("<f", 1.0)[2:],
}
_CODES = {"F64": "d", "F32": "f", "F16": "e", "BF16": "f"}
_NEAR = 2.0**-8  # relative rounding error of bfloat16
_ROLES = (Role.ABSOLUTE, Role.SEQUENCE)


def recognise_fixed(
    table: PositionTable, read: ReadTable | None, peek: Peek | None
) -> PositionTable:
    """Add the sin-cos formula that a table follows, with the evidence, if there is one."""
    if read is None or not _could_be(table):
        return table
    starts = tuple(start for start in _starts(table) if _may_be_fixed(table, start, peek))
    if not starts:
        return table
    from resize_pos.transforms.sincos import recognise  # imports numpy, so not earlier

    array = read(table.name)
    parts = table.layout.unfold(array, table.prefix, table.grid, table.suffix, table.frames)
    if len(parts.grid) != table.frames:
        return table  # several copies of a table, which are not frames
    cells = parts.grid
    found = recognise(cells, starts)
    if found is None:
        return table
    return replace(table, fixed=found.table, evidence=(*table.evidence, found.evidence))


def _could_be(table: PositionTable) -> bool:
    channels_last = table.layout.terms[-1:] == ("d",)  # a single number has no axes
    known = table.tensor.dtype in _ONE
    plain = not {"H", "W"} & table.layout.axes  # no formula has blocks
    return table.role in _ROLES and channels_last and known and plain and table.grid.cells > 1


def _starts(table: PositionTable) -> tuple[int, ...]:
    """Return possible positions of the first row: 0, or the count of reserved rows before it."""
    return (0, table.prefix) if table.role is Role.SEQUENCE and table.prefix else (0,)


def _may_be_fixed(table: PositionTable, start: int, peek: Peek | None) -> bool:
    """Whether the first row is the row of position 0, or has the norm of a sin-cos row."""
    if peek is None:
        return True
    width = DTYPES[table.tensor.dtype].bits // 8
    row = table.tensor.shape[-1] * width
    try:
        data = peek(table.name, (table.prefix - start) * row, row)
    except TableError:  # the row is not contiguous: read the whole table
        return True
    zero, one = bytes(width), _ONE[table.tensor.dtype]
    values = {data[at : at + width] for at in range(0, len(data), width)}
    return (one in values and values <= {zero, one}) or _has_norm(data, table.tensor.dtype)


def _has_norm(data: bytes, dtype: str) -> bool:
    """Whether the sum of squares of a row is half its number of channels."""
    values = floats_of(data, dtype)
    count = len(values)
    if max(map(abs, values)) > 1:
        return False
    return abs(2 * sum(value * value for value in values) / count - 1) < _NEAR


def floats_of(data: bytes, dtype: str) -> tuple[float, ...]:
    """Decode little-endian numbers without numpy; a KeyError for a dtype without a code."""
    code = _CODES[dtype]
    if dtype == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
