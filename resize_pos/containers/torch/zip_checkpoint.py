"""Torch checkpoints as zip archives (`.pt`, `.pth`, `.bin`, `.ckpt`): spliced, never unpickled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Copied, OptimizerState, Promised
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import STRIDE, LaterBytes, congruence, write_spliced
from resize_pos.containers.pickle.walk import Walked, walk
from resize_pos.containers.torch.arrays import peek_span, read_tensor, stored_bytes
from resize_pos.containers.torch.edit import Edited, Replacement, edit_checkpoint
from resize_pos.containers.torch.new_checkpoint import NOTE, note_record
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.torch.tree import Tree, find_tensors
from resize_pos.containers.zip.layout import Fresh, Kept, Planned, lay_out
from resize_pos.containers.zip.records import (
    ALIGNMENT,
    Record,
    read_directory,
    read_record,
    require_stored,
)
from resize_pos.core.background import Beside
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_PICKLE = 1 << 29
_LARGEST_NOTE = 1 << 24
_ALLOWANCE = 2 * STRIDE  # bytes for padding, a few longer opcodes and the note


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """A zip archive of torch's making: records by their name below the common folder."""

    source: SourceFile
    root: str  # the folder, with its slash
    records: Mapping[str, Record]  # in the order of the file

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Read the directory."""
        source = SourceFile.of(path)
        with source.open() as file:
            records = read_directory(file, source.size)
            pickles = [r.name for r in records if r.name.split("/")[1:] == ["data.pkl"]]
            if len(pickles) != 1:
                raise ContainerError(
                    "this zip archive holds no data.pkl, so it is no torch checkpoint."
                    if not pickles
                    else f"the archive holds two pickles: {pickles[0]} and {pickles[1]}.",
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
        """Take the pickle apart, and find its tensors."""
        pickle = self.content("data.pkl", _LARGEST_PICKLE)
        with self.source.open():
            return pickle, *_taken_apart(pickle)

    def place(self, ref: TensorRef) -> int:
        """Tell at which byte of the file a tensor's storage begins."""
        return self.records[f"data/{ref.storage.key}"].data

    def require_storages(self, refs: Iterable[TensorRef]) -> None:
        """Refuse storages that are missing, compressed or too short."""
        with self.source.open():
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


