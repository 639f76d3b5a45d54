"""Write a file from ranges of another, copied in the kernel, and new bytes between them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.containers.io.atomic_output import output_error
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from typing_extensions import Buffer

PAGE = 4096
# The kernel copies in pieces of this size, and its page cache stores each piece in the largest
# units that fit. If pieces begin at a multiple of it in both files, the copy is a third faster.
STRIDE = 1 << 16
_WORTH_A_STRIDE = 256 * STRIDE  # below this, padding to a stride costs more than it saves

_NEW_FILE = 0o666  # permission bits of a file that was in a store, before the user's mask
_BLOCK = 1 << 20  # buffer of the fallback copy; memory does not grow with the checkpoint
_CHUNK = 1 << 28  # one call into the kernel, short enough to be interrupted
# The most that one call copies, and what cp asks for. After such a call, pieces begin one page
# before a stride, and the page cache stores them in smaller units. This is intended: the kernel
# runs out of large units after some GB, and a copy of 5 GB then took 7 s instead of 2.5 s.
_LONGEST = (1 << 31) - PAGE
_FAST = 1 << 29  # bytes per second; only above this speed are calls that long

# Errors which mean that the file system or the kernel cannot copy this way. EIO is included because
# some network file systems return it. If the disk is broken, the buffered copy raises it again.
_UNSUPPORTED = frozenset(
    {errno.EACCES, errno.EBADF, errno.EINVAL, errno.EIO, errno.EISDIR, errno.ENODEV, errno.ENOSYS}
    | {errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EOVERFLOW, errno.EPERM, errno.ETXTBSY, errno.EXDEV}
    | {getattr(errno, "ENOTSUP", errno.EOPNOTSUPP)}
)


@dataclass(frozen=True, slots=True)
class CopyRange:
    """A range of the source, copied by the kernel."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class NewBytes:
    """Bytes that the source does not have."""

    data: Buffer  # C-contiguous


@dataclass(frozen=True, slots=True, eq=False)
class LaterBytes:
    """Bytes that are still being computed; they are written after all the others."""

    length: int
    wait: Callable[[], Buffer]
    failed: Callable[[], bool]  # whether waiting would raise: then the copy stops at once


Segment = CopyRange | NewBytes | LaterBytes


def congruence(length: int) -> int:
    """Return the unit of a shift: a range that moves by a multiple of it is copied fastest."""
    return STRIDE if length >= _WORTH_A_STRIDE else PAGE


_Mover = Callable[[int, int, int, int], int]  # source, stage, offset, count → bytes moved


def write_spliced(source: SourceFile, stage: Path, segments: Iterable[Segment]) -> int:
    """Create `stage` from ranges of `source` and new bytes, in order; return its length.

    `stage` must not exist, and gets the permission bits of `source`. A source that changed before
    or during the copy is an error. A partial file is left on failure: `atomic_output.staged`
    removes it.
    """
    if isinstance(stage, RemotePath):
        from resize_pos.containers.remote.outputs import write_remote

        return write_remote(source, stage, _coalesced(segments))
    try:
        if source.is_remote:
            with _created(stage, _NEW_FILE & ~_umask()) as stage_handle:
                return _Splicer(source, None, stage_handle).run(segments)
        with source.handle() as source_handle:
            mode = stat.S_IMODE(os.fstat(source_handle).st_mode) & 0o777
            with _created(stage, mode) as stage_handle:
                return _Splicer(source, source_handle, stage_handle).run(segments)
    except OSError as error:  # errors of the source were already converted
        raise output_error(stage, error) from error


