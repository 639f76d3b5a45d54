"""Outputs that are not in their store yet: they are read and checked before they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.remote.parts import OutputPiece
from resize_pos.containers.remote.remote_file import RangeFile
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.containers.io.splice import LaterBytes, Segment

_GAP = 1 << 16  # ranges of new bytes that are closer to each other are read as one


@dataclass(frozen=True, slots=True, eq=False)
class PendingFile(RangeFile):
    """A file made of ranges of a source and of new bytes."""

    source: SourceFile | None
    pieces: tuple[OutputPiece, ...]
    _new: dict[int, memoryview] = field(repr=False)  # by the number of the piece
    _later: Mapping[int, LaterBytes] = field(repr=False)

    @classmethod
    def made_of(
        cls, path: Path, source: SourceFile | None, segments: Iterable[Segment]
    ) -> PendingFile:
        """Describe an output; bytes that are still being computed are not waited for."""
        from resize_pos.containers.io.splice import CopyRange, NewBytes

        pieces: list[OutputPiece] = []
        new: dict[int, memoryview] = {}
        later: dict[int, LaterBytes] = {}
        for segment in segments:
            if isinstance(segment, CopyRange):
                pieces.append(OutputPiece(segment.length, segment.offset))
            elif isinstance(segment, NewBytes):
                new[len(pieces)] = _flat(segment.data)
                pieces.append(OutputPiece(new[len(pieces)].nbytes))
            else:
                later[len(pieces)] = segment
                pieces.append(OutputPiece(segment.length))
        size = sum(piece.length for piece in pieces)
        return cls(path, size, ("pending", size), source, tuple(pieces), new, later)

    @property
    def is_remote(self) -> bool:  # type: ignore[override]
        """Whether the bytes that stay are read from a store."""
        return self.source is not None and self.source.is_remote

    def wait(self) -> None:
        """Wait for the bytes that are being computed; raise if that failed."""
        for number, segment in self._later.items():
            if number not in self._new:
                data = _flat(segment.wait())
                if data.nbytes != segment.length:
                    raise ContainerError(
                        f"{self.path.name}: {segment.length} new bytes were expected but "
                        f"{data.nbytes} were computed."
                    )
                self._new[number] = data

    def failed(self) -> bool:
        """Return whether waiting would raise."""
        return any(segment.failed() for segment in self._later.values())

    def fetch(self, offset: int, length: int) -> bytes:
        """Read a range of the output."""
        return b"".join(self.views(offset, length))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset` on; nothing is held in memory twice."""
        self.require_inside(offset, buffer.nbytes)
        flat, position = buffer.cast("B") if buffer.nbytes else buffer, 0
        for view in self.views(offset, buffer.nbytes):
            flat[position : position + view.nbytes] = view
            position += view.nbytes

    def views(self, offset: int, length: int) -> list[memoryview]:
        """Return a range of the output as the pieces of memory that hold it."""
        found: list[memoryview] = []
        position = 0
        for number, piece in enumerate(self.pieces):
            first = max(offset, position) - position
            last = min(offset + length, position + piece.length) - position
            if first < last:
                found.append(self._read(number, piece, first, last))
            position += piece.length
            if position >= offset + length:
                break
        return found

    def _read(self, number: int, piece: OutputPiece, first: int, last: int) -> memoryview:
        if piece.source is None:
            if number not in self._new:
                self.wait()
            return self._new[number][first:last]
        assert self.source is not None
        begin, length = piece.source + first, last - first
        if isinstance(self.source, RangeFile):
            return self.source.view(begin, length)
        return memoryview(self.source.read(begin, length))

    def borrowed(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        """Return which ranges of the source a range of the output holds."""
        position = 0
        for piece in self.pieces:
            first = max(offset, position) - position
            last = min(offset + length, position + piece.length) - position
            if first < last and piece.source is not None:
                yield piece.source + first, piece.source + last
            position += piece.length

    def new_ranges(self) -> Iterator[tuple[int, int]]:
        """Return where the new bytes are; ranges that are close to each other are joined."""
        begin = end = position = 0
        for piece in self.pieces:
            if piece.source is None and piece.length:
                if end and position - end > _GAP:
                    yield begin, end
                    begin = position
                elif not end:
                    begin = position
                end = position + piece.length
            position += piece.length
        if end:
            yield begin, end


def _flat(data: object) -> memoryview:
    view = memoryview(data)  # type: ignore[arg-type]
    return view.cast("B") if view.nbytes else memoryview(b"")  # an empty view cannot be cast
