"""Read a safetensors header and validate all of it.

Errors here do not name the file; `SafetensorsFile.open` adds the name.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from operator import eq, itemgetter, sub
from typing import Any, BinaryIO, NoReturn, TypeGuard

from resize_pos.containers.io.source_file import TRUNCATED
from resize_pos.core.errors import ContainerError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo

METADATA = "__metadata__"
LONGEST_HEADER = 100_000_000  # the limit of the reference implementation
_LARGEST_ARRAY = 2**63 - 1  # bytes: what numpy and torch can address
_DEEPEST = 64  # levels in a field that the format does not know; the reference stops at 127

_KNOWN = {name: dtype for name, dtype in DTYPES.items() if not dtype.foreign}
_FIELDS = {"dtype": None, "shape": None, "data_offsets": None}.keys()  # a set, in this order
_INT = {int}
_Checked = tuple[dict[str, TensorInfo], list[int], list[int]]  # with the begin and end of each
_ODD_NUMBER = lazy_regex(r"\d{21}|-0")
_LONG = 1 << 18  # characters; keys and numbers of a shorter header are checked as they are read
# With an escape or with space before a colon, `":` is not where a key ends; -0 is no integer.
_UNUSUAL = ("\\", " :", "\t:", "\n:", "\r:")
_MINUS = ("[-", ",-", ":-", " -", "\t-", "\n-", "\r-")

_short = reprlib.Repr()  # names and values come from an untrusted file, and may be long
_short.maxstring = _short.maxother = 120
_short.maxlist = 8
show = _short.repr


def read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Read the header of a file of `size` bytes; return it and where the data begins."""
    if size == 0:
        raise ContainerError("the file is empty.", "Download or copy it again.")
    start = file.read(32)
    length = int.from_bytes(start[:8], "little")
    if start[8:9] != b"{":
        from resize_pos.containers.foreign import describe  # only for what cannot be read

        kind = describe(start)
        if kind is not None:
            raise ContainerError(f"this is {kind.what}, not a safetensors file.", kind.hint)
    if size < 8:
        raise ContainerError(f"the file has {size} bytes; the smallest has 10.", TRUNCATED)
    if length > size - 8 and start[8:9] != b"{":
        raise ContainerError(
            f"this is not a safetensors file; it begins with {start[:8].hex(' ')}.",
            "Name a file of weights: .safetensors, .pth, .bin, .ckpt or .npz.",
        )
    if length > size - 8:
        raise ContainerError(
            f"the header claims {length} bytes but the file has {size}.",
            "The file is truncated, or it is not a safetensors file.",
        )
    if length > LONGEST_HEADER:
        raise ContainerError(
            f"the header claims {length} bytes; the format allows {LONGEST_HEADER}."
        )
    if length == 0 or start[8:9] != b"{":
        found = f"byte 0x{start[8]:02x}" if length else "nothing"
        raise ContainerError(
            f"the header starts with {found}, not with '{{'.", "Is it a safetensors file?"
        )
    file.seek(8)
    return _parse(file.read(length)), 8 + length