class _Splicer:
    """One run: two open files, and the copy methods that have not failed yet."""

    def __init__(self, source: SourceFile, source_handle: int | None, stage_handle: int) -> None:
        self._file = source
        self._path = source.path
        self._source = -1 if source_handle is None else source_handle
        self._stage = stage_handle
        self._written = 0
        self._chunk = _CHUNK
        self._later: list[tuple[int, LaterBytes]] = []  # with their offsets
        self._awaited: dict[Callable[[], bool], LaterBytes] = {}  # one per computation
        self._movers = [*_kernel_movers(), self._move_buffered]
        if source_handle is None:
            self._movers = [self._move_received]

    def run(self, segments: Iterable[Segment]) -> int:
        for segment in _coalesced(segments):
            if isinstance(segment, CopyRange):
                self._copy(segment.offset, segment.offset + segment.length)
            elif isinstance(segment, NewBytes):
                self._write(memoryview(segment.data))
            else:
                self._later.append((self._written, segment))
                self._awaited.setdefault(segment.failed, segment)
                self._written = os.lseek(self._stage, segment.length, os.SEEK_CUR)
        for offset, segment in self._later:
            os.lseek(self._stage, offset, os.SEEK_SET)
            self._fill(segment)
        return self._written

    def _fill(self, segment: LaterBytes) -> None:
        data = memoryview(segment.wait())
        if data.nbytes != segment.length:
            raise ContainerError(
                f"{self._path.name}: {segment.length} new bytes were expected but {data.nbytes} "
                "were computed."
            )
        if data.nbytes:  # an empty view cannot be cast
            _write_all(self._stage, data.cast("B"))

    def _copy(self, offset: int, end: int) -> None:
        # A file system can share only whole blocks. If both files reach the start of a block at the
        # same point, the first call copies up to there, so that the rest can be shared.
        congruent = [unit for unit in (STRIDE, PAGE) if offset % unit == self._written % unit]
        until = offset + -offset % congruent[0] if congruent else offset
        while offset < end:
            for failed, segment in self._awaited.items():
                if failed():
                    segment.wait()  # raises
            count = min((until if offset < until else end) - offset, end - offset, self._chunk)
            started = time.perf_counter()
            moved = self._move(offset, count)
            if moved >= _CHUNK:
                seconds = time.perf_counter() - started
                self._chunk = _LONGEST if moved > _FAST * seconds else _CHUNK
            if moved == 0 and len(self._movers) == 1:
                size = os.fstat(self._source).st_size
                raise ContainerError(
                    f"{self._path.name}: ends at byte {size}, but bytes up to {end} were expected.",
                    "The file changed while it was being copied; try again when it is complete.",
                )
            if moved == 0:  # some file systems return 0 instead of an error
                self._movers.pop(0)
            offset += moved
            self._written += moved

    def _move(self, offset: int, count: int) -> int:
        while True:
            try:
                return self._movers[0](self._source, self._stage, offset, count)
            except InterruptedError:  # Python retries read and write, but not these calls
                continue
            except OSError as error:
                if len(self._movers) == 1 or error.errno not in _UNSUPPORTED:
                    raise
                return 0

    def _move_buffered(self, source: int, stage: int, offset: int, count: int) -> int:
        try:
            block = _read_at(source, offset, min(count, _BLOCK))
        except OSError as error:
            raise ContainerError(
                f"{self._path.name}: cannot be read at byte {offset}: {error.strerror}."
            ) from error
        _write_all(stage, memoryview(block))
        return len(block)

    def _move_received(self, source: int, stage: int, offset: int, count: int) -> int:
        del source
        for block in self._file.blocks(offset, count):
            _write_all(stage, memoryview(block))
        return count

    def _write(self, data: memoryview) -> None:
        if data.nbytes:  # an empty view cannot be cast
            _write_all(self._stage, data.cast("B"))
            self._written += data.nbytes


def _kernel_movers() -> Iterator[_Mover]:
    # Looked up by name, because not every system has them; both append at the stage's position.
    copy_file_range = getattr(os, "copy_file_range", None)
    if copy_file_range is not None:
        yield lambda source, stage, offset, count: int(
            copy_file_range(source, stage, count, offset_src=offset)
        )
    sendfile = getattr(os, "sendfile", None)
    if sendfile is not None:
        yield lambda source, stage, offset, count: int(sendfile(stage, source, offset, count))


def _coalesced(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Join copies of adjacent ranges, and drop empty ones."""
    pending: CopyRange | None = None
    for segment in segments:
        if isinstance(segment, CopyRange):
            if segment.length == 0:
                continue
            if pending is not None and pending.offset + pending.length == segment.offset:
                pending = CopyRange(pending.offset, pending.length + segment.length)
                continue
        if pending is not None:
            yield pending
        pending = segment if isinstance(segment, CopyRange) else None
        if pending is None:
            yield segment
    if pending is not None:
        yield pending


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _created(path: Path, mode: int) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o600)
    try:
        # File systems without permission bits raise an error here. It is ignored.
        with contextlib.suppress(OSError, AttributeError):
            os.fchmod(handle, mode)
        yield handle
    finally:
        os.close(handle)


def _read_at(handle: int, offset: int, count: int) -> bytes:
    pread = getattr(os, "pread", None)
    if pread is not None:
        return bytes(pread(handle, count, offset))
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, count)


def _write_all(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]
