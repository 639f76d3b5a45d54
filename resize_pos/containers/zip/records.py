"""Zip archives as torch writes them: uncompressed records, aligned by padding in their headers.

The whole directory is read and checked; records are copied without being parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from resize_pos.containers.zip.headers import (
    CENTRAL,
    CENTRAL_MARK,
    DESCRIPTOR,
    ENCRYPTED,
    END,
    END64,
    END64_MARK,
    END_MARK,
    LIMIT32,
    LOCAL,
    LOCAL_MARK,
    LOCATOR,
    LOCATOR_MARK,
    STORED,
    UTF8,
    ZIP64,
    Header,
    extra_field,
    extra_fields,
)
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

ALIGNMENT = 64

_LARGEST_DIRECTORY = 1 << 28
_LONGEST_COMMENT = 1 << 16
PADDING = 0x4246  # "FB": the extra field in which torch keeps its padding

_DESCRIPTOR = 16  # bytes after the data of a record: mark, checksum and two sizes

DAMAGED = "The file is damaged or truncated; download or copy it again."


@dataclass(frozen=True, slots=True)
class Record:
    """One file of the archive."""

    name: str
    method: int
    flags: int
    crc: int
    stored: int  # bytes in the archive
    size: int  # bytes when unpacked; equal to `stored` if not compressed
    start: int  # of the local header
    data: int  # of the first byte
    end: int  # of everything up to the next record: data, and the descriptor after it
    central: bytes  # the entry of the directory
    local: bytes  # the local header, with name and extra fields


def read_directory(file: BinaryIO, size: int, *, few_reads: bool = False) -> tuple[Record, ...]:
    """Read and check every entry; return the records in file order.

    With `few_reads`, the local header of a record is not read if its length follows from the
    directory and is the length that torch gives it. See `expected_local`.
    """
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
        expected = expected_local(entry, end) if few_reads else None
        if expected is not None:
            records.append(_record(entry, end, expected))
        else:
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


@dataclass(frozen=True, slots=True)
class _DirectoryEntry:
    name: str
    method: int
    flags: int
    crc: int
    stored: int
    size: int
    start: int
    raw: bytes


def _find_directory(file: BinaryIO, size: int) -> tuple[int, int, int]:
    tail_length = min(size, _LONGEST_COMMENT + END.size)
    file.seek(size - tail_length)
    tail = file.read(tail_length)
    found = tail.rfind(END_MARK)
    if found < 0 or len(tail) - found < END.size:
        raise ContainerError("the archive has no directory at its end.", DAMAGED)
    _, disk, _, _, count, length, offset, comment = END.unpack_from(tail, found)
    end = size - tail_length + found
    if disk not in (0, 0xFFFF) or found + END.size + comment != len(tail):
        raise ContainerError("the archive's end does not fit its directory.", DAMAGED)
    file.seek(max(end - LOCATOR.size, 0))
    locator = file.read(LOCATOR.size)
    if locator[:4] == LOCATOR_MARK and len(locator) == LOCATOR.size:
        at = LOCATOR.unpack(locator)[2]
        if at + END64.size > end:
            raise ContainerError("the archive's 64-bit directory end is not there.", DAMAGED)
        file.seek(at)
        fields = END64.unpack(file.read(END64.size))
        if fields[0] != END64_MARK:
            raise ContainerError("the archive's 64-bit directory end is not there.", DAMAGED)
        count, length, offset = fields[7:10]
        end = at
    if offset + length != end:
        raise ContainerError(
            f"the archive's directory at byte {offset} with {length} bytes does not end at {end}.",
            DAMAGED,
        )
    if length > _LARGEST_DIRECTORY or count * CENTRAL.size > length:
        raise ContainerError(f"the archive's directory states {count} records in {length} bytes.")
    return count, offset, length


def _entries(directory: bytes, count: int) -> Iterator[_DirectoryEntry]:
    position = 0
    for _ in range(count):
        fixed = directory[position : position + CENTRAL.size]
        if len(fixed) < CENTRAL.size or fixed[:4] != CENTRAL_MARK:
            raise ContainerError("the archive's directory is damaged.", DAMAGED)
        fields = CENTRAL.unpack(fixed)
        flags, method, crc, stored, size = *fields[3:5], *fields[7:10]
        name_length, extra_length, comment_length, start = *fields[10:13], fields[16]
        middle = position + CENTRAL.size + name_length
        end = middle + extra_length + comment_length
        if end > len(directory):
            raise ContainerError("the archive's directory is damaged.", DAMAGED)
        name = _name(directory[position + CENTRAL.size : middle], flags)
        extra = directory[middle : middle + extra_length]
        stored, size, start = _wide(extra, stored, size, start)
        yield _DirectoryEntry(
            name, method, flags, crc, stored, size, start, directory[position:end]
        )
        position = end


def _name(raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError:
        raise ContainerError(f"a record's name {raw!r} is not text.", DAMAGED) from None
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise ContainerError(f"a record is called {name!r}, which leads out of the archive.")
    if flags & ENCRYPTED:
        raise ContainerError(f"the record {name!r} is encrypted.")
    return name


def _wide(extra: bytes, stored: int, size: int, start: int) -> tuple[int, int, int]:
    """Return the 64-bit numbers for fields whose 32-bit value refers to them."""
    wide = dict(extra_fields(extra)).get(ZIP64, b"")
    numbers = [n for (n,) in struct.iter_unpack("<Q", wide[: len(wide) // 8 * 8])]
    values = []
    for value in (size, stored, start):  # in the order of the format
        if value == LIMIT32 and numbers:
            value = numbers.pop(0)
        values.append(value)
    return values[1], values[0], values[2]


def _with_local(file: BinaryIO, entry: _DirectoryEntry, end: int) -> Record:
    if entry.start + LOCAL.size > end:  # a 64-bit offset may be beyond what a file can have
        raise ContainerError(f"the record {entry.name!r} has no header.", DAMAGED)
    file.seek(entry.start)
    fixed = file.read(LOCAL.size)
    if len(fixed) < LOCAL.size or fixed[:4] != LOCAL_MARK:
        raise ContainerError(f"the record {entry.name!r} has no header.", DAMAGED)
    fields = LOCAL.unpack(fixed)
    name_length, extra_length = fields[9:]
    variable = file.read(name_length + extra_length)
    data = entry.start + LOCAL.size + name_length + extra_length
    if len(variable) < name_length + extra_length or data + entry.stored > end:
        raise ContainerError(f"the record {entry.name!r} overlaps what follows it.", DAMAGED)
    own = entry.raw[CENTRAL.size : CENTRAL.size + name_length]
    if variable[:name_length] != own or fields[3] != entry.method:
        raise ContainerError(f"the record {entry.name!r} is not what the directory says.", DAMAGED)
    return _record(entry, end, fixed + variable)


def _record(entry: _DirectoryEntry, end: int, local: bytes) -> Record:
    if entry.method == STORED and entry.stored != entry.size:
        raise ContainerError(f"the record {entry.name!r} states two sizes.", DAMAGED)
    return Record(
        entry.name,
        entry.method,
        entry.flags,
        entry.crc,
        entry.stored,
        entry.size,
        entry.start,
        entry.start + len(local),
        end,
        entry.raw,
        local,
    )


def expected_local(entry: _DirectoryEntry, end: int) -> bytes | None:
    """Return the local header that torch writes for an entry; None: this one must be read.

    The header, the data and the descriptor after it fill the space up to the next record. So the
    length of the header is known, and it is compared with the padding that torch uses. Reading
    each header of a file in a store would take a request for each tensor.
    """
    fields = CENTRAL.unpack_from(entry.raw)
    name = entry.raw[CENTRAL.size : CENTRAL.size + fields[10]]
    described = bool(entry.flags & DESCRIPTOR)
    if entry.start >= LIMIT32 or entry.stored >= LIMIT32 or entry.method != STORED:
        return None
    crc, stored, size = (0, 0, 0) if described else (entry.crc, entry.stored, entry.size)
    version, time, date = fields[2], fields[5], fields[6]
    header = Header(name, version, entry.flags, entry.method, time, date, crc, stored, size)
    unpadded = entry.start + LOCAL.size + len(name) + 4
    local = header.local(extra_field(PADDING, b"Z" * (-unpadded % ALIGNMENT)))
    length = len(local) + entry.stored + (_DESCRIPTOR if described else 0)
    return local if entry.start + length == end else None
