"""How fast an answer must come: a server that sends a byte now and then is given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

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
