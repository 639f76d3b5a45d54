"""Zip archives as torch writes them: stored records, each aligned by padding in its header.

The directory is read and checked in full; records are copied without being looked at.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from resize_pos.containers.splice import CopyRange, LaterBytes, NewBytes, Segment
from resize_pos.errors import ContainerError
from resize_pos.quick import dataclass

STORED = 0
ALIGNMENT = 64

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LARGEST_DIRECTORY = 1 << 28
_LONGEST_COMMENT = 1 << 16
_LIMIT32 = 0xFFFFFFFF
_ZIP64 = 1  # the id of the extra field with 64-bit numbers
_PADDING = 0x4246  # "FB": the extra field in which torch keeps its padding
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 0x0001, 0x0008, 0x0800

_DAMAGED = "The file is damaged or truncated; download or copy it again."


@dataclass(frozen=True, slots=True)
class Record:
    """One file of the archive."""

    name: str
    method: int
    flags: int
    crc: int
    stored: int  # bytes in the archive
    size: int  # bytes when unpacked; the same where nothing is compressed
    start: int  # of the local header
    data: int  # of the first byte
    end: int  # of everything up to the next record: data, and the descriptor after it
    central: bytes  # the entry of the directory
    local: bytes  # the local header, with name and extra fields


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


def read_directory(file: BinaryIO, size: int) -> tuple[Record, ...]:
    """Read and check every entry, in the order in which the records lie."""
    count, offset, length = _find_directory(file, size)
    file.seek(offset)
    directory = file.read(length)
    entries = sorted(_entries(directory, count), key=lambda entry: entry.start)
    names: set[str] = set()
    records = []
    for index, entry in enumerate(entries):
        if entry.name in names:
            raise ContainerError(f"the archive has the record {entry.name!r} twice.")
        names.add(entry.name)
        end = entries[index + 1].start if index + 1 < len(entries) else offset
        records.append(_with_local(file, entry, end))
    return tuple(records)


def read_record(file: BinaryIO, record: Record, limit: int) -> bytes:
    """Read a small stored record, such as the pickle."""
    require_stored(record)
    if record.size > limit:
        raise ContainerError(f"{record.name} has {record.size} bytes; at most {limit} are read.")
    file.seek(record.data)
    data = file.read(record.size)
    if len(data) != record.size:
        raise ContainerError(f"{record.name}: {record.size} bytes expected, {len(data)} read.")
    return data


def require_stored(record: Record) -> None:
    """Refuse a compressed record: its bytes cannot be spliced, nor mapped by torch."""
    if record.method != STORED:
        raise ContainerError(
            f"{record.name} is compressed; torch stores its records as they are.",
            "Someone packed the file again: load it and save it once with torch.save.",
        )


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
                raise ContainerError(f"{path.name}: ends {length} bytes too early.", _DAMAGED)
            crc = zlib.crc32(data, crc)
            length -= len(data)
    return crc


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    method: int
    flags: int
    crc: int
    stored: int
    size: int
    start: int
    raw: bytes


def _find_directory(file: BinaryIO, size: int) -> tuple[int, int, int]:
    tail_length = min(size, _LONGEST_COMMENT + _END.size)
    file.seek(size - tail_length)
    tail = file.read(tail_length)
    found = tail.rfind(b"PK\x05\x06")
    if found < 0 or len(tail) - found < _END.size:
        raise ContainerError("the archive has no directory at its end.", _DAMAGED)
    _, disk, _, _, count, length, offset, comment = _END.unpack_from(tail, found)
    end = size - tail_length + found
    if disk not in (0, 0xFFFF) or found + _END.size + comment != len(tail):
        raise ContainerError("the archive's end does not fit its directory.", _DAMAGED)
    file.seek(max(end - _LOCATOR.size, 0))
    locator = file.read(_LOCATOR.size)
    if locator[:4] == b"PK\x06\x07" and len(locator) == _LOCATOR.size:
        at = _LOCATOR.unpack(locator)[2]
        if at + _END64.size > end:
            raise ContainerError("the archive's 64-bit directory end is not there.", _DAMAGED)
        file.seek(at)
        fields = _END64.unpack(file.read(_END64.size))
        if fields[0] != b"PK\x06\x06":
            raise ContainerError("the archive's 64-bit directory end is not there.", _DAMAGED)
        count, length, offset = fields[7:10]
        end = at
    if offset + length != end:
        raise ContainerError(
            f"the archive's directory at byte {offset} with {length} bytes does not end at {end}.",
            _DAMAGED,
        )
    if length > _LARGEST_DIRECTORY or count * _CENTRAL.size > length:
        raise ContainerError(f"the archive's directory states {count} records in {length} bytes.")
    return count, offset, length


def _entries(directory: bytes, count: int) -> Iterator[_Entry]:
    position = 0
    for _ in range(count):
        fixed = directory[position : position + _CENTRAL.size]
        if len(fixed) < _CENTRAL.size or fixed[:4] != b"PK\x01\x02":
            raise ContainerError("the archive's directory is damaged.", _DAMAGED)
        fields = _CENTRAL.unpack(fixed)
        flags, method, crc, stored, size = *fields[3:5], *fields[7:10]
        name_length, extra_length, comment_length, start = *fields[10:13], fields[16]
        middle = position + _CENTRAL.size + name_length
        end = middle + extra_length + comment_length
        if end > len(directory):
            raise ContainerError("the archive's directory is damaged.", _DAMAGED)
        name = _name(directory[position + _CENTRAL.size : middle], flags)
        extra = directory[middle : middle + extra_length]
        stored, size, start = _wide(extra, stored, size, start)
        yield _Entry(name, method, flags, crc, stored, size, start, directory[position:end])
        position = end


def _name(raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise ContainerError(f"a record's name {raw!r} is not text.", _DAMAGED) from None
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise ContainerError(f"a record is called {name!r}, which leads out of the archive.")
    if flags & _ENCRYPTED:
        raise ContainerError(f"the record {name!r} is encrypted.")
    return name


def _wide(extra: bytes, stored: int, size: int, start: int) -> tuple[int, int, int]:
    """Take the 64-bit numbers where the 32-bit fields say that there are some."""
    wide = dict(_extra_fields(extra)).get(_ZIP64, b"")
    numbers = [n for (n,) in struct.iter_unpack("<Q", wide[: len(wide) // 8 * 8])]
    values = []
    for value in (size, stored, start):  # in the order of the format
        if value == _LIMIT32 and numbers:
            value = numbers.pop(0)
        values.append(value)
    return values[1], values[0], values[2]


def _extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        yield kind, extra[position + 4 : position + 4 + length]
        position += 4 + length


def _with_local(file: BinaryIO, entry: _Entry, end: int) -> Record:
    file.seek(entry.start)
    fixed = file.read(_LOCAL.size)
    if len(fixed) < _LOCAL.size or fixed[:4] != b"PK\x03\x04":
        raise ContainerError(f"the record {entry.name!r} has no header.", _DAMAGED)
    fields = _LOCAL.unpack(fixed)
    name_length, extra_length = fields[9:11]
    variable = file.read(name_length + extra_length)
    data = entry.start + _LOCAL.size + name_length + extra_length
    if len(variable) < name_length + extra_length or data + entry.stored > end:
        raise ContainerError(f"the record {entry.name!r} overlaps what follows it.", _DAMAGED)
    own = entry.raw[_CENTRAL.size : _CENTRAL.size + name_length]
    if variable[:name_length] != own or fields[3] != entry.method:
        raise ContainerError(f"the record {entry.name!r} is not what the directory says.", _DAMAGED)
    if entry.method == STORED and entry.stored != entry.size:
        raise ContainerError(f"the record {entry.name!r} states two sizes.", _DAMAGED)
    return Record(
        entry.name,
        entry.method,
        entry.flags,
        entry.crc,
        entry.stored,
        entry.size,
        entry.start,
        data,
        end,
        entry.raw,
        fixed + variable,
    )


def _moved_header(record: Record, position: int, alignment: int) -> bytes:
    """Give the local header of a kept record at its new place."""
    (name_length,) = struct.unpack_from("<H", record.local, 26)
    extra = record.local[_LOCAL.size + name_length :]
    fields = list(_extra_fields(extra))
    if position == record.start or (
        _ZIP64 not in dict(fields)
        and (record.data + position - record.start) % alignment == 0
        and position < _LIMIT32
    ):
        return record.local
    head = record.local[: _LOCAL.size + name_length]
    kept = b""
    for kind, body in fields:
        if kind == _ZIP64 and len(body) % 16 == 8 and record.start >= _LIMIT32:
            # torch's writer repeats here where the record lies
            body = body[:-8] + struct.pack("<Q", position)
        if kind != _PADDING:
            kept += struct.pack("<2H", kind, len(body)) + body
    kept += _padding(position + len(head) + len(kept), alignment)
    if len(kept) > 0xFFFF:
        raise ContainerError(f"the record {record.name!r} has too many extra fields.")
    return head[:28] + struct.pack("<H", len(kept)) + head[30:] + kept


def _padding(position: int, alignment: int) -> bytes:
    length = -(position + 4) % alignment
    return struct.pack("<2H", _PADDING, length) + b"Z" * length


def _moved_entry(record: Record, position: int) -> bytes:
    """Give the directory entry of a kept record at its new place."""
    if position == record.start:
        return record.central
    fields = list(_CENTRAL.unpack_from(record.central))
    name_end = _CENTRAL.size + fields[10]
    name = record.central[_CENTRAL.size : name_end]
    extra = record.central[name_end : name_end + fields[11]]
    comment = record.central[name_end + fields[11] :]
    others = [(kind, body) for kind, body in _extra_fields(extra) if kind != _ZIP64]
    wide = b"".join(
        struct.pack("<Q", number)
        for number in (record.size, record.stored, position)
        if number >= _LIMIT32
    )
    extra = b"".join(struct.pack("<2H", kind, len(body)) + body for kind, body in others)
    if wide:
        extra = struct.pack("<2H", _ZIP64, len(wide)) + wide + extra
    fields[8:10] = [min(record.stored, _LIMIT32), min(record.size, _LIMIT32)]
    fields[11], fields[16] = len(extra), min(position, _LIMIT32)
    return _CENTRAL.pack(*fields) + name + extra + comment


def _fresh_header(plan: Fresh, position: int, alignment: int) -> bytes:
    """Give the local header as torch's writer makes it; the checksum comes after the data."""
    name = plan.name.encode()
    wide = _fresh_wide(plan, position)
    flags = _UTF8 | (_DESCRIPTOR if plan.size else 0)
    padding = _padding(position + _LOCAL.size + len(name) + len(wide), alignment)
    header = _LOCAL.pack(
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
    numbers = [plan.size, plan.size] if plan.size >= _LIMIT32 else []
    numbers += [position] if position >= _LIMIT32 else []
    body = struct.pack(f"<{len(numbers)}Q", *numbers)
    return struct.pack("<2H", _ZIP64, len(body)) + body if numbers else b""


def _fresh_entry(plan: Fresh, crc: int, position: int) -> bytes:
    name, extra = plan.name.encode(), _fresh_wide(plan, position)
    flags = _UTF8 | (_DESCRIPTOR if plan.size else 0)
    size, start = min(plan.size, _LIMIT32), min(position, _LIMIT32)
    fixed = (b"PK\x01\x02", 0, 0, flags, STORED, 0, 0, crc, size, size)
    fields = (*fixed, len(name), len(extra), 0, 0, 0, 0, start)
    return _CENTRAL.pack(*fields) + name + extra


def _closing(count: int, length: int, offset: int) -> bytes:
    end64 = _END64.pack(b"PK\x06\x06", 44, 0x031E, 45, 0, 0, count, count, length, offset)
    locator = _LOCATOR.pack(b"PK\x06\x07", 0, offset + length, 1)
    narrow = (min(count, 0xFFFF), min(count, 0xFFFF), min(length, _LIMIT32), min(offset, _LIMIT32))
    return end64 + locator + _END.pack(b"PK\x05\x06", 0, 0, *narrow, 0)
