"""The opcodes of a pickle, one after the other: name, argument, begin and end of each.

The opcodes that torch writes by the thousand are decoded here, which saves the import of
`pickletools` and a part of the walk. For all others, and for malformed ones, `pickletools` is used.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pickletools

Opcode = tuple[str, Any, int, int]  # name, argument, begin, end

_PLAIN = {
    ord("("): "MARK",
    ord("."): "STOP",
    ord("0"): "POP",
    ord("1"): "POP_MARK",
    ord(")"): "EMPTY_TUPLE",
    ord("]"): "EMPTY_LIST",
    ord("}"): "EMPTY_DICT",
    ord("t"): "TUPLE",
    0x85: "TUPLE1",
    0x86: "TUPLE2",
    0x87: "TUPLE3",
    0x88: "NEWTRUE",
    0x89: "NEWFALSE",
    0x94: "MEMOIZE",
    ord("N"): "NONE",
    ord("Q"): "BINPERSID",
    ord("R"): "REDUCE",
    ord("a"): "APPEND",
    ord("b"): "BUILD",
    ord("e"): "APPENDS",
    ord("s"): "SETITEM",
    ord("u"): "SETITEMS",
}
_NUMBERS = {  # by how many bytes, little-endian
    0x80: ("PROTO", 1),
    0x95: ("FRAME", 8),
    ord("J"): ("BININT", 4),
    ord("K"): ("BININT1", 1),
    ord("M"): ("BININT2", 2),
    ord("h"): ("BINGET", 1),
    ord("j"): ("LONG_BINGET", 4),
    ord("q"): ("BINPUT", 1),
    ord("r"): ("LONG_BINPUT", 4),
}
_SIGNED = ord("J")
_TEXTS = {ord("X"): ("BINUNICODE", 4), 0x8C: ("SHORT_BINUNICODE", 1)}  # after that many bytes
_NAMED = ord("c")


def read_opcodes(pickle: bytes | BinaryIO) -> Iterator[Opcode]:
    """Yield each opcode up to STOP; raise the same errors as `pickletools`."""
    return _of_bytes(pickle) if isinstance(pickle, bytes) else _of_file(pickle)


def _of_bytes(pickle: bytes) -> Iterator[Opcode]:
    start, size = 0, len(pickle)
    operation: Opcode
    while start < size:
        code = pickle[start]
        begin = start + 1
        if (name := _PLAIN.get(code)) is not None:
            yield name, None, start, begin
            if name == "STOP":
                return
            start = begin
            continue
        if (number := _NUMBERS.get(code)) is not None:
            end = begin + number[1]
            value = int.from_bytes(pickle[begin:end], "little", signed=code == _SIGNED)
            operation = (number[0], value, start, end)
        elif (text := _TEXTS.get(code)) is not None:
            content = begin + text[1]
            end = content + int.from_bytes(pickle[begin:content], "little")
            words = pickle[content:end].decode("utf-8", "surrogatepass") if end <= size else ""
            operation = (text[0], words, start, end)
        else:
            operation = (code == _NAMED and _plainly_named(pickle, start)) or _slowly(pickle, start)
        if operation[3] > size:
            operation = _slowly(pickle, start)  # raises, and says what is missing
        yield operation
        start = operation[3]
    raise ValueError("pickle exhausted before seeing STOP")


def _plainly_named(pickle: bytes, start: int) -> Opcode | None:
    """Read a GLOBAL whose two lines need no decoding."""
    middle = pickle.find(b"\n", start)
    last = pickle.find(b"\n", middle + 1)
    if middle < 0 or last < 0:
        return None
    words = pickle[start + 1 : middle] + b" " + pickle[middle + 1 : last]
    if b"\\" in words or not words.isascii():
        return None
    return "GLOBAL", words.decode("ascii"), start, last + 1


def _slowly(pickle: bytes, start: int) -> Opcode:
    opcode = _opcodes().get(pickle[start])
    if opcode is None:
        raise ValueError(f"at position {start}, opcode {pickle[start : start + 1]!r} unknown")
    file = io.BytesIO(pickle)
    file.seek(start + 1)
    with _silence():
        argument = opcode.arg.reader(file) if opcode.arg is not None else None
    return opcode.name, argument, start, file.tell()


@cache
def _opcodes() -> dict[int, pickletools.OpcodeInfo]:
    import pickletools

    return {ord(opcode.code): opcode for opcode in pickletools.opcodes}


def _of_file(pickle: BinaryIO) -> Iterator[Opcode]:
    """Yield the opcodes of a file; the end of each is the begin of the next."""
    import pickletools

    pending: tuple[str, Any, int] | None = None
    with _silence():
        for opcode, argument, position in pickletools.genops(pickle):
            assert position is not None
            if pending is not None:
                yield (*pending, position)
            pending = (opcode.name, argument, position)
    assert pending is not None  # genops ends at STOP, or with an error
    yield (*pending, pending[2] + 1)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress the warnings of `pickletools` about invalid escapes in names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
