"""Safetensors files: the header read and validated in full, the data spliced."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Copied, Promised, missing
from resize_pos.containers.io.splice import (
    CopyRange,
    LaterBytes,
    NewBytes,
    Segment,
    congruence,
    write_spliced,
)
from resize_pos.containers.safetensors.header import (
    LONGEST_HEADER,
    METADATA,
    TRUNCATED,
    check_metadata,
    check_tensors,
    read_header,
    show,
)
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo, numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ALLOWANCE = 4096  # bytes of metadata that a disk check reckons with


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile:
    """A safetensors file whose header has been read and validated."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    _header: Mapping[str, Any] = field(repr=False)  # as parsed, with every field of every entry
    _spans: Mapping[str, tuple[int, int]] = field(repr=False)  # in the file, in order of the data
    _opened: tuple[int, int] = field(repr=False)  # size and time of change when it was opened

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Read and validate the header; no tensor is read."""
        try:
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):  # asked before opening: a pipe would block
                raise ContainerError(f"is {'a folder' if stat.S_ISDIR(mode) else 'not a file'}.")
            with path.open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                header, start = read_header(file, stamp[0])
            metadata = check_metadata(header.get(METADATA))
            tensors, spans = check_tensors(header, stamp[0] - start)
        except FileNotFoundError:
            raise missing(path) from None
        except OSError as error:
            raise _unreadable(path, error) from error
        except ContainerError as fact:
            raise ContainerError(f"{path.name}: {fact.message}", fact.hint) from None
        spans = {name: (start + begin, start + end) for name, (begin, end) in spans.items()}
        return cls(path, tensors, metadata, header, spans, stamp)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return "safetensors"

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype; no other byte of the data is touched."""
        import numpy as np

        info, dtype = self._info(name), self._array_type(name)
        try:
            array = np.empty(info.shape, dtype)
        except ValueError as error:  # more axes than an array can have
            raise TableError(f"{self.path.name}: {name}: {error}.") from error
        count = self._fill(array.reshape(-1).view(np.uint8).data, self._spans[name][0])
        if count != info.nbytes:
            raise ContainerError(
                f"{self.path.name}: {name}: {info.nbytes} bytes expected, {count} read.", TRUNCATED
            )
        return array.byteswap(inplace=True) if sys.byteorder == "big" else array

    def span(self, name: str) -> tuple[int, int] | None:
        """Tell where in the file a tensor's bytes lie."""
        return self._spans[self._info(name).name]

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""
        first, end = self._spans[self._info(name).name]
        data = bytearray(max(0, min(count, end - first - start)))
        return bytes(data[: self._fill(memoryview(data), first + start)])

    def _fill(self, buffer: memoryview, offset: int) -> int:
        """Read into a buffer from a place in the file; fewer bytes come where the file ends."""
        filled = 0
        try:
            with self.path.open("rb", buffering=0) as file:
                self._require_same(os.fstat(file.fileno()))
                file.seek(offset)
                while filled < len(buffer):
                    count = file.readinto(buffer[filled:])
                    if not count:
                        break
                    filled += count
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return filled

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how large the file becomes when these tensors take these shapes.

        An upper bound: room for the padding and for a few lines of metadata is included.
        """
        spans = self._new_spans(shapes)
        data = max((end for _, end in spans.values()), default=0)
        return 8 + len(self._encode(shapes, spans, {})) + data + congruence(data) + _ALLOWANCE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is added to it.

        Keys, their order and the order of the data stay. The header is padded with spaces so that
        the largest untouched range keeps its place within a page, which the kernel copies faster.
        """
        for name, array in changes.items():
            self._require_type(name, array)
        return self.write_early(stage, Promised.kept(changes), metadata)

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Do what `write` does, and wait for the new tensors only when all else is written."""
        shapes = changes.shapes
        spans = self._new_spans(shapes)
        encoded = self._encode(shapes, spans, metadata)
        length = _padded(len(encoded), *self._bulk(spans, shapes))
        if length > LONGEST_HEADER:
            raise ContainerError(
                f"{self.path.name}: the new header takes {length} bytes; "
                f"the format allows {LONGEST_HEADER}."
            )
        segments: list[Segment] = [NewBytes(length.to_bytes(8, "little") + encoded.ljust(length))]
        for name, (begin, end) in self._spans.items():
            if name in shapes:
                first, last = spans[name]
                wait = partial(self._awaited, changes, name)
                segments.append(LaterBytes(last - first, wait, changes.failed))
            else:
                segments.append(CopyRange(begin, end - begin))
        self._require_unchanged()
        write_spliced(self.path, stage, segments)
        self._require_unchanged()
        untouched = [info.nbytes for name, info in self.tensors.items() if name not in shapes]
        return Copied(len(untouched), sum(untouched))

    def _info(self, name: str) -> TensorInfo:
        try:
            return self.tensors[name]
        except KeyError:
            raise TableError(f"{self.path.name}: has no tensor {show(name)}.") from None

    def _array_type(self, name: str) -> np.dtype[np.generic]:
        try:
            return numpy_dtype(self._info(name).dtype)
        except TableError as fact:
            raise TableError(f"{self.path.name}: {name}: {fact.message}", fact.hint) from None

    def _require_unchanged(self) -> None:
        try:
            status = self.path.stat()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        self._require_same(status)

    def _require_same(self, status: os.stat_result) -> None:
        if _stamp(status) != self._opened:
            raise ContainerError(
                f"{self.path.name}: changed since it was opened.",
                "Another program is writing to it; try again when it is complete.",
            )

    def _require_type(self, name: str, array: NDArray[Any]) -> None:
        if array.dtype.newbyteorder("=") != self._array_type(name):
            raise TableError(
                f"{self.path.name}: {name}: stored as {self.tensors[name].dtype}, "
                f"but its replacement is {array.dtype}."
            )

    def _awaited(self, changes: Promised, name: str) -> memoryview:
        """Give the bytes of a new tensor as the file stores them, once it is there."""
        array = changes.wait()[name]  # first: two threads must not import numpy at once
        import numpy as np

        self._require_type(name, array)
        flat = np.ascontiguousarray(array, dtype=self._array_type(name)).reshape(-1)
        if sys.byteorder == "big":
            flat = flat.byteswap()
        return flat.view(np.uint8).data

    def _new_spans(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, int]]:
        """Lay the data out anew, in its old order; offsets count from the first byte of data."""
        sizes = {
            name: TensorInfo(name, shape, self._info(name).dtype).nbytes
            for name, shape in shapes.items()
        }
        spans, position = {}, 0
        for name, (begin, end) in self._spans.items():
            size = sizes.get(name, end - begin)
            spans[name] = (position, position + size)
            position += size
        return spans

    def _bulk(
        self, spans: Mapping[str, tuple[int, int]], changed: Mapping[str, object]
    ) -> tuple[int, int | None]:
        """Tell how long the largest untouched range is, and how far it lies from its new offset."""
        longest, shift, start = 0, None, None
        for name, (begin, end) in self._spans.items():
            start = None if name in changed else begin if start is None else start
            if start is not None and end - start > longest:
                longest, shift = end - start, begin - spans[name][0]
        return longest, shift

    def _encode(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        spans: Mapping[str, tuple[int, int]],
        metadata: Mapping[str, str],
    ) -> bytes:
        """Write the header: every key and field in its place, only numbers and metadata new."""
        header = dict(self._header)
        if metadata:
            # transformers refuses a file that has metadata but does not name its framework.
            merged = {**self.metadata, "format": self.metadata.get("format", "pt")}
            merged |= {_printable(key): _printable(value) for key, value in metadata.items()}
            if METADATA not in header:  # first, as the reference implementation has it
                header = {METADATA: None, **header}
            header[METADATA] = merged
        for name, span in spans.items():
            shape = shapes.get(name, self.tensors[name].shape)
            header[name] = {**header[name], "shape": list(shape), "data_offsets": list(span)}
        return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _unreadable(path: Path, error: OSError) -> ContainerError:
    return ContainerError(f"{path.name}: cannot be read: {error.strerror}.")


def _printable(text: str) -> str:
    # A file name that is not UTF-8 arrives as lone surrogates, which the format cannot hold.
    return text.encode("utf-8", "backslashreplace").decode()


def _padded(length: int, bulk: int, shift: int | None) -> int:
    """Give the header the length that puts the data where it should start."""
    if shift is not None and shift % 8 == 0:
        return length + (shift - 8 - length) % congruence(bulk)
    return length + -length % 8
