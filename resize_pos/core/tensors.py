"""What is known of a tensor before it is read: its name, shape and stored dtype."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from resize_pos.core.errors import TableError
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """A stored element type, under the name that the safetensors format gives or would give it."""

    name: str
    bits: int  # per element; F4 and F6 are packed
    numpy: str | None  # numpy or ml_dtypes name; None: no array type has this layout
    floating: bool = False
    foreign: bool = False  # known to torch, but not to the safetensors format


DTYPES: Mapping[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("F64", 64, "float64", floating=True),
        DType("F32", 32, "float32", floating=True),
        DType("F16", 16, "float16", floating=True),
        DType("BF16", 16, "bfloat16", floating=True),
        DType("F8_E5M2", 8, "float8_e5m2", floating=True),
        DType("F8_E4M3", 8, "float8_e4m3fn", floating=True),
        DType("F8_E5M2FNUZ", 8, "float8_e5m2fnuz", floating=True),
        DType("F8_E4M3FNUZ", 8, "float8_e4m3fnuz", floating=True),
        DType("F8_E8M0", 8, None),
        DType("F6_E2M3", 6, None),
        DType("F6_E3M2", 6, None),
        DType("F4", 4, None),
        DType("C64", 64, "complex64"),
        DType("I64", 64, "int64"),
        DType("I32", 32, "int32"),
        DType("I16", 16, "int16"),
        DType("I8", 8, "int8"),
        DType("U64", 64, "uint64"),
        DType("U32", 32, "uint32"),
        DType("U16", 16, "uint16"),
        DType("U8", 8, "uint8"),
        DType("BOOL", 8, "bool"),
        DType("C128", 128, "complex128", foreign=True),
        DType("QI8", 8, None, foreign=True),
        DType("QU8", 8, None, foreign=True),
        DType("QI32", 32, None, foreign=True),
        DType("QU4X2", 8, None, foreign=True),
        DType("QU2X4", 8, None, foreign=True),
    )
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint, as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # a key of DTYPES

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes in the file."""
        return math.prod(self.shape) * DTYPES[self.dtype].bits // 8

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {list(self.shape)}"


def total_bytes(tensors: Iterable[TensorInfo]) -> int:
    """Return how many bytes tensors take together; most have the shape of another one."""
    kinds = Counter((info.dtype, info.shape) for info in tensors)
    return sum(TensorInfo("", shape, dtype).nbytes * n for (dtype, shape), n in kinds.items())


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Return the array type that reads and writes a stored dtype bit for bit."""
    import numpy as np

    known = DTYPES.get(name)
    if known is None or known.numpy is None:
        raise TableError(f"dtype {name} cannot be read as an array.")
    try:
        return np.dtype(known.numpy)
    except TypeError:  # bfloat16 and float8: only files that hold them pay for the import
        import ml_dtypes

        found: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, known.numpy))
        return found
