"""The byte mover: whatever way it copies, the result is the same bytes."""

from __future__ import annotations

import errno
import os
import stat
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resize_pos.containers.io import splice
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import (
    PAGE,
    STRIDE,
    CopyRange,
    LaterBytes,
    NewBytes,
    Segment,
    write_spliced,
)
from resize_pos.core.errors import ContainerError, OutputError

CONTENT = bytes(range(256)) * 64  # 16 KiB: four pages


def later(data: bytes) -> LaterBytes:
    return LaterBytes(len(data), lambda: data, lambda: False)


SEGMENTS: dict[str, list[Segment]] = {
    "nothing": [],
    "everything": [CopyRange(0, len(CONTENT))],
    "new bytes only": [NewBytes(b"abc")],
    "new bytes first": [NewBytes(b"header"), CopyRange(8, 5000)],
    "new bytes last": [CopyRange(8, 5000), NewBytes(bytearray(b"tail"))],
    "new bytes between": [CopyRange(0, 100), NewBytes(memoryview(b"mid")), CopyRange(200, 9000)],
    "adjacent ranges": [CopyRange(3, 7), CopyRange(10, 4100), CopyRange(4110, 1)],
    "backwards": [CopyRange(8192, 100), CopyRange(0, 100)],
    "empty pieces": [CopyRange(5, 0), NewBytes(b""), CopyRange(5, 10), CopyRange(9, 0)],
    "congruent, unaligned": [NewBytes(b"x" * 100), CopyRange(100, len(CONTENT) - 100)],
    "awaited": [CopyRange(0, 9), later(b"abc"), CopyRange(9, 5000), later(b""), NewBytes(b"x")],
    "awaited at the end": [NewBytes(b"x"), CopyRange(4096, 5000), later(b"y" * 5000)],
    "shifted by one": [NewBytes(b"x"), CopyRange(0, len(CONTENT))],
}

UNSUPPORTED = ["EXDEV", "ENOSYS", "EINVAL", "EOPNOTSUPP", "EPERM", "EBADF", "ENOTSOCK", "EIO"]


def expected(segments: Sequence[Segment], content: bytes = CONTENT) -> bytes:
    return b"".join(
        content[piece.offset : piece.offset + piece.length]
        if isinstance(piece, CopyRange)
        else bytes(piece.data if isinstance(piece, NewBytes) else piece.wait())
        for piece in segments
    )


