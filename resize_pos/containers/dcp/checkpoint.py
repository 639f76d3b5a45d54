"""torch distributed checkpoints: a `.metadata` file and the `.distcp` files that it describes.

Neither torch nor an unpickler is used: the metadata and the entries are read as opcodes. Entries
are byte ranges, so files are spliced or copied whole, and unchanged tensors are never parsed. A
table that was split over several ranks is written as one part; torch shards it again on loading.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import require_dtype
from resize_pos.containers.base import Container, Copied
from resize_pos.containers.dcp.metadata import METADATA, Metadata, Piece, require_fitting
from resize_pos.containers.io.link_or_copy import link_or_copy, require_inside
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import CopyRange, NewBytes, Segment, write_spliced
from resize_pos.containers.model_folder import write_others
from resize_pos.containers.size_settings import MOST_SETTINGS
from resize_pos.containers.torch.dtypes import DTYPE_NAMES
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_SETTINGS = 1 << 20  # bytes of an entry
_STATE = lazy_regex(r"(?:^|\.)state\.(?P<parameter>.+)\.[A-Za-z_]+")


@dataclass(frozen=True, slots=True, eq=False)
class DistributedCheckpoint(Container):
    """A distributed checkpoint whose metadata has been read and compared with its files."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    _metadata: Metadata = field(repr=False)
    _pieces: tuple[Piece, ...] = field(repr=False)  # in the order of the files
    _files: Mapping[str, SourceFile] = field(repr=False)  # every file of the folder, by name
    edited_files: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # written instead of copied
    link: bool = False

    is_folder = True
    owns_configs = True

    @classmethod
    def open(cls, path: Path) -> DistributedCheckpoint:
        """Read and check the metadata; no tensor is read."""
        if isinstance(path, RemotePath):
            raise ContainerError(
                f"{path}: distributed checkpoints are read from a disk, not from a store.",
                "Download the folder and convert the copy.",
            )
        files = _scan(path)  # before the metadata is read, so that a later change is detected
        try:
            metadata = Metadata.read(path)
            pieces = require_fitting(path, metadata.pieces)
            tensors = dict(_describe(metadata))
        except ContainerError as fact:
            raise ContainerError(f"{path.name}: {fact.message}", fact.hint) from None
        return cls(path, tensors, metadata, pieces, files)

    @property
    def config_folder(self) -> Path:
        """The folder itself."""
        return self.path

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return f"torch distributed checkpoint in {len({p.file for p in self._pieces})} files"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Always empty: torch's metadata has no field for free-form strings."""
        return {}

    @property
    def settings(self) -> Mapping[str, object]:
        """Numbers in the entries that are no tensors."""
        from resize_pos.containers.dcp.entries import settings_of

        found: dict[str, object] = {}
        for piece in self._pickled():
            found |= settings_of(self._bytes(piece), piece.name)
        return found

    @property
    def fixed_settings(self) -> Mapping[str, str]:
        """An entry of a .distcp file is copied as it is."""
        return dict.fromkeys(self.settings, "it is an entry of a distributed checkpoint")

    def _pickled(self) -> list[Piece]:
        """List the small entries that are no tensors: training code saves its settings so."""
        return [
            piece
            for piece in self._pieces
            if piece.name not in self._metadata.tensors
            and not piece.transformed
            and piece.end - piece.begin <= _LARGEST_SETTINGS
        ][:MOST_SETTINGS]

    def with_configs(self, edited_files: Mapping[str, str], *, link: bool) -> DistributedCheckpoint:
        """Return the same checkpoint with new content for some files, set to copy or to link."""
        return replace(self, edited_files=dict(edited_files), link=link)

    def require_convertible(self, names: Collection[str]) -> None:
        """Refuse to change tensors whose optimizer state would keep the old shape."""
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

        info = self.info(name)
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
        return self._files[piece.file].read(piece.begin, piece.end - piece.begin)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the bytes written: every file is counted as copied."""
        total = sum(file.size for file in self._files.values())
        return total + self.growth(shapes, per_tensor=4096)

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Make a folder in which only `changes` differ; `metadata` cannot be stored."""
        del metadata
        self.require_convertible(changes)
        new = {name: self._saved(name, array) for name, array in changes.items()}
        stage.mkdir()
        copied = self.copied_except(changes)
        moved: dict[int, tuple[str, int, int]] = {}
        done: set[str] = set()  # changed tensors that have been written
        weights: dict[str, list[Piece]] = {}
        for piece in self._pieces:
            weights.setdefault(piece.file, []).append(piece)
        for name, mine in weights.items():
            file = self._files[name]
            if any(piece.name in new for piece in mine):
                segments = list(self._splice(file, mine, new, moved, done))
                write_spliced(file, stage / name, segments)
            else:
                linked = link_or_copy(file, stage / name, link=self.link)
                copied += Copied(0, 0, linked=int(linked))
        skipped = {*weights, METADATA}
        others = {name: file for name, file in self._files.items() if name not in skipped}
        copied += write_others(stage, others, self.edited_files, link=self.link)
        shapes = {name: array.shape for name, array in changes.items()}
        self._files[METADATA].require_unchanged()
        (stage / METADATA).write_bytes(self._metadata.changed(shapes, moved))
        return copied

    def _saved(self, name: str, array: NDArray[Any]) -> bytes:
        """Write a tensor as torch writes an entry: a small archive of its own."""
        from resize_pos.containers.dcp.entries import write_entry

        info = self.info(name)
        require_dtype(array, info, self.path.name)
        return write_entry(info.dtype, array)

    def _splice(
        self,
        file: SourceFile,
        mine: list[Piece],
        new: Mapping[str, bytes],
        moved: dict[int, tuple[str, int, int]],
        done: set[str],
    ) -> Iterator[Segment]:
        """Copy a file; replace the first part of a changed tensor and omit its other parts."""
        position, written = 0, 0
        for piece in mine:
            yield CopyRange(position, piece.begin - position)
            written += piece.begin - position
            name, position = piece.name, piece.end
            if name not in new:
                yield CopyRange(piece.begin, piece.end - piece.begin)
                moved[piece.number] = (file.path.name, written, piece.end - piece.begin)
                written += piece.end - piece.begin
            elif name not in done:
                done.add(name)
                yield NewBytes(new[name])
                moved[piece.number] = (file.path.name, written, len(new[name]))
                written += len(new[name])
        yield CopyRange(position, file.size - position)


def _scan(folder: Path) -> dict[str, SourceFile]:
    """List every file of the folder; refuse pipes, and links to files outside of it."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    names = [path.relative_to(folder).as_posix() for path in paths]
    return {name: SourceFile.of(require_inside(folder, name)) for name in names}


def _describe(metadata: Metadata) -> Iterator[tuple[str, TensorInfo]]:
    """List the tensors that have a numpy dtype; pickled objects and other types are not read."""
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
