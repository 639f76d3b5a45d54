"""A part of an upload, read like a file from the pieces of memory that hold it."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class PartReader(io.RawIOBase):
    """Bytes that lie in several places; the SDK reads them twice, to sign and to send them."""

    def __init__(self, views: Sequence[memoryview]) -> None:
        self._views = [view for view in views if view.nbytes]
        self._starts = [0, *accumulate(view.nbytes for view in self._views)]
        self._position = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """A request that is repeated begins at the start again."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._starts[-1]}
        self._position = max(0, base[whence] + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer; less is read only at the end."""
        target, done = memoryview(buffer).cast("B"), 0
        while done < len(target) and self._position < self._starts[-1]:
            number = bisect_right(self._starts, self._position) - 1
            first = self._position - self._starts[number]
            piece = self._views[number][first : first + len(target) - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done
