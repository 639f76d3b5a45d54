"""A new torch checkpoint: a dict of tensors that `torch.load(weights_only=True)` accepts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import CopyRange, NewBytes, write_spliced
from resize_pos.containers.pickle.edit import encode_str
from resize_pos.containers.torch.dtypes import STORAGE_CLASS, TORCH_NAME
from resize_pos.containers.torch.edit import TensorSpec, encode_tensor
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.zip.layout import Fresh, ZipMember, checksum, lay_out
from resize_pos.core.errors import ContainerError
from resize_pos.core.tensors import DTYPES, TensorInfo

NOTE = "resize_pos.json"  # the record that holds our metadata; torch ignores it
ROOT = "archive/"


def require_dtypes(infos: Iterable[TensorInfo]) -> None:
    """Refuse tensors whose dtype torch does not have."""
    for info in infos:
        if info.dtype not in TORCH_NAME:
            raise ContainerError(f"{info.name} is {info.dtype}, which torch does not have.")


def write_tensors(
    source: SourceFile,
    stage: Path,
    infos: Mapping[str, TensorInfo],
    content: Callable[[str], CopyRange | NewBytes],
    notes: Mapping[str, str],
) -> None:
    """Write a dict of these tensors; `content` returns the bytes of each."""
    records, specs = [], []
    for number, (name, info) in enumerate(infos.items()):
        data, record = content(name), f"{ROOT}data/{number}"
        if isinstance(data, CopyRange):
            records.append(copied_record(record, source, data.offset, data.length, None))
        else:
            records.append(Fresh.of(record, memoryview(data.data)))
        specs.append((name, TensorSpec(info.dtype, info.shape, str(number))))
    write_checkpoint(source, stage, fresh_pickle(specs), records, notes)


def fresh_pickle(tensors: Iterable[tuple[str, TensorSpec]]) -> bytes:
    """Write the pickle of a dict of tensors, protocol 2."""
    body = b"".join(encode_str(name) + encode_tensor(spec) for name, spec in tensors)
    return b"\x80\x02}(" + body + b"u."


def copied_spec(ref: TensorRef, key: str) -> TensorSpec:
    """Describe a tensor in the storage that it had, under a new key."""
    size = DTYPES[ref.dtype].bits // 8 if ref.dtype in STORAGE_CLASS else 1
    count = ref.storage.nbytes // size
    return TensorSpec(ref.dtype, ref.shape, key, offset=ref.offset, stride=ref.stride, count=count)


def note_record(root: str, note: Mapping[str, str], slack: int = 0) -> Fresh:
    """Make the record of our metadata, with `slack` spaces at its end."""
    text = json.dumps(dict(note), ensure_ascii=False, indent=1)
    return Fresh.of(root + NOTE, text.encode("utf-8", "backslashreplace") + b" " * slack)


def copied_record(
    name: str, source: SourceFile, offset: int, length: int, crc: int | None
) -> Fresh:
    """Make a record of a range of the source; compute its checksum if it is not known."""
    if crc is None:
        crc = checksum(source, offset, length)
    return Fresh(name, CopyRange(offset, length), length, crc)


def write_checkpoint(
    source: SourceFile,
    stage: Path,
    pickle: bytes,
    storages: Iterable[Fresh],
    note: Mapping[str, str],
) -> None:
    """Write a checkpoint of a pickle and the storages that it refers to."""
    planned: list[ZipMember] = [Fresh.of(f"{ROOT}data.pkl", pickle)]
    planned.append(Fresh.of(f"{ROOT}byteorder", b"little"))
    planned += [note_record(ROOT, note)] if note else []
    planned += storages
    planned.append(Fresh.of(f"{ROOT}version", b"3\n"))
    write_spliced(source, stage, lay_out(planned).segments)
