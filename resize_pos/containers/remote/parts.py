"""Cut an output into the parts of an upload: ranges that the store copies, and ranges that we send.

The rules are those of S3: every part but the last has at least 5 MiB, a copied part has at most
5 GiB, and there are at most 10,000 parts. A short range of new bytes borrows from the copy after
it, which then goes through this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from resize_pos.core.fast_dataclass import dataclass

SMALLEST = 5 << 20
LARGEST_COPY = 5 << 30
MOST_PARTS = 10_000

_SENT = 10 << 20  # a part that is sent is held in memory
_COPIED = 1 << 28  # longer copies are split, so that the store makes them at the same time
_AIM = 9_000  # parts, so that rounding stays below the limit


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """A range of the output: new bytes, or a range of the source."""

    length: int
    source: int | None = None  # the offset in the source; None: new bytes


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A range of the output that is one part of the upload."""

    start: int
    length: int
    source: int | None = None  # the store copies it from here; None: we send it


def cut(pieces: Sequence[OutputPiece], *, copies: bool) -> list[UploadPart]:
    """Cut an output into parts; without `copies` every part is sent."""
    total = sum(piece.length for piece in pieces)
    smallest = max(SMALLEST, -(-total // _AIM))
    parts: list[UploadPart] = []
    position = 0
    sending: int | None = None  # where the bytes begin that were not put into a part yet
    filled = [piece for piece in pieces if piece.length]
    for number, piece in enumerate(filled, start=1):
        end = position + piece.length
        borrowed = 0 if sending is None else max(0, smallest - (position - sending))
        begin = min(position + borrowed, end)
        worth = end - begin >= smallest or (number == len(filled) and begin < end)
        if copies and piece.source is not None and worth:
            if sending is not None:
                parts += _sent(sending, begin, smallest)
            parts += _copied(begin, end, piece.source + begin - position, total)
            sending = None
        elif sending is None:
            sending = position
        position = end
    if sending is not None or not parts:
        parts += _sent(0 if sending is None else sending, position, smallest)
    return parts


def _sent(start: int, end: int, smallest: int) -> Iterator[UploadPart]:
    for first, last in _split(start, end, max(_SENT, 2 * smallest)):
        yield UploadPart(first, last - first)


def _copied(start: int, end: int, source: int, total: int) -> Iterator[UploadPart]:
    longest = min(LARGEST_COPY, max(_COPIED, -(-total // (_AIM // 2))))
    for first, last in _split(start, end, longest):
        yield UploadPart(first, last - first, source + first - start)


def _split(start: int, end: int, longest: int) -> Iterable[tuple[int, int]]:
    """Cut a range into equal parts; each has more than half of the longest length."""
    count = max(1, -(-(end - start) // longest))
    edges = [start + (end - start) * number // count for number in range(count + 1)]
    return pairwise(edges)
