"""The entries of a `.distcp` file: each is a small torch archive that holds one tensor."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import most_expanded, native, stored_bytes, strided
from resize_pos.containers.io.splice import NewBytes
from resize_pos.containers.pickle.walk import walk
from resize_pos.containers.torch.edit import TensorSpec, encode_tensor
from resize_pos.containers.torch.new_checkpoint import ROOT
from resize_pos.containers.torch.settings import PickledSetting, note_setting
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.torch.tree import find_tensors
from resize_pos.containers.zip.layout import Fresh, lay_out
from resize_pos.containers.zip.records import Record, read_directory, read_record
from resize_pos.core.errors import ContainerError
from resize_pos.core.tensors import TensorInfo, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_PICKLE = 1 << 20


def read_entry(data: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read the tensor of one entry; nothing in its pickle is executed."""
    import numpy as np

    file = io.BytesIO(data)
    records = {record.name.partition("/")[2]: record for record in read_directory(file, len(data))}
    if "data.pkl" not in records:
        raise ContainerError("it holds no tensor.")
    _require_little_endian(file, records)
    tree = find_tensors(walk(read_record(file, records["data.pkl"], _LARGEST_PICKLE)))
    if list(tree.tensors) != ["tensor"] or tree.others:
        raise ContainerError("it holds something other than one tensor.")
    ref = tree.tensors["tensor"]
    if ref.dtype != dtype or ref.shape != shape or ref.lazy:
        raise ContainerError(
            f"it holds {ref.dtype} {list(ref.shape)}, where the metadata states {dtype} "
            f"{list(shape)}."
        )
    storage = records.get(f"data/{ref.storage.key}")
    if storage is None:
        raise ContainerError("its storage is missing.")
    content = read_record(file, storage, len(data))
    return _viewed(np.frombuffer(content, np.uint8), ref, len(data))


def settings_of(data: bytes, name: str) -> Mapping[str, object]:
    """Return the sizes in an entry that is no tensor, by their names; empty if it is unusual."""
    try:
        file = io.BytesIO(data)
        records = {each.name.partition("/")[2]: each for each in read_directory(file, len(data))}
        if "data.pkl" not in records:
            return {}
        walked = walk(read_record(file, records["data.pkl"], _LARGEST_PICKLE))
        inner = find_tensors(walked).settings.items()
    except ContainerError:
        return {}
    whole: dict[str, PickledSetting] = {}
    note_setting(whole, name, walked.root)
    found = {**whole, **{f"{name}.{key}": setting for key, setting in inner if key}}
    return {key: setting.value for key, setting in found.items()}


def write_entry(dtype: str, array: NDArray[Any]) -> bytes:
    """Write one tensor as an entry, as `torch.save` lays it out."""
    raw = stored_bytes(array, TensorInfo("tensor", tuple(array.shape), dtype), "the entry")
    pickle = b"\x80\x02" + encode_tensor(TensorSpec(dtype, tuple(array.shape), "0")) + b"."
    records = [
        Fresh.of(f"{ROOT}data.pkl", pickle),
        Fresh.of(f"{ROOT}byteorder", b"little"),
        Fresh.of(f"{ROOT}data/0", raw),
        Fresh.of(f"{ROOT}version", b"3\n"),
    ]
    parts = [s.data for s in lay_out(records).segments if isinstance(s, NewBytes)]
    return b"".join(parts)


def _require_little_endian(file: io.BytesIO, records: dict[str, Record]) -> None:
    record = records.get("byteorder")
    if record is not None and read_record(file, record, 4096).strip() != b"little":
        raise ContainerError("its byte order is not little-endian.")


def _viewed(raw: NDArray[Any], ref: TensorRef, size: int) -> NDArray[Any]:
    """View the bytes of a storage as the tensor: its type, its offset and its strides."""
    import numpy as np

    dtype = numpy_dtype(ref.dtype)
    if ref.elements == 0:
        return np.empty(ref.shape, dtype)
    reach = 1 + sum((n - 1) * s for n, s in zip(ref.shape, ref.stride, strict=True))
    begin = ref.offset * dtype.itemsize
    if begin + reach * dtype.itemsize > raw.nbytes:
        raise ContainerError(f"its storage has {raw.nbytes} bytes, fewer than it states.")
    flat = native(raw[begin : begin + reach * dtype.itemsize].view(dtype))
    if ref.elements * dtype.itemsize > max(raw.nbytes, most_expanded(size)):
        raise ContainerError(
            f"{list(ref.shape)} is too large to read: it is a view of {raw.nbytes} bytes."
        )
    return strided(flat, ref.shape, ref.stride)
