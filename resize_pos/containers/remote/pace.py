"""How fast an answer must come: a server that sends a byte now and then is given up."""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

from resize_pos.containers.remote.store import TRIES, TryAgain

_BLOCK = 1 << 20
_PATIENCE = 60.0  # seconds that an answer may take, however few bytes it has,
_SLOWEST = 1 << 13  # and bytes for each second after them


class TooSlow(TryAgain):
    """A server sends, but so slowly that it would take for ever."""

    weight = TRIES // 2  # another connection may be faster, but more than two are not tried


def paced(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    """Read at most so many bytes; `read` returns what has arrived, and nothing at the end.

    The limit of a socket is one for silence. Without this, a byte a minute would never reach it.
    """
    started, done = time.monotonic(), 0
    while done < length and (block := read(min(_BLOCK, length - done))):
        done += len(block)
        yield block
        seconds = time.monotonic() - started
        if done < length and seconds > _PATIENCE + done / _SLOWEST:
            raise TooSlow(f"the server is too slow: {done} bytes came in {seconds:.0f} seconds")


class PacedResponse(http.client.HTTPResponse):
    """An answer whose headers must be complete in time; `paced` watches over its body."""

    def __init__(self, sock: Any, *args: Any, **more: Any) -> None:
        self._source = _Watched(sock)
        super().__init__(self._source, *args, **more)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Read the headers."""
        super().begin()
        self._source.watching = False


class _Watched(io.RawIOBase):
    """What arrives at a socket; an error if that takes too long, though some does arrive."""

    def __init__(self, sock: Any) -> None:
        self._raw = sock.makefile("rb", buffering=0)
        self._first: float | None = None  # when the first byte came: a store may work before it
        self.watching = True

    def makefile(self, *_: object) -> io.BufferedReader:
        """Return the stream that an answer is read from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        """Read what has arrived."""
        count: int | None = self._raw.readinto(buffer)
        if self.watching:
            now = time.monotonic()
            self._first = now if self._first is None else self._first
            if now - self._first > _PATIENCE:
                raise TimeoutError(0, "the server is too slow with its headers")
        return count

    def close(self) -> None:
        """Close the socket's stream."""
        self._raw.close()
        super().close()
