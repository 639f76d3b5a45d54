"""The headers of zip archives, written in one place for every format that is a zip archive."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from resize_pos.core.fast_dataclass import dataclass

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")

LOCAL_MARK, CENTRAL_MARK = b"PK\x03\x04", b"PK\x01\x02"
END_MARK, END64_MARK, LOCATOR_MARK = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"

LIMIT32, LIMIT16 = 0xFFFFFFFF, 0xFFFF  # a field with this value refers to a 64-bit number
ZIP64 = 1  # the id of the extra field with 64-bit numbers
STORED = 0
ENCRYPTED, DESCRIPTOR, UTF8 = 0x0001, 0x0008, 0x0800


@dataclass(frozen=True, slots=True)
class Header:
    """What the two headers of one record have in common."""

    name: bytes
    version: int = 0  # that is needed to extract it
    flags: int = UTF8
    method: int = STORED
    time: int = 0
    date: int = 0
    crc: int = 0
    stored: int = 0  # bytes in the archive
    size: int = 0  # bytes when unpacked

    def local(self, extra: bytes) -> bytes:
        """Return the header before the data; sizes that do not fit in 32 bits are in `extra`."""
        return LOCAL.pack(LOCAL_MARK, *self._numbers(extra)) + self.name + extra

    def central(
        self,
        offset: int,
        extra: bytes,
        *,
        made_by: int = 0,
        comment: bytes = b"",
        attributes: tuple[int, int] = (0, 0),
    ) -> bytes:
        """Return the directory entry; numbers that do not fit in 32 bits are in `extra`."""
        return (
            CENTRAL.pack(
                CENTRAL_MARK,
                made_by,
                *self._numbers(extra),
                len(comment),
                0,
                *attributes,
                min(offset, LIMIT32),
            )
            + self.name
            + extra
            + comment
        )

    def _numbers(self, extra: bytes) -> tuple[int, ...]:
        """Return the fields that both headers have, in their common order."""
        return (
            self.version,
            self.flags,
            self.method,
            self.time,
            self.date,
            self.crc,
            min(self.stored, LIMIT32),
            min(self.size, LIMIT32),
            len(self.name),
            len(extra),
        )


def closing(
    count: int, length: int, offset: int, comment: bytes = b"", *, made_by64: int | None = None
) -> bytes:
    """Write the end of an archive whose directory has `length` bytes from `offset` on.

    The 64-bit end is written where a number needs it, or always if `made_by64` is given.
    """
    end64 = b""
    if made_by64 is not None or count >= LIMIT16 or length >= LIMIT32 or offset >= LIMIT32:
        made_by = 45 if made_by64 is None else made_by64
        end64 = END64.pack(END64_MARK, 44, made_by, 45, 0, 0, count, count, length, offset)
        end64 += LOCATOR.pack(LOCATOR_MARK, 0, offset + length, 1)
    counts = (min(count, LIMIT16),) * 2
    sizes = (min(length, LIMIT32), min(offset, LIMIT32))
    return end64 + END.pack(END_MARK, 0, 0, *counts, *sizes, len(comment)) + comment


def wide_field(numbers: Sequence[int]) -> bytes:
    """Write the extra field that holds 64-bit numbers; nothing where there are none."""
    if not numbers:
        return b""
    return extra_field(ZIP64, struct.pack(f"<{len(numbers)}Q", *numbers))


def extra_field(kind: int, body: bytes) -> bytes:
    """Write one extra field of a header."""
    return struct.pack("<2H", kind, len(body)) + body


def extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Read id and content of each extra field of a header."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        yield kind, extra[position + 4 : position + 4 + length]
        position += 4 + length


def joined(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """Write extra fields again."""
    return b"".join(extra_field(kind, body) for kind, body in fields)
