"""Torch checkpoints as zip archives (`.pt`, `.pth`, `.bin`, `.ckpt`): spliced, never unpickled."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import stored_bytes
from resize_pos.containers.base import Copied, Promised
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import STRIDE, LaterBytes, congruence, write_spliced
from resize_pos.containers.pickle.edit import PickleEditor
from resize_pos.containers.pickle.walk import Walked
from resize_pos.containers.torch.archive import Archive, SizedPickle, parsed_pickle
from resize_pos.containers.torch.edit import Edited, Replacement, edit_checkpoint
from resize_pos.containers.torch.new_checkpoint import NOTE, note_record
from resize_pos.containers.torch.settings import change_settings
from resize_pos.containers.torch.stored_tensors import TorchContainer
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.torch.tree import Tree
from resize_pos.containers.zip.layout import Fresh, Kept, ZipMember, lay_out
from resize_pos.containers.zip.records import ALIGNMENT
from resize_pos.core.background import Beside
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_NOTE = 1 << 24
_ALLOWANCE = 2 * STRIDE  # bytes for padding, a few longer opcodes and the note


@dataclass(frozen=True, slots=True, eq=False)
class TorchZip(TorchContainer):
    """A torch checkpoint whose pickle has been walked; nothing in it was executed."""

    archive: Archive = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    tree: Tree = field(repr=False)
    _pickle: bytes = field(repr=False)
    _walked: Walked = field(repr=False)
    _dropped: tuple[str, ...] = ()
    _new_settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, archive: Archive) -> TorchZip:
        """Walk the pickle of an archive and check that every storage is there."""
        archive.require_little_endian()
        pickle, walked, tree = archive.walk()
        archive.require_storages(tree.tensors.values())
        tensors = {name: ref.info(name) for name, ref in tree.tensors.items()}
        return cls(archive, tensors, _read_note(archive), tree, pickle, walked)

    @property
    def source(self) -> SourceFile:
        """The file that it is read from."""
        return self.archive.source

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return f"torch checkpoint (zip, pickle protocol {self._walked.protocol})"

    def storage_offset(self, ref: TensorRef) -> int:
        """Return at which byte of the file a tensor's storage begins."""
        return self.archive.storage_offset(ref)

    def without(self, entries: Collection[str]) -> TorchZip:
        """Return the same checkpoint without these entries of its optimizers' states."""
        unknown = [name for name in entries if name not in self.tree.entries]
        if unknown:
            raise ContainerError(f"{self.path.name}: has no entry {unknown[0]!r}.")
        prefixes = tuple(f"{name}." for name in entries)
        left = {n: info for n, info in self.tensors.items() if not n.startswith(prefixes)}
        return replace(self, tensors=left, _dropped=(*self._dropped, *entries))

    def with_settings(self, values: Mapping[str, object]) -> TorchZip:
        """Return the same checkpoint, whose output has these settings."""
        return replace(self, _new_settings=values)

    def _edit_settings(self, editor: PickleEditor) -> None:
        change_settings(editor, self.tree.settings, self._new_settings)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the file size: old storages may stay."""
        return self.source.size + self.growth(shapes, per_tensor=256) + _ALLOWANCE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is added to it.

        Records keep their order, bytes and checksums. If other tensors read a table's storage, the
        table gets a new storage at the end.
        """
        replacements = {}
        for name, array in changes.items():
            data = stored_bytes(array, self.info(name), self.path.name)
            replacements[name] = Replacement.of(tuple(array.shape), data)
        return self._write(stage, replacements, metadata)

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Like `write`, but wait for the new tensors only after everything else is written.

        Tables that share a storage stay tied if their new values are equal. This is known only when
        they are computed, so in this case the copy starts after the computation.
        """
        refs = {name: self.ref(name) for name in changes.shapes}
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
        return stored_bytes(changes.wait()[name], self.info(name), self.path.name)

    def _write(
        self, stage: Path, changes: Mapping[str, Replacement], metadata: Mapping[str, str]
    ) -> Copied:
        with self.source.naming():
            edited = edit_checkpoint(
                self._pickle,
                self._walked,
                self.tree,
                changes,
                self._dropped,
                self._edit_settings,
            )
        note = {**self.metadata, **metadata}
        alignment = self._alignment()
        layout = lay_out(self._planned(edited, note, 0), alignment)
        if note:  # padding the note keeps most data at its old offset within a page
            slack = -layout.shift % congruence(self.source.size)
            layout = lay_out(self._planned(edited, note, slack), alignment)
        if self.source.is_remote:
            for record in layout.moved:
                self.archive.require_header(record)
        # The check of the output needs the parsed new pickle: parse it during the copy.
        with Beside(partial(parsed_pickle, SizedPickle(edited.pickle, layout.size))):
            write_spliced(self.source, stage, layout.segments)
        return self.copied_except(changes)

    def _alignment(self) -> int:
        stated = self.archive.text(".storage_alignment", str(ALIGNMENT)).strip()
        known = stated.isdecimal() and len(stated) < 6 and 0 < int(stated) <= 1 << 14
        return int(stated) if known else ALIGNMENT

    def _planned(self, edited: Edited, note: Mapping[str, str], slack: int) -> list[ZipMember]:
        """List the records of the output, in the order of the source."""
        root, planned, last = self.archive.root, list[ZipMember](), 0
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
                # It states that offsets follow from the order of the storages.
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


def _read_note(archive: Archive) -> Mapping[str, str]:
    """Read the metadata of an earlier conversion; anything malformed is ignored."""
    if NOTE not in archive.records:
        return {}
    try:
        note = parse(archive.content(NOTE, _LARGEST_NOTE))
    except (ValueError, ContainerError):
        return {}
    if not isinstance(note, dict):
        return {}
    return {key: value for key, value in note.items() if isinstance(value, str)}
