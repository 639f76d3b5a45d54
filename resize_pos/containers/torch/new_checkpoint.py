"""Write a new torch checkpoint: a dict of tensors as `torch.load(weights_only=True)` accepts it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from resize_pos.containers.io.splice import CopyRange, write_spliced
from resize_pos.containers.pickle.edit import encode_str
from resize_pos.containers.torch.dtypes import STORAGE_CLASS
from resize_pos.containers.torch.edit import TensorSpec, encode_tensor
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.zip.layout import Fresh, Planned, checksum, lay_out
from resize_pos.core.tensors import DTYPES

NOTE = "resize_pos.json"  # the record that carries our metadata; torch does not look at it
ROOT = "archive/"


def fresh_pickle(tensors: Iterable[tuple[str, TensorSpec]]) -> bytes:
    """Write the pickle of a dict of tensors, protocol 2."""
    body = b"".join(encode_str(name) + encode_tensor(spec) for name, spec in tensors)
    return b"\x80\x02}(" + body + b"u."


def carried_spec(ref: TensorRef, key: str) -> TensorSpec:
    """Describe a tensor in the storage that it had, under a new key."""
    size = DTYPES[ref.dtype].bits // 8 if ref.dtype in STORAGE_CLASS else 1
    count = ref.storage.nbytes // size
    return TensorSpec(ref.dtype, ref.shape, key, offset=ref.offset, stride=ref.stride, count=count)


def note_record(root: str, note: Mapping[str, str], slack: int = 0) -> Fresh:
    """Make the record of our metadata, with spaces at its end."""
    text = json.dumps(dict(note), ensure_ascii=False, indent=1)
    return Fresh.of(root + NOTE, text.encode("utf-8", "backslashreplace") + b" " * slack)


def copied_record(name: str, source: Path, offset: int, length: int, crc: int | None) -> Fresh:
    """Make a record of a range of the source; its checksum is computed where none is known."""
    if crc is None:
        crc = checksum(source, offset, length)
    return Fresh(name, CopyRange(offset, length), length, crc)


def write_checkpoint(
    source: Path, stage: Path, pickle: bytes, storages: Iterable[Fresh], note: Mapping[str, str]
) -> None:
    """Write a checkpoint of a pickle and the storages that it refers to."""
    planned: list[Planned] = [Fresh.of(f"{ROOT}data.pkl", pickle)]
    planned.append(Fresh.of(f"{ROOT}byteorder", b"little"))
    planned += [note_record(ROOT, note)] if note else []
    planned += storages
    planned.append(Fresh.of(f"{ROOT}version", b"3\n"))
    write_spliced(source, stage, lay_out(planned).segments)