@dataclass(frozen=True, slots=True, eq=False)
class TorchZip:
    """A torch checkpoint whose pickle has been walked; nothing in it was executed."""

    archive: Archive = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    tree: Tree = field(repr=False)
    _pickle: bytes = field(repr=False)
    _walked: Walked = field(repr=False)
    _dropped: tuple[str, ...] = ()

    @classmethod
    def of(cls, archive: Archive) -> TorchZip:
        """Walk the pickle of an archive and check that every storage is there."""
        archive.require_little_endian()
        pickle, walked, tree = archive.walk()
        archive.require_storages(tree.tensors.values())
        tensors = {name: ref.info(name) for name, ref in tree.tensors.items()}
        return cls(archive, tensors, _read_note(archive), tree, pickle, walked)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.archive.source.path

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return f"torch checkpoint (zip, pickle protocol {self._walked.protocol})"

    @property
    def optimizers(self) -> tuple[OptimizerState, ...]:
        """Every optimizer state dict in it."""
        return self.tree.optimizers

    def without(self, entries: Collection[str]) -> TorchZip:
        """Give the same checkpoint without these entries of its optimizers' states."""
        unknown = [name for name in entries if name not in self.tree.entries]
        if unknown:
            raise ContainerError(f"{self.path.name}: has no entry {unknown[0]!r}.")
        prefixes = tuple(f"{name}." for name in entries)
        left = {n: info for n, info in self.tensors.items() if not n.startswith(prefixes)}
        return replace(self, tensors=left, _dropped=(*self._dropped, *entries))

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype; no other byte of the data is touched."""
        ref = self._ref(name)
        return read_tensor(self.archive.source, name, ref, self.archive.place(ref))

    def span(self, name: str) -> tuple[int, int] | None:
        """Tell where in the file a tensor's bytes lie; None: not in one piece, in order."""
        ref = self._ref(name)
        info = self.tensors[name]
        if ref.lazy or not ref.is_contiguous:
            return None
        start = self.archive.place(ref) + ref.offset * info.nbytes // max(ref.elements, 1)
        return start, start + info.nbytes

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""
        span = self.span(name)
        if span is None:
            return self.read(name).tobytes()[start : start + count]
        return peek_span(self.archive.source, span, start, count)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how large the file becomes when these tensors take these shapes.

        An upper bound: old storages may stay, and room for a note is included.
        """
        new = (TensorInfo(name, shape, self._ref(name).dtype) for name, shape in shapes.items())
        return self.archive.source.size + sum(t.nbytes + 256 for t in new) + _ALLOWANCE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is added to it.

        Records keep their order, bytes and checksums; a table whose storage others read, too, gets
        a storage of its own at the end.
        """
        replacements = {}
        for name, array in changes.items():
            data = stored_bytes(self.archive.source, name, self._ref(name), array)
            replacements[name] = Replacement.of(tuple(array.shape), data)
        return self._write(stage, replacements, metadata)

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Do what `write` does, and wait for the new tensors only when all else is written.

        Tables that share a storage stay one if their new values are equal, which nobody knows yet.
        """
        refs = {name: self._ref(name) for name in changes.shapes}
        if len({ref.storage.key for ref in refs.values()}) < len(refs):
            return self.write(stage, changes.wait(), metadata)
        replacements = {}
        for name, ref in refs.items():
            size = TensorInfo(name, changes.shapes[name], ref.dtype).nbytes
            wait = cache(partial(self._awaited, changes, name))
            content = LaterBytes(size, wait, changes.failed)
            replacements[name] = Replacement(changes.shapes[name], content, size, name)
        return self._write(stage, replacements, metadata)

    def _awaited(self, changes: Promised, name: str) -> memoryview:
        return stored_bytes(self.archive.source, name, self._ref(name), changes.wait()[name])

    def _write(
        self, stage: Path, changes: Mapping[str, Replacement], metadata: Mapping[str, str]
    ) -> Copied:
        source = self.archive.source
        with source.open():
            edited = edit_checkpoint(self._pickle, self._walked, self.tree, changes, self._dropped)
        note = {**self.metadata, **metadata}
        alignment = self._alignment()
        layout = lay_out(self._planned(edited, note, 0), alignment)
        if note:  # a longer note puts the bulk at its old place within a page
            slack = -layout.shift % congruence(source.size)
            layout = lay_out(self._planned(edited, note, slack), alignment)
        # Whoever opens the copy will want to know what is in its pickle.
        with Beside(partial(_taken_apart, edited.pickle)):
            write_spliced(self.path, stage, layout.segments)
        source.require_unchanged()
        untouched = [info.nbytes for name, info in self.tensors.items() if name not in changes]
        return Copied(len(untouched), sum(untouched))

    def _ref(self, name: str) -> TensorRef:
        if name not in self.tensors:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        return self.tree.tensors[name]

    def _alignment(self) -> int:
        stated = self.archive.text(".storage_alignment", str(ALIGNMENT)).strip()
        known = stated.isdecimal() and len(stated) < 6 and 0 < int(stated) <= 1 << 14
        return int(stated) if known else ALIGNMENT

    def _planned(self, edited: Edited, note: Mapping[str, str], slack: int) -> list[Planned]:
        """List the records of the output, in the order of the source."""
        root, planned, last = self.archive.root, list[Planned](), 0
        for name, record in self.archive.records.items():
            key = name.removeprefix("data/") if name.startswith("data/") else None
            if name == NOTE or key in edited.removed:
                continue
            if key is not None and last == 0 and note:
                planned.append(note_record(root, note, slack))
            if name == "data.pkl":
                planned.append(Fresh.of(record.name, edited.pickle))
            elif key is not None and key in edited.storages:
                planned.append(Fresh.holding(record.name, edited.storages[key]))
            elif name == ".format_version" and (edited.added or edited.removed):
                # It promises that offsets follow from the order of the storages.
                planned.append(Fresh.of(record.name, b"0"))
            else:
                planned.append(Kept(record))
            if key is not None:
                last = len(planned)
        if last == 0 and note:
            planned.append(note_record(root, note))
        new = [Fresh.holding(f"{root}data/{key}", edited.storages[key]) for key in edited.added]
        at = last or len(planned)
        return [*planned[:at], *new, *planned[at:]]


@lru_cache(maxsize=1)
def _taken_apart(pickle: bytes) -> tuple[Walked, Tree]:
    walked = walk(pickle)
    return walked, find_tensors(walked)


def _read_note(archive: Archive) -> Mapping[str, str]:
    """Read what an earlier conversion left; anything malformed says nothing."""
    if NOTE not in archive.records:
        return {}
    try:
        note = parse(archive.content(NOTE, _LARGEST_NOTE))
    except (ValueError, ContainerError):
        return {}
    if not isinstance(note, dict):
        return {}
    return {key: value for key, value in note.items() if isinstance(value, str)}
