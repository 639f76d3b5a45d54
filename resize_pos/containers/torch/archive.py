"""Zip archives that torch wrote: the directory, the pickle, and the storages beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from resize_pos.containers.base import Container
from resize_pos.containers.detect import WEIGHT_SUFFIXES
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.pickle.walk import Walked, walk
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.torch.tree import Tree, find_tensors
from resize_pos.containers.zip.records import Record, read_directory, read_record, require_stored
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_LARGEST_PICKLE = 1 << 29


def open_archive(path: Path) -> Container:
    """Open an archive as what it holds: a TorchScript program or a plain checkpoint."""
    archive = Archive.open(path)
    if "constants.pkl" in archive.records:
        from resize_pos.containers.torch.torchscript import TorchScript

        return TorchScript.of(archive)
    from resize_pos.containers.torch.zip_checkpoint import TorchZip

    return TorchZip.of(archive)


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """A zip archive that torch wrote: its records, by their name below the common folder."""

    source: SourceFile
    root: str  # the folder, with its slash
    records: Mapping[str, Record]  # in the order of the file

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Read the directory."""
        source = SourceFile.of(path)
        with source.open() as file:
            records = read_directory(file, source.size, few_reads=source.is_remote)
            pickles = [r.name for r in records if r.name.split("/")[1:] == ["data.pkl"]]
            if len(pickles) != 1:
                if not pickles:
                    raise ContainerError(
                        "this zip archive holds no data.pkl, so it is not a torch checkpoint.",
                        _hint_for(record.name for record in records),
                    )
                raise ContainerError(
                    f"the archive holds two pickles: {pickles[0]} and {pickles[1]}."
                )
            root = pickles[0].removesuffix("data.pkl")
            stray = next((r.name for r in records if not r.name.startswith(root)), None)
            if stray is not None:
                raise ContainerError(f"the record {stray!r} is not in the folder {root!r}.")
        return cls(source, root, {r.name.removeprefix(root): r for r in records})

    def text(self, name: str, default: str) -> str:
        """Read a tiny record; `default` where it is missing."""
        return self.content(name, 4096).decode("latin-1") if name in self.records else default

    def content(self, name: str, limit: int) -> bytes:
        """Read a small record."""
        with self.source.open() as file:
            return read_record(file, self.records[name], limit)

    def require_header(self, record: Record) -> None:
        """Refuse a record whose header is not the one that was expected."""
        if self.source.read(record.start, len(record.local)) != record.local:
            raise ContainerError(
                f"{self.source.path.name}: the record {record.name!r} was not written by torch.",
                "Download the file and convert the copy.",
            )

    def require_little_endian(self) -> None:
        """Refuse a file that was written on a big-endian machine."""
        order = self.text("byteorder", "little").strip()
        if order != "little":
            raise ContainerError(
                f"{self.source.path.name}: its byte order is {order!r}; only little-endian files "
                "are read.",
                "Load it with torch and save it again on a little-endian machine.",
            )

    def walk(self) -> tuple[bytes, Walked, Tree]:
        """Parse the pickle, and find its tensors; nothing in it is executed."""
        pickle = self.content("data.pkl", _LARGEST_PICKLE)
        with self.source.naming():
            return pickle, *parsed_pickle(SizedPickle(pickle, self.source.size))

    def storage_offset(self, ref: TensorRef) -> int:
        """Return at which byte of the file a tensor's storage begins."""
        return self.records[f"data/{ref.storage.key}"].data

    def require_storages(self, refs: Iterable[TensorRef]) -> None:
        """Refuse storages that are missing, compressed or too short."""
        with self.source.naming():
            for ref in refs:
                record = self.records.get(f"data/{ref.storage.key}")
                if record is None:
                    raise ContainerError(
                        f"the storage {ref.storage.key!r} of {ref.names[0][0]} is not in the "
                        "archive.",
                        "The file is incomplete; download or copy it again.",
                    )
                require_stored(record)
                if record.size < ref.storage.nbytes:
                    raise ContainerError(
                        f"the storage {ref.storage.key!r} of {ref.names[0][0]} has "
                        f"{record.size} bytes, not {ref.storage.nbytes}."
                    )


def _hint_for(names: Iterable[str]) -> str:
    """Say what to do with another zip archive, by what is in it."""
    weights = next((name for name in names if name.endswith((".h5", *WEIGHT_SUFFIXES))), None)
    if weights is None:
        return "Name the weights of the model."
    if weights.endswith(".h5"):
        return "It is a Keras model; load it with Keras and save its arrays as .npz."
    return f"Unpack it, and convert {weights}."


@dataclass(frozen=True, slots=True, eq=False)
class SizedPickle:
    """A pickle and the size of its file; two are equal if their bytes are equal."""

    data: bytes
    file_size: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SizedPickle) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)


@lru_cache(maxsize=1)
def parsed_pickle(pickle: SizedPickle) -> tuple[Walked, Tree]:
    """Parse a pickle; the last one is cached, since a copy is opened right after it is written."""
    walked = walk(pickle.data, pickle.file_size)
    return walked, find_tensors(walked)
