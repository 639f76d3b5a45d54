"""A new zip archive of kept and fresh records, laid out exactly as torch writes it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from resize_pos.containers.io.splice import CopyRange, LaterBytes, NewBytes, Segment
from resize_pos.containers.zip.records import (
    ALIGNMENT,
    CENTRAL,
    DAMAGED,
    DESCRIPTOR,
    END,
    END64,
    LIMIT32,
    LOCAL,
    LOCATOR,
    PADDING,
    STORED,
    UTF8,
    ZIP64,
    Record,
    extra_fields,
)
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of the source, to be carried over."""

    record: Record


@dataclass(frozen=True, slots=True)
class Fresh:
    """A record with new content: bytes, or a range of the source whose checksum is given."""

    name: str
    content: Segment
    size: int
    known_crc: int | None  # None: not before the content is there

    @classmethod
    def of(cls, name: str, data: bytes | memoryview) -> Fresh:
        """Make a record of bytes."""
        view = memoryview(data)
        return cls(name, NewBytes(view), view.nbytes, zlib.crc32(view))

    @classmethod
    def holding(cls, name: str, content: NewBytes | LaterBytes) -> Fresh:
        """Make a record of bytes that are perhaps still being computed."""
        if isinstance(content, NewBytes):
            return cls.of(name, memoryview(content.data))
        return cls(name, content, content.length, None)

    @property
    def crc(self) -> int:
        """The checksum; it is waited for."""
        if self.known_crc is None:
            assert isinstance(self.content, LaterBytes)
            return zlib.crc32(self.content.wait())
        return self.known_crc


Planned = Kept | Fresh


@dataclass(slots=True)
class Layout:
    """The segments of a new archive; `shift` is how far the longest kept range has moved."""

    segments: list[Segment]
    size: int
    shift: int


def lay_out(planned: Sequence[Planned], alignment: int = ALIGNMENT) -> Layout:
    """Put records one after the other, padded and closed exactly as torch's own writer does.

    A record whose place is congruent to its old one is copied with its header; only the one after
    a change gets new padding. So nearly everything is one long range.
    """
    segments: list[Segment] = []
    central: list[tuple[Planned, int]] = []
    position, longest, shift = 0, 0, 0
    for plan in planned:
        if isinstance(plan, Kept):
            record, moved = plan.record, position - plan.record.start
            header = _moved_header(record, position, alignment)
            segments += [NewBytes(header), CopyRange(record.data, record.end - record.data)]
            if header == record.local:
                segments[-2:] = [CopyRange(record.start, record.end - record.start)]
            else:
                moved = position + len(header) - record.data
            if record.stored > longest:
                longest, shift = record.stored, moved
            central.append((plan, position))
            position += len(header) + record.end - record.data
        else:
            header = _fresh_header(plan, position, alignment)
            length = _descriptor_length(plan, position)
            describe = partial(_descriptor, plan, position)
            segments += [NewBytes(header), plan.content, _after(plan.content, length, describe)]
            central.append((plan, position))
            position += len(header) + plan.size + length
    lengths = [_entry_length(plan, at) for plan, at in central]
    closing = _closing(len(central), sum(lengths), position)
    size = sum(lengths) + len(closing)
    awaited = [plan.content for plan in planned if isinstance(plan, Fresh)]
    last = next((c for c in awaited if isinstance(c, LaterBytes)), NewBytes(b""))
    directory = partial(_directory, central, closing)
    segments.append(_after(last, size, directory))
    return Layout(segments, position + size, shift)


def _after(content: Segment, length: int, make: Callable[[], bytes]) -> Segment:
    """Make bytes that depend on content: as late as that is."""
    if isinstance(content, LaterBytes):
        return LaterBytes(length, make, content.failed)
    return NewBytes(make())


def _directory(central: Sequence[tuple[Planned, int]], closing: bytes) -> bytes:
    entries = (_entry(plan, _crc(plan), position) for plan, position in central)
    return b"".join((*entries, closing))


def _crc(plan: Planned) -> int:
    return plan.record.crc if isinstance(plan, Kept) else plan.crc


def _entry(plan: Planned, crc: int, position: int) -> bytes:
    if isinstance(plan, Kept):
        return _moved_entry(plan.record, position)
    return _fresh_entry(plan, crc, position)


def _entry_length(plan: Planned, position: int) -> int:
    return len(_entry(plan, 0, position))


def checksum(path: Path, offset: int, length: int) -> int:
    """Compute the CRC-32 of a range of a file, a block at a time."""
    crc, block = 0, 1 << 20
    with path.open("rb") as file:
        file.seek(offset)
        while length:
            data = file.read(min(block, length))
            if not data:
                raise ContainerError(f"{path.name}: ends {length} bytes too early.", DAMAGED)
            crc = zlib.crc32(data, crc)
            length -= len(data)
    return crc


