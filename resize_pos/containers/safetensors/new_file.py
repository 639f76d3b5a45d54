"""A new safetensors file, made of the tensors of another format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment, write_spliced
from resize_pos.containers.safetensors.header import LONGEST_HEADER, METADATA
from resize_pos.core.errors import ContainerError
from resize_pos.core.tensors import DTYPES, TensorInfo


def require_dtypes(infos: Iterable[TensorInfo]) -> None:
    """Refuse tensors whose dtype the format does not have."""
    for info in infos:
        if DTYPES[info.dtype].foreign:
            raise ContainerError(f"{info.name} is {info.dtype}, which safetensors does not have.")


def write_tensors(
    source: SourceFile,
    stage: Path,
    infos: Mapping[str, TensorInfo],
    content: Callable[[str], CopyRange | NewBytes],
    notes: Mapping[str, str],
) -> None:
    """Write a file of these tensors; `content` returns the bytes of each."""
    # Largest element size first: every tensor is then aligned without padding in between.
    order = sorted(infos, key=lambda name: -DTYPES[infos[name].dtype].bits)
    header = _header(infos, order, notes)

    def segments() -> Iterator[Segment]:
        yield NewBytes(header)
        for name in order:
            yield content(name)

    write_spliced(source, stage, segments())


def _header(
    infos: Mapping[str, TensorInfo], order: Sequence[str], metadata: Mapping[str, str]
) -> bytes:
    """Return the header of a file whose data is in `order`, preceded by its length."""
    header: dict[str, Any] = {METADATA: {"format": "pt", **metadata}, **dict.fromkeys(infos)}
    if METADATA in infos:
        raise ContainerError(f"a tensor is called {METADATA}, which the format reserves.")
    position = 0
    for name in order:
        info, start = infos[name], position
        position += info.nbytes
        offsets = [start, position]
        header[name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": offsets}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    body = text.encode("utf-8", "backslashreplace")  # names that are not UTF-8 contain surrogates
    body += b" " * (-len(body) % 8)
    if len(body) > LONGEST_HEADER:
        raise ContainerError(
            f"the header takes {len(body)} bytes; the format allows {LONGEST_HEADER}."
        )
    return len(body).to_bytes(8, "little") + body
