"""Seeded mutations of bytes, JSON texts and pickles."""

from __future__ import annotations

import json
import struct
from copy import deepcopy
from functools import lru_cache
from random import Random
from typing import Any

from resize_pos.containers.pickle.opcodes import read_opcodes

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)
WIDE = (*EXTREMES, 2**32, 2**53, 2**61 - 1, 2**63 - 1, 2**63, 2**64 - 1)

_TEXTS = ("", "..", "/", "a/../b", "\0", "\n::warning::x", "é" * 40, "x" * 5000, "\ud800", "0" * 30)

ODD_JSON: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**70,
    10**400,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [1, 2],
    [10**400, 1],
    {"height": 0, "width": -1},
    {"height": 10**30, "width": 3},
    *_TEXTS,
)


def mutate_bytes(random: Random, data: bytes, other: bytes = b"") -> bytes:
    """Change one to four places: flip, overwrite, insert, delete, repeat, splice, cut off."""
    blob = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(blob) + 1)
        kind = random.randrange(8)
        if kind == 0 and at < len(blob):
            blob[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            blob[at : at + 1] = bytes([random.randrange(256)])
        elif kind == 2:
            number, width = random.choice(WIDE), random.choice((1, 2, 4, 8))
            raw = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            blob[at : at + width] = raw
        elif kind == 3:
            blob[at:at] = random.randbytes(random.randrange(1, 9))
        elif kind == 4:
            del blob[at : at + random.randrange(1, 17)]
        elif kind == 5:
            length = random.randrange(1, 65)
            blob[at:at] = blob[at : at + length] * random.randrange(1, 4)
        elif kind == 6 and other:
            start = random.randrange(len(other))
            blob[at : at + 32] = other[start : start + random.randrange(1, 65)]
        elif kind == 7 and random.random() < 0.2:
            del blob[at:]
    return bytes(blob)


def _places(value: Any, found: list[tuple[Any, Any]], depth: int = 0) -> None:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        found.append((value, key))
        if depth < 20:
            _places(item, found, depth + 1)


def _odd_text(random: Random) -> str:
    kind = random.randrange(5)
    if kind == 0:
        return "[" * 200_000 if random.random() < 0.02 else "[" * 50 + "]" * 50
    if kind == 1:
        return "9" * random.choice((20, 400, 4300, 4301, 9000))
    if kind == 2:
        return "-" + "9" * 5000
    if kind == 3:
        return '{"a": 1, "a": 2}'
    return "1e" + "9" * 10


def mutate_json(random: Random, text: str) -> bytes:
    """Replace, remove or add values anywhere in a document; sometimes break its bytes, too."""
    document = json.loads(text)
    for _ in range(random.choice((1, 1, 2, 3))):
        found: list[tuple[Any, Any]] = []
        _places(document, found)
        if not found:
            break
        owner, key = random.choice(found)
        kind = random.randrange(4)
        if kind == 0 and isinstance(owner, dict):
            owner.pop(key, None)
        elif kind == 1 and isinstance(owner, dict) and key in owner:
            owner[random.choice(_TEXTS)] = owner.pop(key)
        elif kind == 2:
            owner[key] = "\0mark\0"
        else:
            owner[key] = deepcopy(random.choice(ODD_JSON))
    written = json.dumps(document, ensure_ascii=random.random() < 0.5)
    written = written.replace('"\\u0000mark\\u0000"', _odd_text(random))
    data = written.encode("utf-8", "surrogatepass")
    return mutate_bytes(random, data) if random.random() < 0.2 else data


_ONE_BYTE = b"(.012Nabd}el]opqRstu)\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94Q"


def random_opcode(random: Random) -> bytes:
    """Write one opcode of any kind."""
    kind = random.randrange(10)
    number = random.choice(WIDE)
    if kind < 4:
        return bytes([random.choice(_ONE_BYTE)])
    if kind == 4:
        return random.choice((b"h", b"q", b"K")) + bytes([number & 0xFF])
    if kind == 5:
        return random.choice((b"j", b"r", b"J")) + struct.pack("<I", number & 0xFFFFFFFF)
    if kind == 6:
        body = number.to_bytes(9, "little")[: random.randrange(10)]
        return b"\x8a" + bytes([len(body)]) + body
    if kind == 7:
        text = random.choice(_TEXTS).encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(text)) + text
    if kind == 8:
        names = (b"torch\nSize", b"posix\nsystem", b"torch._utils\n_rebuild_tensor_v2", b"a\nb")
        return b"c" + random.choice(names) + b"\n"
    odd = (
        b"G" + struct.pack(">d", random.choice((float("nan"), 1e308, -0.0))),
        b"I" + b"9" * random.choice((3, 5000)) + b"\n",
        b"L" + b"9" * random.choice((3, 5000)) + b"L\n",
        b"F1e999\n",
        b"\x8b" + struct.pack("<i", 2000) + b"\x7f" * 2000,
        b"\x82\x01",
        b"\x95" + struct.pack("<Q", number),
        b"ios\nsystem\n",
        b"P0\n",
        b"C\3abc",
        b"S'a'\n",
        b"V\\u12\n",
        b"\x80" + bytes([number & 0xFF]),
        b"\x97",
        b"\x98",
    )
    return random.choice(odd)


@lru_cache(maxsize=64)
def _opcodes(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[begin:end] for _, _, begin, end in read_opcodes(data))


def mutate_pickle(random: Random, data: bytes) -> bytes:
    """Delete, repeat, move, replace or add opcodes; sometimes break the bytes, too."""
    if random.random() < 0.25:
        return mutate_bytes(random, data)
    parts = list(_opcodes(data))
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(max(len(parts), 1))
        kind = random.randrange(5)
        if kind == 0:
            del parts[at : at + random.choice((1, 1, 3))]
        elif kind == 1:
            parts[at:at] = parts[at : at + random.choice((1, 4, 30))]
        elif kind == 2 and len(parts) > 1:
            other = random.randrange(len(parts))
            at = min(at, len(parts) - 1)
            parts[at], parts[other] = parts[other], parts[at]
        elif kind == 3:
            parts[at : at + 1] = [random_opcode(random)]
        else:
            parts[at:at] = [random_opcode(random) for _ in range(random.choice((1, 2)))]
    return b"".join(parts)
