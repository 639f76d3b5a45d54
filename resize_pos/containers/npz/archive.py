"""The zip archive around an .npz file: members copied as they lie, only some packed anew."""

from __future__ import annotations

import io
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s2B5H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_LIMIT32, _LIMIT16 = 0xFFFFFFFF, 0xFFFF
_ZIP64 = 1  # the id of the extra field with 64-bit numbers
_ENCRYPTED, _DESCRIPTOR = 0x01, 0x08
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)

# What `zipfile` raises for a directory that is damaged; offsets may be beyond any file.
DAMAGES = (
    *(zipfile.BadZipFile, struct.error, ValueError, EOFError),
    *(NotImplementedError, OverflowError),
)
LONGEST_COMMENT = _LIMIT16


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive, and the range that it takes: header, data, and what follows."""

    info: zipfile.ZipInfo
    begin: int
    end: int


def read_members(file: BinaryIO) -> tuple[list[Member], bytes]:
    """Read the directory, in the order in which the members lie, and the archive's comment."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            comment, directory = archive.comment, archive.start_dir
    except DAMAGES as error:
        raise ContainerError(f"the archive is damaged: {error}.") from error
    repeated = [name for name, n in Counter(info.filename for info in infos).items() if n > 1]
    if repeated:
        raise ContainerError(f"the archive has the member {repeated[0]!r} twice.")
    ends = [info.header_offset for info in infos[1:]] + [directory]
    members = []
    for info, end in zip(infos, ends, strict=True):
        if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
            raise ContainerError(f"the member {info.filename!r} is encrypted or oddly packed.")
        if info.header_offset + _LOCAL.size + info.compress_size > end:
            raise ContainerError(f"the member {info.filename!r} overlaps what follows it.")
        members.append(Member(info, info.header_offset, end))
    return members, comment


def lay_out(
    members: Sequence[Member], new: Mapping[str, bytes], comment: bytes
) -> Iterator[Segment]:
    """Give the segments of a new archive: members with new content packed as the old ones were."""
    directory, position = [], 0
    for member in members:
        info = member.info
        if info.filename in new:
            packed, fresh = _pack(info, new[info.filename])
            header = _local_header(fresh)
            yield NewBytes(header)
            yield NewBytes(packed)
            length = len(header) + len(packed)
        else:
            fresh = info
            length = member.end - member.begin
            yield CopyRange(member.begin, length)
        directory.append(_central_header(fresh, position))
        position += length
    yield NewBytes(b"".join(directory))
    yield NewBytes(_closing(len(directory), sum(map(len, directory)), position, comment))


def _pack(info: zipfile.ZipInfo, content: bytes) -> tuple[memoryview, zipfile.ZipInfo]:
    """Compress with the member's own method; zipfile does it, in memory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", info.compress_type) as archive:
        archive.writestr("x", content)
        (packed,) = archive.infolist()
    fresh = zipfile.ZipInfo(info.filename, info.date_time)
    for name in ("compress_type", "comment", "create_system", "create_version", "internal_attr"):
        setattr(fresh, name, getattr(info, name))
    fresh.external_attr, fresh.extra = info.external_attr, info.extra
    fresh.flag_bits = info.flag_bits & ~_DESCRIPTOR | packed.flag_bits
    fresh.extract_version = info.extract_version
    fresh.CRC, fresh.file_size, fresh.compress_size = packed.CRC, len(content), packed.compress_size
    data = buffer.getbuffer()
    start = _LOCAL.size + 1
    return data[start : start + packed.compress_size], fresh


def _local_header(info: zipfile.ZipInfo) -> bytes:
    name = _name(info)
    big = info.file_size >= _LIMIT32 or info.compress_size >= _LIMIT32
    extra = _wide([info.file_size, info.compress_size]) if big else b""
    sizes = (_LIMIT32, _LIMIT32) if big else (info.compress_size, info.file_size)
    version = max(info.extract_version, 45 if big else 20)
    numbers = (version, info.flag_bits, info.compress_type, *_when(info), info.CRC, *sizes)
    return _LOCAL.pack(b"PK\x03\x04", *numbers, len(name), len(extra)) + name + extra


def _central_header(info: zipfile.ZipInfo, position: int) -> bytes:
    name = _name(info)
    numbers = (info.file_size, info.compress_size, position)
    wide = _wide([number for number in numbers if number >= _LIMIT32])
    extra = wide + b"".join(field for kind, field in _fields(info.extra) if kind != _ZIP64)
    size, packed, offset = (min(number, _LIMIT32) for number in numbers)
    version = max(info.extract_version, 45 if wide else 20)
    return (
        _CENTRAL.pack(
            b"PK\x01\x02",
            info.create_version,
            info.create_system,
            version,
            info.flag_bits,
            info.compress_type,
            *_when(info),
            info.CRC,
            packed,
            size,
            len(name),
            len(extra),
            len(info.comment),
            0,
            info.internal_attr,
            info.external_attr,
            offset,
        )
        + name
        + extra
        + info.comment
    )


def _name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")


def _when(info: zipfile.ZipInfo) -> tuple[int, int]:
    year, month, day, hour, minute, second = info.date_time
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day


def _wide(numbers: Sequence[int]) -> bytes:
    if not numbers:
        return b""
    return struct.pack(f"<2H{len(numbers)}Q", _ZIP64, 8 * len(numbers), *numbers)


def _fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        yield kind, extra[position : position + 4 + length]
        position += 4 + length


def _closing(count: int, length: int, offset: int, comment: bytes) -> bytes:
    end64 = b""
    if count >= _LIMIT16 or length >= _LIMIT32 or offset >= _LIMIT32:
        end64 = _END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, offset)
        end64 += _LOCATOR.pack(b"PK\x06\x07", 0, offset + length, 1)
    counts = (min(count, _LIMIT16),) * 2
    sizes = (min(length, _LIMIT32), min(offset, _LIMIT32))
    return end64 + _END.pack(b"PK\x05\x06", 0, 0, *counts, *sizes, len(comment)) + comment
