"""torch distributed checkpoints: a `.metadata` file and the `.distcp` files that it describes.

Tables are read by torch's own reader, over metadata that was read safely (`metadata.py`). What
does not change is not read at all: entries are byte ranges, so files are spliced, or linked whole.
A table that lay in parts on several ranks becomes one part; torch shards it again when it loads.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Copied
from resize_pos.containers.dcp.metadata import METADATA, Piece, pieces, read_metadata
from resize_pos.containers.io.link_or_copy import carry_over, require_inside
from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment, write_spliced
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import DTYPES, TensorInfo, numpy_dtype

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_NAMES = {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.numpy}
_STATE = re.compile(r"(?:^|\.)state\.(?P<parameter>.+)\.[A-Za-z_]+")


def is_distributed(folder: Path) -> bool:
    """Tell whether a folder is a distributed checkpoint."""
    return (folder / METADATA).is_file() and any(folder.glob("*.distcp"))


@dataclass(frozen=True, slots=True, eq=False)
class DistributedCheckpoint:
    """A distributed checkpoint whose metadata has been read and held against its files."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    _metadata: Any = field(repr=False)  # torch's Metadata
    _pieces: tuple[Piece, ...] = field(repr=False)
    _others: tuple[str, ...] = field(repr=False)
    copy: bool = False

    @classmethod
    def open(cls, path: Path) -> DistributedCheckpoint:
        """Read and check the metadata; no tensor is read."""
        try:
            metadata = read_metadata(path)
            found = pieces(path, metadata)
            tensors = dict(_describe(metadata))
        except ContainerError as fact:
            raise ContainerError(f"{path.name}: {fact.message}", fact.hint) from None
        known = {piece.file for piece in found} | {METADATA}
        names = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if not p.is_dir())
        others = tuple(name for name in names if name not in known)
        for name in others:
            require_inside(path, name)
        return cls(path, tensors, metadata, found, others)

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
        for name in names:
            shape = self.tensors[name].shape
            for other, info in self.tensors.items():
                match = _STATE.search(other)
                if match is None or info.shape != shape:
                    continue
                parameter = match["parameter"]
                if parameter.isdecimal() or name == parameter or name.endswith(f".{parameter}"):
                    raise ContainerError(
                        f"{other} looks like the optimizer's state of {name}, which would no "
                        "longer fit it.",
                        "Save the model without its optimizer, and start the optimizer afresh.",
                    )

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor with torch's own reader, put together from its parts."""
        import torch
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_loader import load

        info = self._info(name)
        target = torch.empty(
            info.shape, dtype=self._metadata.state_dict_metadata[name].properties.dtype
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that no process group is there: none is needed
                load({name: target}, storage_reader=_reader(self.path, self._metadata))
        except (Exception, CheckpointException) as error:  # whatever a damaged entry makes it raise
            words = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise ContainerError(f"{self.path.name}: {name} cannot be read: {words[0]}") from error
        raw = target.reshape(-1).view(torch.uint8).numpy()
        array: NDArray[Any] = raw.view(numpy_dtype(info.dtype)).reshape(info.shape)
        return array

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
        moved: dict[Any, Any] = {}
        for file in dict.fromkeys(piece.file for piece in self._pieces):
            mine = [piece for piece in self._pieces if piece.file == file]
            if any(piece.index.fqn in new for piece in mine):
                segments = list(self._splice(file, mine, new, moved))
                write_spliced(self.path / file, stage / file, segments)
            else:
                linked += carry_over(self.path / file, stage / file, copy=self.copy)
        for name in self._others:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            linked += carry_over(self.path / name, stage / name, copy=self.copy)
        shapes = {name: array.shape for name, array in changes.items()}
        with (stage / METADATA).open("wb") as file_:
            pickle.dump(self._new_metadata(shapes, moved), file_)
        kept = [info.nbytes for name, info in self.tensors.items() if name not in changes]
        return Copied(len(kept), sum(kept), files=len(self._others), linked=linked)

    def _info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        return self.tensors[name]

    def _saved(self, name: str, array: NDArray[Any]) -> bytes:
        """Write a tensor as torch writes an entry: a small archive of its own."""
        import numpy as np
        import torch

        stored = self._metadata.state_dict_metadata[name].properties.dtype
        if array.dtype != numpy_dtype(self._info(name).dtype):
            raise TableError(
                f"{self.path.name}: {name}: stored as {self._info(name).dtype}, "
                f"but its replacement is {array.dtype}."
            )
        raw = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
        buffer = io.BytesIO()
        torch.save(raw.view(stored).reshape(array.shape), buffer)
        return buffer.getvalue()

    def _splice(
        self, file: str, mine: list[Piece], new: Mapping[str, bytes], moved: dict[Any, Any]
    ) -> Iterator[Segment]:
        """Copy a file with the first part of a changed tensor replaced and its others left out."""
        position, written = 0, 0
        for piece in mine:
            yield CopyRange(position, piece.begin - position)
            written += piece.begin - position
            name, position = piece.index.fqn, piece.end
            if name not in new:
                yield CopyRange(piece.begin, piece.end - piece.begin)
                moved[piece.index] = (file, written, piece.end - piece.begin)
                written += piece.end - piece.begin
            elif not any(index.fqn == name for index in moved):
                yield NewBytes(new[name])
                moved[piece.index] = (file, written, len(new[name]))
                written += len(new[name])
        yield CopyRange(position, (self.path / file).stat().st_size - position)

    def _new_metadata(
        self, shapes: Mapping[str, tuple[int, ...]], moved: Mapping[Any, tuple[str, int, int]]
    ) -> Any:
        from torch import Size
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

        tensors = dict(self._metadata.state_dict_metadata)
        for name, shape in shapes.items():
            whole = ChunkStorageMetadata(Size([0] * len(shape)), Size(shape))
            tensors[name] = replace(tensors[name], size=Size(shape), chunks=[whole])
        places = {}
        for index, place in self._metadata.storage_data.items():
            changed = index.fqn in shapes
            if index in moved:
                file, offset, length = moved[index]
                place = replace(place, relative_path=file, offset=offset, length=length)
            elif changed:
                continue  # a part that the first one now includes
            if changed:
                zeros = Size([0] * len(shapes[index.fqn]))
                index = MetadataIndex(index.fqn, zeros, 0)
            places[index] = place
        return replace(self._metadata, state_dict_metadata=tensors, storage_data=places)


def _reader(path: Path, metadata: Any) -> Any:
    """Give torch's reader, with metadata that has been read already."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    class Reader(FileSystemReader):
        def read_metadata(self, *_: Any, **__: Any) -> Any:
            return metadata

    return Reader(path)


def _describe(metadata: Any) -> Iterator[tuple[str, TensorInfo]]:
    """List the tensors that have an array type; pickled objects and exotic types stay closed."""
    packed = {
        index.fqn
        for index, place in metadata.storage_data.items()
        if getattr(place, "transform_descriptors", None)
    }
    stored: dict[str, int] = {}
    for index in metadata.storage_data:
        stored[index.fqn] = stored.get(index.fqn, 0) + 1
    for name, entry in metadata.state_dict_metadata.items():
        if not hasattr(entry, "properties") or name in packed:
            continue
        dtype = _NAMES.get(_name(entry.properties.dtype))
        if dtype is None:
            continue
        cells = sum(math.prod(chunk.sizes) for chunk in entry.chunks)
        if cells != math.prod(entry.size) or stored.get(name, 0) != len(entry.chunks):
            raise ContainerError(
                f"{METADATA}: the parts of {name} do not make up {list(entry.size)}."
            )
        yield name, TensorInfo(name, tuple(entry.size), dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