def refuse(number: int) -> Callable[..., int]:
    def refusing(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return refusing


def absent(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.delattr(os, name, raising=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(
    params=["kernel", "sendfile", "buffered", "without pread", "short", "zero", "interrupted"]
)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every way to copy, by taking the better ones away or making them misbehave."""
    name: str = request.param
    copy_file_range: Any = getattr(os, "copy_file_range", None)
    if name == "sendfile":
        absent(monkeypatch, "copy_file_range")
    elif name == "buffered":
        absent(monkeypatch, "copy_file_range", "sendfile")
    elif name == "without pread":
        absent(monkeypatch, "copy_file_range", "sendfile", "pread", "fchmod")
    elif name == "short" and copy_file_range:

        def short(source: int, stage: int, count: int, offset_src: int) -> int:
            return int(copy_file_range(source, stage, min(count, 7), offset_src=offset_src))

        monkeypatch.setattr(os, "copy_file_range", short)
    elif name == "zero":
        monkeypatch.setattr(os, "copy_file_range", lambda *_, **__: 0, raising=False)
        monkeypatch.setattr(os, "sendfile", lambda *_, **__: 0, raising=False)
    elif name == "interrupted" and copy_file_range:
        calls = iter(range(1_000_000))

        def interrupted(source: int, stage: int, count: int, offset_src: int) -> int:
            if next(calls) % 2 == 0:
                raise InterruptedError
            return int(copy_file_range(source, stage, count, offset_src=offset_src))

        monkeypatch.setattr(os, "copy_file_range", interrupted)
    return name


@pytest.mark.parametrize("segments", SEGMENTS.values(), ids=SEGMENTS)
def test_every_way_to_copy_writes_the_same_bytes(
    segments: list[Segment], source: Path, tmp_path: Path, way: str
) -> None:
    before = source.stat()
    stage = tmp_path / "stage"
    written = write_spliced(SourceFile.of(source), stage, segments)
    assert stage.read_bytes() == expected(segments)
    assert written == stage.stat().st_size
    assert source.read_bytes() == CONTENT
    assert source.stat().st_mtime_ns == before.st_mtime_ns


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(
        st.one_of(
            st.binary(max_size=20).map(NewBytes),
            st.tuples(st.integers(0, 9000), st.integers(0, 7000)).map(lambda it: CopyRange(*it)),
        ),
        max_size=8,
    )
)
def test_any_segments_are_written_in_order(segments: list[Segment], source: Path) -> None:
    stage = source.with_name("stage")
    stage.unlink(missing_ok=True)
    assert write_spliced(SourceFile.of(source), stage, iter(segments)) == len(expected(segments))
    assert stage.read_bytes() == expected(segments)


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("refused", [("copy_file_range",), ("copy_file_range", "sendfile")])
def test_an_unsupported_copy_falls_back(
    name: str,
    refused: tuple[str, ...],
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for function in refused:
        monkeypatch.setattr(os, function, refuse(getattr(errno, name)), raising=False)
    segments = SEGMENTS["new bytes between"]
    write_spliced(SourceFile.of(source), tmp_path / "stage", segments)
    assert (tmp_path / "stage").read_bytes() == expected(segments)


def test_a_copy_that_fails_half_way_is_continued(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = getattr(os, "copy_file_range", None)
    if real is None:
        pytest.skip("no copy_file_range here")
    calls = iter([True, False])

    def once(source: int, stage: int, count: int, offset_src: int) -> int:
        if next(calls):
            return int(real(source, stage, 1000, offset_src=offset_src))
        raise OSError(errno.EXDEV, "crossed")

    monkeypatch.setattr(os, "copy_file_range", once)
    write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(0, len(CONTENT))])
    assert (tmp_path / "stage").read_bytes() == CONTENT


def test_a_way_that_failed_is_not_tried_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def counting(*_: object, **__: object) -> int:
        tried.append(1)
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "copy_file_range", counting, raising=False)
    write_spliced(SourceFile.of(source), tmp_path / "stage", SEGMENTS["new bytes between"])
    assert len(tried) == 1


@pytest.mark.parametrize("answer", [refuse(errno.EXDEV), lambda *_, **__: 0])
def test_sendfile_is_tried_before_the_buffered_copy(
    answer: Callable[..., int], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = getattr(os, "sendfile", None)
    if real is None:
        pytest.skip("no sendfile here")
    asked: list[int] = []

    def noting(stage: int, source: int, offset: int, count: int) -> int:
        asked.append(count)
        return int(real(stage, source, offset, count))

    monkeypatch.setattr(os, "copy_file_range", answer, raising=False)
    monkeypatch.setattr(os, "sendfile", noting)
    write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(0, 5000)])
    assert asked == [5000]


def test_short_writes_are_continued(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    absent(monkeypatch, "copy_file_range", "sendfile")
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:1000]))
    segments: list[Segment] = [NewBytes(CONTENT), CopyRange(0, len(CONTENT))]
    assert write_spliced(SourceFile.of(source), tmp_path / "stage", segments) == 2 * len(CONTENT)
    assert (tmp_path / "stage").read_bytes() == CONTENT * 2


def test_adjacent_ranges_become_one_copy() -> None:
    pieces: list[Segment] = [
        CopyRange(0, 10),
        CopyRange(10, 0),
        CopyRange(10, 5),
        NewBytes(b"x"),
        CopyRange(15, 5),
        CopyRange(30, 5),
        CopyRange(35, 1),
    ]
    assert list(splice._coalesced(pieces)) == [
        CopyRange(0, 15),
        NewBytes(b"x"),
        CopyRange(15, 5),
        CopyRange(30, 6),
    ]


def test_congruent_copies_start_at_a_page_or_at_a_stride(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = getattr(os, "copy_file_range", None)
    if real is None:
        pytest.skip("no copy_file_range here")
    asked: list[tuple[int, int]] = []

    def noting(source: int, stage: int, count: int, offset_src: int) -> int:
        asked.append((offset_src, count))
        return int(real(source, stage, count, offset_src=offset_src))

    monkeypatch.setattr(os, "copy_file_range", noting)
    source = tmp_path / "source"
    source.write_bytes(bytes(3 * STRIDE))
    for name, new, begin in (("page", 100, PAGE + 100), ("stride", 100, STRIDE + 100)):
        segments: list[Segment] = [NewBytes(bytes(new)), CopyRange(begin, 3 * STRIDE - begin)]
        write_spliced(SourceFile.of(source), tmp_path / name, segments)
    assert asked == [
        (PAGE + 100, PAGE - 100),
        (2 * PAGE, 3 * STRIDE - 2 * PAGE),
        (STRIDE + 100, STRIDE - 100),
        (2 * STRIDE, STRIDE),
    ]


def test_bytes_are_copied_before_anything_is_waited_for(source: Path, tmp_path: Path) -> None:
    stage = tmp_path / "stage"

    def wait() -> bytes:
        written = stage.read_bytes()
        assert (written[:8], written[11:]) == (CONTENT[:8], CONTENT[8:])
        return b"new"

    awaited = LaterBytes(3, wait, lambda: False)
    write_spliced(
        SourceFile.of(source), stage, [CopyRange(0, 8), awaited, CopyRange(8, len(CONTENT) - 8)]
    )
    assert stage.read_bytes() == CONTENT[:8] + b"new" + CONTENT[8:]


def test_what_has_failed_is_not_copied_for(source: Path, tmp_path: Path) -> None:
    def wait() -> bytes:
        raise ContainerError("the table is damaged.")

    stage, awaited = tmp_path / "stage", LaterBytes(3, wait, lambda: True)
    with pytest.raises(ContainerError, match="damaged"):
        write_spliced(
            SourceFile.of(source), stage, [CopyRange(0, 8), awaited, CopyRange(8, len(CONTENT) - 8)]
        )
    assert stage.stat().st_size == 8


def test_other_bytes_than_announced_are_refused(source: Path, tmp_path: Path) -> None:
    awaited = LaterBytes(3, lambda: b"four", lambda: False)
    with pytest.raises(ContainerError, match="3 new bytes were expected but 4 were computed"):
        write_spliced(SourceFile.of(source), tmp_path / "stage", [awaited])


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444, 0o755])
def test_permission_bits_are_those_of_the_source(source: Path, tmp_path: Path, mode: int) -> None:
    source.chmod(mode)
    write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(0, 10)])
    assert stat.S_IMODE((tmp_path / "stage").stat().st_mode) == mode


def test_an_existing_stage_file_is_refused_and_kept(source: Path, tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    stage.write_bytes(b"mine")
    with pytest.raises(OutputError, match="stage: cannot be written"):
        write_spliced(SourceFile.of(source), stage, [CopyRange(0, 10)])
    assert stage.read_bytes() == b"mine"


def test_a_source_that_shrank_is_named_with_the_numbers(
    source: Path, tmp_path: Path, way: str
) -> None:
    with pytest.raises(ContainerError, match=r"source\.bin: ends at byte 16384, .*20000") as caught:
        write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(16000, 4000)])
    assert caught.value.hint


def test_a_missing_source_is_a_container_error(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match=r"gone\.bin: no such file"):
        write_spliced(SourceFile.of(tmp_path / "gone.bin"), tmp_path / "stage", [])
    assert not (tmp_path / "stage").exists()


def test_a_folder_as_source_is_a_container_error(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="is a folder"):
        write_spliced(SourceFile.of(tmp_path), tmp_path / "stage", [CopyRange(0, 10)])


def test_a_missing_folder_is_an_output_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: no such file or folder"):
        write_spliced(SourceFile.of(source), tmp_path / "nowhere" / "stage", [])


@pytest.mark.parametrize("function", ["copy_file_range", "sendfile", "write"])
def test_a_full_disk_is_an_output_error(
    function: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = ["copy_file_range", "sendfile", "write"]
    absent(monkeypatch, *order[: order.index(function)])
    monkeypatch.setattr(os, function, refuse(errno.ENOSPC))
    with pytest.raises(OutputError, match="no space left") as caught:
        write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(0, 10)])
    assert caught.value.hint


def test_a_disk_that_cannot_be_read_is_a_container_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function in ("copy_file_range", "sendfile", "pread"):
        monkeypatch.setattr(os, function, refuse(errno.EIO), raising=False)
    with pytest.raises(ContainerError, match=r"source\.bin: cannot be read at byte 5"):
        write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(5, 10)])


def test_no_file_stays_open(source: Path, tmp_path: Path) -> None:
    listing = Path("/proc/self/fd")
    if not listing.exists():
        pytest.skip("no /proc here")
    before = len(list(listing.iterdir()))
    write_spliced(SourceFile.of(source), tmp_path / "stage", [CopyRange(0, 10)])
    with pytest.raises(ContainerError):
        write_spliced(SourceFile.of(source), tmp_path / "second", [CopyRange(0, 1 << 20)])
    assert len(list(listing.iterdir())) == before


def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(monkeypatch, "copy_file_range", "sendfile")
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(24 << 20)
    tracemalloc.start()
    try:
        write_spliced(SourceFile.of(large), tmp_path / "stage", [CopyRange(0, 24 << 20)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
