"""Convert between arrays and stored bytes; all formats use these functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from resize_pos.core.errors import TableError
from resize_pos.core.tensors import TensorInfo, numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from resize_pos.containers.io.source_file import SourceFile


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
