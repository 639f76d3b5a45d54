"""Zip directories and layouts by themselves, at places that a file of a few kB does not reach."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest
import torch

from resize_pos.containers.io.splice import CopyRange, NewBytes
from resize_pos.containers.zip.headers import (
    CENTRAL,
    DESCRIPTOR,
    END_MARK,
    LIMIT32,
    LOCAL,
    STORED,
    UTF8,
    ZIP64,
    Header,
    closing,
    extra_field,
    extra_fields,
    wide_field,
)
from resize_pos.containers.zip.layout import Fresh, Kept, ZipLayout, lay_out
from resize_pos.containers.zip.records import (
    ALIGNMENT,
    PADDING,
    Record,
    _DirectoryEntry,
    expected_local,
    read_directory,
)
from resize_pos.core.errors import ContainerError

OTHER = 0xCAFE  # an extra field that nobody knows


def directory(data: bytes, *, few_reads: bool = False) -> tuple[Record, ...]:
    return read_directory(io.BytesIO(data), len(data), few_reads=few_reads)


def torch_file() -> bytes:
    file = io.BytesIO()
    torch.save({"w": torch.arange(15.0).reshape(3, 5), "empty": torch.zeros(0, 7)}, file)
    return file.getvalue()


def commented() -> bytes:
    """Make an archive whose second entry has an extra field and a comment, as `zipinfo` shows."""
    body, entries = b"", b""
    for name, comment in ((b"a/data.pkl", b""), (b"a/data/0", b"made by hand")):
        header = Header(name, crc=zlib.crc32(bytes(8)), stored=8, size=8)
        extra = extra_field(OTHER, b"keep")
        entries += header.central(len(body), extra, comment=comment)
        body += header.local(extra) + bytes(8)
    return body + entries + closing(2, len(entries), len(body))


def written(layout: ZipLayout, source: bytes) -> bytes:
    parts = []
    for segment in layout.segments:
        if isinstance(segment, NewBytes):
            parts.append(bytes(segment.data))
        else:
            assert isinstance(segment, CopyRange)
            parts.append(source[segment.offset : segment.offset + segment.length])
    return b"".join(parts)


def test_an_entry_with_a_comment_keeps_it_where_it_moves_to() -> None:
    source = commented()
    records = directory(source)
    layout = lay_out([Fresh.of("a/new", b"x" * 21), *map(Kept, records)])
    found = written(layout, source)
    assert len(found) == layout.size
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        assert archive.testzip() is None
        infos = {info.filename: info for info in archive.infolist()}
    assert infos["a/data/0"].comment == b"made by hand"
    assert infos["a/data.pkl"].comment == b""
    assert dict(extra_fields(infos["a/data/0"].extra)) == {OTHER: b"keep"}
    for old, new in zip(records, directory(found)[1:], strict=True):
        assert new.data % ALIGNMENT == 0
        assert found[new.data : new.data + new.stored] == source[old.data : old.data + old.stored]
        (length,) = struct.unpack_from("<H", new.local, 26)
        fields = dict(extra_fields(new.local[LOCAL.size + length :]))
        assert fields[OTHER] == b"keep" and set(fields) <= {OTHER, PADDING}


def test_wide_numbers_of_an_entry_with_a_comment_are_read() -> None:
    """The 64-bit numbers stand between the name and the comment."""
    name = b"a/data/0"
    local = Header(name, stored=LIMIT32, size=LIMIT32).local(b"")
    wide = wide_field([24, 24])
    entry = Header(name, stored=LIMIT32, size=LIMIT32).central(0, wide, comment=b"c" * 30)
    data = local + bytes(24)
    (record,) = directory(data + entry + closing(1, len(entry), len(data)))
    assert (record.stored, record.size, record.start) == (24, 24, 0)
    assert record.central.endswith(b"c" * 30)


@pytest.mark.parametrize("length", [4, 10, 21])
def test_an_end_that_is_cut_off_is_refused(length: int) -> None:
    data = commented()
    end = data.rindex(END_MARK)
    with pytest.raises(ContainerError, match="no directory at its end"):
        directory(data[: end + length])


def test_headers_that_are_not_read_are_those_that_are_in_the_file() -> None:
    """In a store each header would take a request; described records and an empty one."""
    data = torch_file()
    read = directory(data)
    assert {bool(record.flags & DESCRIPTOR) for record in read} == {True, False}
    assert directory(data, few_reads=True) == read
    damaged = bytearray(data)
    for record in read:  # nobody looks at them
        damaged[record.start : record.start + 4] = b"gone"
    assert directory(bytes(damaged), few_reads=True) == read
    with pytest.raises(ContainerError, match="no header"):
        directory(bytes(damaged))


def test_a_header_that_torch_would_not_write_is_read() -> None:
    data = commented()
    assert directory(data, few_reads=True) == directory(data)
    assert not any(record.local.endswith(b"Z") for record in directory(data, few_reads=True))


@pytest.mark.parametrize("described", [True, False])
def test_the_expected_header_needs_all_of_its_numbers(described: bool) -> None:
    flags = UTF8 | (DESCRIPTOR if described else 0)
    raw = Header(b"a/data/0", flags=flags, crc=77, stored=24, size=24).central(0, b"")

    def expected(end: int, *, start: int = 0, stored: int = 24) -> bytes | None:
        entry = _DirectoryEntry("a/data/0", STORED, flags, 77, stored, stored, start, raw)
        return expected_local(entry, end)

    end = ALIGNMENT + 24 + (16 if described else 0)
    local = expected(end)
    assert local is not None and len(local) == ALIGNMENT
    numbers = LOCAL.unpack_from(local)[6:9]
    assert numbers == ((0, 0, 0) if described else (77, 24, 24))
    assert expected(end + 1) is None and expected(end - 1) is None
    after = 16 if described else 0
    assert expected(ALIGNMENT + LIMIT32 + after, stored=LIMIT32) is None
    whole = LIMIT32 + 1  # a multiple of the alignment
    assert expected(whole + end, start=whole) is None


@pytest.mark.parametrize("order", [(5, 9), (9, 5)])
def test_the_shift_is_that_of_the_longest_record(order: tuple[int, int]) -> None:
    file = io.BytesIO()
    torch.save({str(n): torch.arange(float(n * 64)) for n in order}, file)
    source = file.getvalue()
    records = directory(source)
    longest = max(records, key=lambda record: record.stored)
    for added in (21, 333):  # the first record after it gets new padding, the others move along
        layout = lay_out([Fresh.of("a/new", b"x" * added), *map(Kept, records)])
        found = {record.name: record for record in directory(written(layout, source))}
        assert layout.shift == found[longest.name].data - longest.data
    alone = lay_out([Fresh.of("a/new", b"x" * 21), Kept(longest)])
    start = directory(written(alone, source))[1].data
    assert alone.shift == start - longest.data and alone.moved == [longest]


def huge(size: int) -> Record:
    """Make a record of any size; only its headers exist."""
    header = Header(b"a/data/0", stored=size, size=size)
    wide = wide_field([size, size]) if size >= LIMIT32 else b""
    local, central = header.local(wide), header.central(0, wide)
    return Record(
        "a/data/0", STORED, UTF8, 0, size, size, 0, len(local), len(local) + size, central, local
    )


@pytest.mark.parametrize("size", [LIMIT32 + 17, 1000])
def test_a_record_beyond_4_gb_states_its_offset_in_64_bits(size: int) -> None:
    layout = lay_out([Kept(huge(size)), Fresh.of("a/new", b"x" * 21)])
    header, ending = layout.segments[1], layout.segments[-1]
    assert isinstance(header, NewBytes) and isinstance(ending, NewBytes)
    position = LOCAL.size + len(b"a/data/0") + (20 if size > LIMIT32 else 0) + size
    local = bytes(header.data)
    (length,) = struct.unpack_from("<H", local, 26)
    fields = dict(extra_fields(local[LOCAL.size + length :]))
    wide = struct.pack("<Q", position) if size > LIMIT32 else None
    assert fields.get(ZIP64) == wide
    entry = bytes(ending.data).index(b"a/new") - CENTRAL.size
    numbers = CENTRAL.unpack_from(bytes(ending.data), entry)
    assert numbers[16] == min(position, LIMIT32)
    extra = bytes(ending.data)[entry + CENTRAL.size + 5 :][: numbers[11]]
    assert dict(extra_fields(extra)).get(ZIP64) == wide
