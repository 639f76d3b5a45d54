"""Change a pickle without building it: new numbers and strings in the opcode stream.

Every edit keeps the memo valid. If a replaced or removed value is fetched again later, the first
later fetch is replaced by the value itself. From protocol 4 on, memo entries are numbered by
counting. So a replaced value is still pushed, then popped. If a value is removed, the memo
numbers are written explicitly, and the frames are omitted, because they are optional.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from resize_pos.containers.pickle.values import (
    Atom,
    Cell,
    Global,
    Got,
    PickledItem,
    PickledSequence,
    PickledValue,
    Ref,
    sequence_of,
    value_of,
)
from resize_pos.containers.pickle.walk import Walked
from resize_pos.core.errors import ContainerError

_POP = b"0"
_MEMOIZE = b"\x94"
_FRAME = b"\x95"
_FRAME_SIZE = 9


def encode_int(number: int) -> bytes:
    """Write a non-negative number with the shortest opcode that every torch reads."""
    if number < 1 << 8:
        return b"K" + struct.pack("<B", number)
    if number < 1 << 16:
        return b"M" + struct.pack("<H", number)
    if number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    body = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(body)) + body


def encode_signed(number: int) -> bytes:
    """Write a number of any sign."""
    if number >= 0:
        return encode_int(number)
    if number >= -(1 << 31):
        return b"J" + struct.pack("<i", number)
    body = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(body)) + body


def encode_str(text: str) -> bytes:
    """Write a string."""
    body = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(body)) + body


def encode_global(module: str, name: str) -> bytes:
    """Write the name of a class or function."""
    return f"c{module}\n{name}\n".encode()


def encode_put(index: int) -> bytes:
    """Write the opcode that keeps the last value in the memo."""
    return b"q" + struct.pack("<B", index) if index < 1 << 8 else b"r" + struct.pack("<I", index)


def encode_get(index: int) -> bytes:
    """Write the opcode that fetches a value from the memo."""
    return b"h" + struct.pack("<B", index) if index < 1 << 8 else b"j" + struct.pack("<I", index)


def encode_ints(numbers: tuple[int, ...]) -> bytes:
    """Write a tuple of numbers."""
    body = b"".join(map(encode_int, numbers))
    return {0: b")", 1: body + b"\x85", 2: body + b"\x86", 3: body + b"\x87"}.get(
        len(numbers), b"(" + body + b"t"
    )


class PickleEditor:
    """Edits collected on one walked pickle; `result` applies them."""

    def __init__(self, pickle: bytes, walked: Walked) -> None:
        self._pickle = pickle
        self._walked = walked
        self._edits: list[tuple[int, int, bytes]] = []
        self._dead: list[tuple[int, int]] = []  # ranges whose opcodes are removed
        self._orphans: list[Cell] = []  # memo entries put in those ranges and fetched elsewhere
        self._pops = walked.counts_memo or bool(walked.frames)
        self._removed: list[tuple[int, int]] = []

    def replace(self, ref: Ref, encoded: bytes) -> None:
        """Push `encoded` instead of a value."""
        cells = [] if isinstance(ref, Got) else [c for c in ref.cells or [] if c.gets]
        if cells and self._pops:
            self._edit(cells[-1].end, cells[-1].end, _POP + encoded)
            return
        if not isinstance(ref, Got | Atom | Global | PickledSequence):
            raise ContainerError(f"the pickle's value at byte {ref.start} cannot be replaced.")
        self._edit(ref.start, ref.end, encoded)
        self._bury(ref.start, ref.end, cells)

    def replace_ints(self, ref: Ref, numbers: tuple[int, ...]) -> None:
        """Change the numbers of a tuple; if the tuple is shared, write a new one for this place.

        Numbers are changed one by one, because a frame may begin between them.
        """
        items, value = sequence_of(ref), value_of(ref)
        shared = isinstance(ref, Got) or any(cell.gets for cell in value.cells or [])
        if shared or items is None or not all(_is_plain(item) for item in items):
            self.replace(ref, encode_ints(numbers))
            return
        for item, number in zip(items, numbers, strict=True):
            self._edit(item.start, item.end, encode_int(number))

    def remove(self, entry: PickledItem) -> None:
        """Remove a key and its value from a mapping; call this before any replacement."""
        self._pops = False
        end = entry.end if entry.lone is None else entry.lone
        self._removed.append((entry.start, end))
        inside = [c for c in self._walked.cells if entry.start <= c.start < end and c.gets]
        self._bury(entry.start, end, inside)

    def delete(self, ref: Ref) -> None:
        """Remove an item from a tuple that is written with a MARK opcode."""
        self.replace(ref, b"")

    def result(self) -> bytes:
        """Return the edited pickle."""
        self._relocate()
        more = self._written_out() if self._removed else self._frame_edits()
        left = [edit for edit in self._edits if not self._is_removed(edit[0])]
        edits = sorted([*left, *more], key=lambda edit: edit[:2])
        parts: list[bytes] = []
        position = 0
        for start, end, encoded in edits:
            if start < position:
                raise ContainerError(f"two changes overlap at byte {start} of the pickle.")
            parts += [self._pickle[position:start], encoded]
            position = end
        return b"".join([*parts, self._pickle[position:]])

    def _edit(self, start: int, end: int, encoded: bytes) -> None:
        if any(start <= frame < end for frame, _ in self._walked.frames):
            raise ContainerError(f"a frame begins inside the value at byte {start}.")
        self._edits.append((start, end, encoded))

    def _bury(self, start: int, end: int, cells: list[Cell]) -> None:
        self._dead.append((start, end))
        self._orphans += cells

    def _relocate(self) -> None:
        """Write each removed value at its first remaining fetch, and put it into the memo there."""
        for cell in self._orphans:
            reader = next((got for got in cell.gets if not self._is_dead(got)), None)
            if reader is None:
                continue
            value = cell.value
            if not _is_self_contained(value):
                raise ContainerError(
                    f"the pickle's object at byte {value.start} is used again at byte "
                    f"{reader.start}, so it cannot be taken out."
                )
            if isinstance(value, Global):
                encoded = encode_global(value.module, value.name)
            else:
                encoded = self._pickle[value.start : value.end]
            self._edit(reader.start, reader.end, encoded + encode_put(cell.index))

    def _is_dead(self, got: Got) -> bool:
        return any(start <= got.start < end for start, end in self._dead)

    def _written_out(self) -> Iterator[tuple[int, int, bytes]]:
        """Drop the removed ranges, number the memo explicitly, and omit the frames."""
        for start, end in self._removed:
            yield start, end, b""
        rest = [(c.start, c.end, encode_put(c.index)) for c in self._walked.cells]
        rest = [edit for edit in rest if self._pickle[edit[0] : edit[1]] == _MEMOIZE]
        rest += [(frame, frame + _FRAME_SIZE, b"") for frame, _ in self._walked.frames]
        yield from (edit for edit in rest if not self._is_removed(edit[0]))

    def _is_removed(self, position: int) -> bool:
        return any(start <= position < end for start, end in self._removed)

    def _frame_edits(self) -> Iterator[tuple[int, int, bytes]]:
        """State the new length of every frame in which something changed."""
        for frame, length in self._walked.frames:
            begin, end = frame + _FRAME_SIZE, frame + _FRAME_SIZE + length
            growth = sum(
                len(encoded) - (stop - start)
                for start, stop, encoded in self._edits
                if begin <= start and stop <= end
            )
            if growth:
                yield frame, begin, _FRAME + struct.pack("<Q", length + growth)


def _is_plain(ref: Ref) -> bool:
    return isinstance(ref, Atom) and not ref.cells


def _is_self_contained(value: PickledValue) -> bool:
    """Whether the opcodes of a value read nothing from the memo and put nothing into it."""
    if isinstance(value, PickledSequence) and value.kind == "tuple":
        return all(_is_plain(item) for item in value.items)
    return isinstance(value, Atom | Global)