def _moved_header(record: Record, position: int, alignment: int) -> bytes:
    """Give the local header of a kept record at its new place."""
    (name_length,) = struct.unpack_from("<H", record.local, 26)
    extra = record.local[LOCAL.size + name_length :]
    fields = list(extra_fields(extra))
    if position == record.start or (
        ZIP64 not in dict(fields)
        and (record.data + position - record.start) % alignment == 0
        and position < LIMIT32
    ):
        return record.local
    head = record.local[: LOCAL.size + name_length]
    kept = b""
    for kind, body in fields:
        if kind == ZIP64 and len(body) % 16 == 8 and record.start >= LIMIT32:
            # torch's writer repeats here where the record lies
            body = body[:-8] + struct.pack("<Q", position)
        if kind != PADDING:
            kept += struct.pack("<2H", kind, len(body)) + body
    kept += _padding(position + len(head) + len(kept), alignment)
    if len(kept) > 0xFFFF:
        raise ContainerError(f"the record {record.name!r} has too many extra fields.")
    return head[:28] + struct.pack("<H", len(kept)) + head[30:] + kept


def _padding(position: int, alignment: int) -> bytes:
    length = -(position + 4) % alignment
    return struct.pack("<2H", PADDING, length) + b"Z" * length


def _moved_entry(record: Record, position: int) -> bytes:
    """Give the directory entry of a kept record at its new place."""
    if position == record.start:
        return record.central
    fields = list(CENTRAL.unpack_from(record.central))
    name_end = CENTRAL.size + fields[10]
    name = record.central[CENTRAL.size : name_end]
    extra = record.central[name_end : name_end + fields[11]]
    comment = record.central[name_end + fields[11] :]
    others = [(kind, body) for kind, body in extra_fields(extra) if kind != ZIP64]
    wide = b"".join(
        struct.pack("<Q", number)
        for number in (record.size, record.stored, position)
        if number >= LIMIT32
    )
    extra = b"".join(struct.pack("<2H", kind, len(body)) + body for kind, body in others)
    if wide:
        extra = struct.pack("<2H", ZIP64, len(wide)) + wide + extra
    fields[8:10] = [min(record.stored, LIMIT32), min(record.size, LIMIT32)]
    fields[11], fields[16] = len(extra), min(position, LIMIT32)
    return CENTRAL.pack(*fields) + name + extra + comment


def _fresh_header(plan: Fresh, position: int, alignment: int) -> bytes:
    """Give the local header as torch's writer makes it; the checksum comes after the data."""
    name = plan.name.encode()
    wide = _fresh_wide(plan, position)
    flags = UTF8 | (DESCRIPTOR if plan.size else 0)
    padding = _padding(position + LOCAL.size + len(name) + len(wide), alignment)
    header = LOCAL.pack(
        b"PK\x03\x04", 0, flags, STORED, 0, 0, 0, 0, 0, len(name), len(wide) + len(padding)
    )
    return header + name + wide + padding


def _descriptor_length(plan: Fresh, position: int) -> int:
    if not plan.size:
        return 0
    return struct.calcsize(_descriptor_format(plan, position))


def _descriptor(plan: Fresh, position: int) -> bytes:
    if not plan.size:
        return b""
    return struct.pack(
        _descriptor_format(plan, position), b"PK\x07\x08", plan.crc, plan.size, plan.size
    )


def _descriptor_format(plan: Fresh, position: int) -> str:
    return "<4sL2Q" if _fresh_wide(plan, position) else "<4s3L"


def _fresh_wide(plan: Fresh, position: int) -> bytes:
    numbers = [plan.size, plan.size] if plan.size >= LIMIT32 else []
    numbers += [position] if position >= LIMIT32 else []
    body = struct.pack(f"<{len(numbers)}Q", *numbers)
    return struct.pack("<2H", ZIP64, len(body)) + body if numbers else b""


def _fresh_entry(plan: Fresh, crc: int, position: int) -> bytes:
    name, extra = plan.name.encode(), _fresh_wide(plan, position)
    flags = UTF8 | (DESCRIPTOR if plan.size else 0)
    size, start = min(plan.size, LIMIT32), min(position, LIMIT32)
    fixed = (b"PK\x01\x02", 0, 0, flags, STORED, 0, 0, crc, size, size)
    fields = (*fixed, len(name), len(extra), 0, 0, 0, 0, start)
    return CENTRAL.pack(*fields) + name + extra


def _closing(count: int, length: int, offset: int) -> bytes:
    end64 = END64.pack(b"PK\x06\x06", 44, 0x031E, 45, 0, 0, count, count, length, offset)
    locator = LOCATOR.pack(b"PK\x06\x07", 0, offset + length, 1)
    narrow = (min(count, 0xFFFF), min(count, 0xFFFF), min(length, LIMIT32), min(offset, LIMIT32))
    return end64 + locator + END.pack(b"PK\x05\x06", 0, 0, *narrow, 0)
