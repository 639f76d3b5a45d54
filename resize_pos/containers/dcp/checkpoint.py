"""torch distributed checkpoints: a `.metadata` file and the `.distcp` files that it describes.

Neither torch nor an unpickler takes part: the metadata and the entries are read as opcodes. What
does not change is not read at all: entries are byte ranges, so files are spliced, or linked whole.
A table that lay in parts on several ranks becomes one part; torch shards it again when it loads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Copied
from resize_pos.containers.dcp.metadata import METADATA, Metadata, Piece, require_fitting
from resize_pos.containers.io.link_or_copy import carry_over, require_inside
from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment, write_spliced
from resize_pos.containers.torch.dtypes import DTYPE_NAMES
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import DTYPES, TensorInfo, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STATE = re.compile(r"(?:^|\.)state\.(?P<parameter>.+)\.[A-Za-z_]+")


def is_distributed(folder: Path) -> bool:
    """Tell whether a folder is a distributed checkpoint."""
    return (folder / METADATA).is_file() and any(folder.glob("*.distcp"))


@dataclass(frozen=True, slots=True, eq=False)
class DistributedCheckpoint:
    """A distributed checkpoint whose metadata has been read and held against its files."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    _metadata: Metadata = field(repr=False)
    _pieces: tuple[Piece, ...] = field(repr=False)  # in the order of the files
    _others: tuple[str, ...] = field(repr=False)
    copy: bool = False

    @classmethod
    def open(cls, path: Path) -> DistributedCheckpoint:
        """Read and check the metadata; no tensor is read."""
        try:
            metadata = Metadata.read(path)
            pieces = require_fitting(path, metadata.pieces)
            tensors = dict(_describe(metadata))
        except ContainerError as fact:
            raise ContainerError(f"{path.name}: {fact.message}", fact.hint) from None
        known = {piece.file for piece in pieces} | {METADATA}
        names = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if not p.is_dir())
        others = tuple(name for name in names if name not in known)
        for name in others:
            require_inside(path, name)
        return cls(path, tensors, metadata, pieces, others)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return f"torch distributed checkpoint in {len({p.file for p in self._pieces})} files"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Nothing: torch's metadata has no place for strings of others."""
        return {}

    def copying(self, copy: bool) -> DistributedCheckpoint:
        """Give the same checkpoint, set to copy or to link the files that do not change."""
        return replace(self, copy=copy)

    def require_no_state(self, names: Collection[str]) -> None:
        """Refuse to change tensors whose optimizer state would stay behind at the old shape."""
        states: dict[tuple[tuple[int, ...], str], str] = {}
        for other, info in self.tensors.items():
            match = _STATE.search(other)
            if match is not None:
                parameter = match["parameter"]
                states.setdefault((info.shape, "" if parameter.isdecimal() else parameter), other)
        for name in names:
            words = name.split(".")
            ends = [".".join(words[start:]) for start in range(max(0, len(words) - 32), len(words))]
            for parameter in ("", name, *ends):
                other_name = states.get((self.tensors[name].shape, parameter))
                if other_name is not None:
                    raise ContainerError(
                        f"{other_name} looks like the optimizer's state of {name}, which would no "
                        "longer fit it.",
                        "Save the model without its optimizer, and start the optimizer afresh.",
                    )

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor, put together from its parts."""
        import numpy as np

        from resize_pos.containers.dcp.entries import read_entry

        info = self._info(name)
        stored = self._metadata.tensors[name]
        mine = [piece for piece in self._pieces if piece.name == name]
        available = sum(piece.end - piece.begin for piece in mine)
        if info.nbytes > available:
            raise ContainerError(
                f"{self.path.name}: {name} cannot be read: {info.nbytes} bytes are stated, its "
                f"entries have {available}."
            )
        sizes = {str(chunk.offsets): chunk.sizes for chunk in stored.chunks}
        array = np.zeros(info.shape, numpy_dtype(info.dtype))
        filled = np.zeros(info.shape, np.bool_)
        for piece in mine:
            try:
                offsets = piece.offsets if piece.offsets is not None else (0,) * len(info.shape)
                size = sizes.get(str(offsets))
                if size is None:
                    raise ContainerError(f"no part of it begins at {list(offsets)}.")
                part = read_entry(self._bytes(piece), info.dtype, size)
                place = tuple(slice(b, b + n) for b, n in zip(offsets, size, strict=True))
                if filled[place].any():
                    raise ContainerError("its parts overlap.")
            except ContainerError as fact:
                raise ContainerError(
                    f"{self.path.name}: {name} cannot be read: {fact.message}", fact.hint
                ) from None
            array[place] = part
            filled[place] = True
        if not filled.all():
            raise ContainerError(f"{self.path.name}: {name} cannot be read: a part is missing.")
        return array

    def _bytes(self, piece: Piece) -> bytes:
        try:
            with (self.path / piece.file).open("rb") as file:
                file.seek(piece.begin)
                data = file.read(piece.end - piece.begin)
        except OSError as error:
            raise ContainerError(f"{piece.file}: {error.strerror}.") from error
        if len(data) != piece.end - piece.begin:
            raise ContainerError(f"{piece.file} ends too early.")
        return data

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how much is written: an upper bound, as if nothing could be linked."""
        names = {piece.file for piece in self._pieces} | {METADATA, *self._others}
        total = sum((self.path / name).stat().st_size for name in names)
        new = [
            TensorInfo(n, shape, self._info(n).dtype).nbytes + 4096 for n, shape in shapes.items()
        ]
        return total + sum(new)

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Make a folder in which only `changes` differ; `metadata` has no place in it."""
        del metadata
        self.require_no_state(changes)
        new = {name: self._saved(name, array) for name, array in changes.items()}
        stage.mkdir()
        linked = 0
        moved: dict[int, tuple[str, int, int]] = {}
        done: set[str] = set()  # changed tensors that have been written
        files: dict[str, list[Piece]] = {}
        for piece in self._pieces:
            files.setdefault(piece.file, []).append(piece)
        for file, mine in files.items():
            if any(piece.name in new for piece in mine):
                segments = list(self._splice(file, mine, new, moved, done))
                write_spliced(self.path / file, stage / file, segments)
            else:
                linked += carry_over(self.path / file, stage / file, copy=self.copy)
        for name in self._others:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            linked += carry_over(self.path / name, stage / name, copy=self.copy)
        shapes = {name: array.shape for name, array in changes.items()}
        (stage / METADATA).write_bytes(self._metadata.changed(shapes, moved))
        kept = [info.nbytes for name, info in self.tensors.items() if name not in changes]
        return Copied(len(kept), sum(kept), files=len(self._others), linked=linked)

    def _info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        return self.tensors[name]

    def _saved(self, name: str, array: NDArray[Any]) -> bytes:
        """Write a tensor as torch writes an entry: a small archive of its own."""
        from resize_pos.containers.dcp.entries import write_entry

        info = self._info(name)
        if array.dtype != numpy_dtype(info.dtype):
            raise TableError(
                f"{self.path.name}: {name}: stored as {info.dtype}, "
                f"but its replacement is {array.dtype}."
            )
        return write_entry(info.dtype, array)

    def _splice(
        self,
        file: str,
        mine: list[Piece],
        new: Mapping[str, bytes],
        moved: dict[int, tuple[str, int, int]],
        done: set[str],
    ) -> Iterator[Segment]:
        """Copy a file with the first part of a changed tensor replaced and its others left out."""
        position, written = 0, 0
        for piece in mine:
            yield CopyRange(position, piece.begin - position)
            written += piece.begin - position
            name, position = piece.name, piece.end
            if name not in new:
                yield CopyRange(piece.begin, piece.end - piece.begin)
                moved[piece.number] = (file, written, piece.end - piece.begin)
                written += piece.end - piece.begin
            elif name not in done:
                done.add(name)
                yield NewBytes(new[name])
                moved[piece.number] = (file, written, len(new[name]))
                written += len(new[name])
        yield CopyRange(position, (self.path / file).stat().st_size - position)


def _describe(metadata: Metadata) -> Iterator[tuple[str, TensorInfo]]:
    """List the tensors that have an array type; pickled objects and exotic types stay closed."""
    stored: dict[str, int] = {}
    closed: set[str] = set()
    for piece in metadata.pieces:
        stored[piece.name] = stored.get(piece.name, 0) + 1
        if piece.transformed:
            closed.add(piece.name)
    for name, entry in metadata.tensors.items():
        dtype = DTYPE_NAMES.get(entry.dtype)
        if dtype is None or DTYPES[dtype].numpy is None or name in closed:
            continue
        cells = sum(math.prod(chunk.sizes) for chunk in entry.chunks)
        if cells != math.prod(entry.size) or stored.get(name, 0) != len(entry.chunks):
            raise ContainerError(
                f"{METADATA}: the parts of {name} do not make up {list(entry.size)}."
            )
        yield name, TensorInfo(name, entry.size, dtype)
