"""Objects in a store, read like files: by range, with read-ahead for parsers."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, BinaryIO

from resize_pos.containers.io.source_file import TRUNCATED, SourceFile
from resize_pos.containers.remote.store import ObjectInfo, changed, store_of
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

FIRST = 1 << 18  # bytes read with the first request: most headers and pickles are shorter
UPLOADED = 1 << 23  # the same for a source of an upload: its first part has at least 5 MiB
_AHEAD = 1 << 16  # a parser reads at least so much, and the whole end of an archive at once
# A short read that begins near the end of an earlier one is part of a scan, such as that of some
# heads of an attention layer. Then a longer range is read.
_SHORT, _NEAR, _SCANNED = 1 << 19, 1 << 20, 1 << 21
_MOST_KEPT = 12 << 20  # bytes of an object that stay in memory


@dataclass(frozen=True, slots=True, eq=False)
class RangeFile(SourceFile):
    """A file that is read only by range."""

    def fetch(self, offset: int, length: int) -> bytes:
        """Read a range that lies inside the file."""
        raise NotImplementedError

    def handle(self) -> AbstractContextManager[int]:  # type: ignore[override]
        """Refuse: there is no file descriptor."""
        raise ContainerError(f"{self.path}: is not a file on this machine.")

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file for a parser; add the file's name to the parser's errors."""
        with self.naming(), io.BufferedReader(_RangeReader(self), _AHEAD) as file:
            yield file

    def beginning(self, length: int) -> bytes:
        """Read at most so many bytes from the start of the file."""
        return self.fetch(0, min(max(length, FIRST), self.size))[:length]

    def view(self, offset: int, length: int) -> memoryview:
        """Read a range without a copy of its own, if it is in memory."""
        return memoryview(self.read(offset, length))

    def read(self, offset: int, length: int) -> bytes:
        """Read a range of bytes; a file that ends too early is an error."""
        self.require_inside(offset, length)
        return self.fetch(offset, length) if length else b""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset` on; a file that ends too early is an error."""
        if buffer.nbytes:
            buffer.cast("B")[:] = self.view(offset, buffer.nbytes)

    def require_inside(self, offset: int, length: int) -> None:
        """Refuse a range that ends after the file."""
        if offset + length > self.size:
            left = max(0, self.size - offset)
            raise ContainerError(
                f"{self.path.name}: {length} bytes expected at {offset}, {left} read.", TRUNCATED
            )

    def require_unchanged(self) -> None:
        """Refuse an object that was replaced since it was first seen."""


@dataclass(frozen=True, slots=True, eq=False)
class RemoteFile(RangeFile):
    """An object in a store, and its identity when it was first seen."""

    info: ObjectInfo
    _pieces: dict[int, bytes] = field(repr=False)  # what was read, by offset
    _changed: threading.Condition = field(repr=False)
    _asked: list[tuple[int, int]] = field(default_factory=list, repr=False)  # being read now

    is_remote = True

    @classmethod
    def of(cls, path: RemotePath, info: ObjectInfo) -> RemoteFile:  # type: ignore[override]
        """Make a file of what a store said of an object; nothing is read."""
        return cls(path, info.size, (info.identity, info.size), info, {}, threading.Condition())

    def remember(self, offset: int, data: bytes) -> None:
        """Keep bytes that were read; the oldest are dropped, the beginning stays."""
        with self._changed:
            self._pieces[offset] = data
            kept = sum(map(len, self._pieces.values()))
            for old in [key for key in self._pieces if key not in (0, offset)]:
                if kept <= _MOST_KEPT:
                    break
                kept -= len(self._pieces.pop(old))

    def known(self, offset: int, length: int) -> memoryview | None:
        """Return bytes that were read before; None if any of them was not."""
        with self._changed:
            for start, piece in self._pieces.items():
                if start <= offset and offset + length <= start + len(piece):
                    return memoryview(piece)[offset - start : offset - start + length]
        return None

    def fetch(self, offset: int, length: int) -> bytes:
        """Read a range, unless it is in memory."""
        return bytes(self.view(offset, length))

    def view(self, offset: int, length: int) -> memoryview:
        """Read a range, unless it is in memory; what is in memory is not copied."""
        self.require_inside(offset, length)
        while True:
            with self._changed:
                data = self.known(offset, length)
                if data is not None:
                    return data
                wanted = [r for r in self._asked if r[0] <= offset and offset + length <= r[1]]
                if wanted:  # another thread is reading this range
                    self._changed.wait()
                    continue
                begin, end = self._window(offset, length)
                self._asked.append((begin, end))
            path = self.remote_path
            try:
                self.remember(begin, store_of(path).read(path, self.info, begin, end - begin))
                data = self.known(offset, length)
                assert data is not None
                return data
            finally:
                with self._changed:
                    self._asked.remove((begin, end))
                    self._changed.notify_all()

    def _window(self, offset: int, length: int) -> tuple[int, int]:
        """Return the range to ask for: what lies around a few bytes is often needed next."""
        begin, end = offset, offset + length
        near = [at for at, piece in self._pieces.items() if at < offset <= at + len(piece) + _NEAR]
        if near and length <= _SHORT:
            end = begin + _SCANNED
        elif length < _AHEAD:
            begin = offset // _AHEAD * _AHEAD
            end = begin + 2 * _AHEAD
        return begin, max(offset + length, min(end, self.size))

    def blocks(self, offset: int, length: int) -> Iterator[bytes]:
        """Read a long range block by block; nothing of it stays in memory."""
        path = self.remote_path
        return store_of(path).blocks(path, self.info, offset, length)

    def require_unchanged(self) -> None:
        """Refuse an object that was replaced since it was first seen."""
        if store_of(self.remote_path).info(self.remote_path) != self.info:
            raise changed(self.remote_path)

    @property
    def remote_path(self) -> RemotePath:
        """The address of the object."""
        from resize_pos.containers.io.remote_path import RemotePath

        assert isinstance(self.path, RemotePath)
        return self.path


class _RangeReader(io.RawIOBase):
    """The view of a file that parsers need: seek and read, with read-ahead."""

    def __init__(self, file: RangeFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}
        self._position = max(0, base[whence] + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start, size = self._position, self._file.size
        count = min(len(buffer), max(0, size - start))
        if count:
            begin, end = start, min(size, max(start + count, start + _AHEAD))
            if begin == 0:
                end = min(size, max(end, FIRST))
            if size - end < _AHEAD:  # the end of an archive is read as one range
                end = size
            known = self._file.known(start, count) if isinstance(self._file, RemoteFile) else None
            buffer[:count] = self._file.view(begin, end - begin)[:count] if known is None else known
            self._position += count
        return count
