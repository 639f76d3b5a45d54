"""How torch names element types in its files, beside the names that this program uses."""

from __future__ import annotations

from collections.abc import Mapping

UNTYPED = "bytes"  # a storage that counts bytes; the tensor states its dtype

# storage class → dtype
STORAGE_NAMES: Mapping[str, str] = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": "C128",
    "QInt8Storage": "QI8",
    "QUInt8Storage": "QU8",
    "QInt32Storage": "QI32",
    "QUInt4x2Storage": "QU4X2",
    "QUInt2x4Storage": "QU2X4",
    "UntypedStorage": UNTYPED,
}

# torch.NAME → dtype
DTYPE_NAMES: Mapping[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "complex128": "C128",
}

STORAGE_CLASS: Mapping[str, str] = {dtype: name for name, dtype in STORAGE_NAMES.items()}
TORCH_NAME: Mapping[str, str] = {dtype: name for name, dtype in DTYPE_NAMES.items()}
