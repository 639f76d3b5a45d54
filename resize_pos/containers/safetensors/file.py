"""Safetensors files: the whole header is read and validated, the data is spliced."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import read_array, require_dtype, stored_bytes
from resize_pos.containers.base import Copied, FileContainer, Promised
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
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
    check_metadata,
    check_tensors,
    read_header,
)
from resize_pos.containers.safetensors.settings import changed_metadata, metadata_settings
from resize_pos.core.collection import collection_paused
from resize_pos.core.errors import ContainerError, OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.reformat import Exported

_ALLOWANCE = 4096  # bytes of metadata that the check for disk space adds


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile(FileContainer):
    """A safetensors file whose header has been read and checked."""

    source: SourceFile = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    _header: Mapping[str, Any] = field(repr=False)  # as parsed, with every field of every entry
    _spans: Mapping[str, tuple[int, int]] = field(repr=False)  # in the file, in order of the data

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Read and check the header; no tensor is read."""
        source = SourceFile.of(path)
        with source.open() as file, collection_paused():
            header, start = read_header(file, source.size)
        with source.naming(), collection_paused():
            metadata = check_metadata(header.get(METADATA))
            tensors, spans = check_tensors(header, start, source.size - start)
        return cls(source, tensors, metadata, header, spans)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return "safetensors"

    @property
    def settings(self) -> Mapping[str, object]:
        """Numbers in the metadata that may state a size or a length."""
        return {name: each.value for name, each in metadata_settings(self.metadata).items()}

    @property
    def fixed_settings(self) -> Mapping[str, str]:
        """The settings that cannot be changed, and why."""
        return {name: each.fixed for name, each in metadata_settings(self.metadata).items()}

    def with_settings(self, values: Mapping[str, object]) -> SafetensorsFile:
        """Return the same file, whose output has these settings."""
        return replace(self, metadata=changed_metadata(self.metadata, values))

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype; no other byte of the data is read."""
        return read_array(self.source, self.info(name), self._spans[name][0])

    def span(self, name: str) -> tuple[int, int] | None:
        """Return where in the file a tensor's bytes lie."""
        return self._spans[self.info(name).name]

    def exported(self) -> Exported:
        """Every tensor can be written in another format, under its own name."""
        from resize_pos.containers.reformat import Exported

        return Exported(self.source, "safetensors", {name: name for name in self.tensors})

    def check_with_reference(self) -> None:
        """Refuse a file whose header the safetensors library would not read.

        That library defines the format. Its parser reads and checks the whole header; it maps the
        file, and reads no tensor.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with self._header_on_disk() as path, safe_open(path, framework="np"):
                pass
        except (SafetensorError, OSError) as error:
            raise OutputError(
                f"{self.path.name}: the safetensors library refuses the file: {error}; "
                "nothing was kept.",
            ) from error

    @contextlib.contextmanager
    def _header_on_disk(self) -> Iterator[Path]:
        """Yield a local file with this header; for an object in a store, one without its data."""
        if not isinstance(self.path, RemotePath):
            yield self.path
            return
        import tempfile

        start = min((begin for begin, _ in self._spans.values()), default=self.source.size)
        with tempfile.TemporaryDirectory(prefix="resize-pos-") as folder:
            path = Path(folder, self.path.name)
            with path.open("wb") as file:
                file.write(self.source.read(0, start))
                file.truncate(self.source.size)  # the data is a hole that takes no space
            yield path

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the file size if these tensors get these shapes."""
        spans = self._new_spans(shapes)
        data = max((end for _, end in spans.values()), default=0)
        return 8 + len(self._encode(shapes, spans, {})) + data + congruence(data) + _ALLOWANCE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is added to it.

        Keys, their order and the order of the data do not change. The header is padded with spaces
        so that the largest unchanged range keeps its offset within a memory page. The kernel copies
        such a range faster.
        """
        for name, array in changes.items():
            require_dtype(array, self.info(name), self.path.name)
        return self.write_early(stage, Promised.kept(changes), metadata)

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Like `write`, but wait for the new tensors after everything else is written."""
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
        write_spliced(self.source, stage, segments)
        return self.copied_except(shapes)

    def _awaited(self, changes: Promised, name: str) -> memoryview:
        """Wait for a new tensor, and return the bytes that the file stores."""
        array = changes.wait()[name]  # wait first: two threads must not import numpy at once
        return stored_bytes(array, self.tensors[name], self.path.name)

    def _new_spans(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, int]]:
        """Compute the new offsets, in the old order, relative to the first byte of data."""
        sizes = {
            name: TensorInfo(name, shape, self.info(name).dtype).nbytes
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
        """Return the length of the largest untouched range, and how far it moves."""
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
        """Write the header: keys and fields keep their order; only numbers and metadata change."""
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


def _printable(text: str) -> str:
    # A file name that is not UTF-8 contains lone surrogates, which the format cannot store.
    return text.encode("utf-8", "backslashreplace").decode()


def _padded(length: int, bulk: int, shift: int | None) -> int:
    """Return the header length at which the largest range keeps its offset within a page."""
    if shift is not None and shift % 8 == 0:
        return length + (shift - 8 - length) % congruence(bulk)
    return length + -length % 8
