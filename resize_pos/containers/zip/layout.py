"""A new zip archive of kept and fresh records, laid out exactly as torch writes it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial

from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import CopyRange, LaterBytes, NewBytes, Segment
from resize_pos.containers.zip.headers import (
    CENTRAL,
    DESCRIPTOR,
    LIMIT32,
    LOCAL,
    UTF8,
    ZIP64,
    Header,
    closing,
    extra_field,
    extra_fields,
    joined,
    wide_field,
)
from resize_pos.containers.zip.records import ALIGNMENT, DAMAGED, PADDING, Record
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_TORCH_MADE_BY = 0x031E  # what torch's writer states in the 64-bit end, which it always writes


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of the source that is copied."""

    record: Record


@dataclass(frozen=True, slots=True)
class Fresh:
    """A record with new content: bytes, or a range of the source whose checksum is given."""

    name: str
    content: Segment
    size: int
    known_crc: int | None  # None: known only when the content is computed

    @classmethod
    def of(cls, name: str, data: bytes | memoryview) -> Fresh:
        """Make a record of bytes."""
        view = memoryview(data)
        return cls(name, NewBytes(view), view.nbytes, zlib.crc32(view))

    @classmethod
    def holding(cls, name: str, content: NewBytes | LaterBytes) -> Fresh:
        """Make a record of bytes that may still be computed."""
        if isinstance(content, NewBytes):
            return cls.of(name, memoryview(content.data))
        return cls(name, content, content.length, None)

    @property
    def crc(self) -> int:
        """The checksum; for content that is still being computed, this waits."""
        if self.known_crc is None:
            assert isinstance(self.content, LaterBytes)
            return zlib.crc32(self.content.wait())
        return self.known_crc


ZipMember = Kept | Fresh


@dataclass(slots=True)
class ZipLayout:
    """The segments of a new archive; `shift` is how far the longest kept range has moved."""

    segments: list[Segment]
    size: int
    shift: int
    moved: list[Record]  # kept records that get a new header, made from their old one


def lay_out(planned: Sequence[ZipMember], alignment: int = ALIGNMENT) -> ZipLayout:
    """Lay out the records with the same padding and archive end as torch's own writer.

    A record that moves by a multiple of the alignment is copied with its header. Only the first one
    after a change gets new padding. So nearly everything is copied as one long range.
    """
    segments: list[Segment] = []
    central: list[tuple[ZipMember, int]] = []
    moved_records: list[Record] = []
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
                moved_records.append(record)
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
    end = closing(len(central), sum(lengths), position, made_by64=_TORCH_MADE_BY)
    size = sum(lengths) + len(end)
    awaited = [plan.content for plan in planned if isinstance(plan, Fresh)]
    last = next((c for c in awaited if isinstance(c, LaterBytes)), NewBytes(b""))
    directory = partial(_directory, central, end)
    segments.append(_after(last, size, directory))
    return ZipLayout(segments, position + size, shift, moved_records)


def _after(content: Segment, length: int, make: Callable[[], bytes]) -> Segment:
    """Make bytes that depend on `content`; if it is computed later, they are made later."""
    if isinstance(content, LaterBytes):
        return LaterBytes(length, make, content.failed)
    return NewBytes(make())


def _directory(central: Sequence[tuple[ZipMember, int]], end: bytes) -> bytes:
    entries = (_entry(plan, _crc(plan), position) for plan, position in central)
    return b"".join((*entries, end))


def _crc(plan: ZipMember) -> int:
    return plan.record.crc if isinstance(plan, Kept) else plan.crc


def _entry(plan: ZipMember, crc: int, position: int) -> bytes:
    if isinstance(plan, Kept):
        return _moved_entry(plan.record, position)
    return _fresh_entry(plan, crc, position)


def _entry_length(plan: ZipMember, position: int) -> int:
    return len(_entry(plan, 0, position))


def checksum(source: SourceFile, offset: int, length: int) -> int:
    """Compute the CRC-32 of a range of a file, a block at a time."""
    crc, block = 0, 1 << 20
    with source.open() as file:
        file.seek(offset)
        while length:
            data = file.read(min(block, length))
            if not data:
                raise ContainerError(f"ends {length} bytes too early.", DAMAGED)
            crc = zlib.crc32(data, crc)
            length -= len(data)
    return crc


def _moved_header(record: Record, position: int, alignment: int) -> bytes:
    """Return the local header of a kept record at its new place."""
    (name_length,) = struct.unpack_from("<H", record.local, 26)
    extra = record.local[LOCAL.size + name_length :]
    fields = list(extra_fields(extra))
    if position == record.start or (
        ZIP64 not in dict(fields) and (record.data + position - record.start) % alignment == 0
    ):
        return record.local
    head = record.local[: LOCAL.size + name_length]
    kept = b""
    for kind, body in fields:
        if kind == ZIP64 and len(body) % 16 == 8 and record.start >= LIMIT32:
            # torch's writer stores the record's offset here again
            body = body[:-8] + struct.pack("<Q", position)
        if kind != PADDING:
            kept += extra_field(kind, body)
    kept += _padding(position + len(head) + len(kept), alignment)
    if len(kept) > 0xFFFF:
        raise ContainerError(f"the record {record.name!r} has too many extra fields.")
    return head[:28] + struct.pack("<H", len(kept)) + head[30:] + kept


def _padding(position: int, alignment: int) -> bytes:
    return extra_field(PADDING, b"Z" * (-(position + 4) % alignment))


def _moved_entry(record: Record, position: int) -> bytes:
    """Return the directory entry of a kept record at its new place."""
    if position == record.start:
        return record.central
    fields = list(CENTRAL.unpack_from(record.central))
    name_end = CENTRAL.size + fields[10]
    name = record.central[CENTRAL.size : name_end]
    extra = record.central[name_end : name_end + fields[11]]
    comment = record.central[name_end + fields[11] :]
    others = [(kind, body) for kind, body in extra_fields(extra) if kind != ZIP64]
    numbers = [n for n in (record.size, record.stored, position) if n >= LIMIT32]
    extra = wide_field(numbers) + joined(others)
    fields[8:10] = [min(record.stored, LIMIT32), min(record.size, LIMIT32)]
    fields[11], fields[16] = len(extra), min(position, LIMIT32)
    return CENTRAL.pack(*fields) + name + extra + comment


def _fresh_header(plan: Fresh, position: int, alignment: int) -> bytes:
    """Write the local header as torch's writer does: checksum and sizes come after the data."""
    name, wide = plan.name.encode(), _fresh_wide(plan, position)
    padding = _padding(position + LOCAL.size + len(name) + len(wide), alignment)
    return Header(name, flags=_fresh_flags(plan)).local(wide + padding)


def _fresh_flags(plan: Fresh) -> int:
    return UTF8 | (DESCRIPTOR if plan.size else 0)


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
    return wide_field([*numbers, position] if position >= LIMIT32 else numbers)


def _fresh_entry(plan: Fresh, crc: int, position: int) -> bytes:
    header = Header(
        plan.name.encode(),
        flags=_fresh_flags(plan),
        crc=crc,
        stored=plan.size,
        size=plan.size,
    )
    return header.central(position, _fresh_wide(plan, position))
