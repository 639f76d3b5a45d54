"""Encode a map of numbers as a PNG with a palette, one pixel per number; needs only zlib."""

from __future__ import annotations

import base64
import struct
import zlib

from resize_pos.quality.pictures import Map
from resize_pos.report.colours import Colour, Scale

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_INDEXED = 3


def encode_map(values: Map, scale: Scale, ramp: tuple[Colour, ...]) -> bytes:
    """Encode numbers as an indexed-colour image, 8 bits a pixel."""
    height, width = len(values), len(values[0])
    rows = b"".join(b"\0" + bytes(scale.index(value) for value in row) for row in values)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)),
            _chunk(b"PLTE", bytes(channel for colour in ramp for channel in colour)),
            _chunk(b"IDAT", zlib.compress(rows, 9)),
            _chunk(b"IEND", b""),
        )
    )


def data_uri(image: bytes) -> str:
    """Return an image as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
