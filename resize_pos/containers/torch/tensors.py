"""One tensor in a walked pickle: its shape and storage, and where those numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from resize_pos.containers.pickle.values import (
    Made,
    Persistent,
    Ref,
    atom_of,
    entries_of,
    global_of,
    sequence_of,
    value_of,
)
from resize_pos.containers.torch.dtypes import DTYPE_NAMES, STORAGE_NAMES, UNTYPED
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import DTYPES, TensorInfo

_LARGEST = 2**63 - 1

# Which argument of each function is the dtype; None: the storage states it.
REBUILD: Mapping[str, int | None] = {
    "_rebuild_tensor": None,
    "_rebuild_tensor_v2": None,
    "_rebuild_tensor_v3": 6,
    "_rebuild_qtensor": None,
}
_METADATA_AT = {"_rebuild_tensor_v2": 6, "_rebuild_tensor_v3": 7}


@dataclass(slots=True, eq=False)
class StorageRef:
    """A persistent id as torch writes it: `("storage", class, key, location, count …)`."""

    persistent: Persistent
    items: Sequence[Ref]
    dtype: str  # a key of DTYPES, or UNTYPED
    key: str
    location: str
    count: int  # elements of its dtype; bytes if it is untyped

    @property
    def nbytes(self) -> int:
        """How many bytes the storage has."""
        return self.count if self.dtype == UNTYPED else self.count * DTYPES[self.dtype].bits // 8


@dataclass(slots=True, eq=False)
class TensorRef:
    """One tensor of the pickle, perhaps under several names."""

    made: Made
    storage: StorageRef
    arguments: Sequence[Ref]  # storage, offset, size, stride, …
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    lazy: bool = False  # conjugated or negated when it is loaded
    module: str | None = None  # the class of the pickled module that holds it
    names: list[tuple[str, Ref]] = field(default_factory=list)

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in the storage one after the other, in order."""
        expected = contiguous(self.shape)
        pairs = zip(self.shape, self.stride, expected, strict=True)
        return self.elements == 0 or all(n == 1 or s == e for n, s, e in pairs)

    def info(self, name: str) -> TensorInfo:
        """Describe it under one of its names."""
        return TensorInfo(name, self.shape, self.dtype)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor whose last axis runs fastest, as torch counts them."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def storage_of(persistent: Persistent) -> StorageRef | None:
    """Read a persistent id; None where it is not that of a storage."""
    items = sequence_of(persistent.id)
    if items is None or len(items) not in (5, 6) or atom_of(items[0]) != "storage":
        return None
    named = global_of(items[1])
    key, location, count = (atom_of(item) for item in items[2:5])
    dtype = STORAGE_NAMES.get(named[1]) if named is not None else None
    if dtype is None or type(count) is not int or not 0 <= count <= _LARGEST:
        return None
    if not (isinstance(key, str) or _is_count(key)) or not isinstance(location, str):
        return None
    return StorageRef(persistent, items, dtype, str(key), location, count)


def read_call(made: Made, rebuild: str, arguments: Sequence[Ref]) -> TensorRef | None:
    """Read the call that rebuilds a tensor; None where its arguments are not torch's."""
    if len(arguments) < 4:
        return None
    persistent = value_of(arguments[0])
    storage = storage_of(persistent) if isinstance(persistent, Persistent) else None
    offset, shape, stride = atom_of(arguments[1]), *map(_counts, arguments[2:4])
    if storage is None or shape is None or stride is None or not _is_count(offset):
        return None
    assert isinstance(offset, int)
    dtype: str | None = storage.dtype
    place = REBUILD[rebuild]
    if place is not None:
        named = global_of(arguments[place]) if len(arguments) > place else None
        dtype = DTYPE_NAMES.get(named[1]) if named is not None else None
    if dtype is None or dtype == UNTYPED or len(shape) != len(stride):
        return None
    at = _METADATA_AT.get(rebuild, len(arguments))
    lazy = len(arguments) > at and bool(entries_of(arguments[at]))
    ref = TensorRef(made, storage, arguments, dtype, offset, shape, stride, lazy)
    _check_bounds(ref)
    return ref


def _check_bounds(ref: TensorRef) -> None:
    size = DTYPES[ref.dtype].bits // 8
    if math.prod(n or 1 for n in ref.shape) * size > _LARGEST:
        raise ContainerError(f"a tensor of shape {list(ref.shape)} is larger than any memory.")
    last = ref.offset + sum((n - 1) * s for n, s in zip(ref.shape, ref.stride, strict=True))
    if ref.elements and (last + 1) * size > ref.storage.nbytes:
        raise ContainerError(
            f"a tensor of shape {list(ref.shape)} at offset {ref.offset} reaches beyond its "
            f"storage {ref.storage.key!r} of {ref.storage.nbytes} bytes."
        )


def _counts(ref: Ref) -> tuple[int, ...] | None:
    items = sequence_of(ref)
    values = [atom_of(item) for item in items] if items is not None else None
    if values is None or not all(_is_count(value) for value in values):
        return None
    return tuple(value for value in values if isinstance(value, int))


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST
