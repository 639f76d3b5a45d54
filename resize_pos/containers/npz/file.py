"""NumPy archives: one .npy member per tensor. JAX models are published in this format.

No member is ever unpickled: an array of Python objects is copied as it is and cannot be a table.
The record of a conversion is stored in the archive's comment, because a loader would read an
additional member as a tensor. A comment that another program wrote is not changed.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from resize_pos.containers.arrays import native, require_dtype
from resize_pos.containers.base import Copied, FileContainer
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import write_spliced
from resize_pos.containers.npz.archive import (
    DAMAGES,
    LONGEST_COMMENT,
    Member,
    lay_out,
    read_members,
)
from resize_pos.containers.npz.header import parse_header
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.reformat import Exported

_SUFFIX = ".npy"
_MAGIC = b"\x93NUMPY"
_MOST_UNPACKED, _MOST_RATIO = 32 << 20, 10  # bytes, and times the packed size
_LONGEST_HEADER = 1 << 16
_DESCR = lazy_regex(r"(?P<order>[<>|=])(?P<kind>[a-zA-Z])(?P<bytes>\d+)")

# JAX saves bfloat16 as untyped two-byte values (V2). No other two-byte type is saved that way.
_NAMES: Mapping[str, str] = {
    "V2": "BF16",
    "f8": "F64",
    "f4": "F32",
    "f2": "F16",
    "c8": "C64",
    "i8": "I64",
    "i4": "I32",
    "i2": "I16",
    "i1": "I8",
    "u8": "U64",
    "u4": "U32",
    "u2": "U16",
    "u1": "U8",
    "b1": "BOOL",
}


@dataclass(frozen=True, slots=True)
class _Array:
    """What the header of one member says."""

    member: Member
    version: tuple[int, int]
    descr: str
    fortran: bool
    info: TensorInfo
    offset: int  # of the data in the unpacked member


@dataclass(frozen=True, slots=True, eq=False)
class NpzFile(FileContainer):
    """A numpy archive whose directory and array headers have been read and checked."""

    source: SourceFile = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    opaque: tuple[str, ...]  # members that are not numeric arrays
    _arrays: Mapping[str, _Array] = field(repr=False)
    _members: tuple[Member, ...] = field(repr=False)
    _comment: bytes = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> NpzFile:
        """Read the directory and the header of every array; no data is read."""
        source = SourceFile.of(path)
        with source.open() as file:
            members, comment = read_members(file)
            with zipfile.ZipFile(file) as archive:
                arrays, opaque = _read_headers(archive, members)
        tensors = {name: array.info for name, array in arrays.items()}
        return cls(source, tensors, _record(comment), opaque, arrays, tuple(members), comment)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        methods = {array.member.info.compress_type for array in self._arrays.values()}
        packed = "" if methods <= {zipfile.ZIP_STORED} else ", compressed"
        others = f", {len(self.opaque)} members that are no numbers" if self.opaque else ""
        return f"numpy archive{packed}{others}"

    def read(self, name: str) -> NDArray[Any]:
        """Read one array; its checksum is verified."""
        import numpy as np

        array = self._array(name)
        content = self._unpacked(array)
        dtype = numpy_dtype(array.info.dtype)
        flat = native(np.frombuffer(content, np.uint8, offset=array.offset).view(dtype))
        if array.descr[0] == ">":
            flat = flat.byteswap()
        shaped = flat.reshape(array.info.shape, order="F" if array.fortran else "C")
        whole = np.ascontiguousarray(shaped)
        return whole if whole.flags.writeable else whole.copy()

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the output size: new content is counted uncompressed."""
        total = self.source.size + LONGEST_COMMENT
        for name, shape in shapes.items():
            array = self._array(name)
            new = TensorInfo(name, shape, array.info.dtype).nbytes
            total += new + 1024 - array.member.info.compress_size
        return total

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is its comment."""
        new = {
            self._array(name).member.info.filename: self._stored_bytes(name, array)
            for name, array in changes.items()
        }
        comment = self._comment
        if metadata and (self.metadata or not comment):
            text = json.dumps({**self.metadata, **metadata}, separators=(",", ":")).encode()
            comment = text if len(text) <= LONGEST_COMMENT else comment
        write_spliced(self.source, stage, lay_out(self._members, new, comment))
        return self.copied_except(changes)

    def exported(self) -> Exported:
        """Every numeric array can be written in another format; other members cannot."""
        from resize_pos.containers.reformat import Exported

        names = {name: name for name in self.tensors}
        return Exported(self.source, "numpy", names, extras=self.opaque)

    def _array(self, name: str) -> _Array:
        if name in self.opaque:
            raise TableError(
                f"{self.path.name}: {name} is no array of plain numbers, and is never unpickled."
            )
        return self._arrays[self.info(name).name]

    def _unpacked(self, array: _Array) -> bytes:
        packed, size = array.member.info.compress_size, array.member.info.file_size
        if size > _MOST_UNPACKED + _MOST_RATIO * packed:
            raise ContainerError(
                f"{self.path.name}: {array.info.name}: {packed} bytes would unpack to {size}, "
                "which no trained table does."
            )
        with self.source.open() as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    return archive.read(array.member.info.filename)
            except OSError:
                raise
            except Exception as error:  # zlib, lzma and zipfile have no common base class
                raise ContainerError(f"{array.info.name} cannot be unpacked: {error}.") from error

    def _stored_bytes(self, name: str, array: NDArray[Any]) -> bytes:
        """Write an array as its member was written: type, byte order, memory order."""
        import numpy as np

        old = self._array(name)
        require_dtype(array, old.info, self.path.name)
        header = io.BytesIO()
        fields = {"descr": old.descr, "fortran_order": old.fortran, "shape": array.shape}
        if old.version == (1, 0):
            np.lib.format.write_array_header_1_0(header, fields)
        else:
            np.lib.format.write_array_header_2_0(header, fields)
        stored = native(np.asarray(array, numpy_dtype(old.info.dtype)))
        if old.descr[0] == ">":
            stored = stored.byteswap()
        return header.getvalue() + stored.tobytes(order="F" if old.fortran else "C")


def holds_arrays(path: Path) -> bool:
    """Return whether a zip archive holds members that are named like arrays."""
    try:
        with SourceFile.of(path).open() as file, zipfile.ZipFile(file) as archive:
            return any(name.endswith(_SUFFIX) for name in archive.namelist())
    except (ContainerError, *DAMAGES):
        return False


def _record(comment: bytes) -> dict[str, str]:
    try:
        found = parse(comment)
    except ValueError:
        return {}
    strings = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if strings else {}


def _read_headers(
    archive: zipfile.ZipFile, members: list[Member]
) -> tuple[dict[str, _Array], tuple[str, ...]]:
    arrays: dict[str, _Array] = {}
    opaque = []
    order = {info.filename: index for index, info in enumerate(archive.infolist())}
    for member in sorted(members, key=lambda m: order[m.info.filename]):
        name = member.info.filename.removesuffix(_SUFFIX)
        array = None
        if member.info.filename.endswith(_SUFFIX):
            try:
                with archive.open(member.info) as file:
                    array = _read_header(name, member, file)
            except ContainerError as fact:
                raise ContainerError(f"{name}: {fact.message}", fact.hint) from None
            except Exception as error:  # zlib, lzma and zipfile have no common base class
                raise ContainerError(f"{name} cannot be unpacked: {error}.") from error
        if array is None:
            opaque.append(name)
        else:
            arrays[name] = array
    return arrays, tuple(opaque)


def _read_header(name: str, member: Member, file: IO[bytes]) -> _Array | None:
    start = file.read(len(_MAGIC) + 2)
    if start[:6] != _MAGIC or len(start) < 8:
        raise ContainerError("the member is no array.")
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ContainerError(f"version {version[0]}.{version[1]} of the format is not known.")
    size = 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(size), "little")
    if length > _LONGEST_HEADER:
        raise ContainerError(f"the header claims {length} bytes.")
    encoded = file.read(length)
    if len(encoded) < length:
        raise ContainerError("the member ends inside its header.")
    text = encoded.decode("utf-8" if version == (3, 0) else "latin-1", "replace")
    descr, fortran, shape = parse_header(text)
    code = _DESCR.fullmatch(descr) if descr is not None else None
    dtype = _NAMES.get(f"{code['kind']}{code['bytes']}") if code else None
    if dtype is None or descr is None:
        return None  # objects, strings, records: copied as they are
    info = TensorInfo(name, shape, dtype)
    offset = len(start) + size + length
    if math.prod(shape) * DTYPES[dtype].bits // 8 != member.info.file_size - offset:
        raise ContainerError(
            f"{dtype} {list(shape)} takes {info.nbytes} bytes but the member holds "
            f"{member.info.file_size - offset}."
        )
    return _Array(member, version, descr, fortran, info, offset)
