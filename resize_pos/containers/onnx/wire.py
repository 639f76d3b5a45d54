"""Protobuf's wire format: fields with their place in the file, and edits of single values.

Only places are collected, so a tensor's bytes are never read to find out where they are. An edit
replaces a range of bytes. If its length changes, the lengths of the messages around it follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

Read = Callable[[int, int], bytes]  # offset, count → at most so many bytes

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_LONGEST_VARINT = 10
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Frame:
    """A message or string: where its length is written, and where its content lies."""

    length_at: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message. `begin` is the place of its tag."""

    number: int
    wire: int
    begin: int
    end: int
    value: int  # of a varint
    frame: Frame  # of a string or message; for a number, the place of its value


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer in the file: how it is written, and the messages around it, outermost first."""

    value: int
    begin: int
    end: int
    width: int  # in bytes; 0: a varint
    frames: tuple[Frame, ...]

    def changed(self, value: int) -> Edit:
        """Return the edit that writes another value in its place."""
        if self.width:
            new = value.to_bytes(self.width, "little", signed=True)
        else:
            new = encode_varint(value)
        return Edit(self.begin, self.end, (NewBytes(new),), len(new), self.frames)


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """A range of the file, what is written instead, and the messages around it."""

    begin: int
    end: int
    new: tuple[Segment, ...]
    length: int  # of the new bytes
    frames: tuple[Frame, ...]


def fields(read: Read, begin: int, end: int) -> Iterator[Field]:
    """List the fields of a message whose content lies in this range."""
    position = begin
    while position < end:
        start = position
        head = read(position, min(2 * _LONGEST_VARINT, end - position))
        tag, used = decode_varint(head, 0)
        number, wire, value = tag >> 3, tag & 7, 0
        value_at = position + used
        if wire == VARINT:
            value, used = decode_varint(head, used)
            frame = Frame(value_at, value_at, position + used)
        elif wire == BYTES:
            length, used = decode_varint(head, used)
            frame = Frame(value_at, position + used, position + used + length)
        elif wire in (FIXED32, FIXED64):
            frame = Frame(value_at, value_at, value_at + (4 if wire == FIXED32 else 8))
        else:
            raise ContainerError(f"no protobuf field begins at byte {start} (wire type {wire}).")
        if number == 0 or frame.end > end:
            raise ContainerError(
                f"the protobuf field at byte {start} ends at {frame.end}, its message at {end}.",
                "The file is damaged or truncated; download or copy it again.",
            )
        position = frame.end
        yield Field(number, wire, start, position, value, frame)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = shift = 0
    for index in range(position, min(position + _LONGEST_VARINT, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & _WORD, index + 1
    raise ContainerError("a protobuf number does not end where it should.")


def encode_varint(value: int) -> bytes:
    """Write a number; a negative one takes ten bytes."""
    value &= _WORD
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> int:
    """Read a 64-bit varint as the signed number that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def string_field(number: int, content: bytes) -> bytes:
    """Write a field that is a string or a message."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    """Write a field that is a number."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def edited(edits: Iterable[Edit], size: int) -> list[Segment]:
    """Return the segments of the edited file; lengths of messages follow their content."""
    asked = list(edits)
    every = sorted([*asked, *_new_lengths(asked)], key=lambda edit: edit.begin)
    segments: list[Segment] = []
    position = 0
    for edit in every:
        if edit.begin < position:
            raise ContainerError(f"two edits overlap at byte {edit.begin}.")
        segments += [CopyRange(position, edit.begin - position), *edit.new]
        position = edit.end
    return [*segments, CopyRange(position, size - position)]


def _new_lengths(edits: list[Edit]) -> Iterator[Edit]:
    grown: dict[Frame, int] = {}
    around: dict[Frame, tuple[Frame, ...]] = {}
    for edit in edits:
        difference = edit.length - (edit.end - edit.begin)
        for index, frame in enumerate(edit.frames):
            grown[frame] = grown.get(frame, 0) + difference
            around[frame] = edit.frames[:index]
    for frame in sorted(grown, key=lambda each: each.end - each.begin):
        if not grown[frame]:
            continue
        new = encode_varint(frame.end - frame.begin + grown[frame])
        for outer in around[frame]:
            grown[outer] += len(new) - (frame.begin - frame.length_at)
        yield Edit(frame.length_at, frame.begin, (NewBytes(new),), len(new), around[frame])