def _parse(encoded: bytes) -> dict[str, Any]:
    try:
        text = encoded.decode()
        header = _loads(text)
        if re.search(r"\\u[dD]", text):  # half a surrogate pair: not text, and not writable
            json.dumps(header, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ContainerError(f"the header is not UTF-8 at byte {8 + error.start}.") from error
    except UnicodeEncodeError as error:
        raise ContainerError("the header has a string that is not valid Unicode.") from error
    except json.JSONDecodeError as error:
        raise ContainerError(
            f"the header is not JSON: {error.msg} at character {error.pos} of {len(text)}."
        ) from error
    except RecursionError as error:
        raise ContainerError("the header is nested too deeply.") from error
    assert isinstance(header, dict)  # it starts with a brace
    return header


def _loads(text: str) -> Any:
    load = partial(json.loads, parse_float=_finite, parse_constant=_no_number)
    unusual = (*_UNUSUAL, *_MINUS) if "-" in text else _UNUSUAL
    if len(text) >= _LONG and not any(mark in text for mark in unusual):
        with contextlib.suppress(ValueError):  # what is wrong is found again, and named, below
            header = load(text)
            if _is_usual(header, text):
                return header
    # Checking each number takes a third of the parser's time; most headers need none of it.
    integer = _integer if _ODD_NUMBER.search(text) else None
    return load(text, object_pairs_hook=_unique, parse_int=integer)


def _is_usual(header: Mapping[str, Any], text: str) -> bool:
    """Whether a long header has no key twice, and numbers only where they are checked later.

    `":` occurs in the text at least once for each key, so as many keys as that are all of them. A
    number with very many digits is then a size or an offset, which the file cannot have.
    """
    fields = [len(entry) for entry in header.values() if isinstance(entry, dict)]
    metadata = header.get(METADATA)
    others = len(metadata) - len(_FIELDS) if isinstance(metadata, dict) else 0
    usual = sum(fields) == len(_FIELDS) * len(header) + others
    return usual and text.count('":') == len(header) + sum(fields)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        again = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ContainerError(f"the header has the key {show(again)} twice.")
    return fields


def _integer(text: str) -> int | float:
    if len(text) > 20:  # no byte count has so many digits, and int() refuses very long strings
        raise ContainerError(f"the header has a number with {len(text)} digits.")
    return int(text) if text != "-0" else -0.0


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ContainerError(f"the header has {show(text)} where JSON has a finite number.")


def check_metadata(found: object) -> dict[str, str]:
    """Refuse metadata that is not a mapping of strings to strings."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ContainerError(f"{METADATA} is {show(found)}, not an object of strings.")
    for key, value in found.items():
        if not isinstance(value, str):
            raise ContainerError(f"{METADATA}: {show(key)} is {show(value)}, not a string.")
    return found


def check_tensors(
    header: Mapping[str, Any], start: int, available: int
) -> tuple[dict[str, TensorInfo], dict[str, tuple[int, int]]]:
    """Check every entry, and that together they cover the data without gaps or overlaps.

    The data begins at `start`. The spans are returned as places in the file, in their order.
    """
    entries = {name: entry for name, entry in header.items() if name != METADATA}
    tensors, begins, ends = _check_columns(entries) or _check_rows(entries)
    places = zip(map(start.__add__, begins), map(start.__add__, ends), strict=True)
    spans = dict(zip(tensors, places, strict=True))
    in_order = begins == [0, *ends[:-1]] or not begins
    if not in_order:
        spans = dict(sorted(spans.items(), key=lambda item: item[1]))
    claimed = max(ends, default=0)
    if claimed != available:
        raise ContainerError(
            f"the header describes {claimed} bytes of data but the file holds {available}.",
            TRUNCATED if claimed > available else "Something was appended to the file.",
        )
    if not in_order:
        _require_cover(spans, start)
    return tensors, spans


def _check_rows(entries: Mapping[str, Any]) -> _Checked:
    """Check entry by entry, and say what is wrong with the first bad one."""
    tensors: dict[str, TensorInfo] = {}
    for name, entry in entries.items():
        try:
            tensors[name] = _check_entry(name, entry)
        except ContainerError as fact:
            raise ContainerError(f"{show(name)}: {fact.message}", fact.hint) from None
    offsets = [entry["data_offsets"] for entry in entries.values()]
    return tensors, [begin for begin, _ in offsets], [end for _, end in offsets]


def _check_columns(entries: Mapping[str, Any]) -> _Checked | None:
    """Check all entries field by field, which takes a third of the time; None: something is odd.

    Most tensors of a large file have the dtype and shape of another one, which is checked once.
    `True` and `1.0` equal 1, so the types of all numbers are compared before.
    """
    rows = entries.values()
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(_FIELDS)}:
        return None
    try:
        dtypes, shapes, offsets = (list(map(itemgetter(field), rows)) for field in _FIELDS)
    except KeyError:
        return None
    if {*map(type, shapes), *map(type, offsets)} != {list} or set(map(len, offsets)) != {2}:
        return None
    places = list(chain.from_iterable(offsets))
    numbers = chain(places, chain.from_iterable(shapes))
    if set(map(type, dtypes)) != {str} or set(map(type, numbers)) != _INT:
        return None
    begins, ends = places[::2], places[1::2]
    known: dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]] = {}
    kinds = [known.setdefault(kind, kind) for kind in zip(dtypes, map(tuple, shapes), strict=True)]
    try:
        sizes = {kind: _bytes_of(*kind) for kind in known}
    except ContainerError:
        return None
    if min(begins) < 0 or not all(map(eq, map(sub, ends, begins), map(sizes.get, kinds))):
        return None
    tensors = {
        name: TensorInfo(name, shape, dtype)
        for name, (dtype, shape) in zip(entries, kinds, strict=True)
    }
    return tensors, begins, ends


def _require_cover(spans: Mapping[str, tuple[int, int]], start: int) -> None:
    """Refuse gaps and overlaps of spans that are in the order of the data."""
    previous, position = "", 0
    for name, span in spans.items():
        begin, end = span[0] - start, span[1] - start
        if begin > position:
            raise ContainerError(
                f"bytes {position} to {begin} of the data, before {show(name)}, "
                "belong to no tensor."
            )
        if begin < position:
            raise ContainerError(
                f"{show(name)} at bytes {begin} to {end} of the data overlaps "
                f"{show(previous)}, which ends at {position}."
            )
        previous, position = name, end


def _check_entry(name: str, entry: object) -> TensorInfo:
    if not isinstance(entry, dict):
        raise ContainerError(f"the entry is {show(entry)}, not an object.")
    for key in _FIELDS:
        if key not in entry:
            raise ContainerError(f"the entry has no {key}.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str):
        raise _unknown(dtype)
    size = _bytes_of(dtype, shape)
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ContainerError(f"data_offsets {show(offsets)} are not a begin and an end.")
    if offsets[1] - offsets[0] != size:
        raise ContainerError(
            f"{dtype} {show(shape)} takes {size} bytes but data_offsets {offsets} "
            f"hold {offsets[1] - offsets[0]}."
        )
    if len(entry) > len(_FIELDS):
        for key in entry.keys() - _FIELDS:
            if _deeper(entry[key], _DEEPEST):
                raise ContainerError(f"the field {show(key)} is nested too deeply.")
    return TensorInfo(name, tuple(shape), dtype)


def _bytes_of(dtype: str, sizes: object) -> int:
    """Return how many bytes a tensor takes; refuse what cannot be one."""
    if dtype not in _KNOWN:
        raise _unknown(dtype)
    shape = list(sizes) if isinstance(sizes, tuple) else sizes
    if not _are_counts(shape):
        raise ContainerError(f"shape {show(shape)} is not a list of sizes.")
    bits = math.prod(shape) * DTYPES[dtype].bits
    # Empty tensors are checked, too: their other sizes must not exceed the address space.
    most = bits or math.prod(size or 1 for size in shape) * DTYPES[dtype].bits
    if most // 8 > _LARGEST_ARRAY:
        raise ContainerError(f"{dtype} {show(shape)} is larger than any memory.")
    if bits % 8:
        raise ContainerError(f"{dtype} {show(shape)} ends inside a byte.")
    return bits // 8


def _unknown(dtype: object) -> ContainerError:
    return ContainerError(f"dtype {show(dtype)} is not known.", f"Known are {', '.join(_KNOWN)}.")


def _are_counts(value: object) -> TypeGuard[list[int]]:
    # The exact type is compared, because True is an instance of int.
    return isinstance(value, list) and set(map(type, value)) <= _INT and min(value, default=0) >= 0


def _deeper(value: object, levels: int) -> bool:
    if not isinstance(value, list | dict):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in items)
