"""Arrays in and out of torch storages: strided reading, and the bytes of a replacement."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from resize_pos.containers.io.source_file import SourceFile, read_exactly
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.core.errors import TableError
from resize_pos.core.tensors import numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_EXPANDED = 1 << 30  # bytes that a tensor may take in memory beyond what its storage has


def read_tensor(source: SourceFile, name: str, ref: TensorRef, storage: int) -> NDArray[Any]:
    """Read one tensor whose storage begins at a byte of the file, contiguous or not."""
    import numpy as np

    dtype = array_type(source, name, ref)
    nbytes = ref.elements * dtype.itemsize
    if ref.lazy:
        raise TableError(f"{source.path.name}: {name}: is stored conjugated or negated.")
    if len(ref.shape) > 64 or nbytes > max(ref.storage.nbytes, _MOST_EXPANDED):
        raise TableError(f"{source.path.name}: {name}: {list(ref.shape)} is too large to read.")
    if ref.elements == 0:
        return np.empty(ref.shape, dtype)
    reach = 1 + sum((n - 1) * s for n, s in zip(ref.shape, ref.stride, strict=True))
    buffer = np.empty(reach, dtype)
    with source.open() as file:
        view = buffer.view(np.uint8).data
        read_exactly(file, storage + ref.offset * dtype.itemsize, view)
    if sys.byteorder == "big":
        buffer = buffer.byteswap()
    if ref.is_contiguous:
        return buffer.reshape(ref.shape)
    steps = [stride * dtype.itemsize for stride in ref.stride]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(buffer, ref.shape, steps))


def peek_span(source: SourceFile, span: tuple[int, int], start: int, count: int) -> bytes:
    """Read a few bytes of a tensor that lies in one piece."""
    with source.open() as file:
        file.seek(span[0] + start)
        return file.read(max(0, min(count, span[1] - span[0] - start)))


def stored_bytes(source: SourceFile, name: str, ref: TensorRef, array: NDArray[Any]) -> memoryview:
    """Give the bytes of a replacement as a torch storage holds them."""
    import numpy as np

    dtype = array_type(source, name, ref)
    if array.dtype.newbyteorder("=") != dtype:
        raise TableError(
            f"{source.path.name}: {name}: stored as {ref.dtype}, "
            f"but its replacement is {array.dtype}."
        )
    flat = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    if sys.byteorder == "big":
        flat = flat.byteswap()
    return flat.view(np.uint8).data


def array_type(source: SourceFile, name: str, ref: TensorRef) -> np.dtype[np.generic]:
    """Give the array type of a tensor; quantised ones have none."""
    try:
        return numpy_dtype(ref.dtype)
    except TableError as fact:
        raise TableError(f"{source.path.name}: {name}: {fact.message}", fact.hint) from None
