"""Write a pickle of plain values, opcode by opcode, in protocol 2; no class is needed for it."""

from __future__ import annotations

import struct

from resize_pos.containers.pickle.edit import (
    encode_get,
    encode_global,
    encode_put,
    encode_signed,
    encode_str,
)
from resize_pos.containers.pickle.plain import Call, Instance, Name, Pairs, Plain

_CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


def write_pickle(value: Plain) -> bytes:
    """Write one pickle. Names and texts that occur again are fetched from the memo."""
    writer = _Writer()
    writer.write(value)
    return b"".join([b"\x80\x02", *writer.parts, b"."])


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._memo: dict[str | Name, int] = {}

    def write(self, value: Plain) -> None:
        """Write a value and its content; `plain_values` limits the nesting depth."""
        add = self.parts.append
        if value is None or isinstance(value, bool):
            add(_CONSTANTS[value])
        elif isinstance(value, int):
            add(encode_signed(value))
        elif isinstance(value, float):
            add(b"G" + struct.pack(">d", value))
        elif isinstance(value, str | Name):
            self._write_once(value)
        elif isinstance(value, tuple):
            self._write_tuple(value)
        elif isinstance(value, list):
            add(b"](")
            for item in value:
                self.write(item)
            add(b"e")
        elif isinstance(value, Pairs):
            add(b"}(")
            for key, item in value.items:
                self.write(key)
                self.write(item)
            add(b"u")
        elif isinstance(value, Call):
            self.write(value.function)
            self._write_tuple(value.arguments)
            add(b"R")
        elif isinstance(value, Instance):
            self.write(value.cls)
            add(b")\x81")
            if value.state is not None:
                self.write(value.state)
                add(b"b")

    def _write_tuple(self, items: tuple[Plain, ...]) -> None:
        self.parts.append(b"(")
        for item in items:
            self.write(item)
        self.parts.append(b"t")

    def _write_once(self, value: str | Name) -> None:
        number = self._memo.get(value)
        if number is not None:
            self.parts.append(encode_get(number))
            return
        number = self._memo[value] = len(self._memo)
        if isinstance(value, Name):
            encoded = encode_global(value.module, value.name)
        else:
            encoded = encode_str(value)
        self.parts.append(encoded + encode_put(number))
