"""Convert between arrays and stored bytes; all formats use these functions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resize_pos.core.errors import TableError
from resize_pos.core.tensors import TensorInfo, numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from resize_pos.containers.io.source_file import SourceFile


# A view may repeat elements, so that a small file can describe huge tensors.
_EXPANDED, _EXPANDED_RATIO = 16 << 20, 8  # bytes, and times the size of the file


def read_array(source: SourceFile, info: TensorInfo, offset: int) -> NDArray[Any]:
    """Read a tensor whose little-endian bytes begin at `offset` and are contiguous."""
    import numpy as np

    try:
        array = np.empty(info.shape, array_type(info, source.path.name))
    except ValueError as error:  # more axes than numpy supports
        raise TableError(f"{source.path.name}: {info.name}: {error}.") from error
    source.read_into(offset, array.reshape(-1).view(np.uint8).data)
    return native(array)


def stored_bytes(array: NDArray[Any], info: TensorInfo, where: str) -> memoryview:
    """Return the contiguous little-endian bytes of a tensor; a change of its dtype is refused."""
    import numpy as np

    dtype = array_type(info, where)
    require_dtype(array, info, where)
    flat = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    return native(flat).view(np.uint8).data


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Convert between little-endian and this machine's byte order."""
    return array.byteswap() if sys.byteorder == "big" else array


def strided(flat: NDArray[Any], shape: Sequence[int], stride: Sequence[int]) -> NDArray[Any]:
    """Copy elements of a flat array to a contiguous one; strides are in elements.

    The caller has checked that every element lies inside. The stride of an axis of length 1 has no
    effect, and a file may state one that numpy cannot hold.
    """
    import numpy as np

    steps = [step * flat.itemsize if n > 1 else 0 for n, step in zip(shape, stride, strict=True)]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, shape, steps))


def most_expanded(file_size: int) -> int:
    """Return how many bytes a tensor may take in memory whose elements are repeated (stride 0)."""
    return _EXPANDED + _EXPANDED_RATIO * file_size


def require_dtype(array: NDArray[Any], info: TensorInfo, where: str) -> None:
    """Refuse a replacement whose dtype is not the stored one."""
    if array.dtype.newbyteorder("=") != array_type(info, where):
        raise TableError(
            f"{where}: {info.name}: stored as {info.dtype}, but its replacement is {array.dtype}."
        )


def array_type(info: TensorInfo, where: str) -> np.dtype[np.generic]:
    """Return the numpy dtype of a tensor; quantised and packed types have none."""
    try:
        return numpy_dtype(info.dtype)
    except TableError as fact:
        raise TableError(f"{where}: {info.name}: {fact.message}", fact.hint) from None
