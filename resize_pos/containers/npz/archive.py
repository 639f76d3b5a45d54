"""The zip archive around numpy arrays: unchanged members are copied, changed ones are packed."""

from __future__ import annotations

import io
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment
from resize_pos.containers.zip.headers import (
    DESCRIPTOR,
    ENCRYPTED,
    LIMIT16,
    LIMIT32,
    LOCAL,
    UTF8,
    ZIP64,
    Header,
    closing,
    extra_fields,
    joined,
    wide_field,
)
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)

# What `zipfile` raises for a damaged directory, including offsets beyond the end of the file.
DAMAGES = (
    *(zipfile.BadZipFile, struct.error, ValueError, EOFError),
    *(NotImplementedError, OverflowError),
)
LONGEST_COMMENT = LIMIT16


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive, and its byte range: header, data, and any bytes up to the next."""

    info: zipfile.ZipInfo
    begin: int
    end: int


def read_members(file: BinaryIO) -> tuple[list[Member], bytes]:
    """Return the members, ordered by their position in the file, and the archive's comment."""
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
        if info.flag_bits & ENCRYPTED or info.compress_type not in _METHODS:
            raise ContainerError(f"the member {info.filename!r} is encrypted or oddly packed.")
        if info.header_offset + LOCAL.size + info.compress_size > end:
            raise ContainerError(f"the member {info.filename!r} overlaps what follows it.")
        members.append(Member(info, info.header_offset, end))
    return members, comment


def lay_out(
    members: Sequence[Member], new: Mapping[str, bytes], comment: bytes
) -> Iterator[Segment]:
    """Return the segments of a new archive; new content uses the old compression method."""
    directory, position = [], 0
    for member in members:
        info = member.info
        if info.filename in new:
            packed, fresh = _pack(info, new[info.filename])
            header = local_header(fresh)
            yield NewBytes(header)
            yield NewBytes(packed)
            length = len(header) + len(packed)
        else:
            fresh = info
            length = member.end - member.begin
            yield CopyRange(member.begin, length)
        directory.append(central_header(fresh, position))
        position += length
    yield NewBytes(b"".join(directory))
    yield NewBytes(closing(len(directory), sum(map(len, directory)), position, comment))


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
    fresh.flag_bits = info.flag_bits & ~DESCRIPTOR | packed.flag_bits
    fresh.extract_version = info.extract_version
    fresh.CRC, fresh.file_size, fresh.compress_size = packed.CRC, len(content), packed.compress_size
    data = buffer.getbuffer()
    start = LOCAL.size + 1
    return data[start : start + packed.compress_size], fresh


def local_header(info: zipfile.ZipInfo) -> bytes:
    """Write the header that stands before a new member."""
    big = info.file_size >= LIMIT32 or info.compress_size >= LIMIT32
    header = _header(info, big)
    if not big:
        return header.local(b"")
    # Both sizes have to be 64-bit numbers if one of them is.
    wide = wide_field([info.file_size, info.compress_size])
    return replace(header, stored=LIMIT32, size=LIMIT32).local(wide)


def central_header(info: zipfile.ZipInfo, position: int) -> bytes:
    """Write the entry of the directory for a member that begins at `position`."""
    numbers = [n for n in (info.file_size, info.compress_size, position) if n >= LIMIT32]
    others = [(kind, body) for kind, body in extra_fields(info.extra) if kind != ZIP64]
    return _header(info, bool(numbers)).central(
        position,
        wide_field(numbers) + joined(others),
        made_by=info.create_version | info.create_system << 8,
        comment=info.comment,
        attributes=(info.internal_attr, info.external_attr),
    )


def _header(info: zipfile.ZipInfo, wide: bool) -> Header:
    year, month, day, hour, minute, second = info.date_time
    return Header(
        info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437"),
        version=max(info.extract_version, 45 if wide else 20),
        flags=info.flag_bits,
        method=info.compress_type,
        time=hour << 11 | minute << 5 | second // 2,
        date=(year - 1980) << 9 | month << 5 | day,
        crc=info.CRC,
        stored=info.compress_size,
        size=info.file_size,
    )
