"""Torch's stream format from before 1.6: pickles in a row, then raw storages.

Reading executes nothing. The output is a zip checkpoint, which every torch since 1.6 reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from resize_pos.containers.arrays import stored_bytes
from resize_pos.containers.base import Copied
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import PAGE
from resize_pos.containers.pickle.edit import PickleEditor
from resize_pos.containers.pickle.values import atom_of, entries_of, sequence_of
from resize_pos.containers.pickle.walk import Walked, walk
from resize_pos.containers.torch.edit import Replacement, edit_checkpoint
from resize_pos.containers.torch.new_checkpoint import ROOT, copied_record, write_checkpoint
from resize_pos.containers.torch.settings import change_settings
from resize_pos.containers.torch.stored_tensors import TorchContainer
from resize_pos.containers.torch.tensors import TensorRef, storage_of
from resize_pos.containers.torch.tree import Tree, find_tensors
from resize_pos.containers.zip.layout import Fresh
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_LONGEST_LINE = 1 << 16
_LARGEST_PICKLE = 1 << 29
_PER_RECORD = 256  # bytes of headers and padding that a storage takes in a zip archive


@dataclass(frozen=True, slots=True, eq=False)
class TorchLegacy(TorchContainer):
    """A legacy checkpoint whose pickles have been walked; nothing in them was executed."""

    source: SourceFile = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    tree: Tree = field(repr=False)
    _pickle: bytes = field(repr=False)
    _walked: Walked = field(repr=False)
    _places: Mapping[str, tuple[int, int]] = field(repr=False)  # storage → begin and length
    _dropped: tuple[str, ...] = ()
    _new_settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> TorchLegacy:
        """Walk the pickles and find the storages behind them."""
        source = SourceFile.of(path)
        with source.open() as file:
            _read_preamble(file, source.size)
            start = file.tell()
            walked = _walk(file, source.size)
            file.seek(start)
            pickle = file.read(walked.end)
            keys = _words(_walk(file, source.size))
            tree = find_tensors(walked)
            places = _read_places(file, source.size, walked, keys)
            for name, ref in tree.tensors.items():
                if ref.storage.key not in places:
                    raise ContainerError(f"the storage of {name} is not in the file.")
        tensors = {name: ref.info(name) for name, ref in tree.tensors.items()}
        return cls(source, tensors, tree, pickle, walked, places)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return "torch checkpoint (legacy stream from before torch 1.6)"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Always empty: the format cannot store free-form strings."""
        return {}

    def storage_offset(self, ref: TensorRef) -> int:
        """Return at which byte of the file a tensor's storage begins."""
        return self._places[ref.storage.key][0]

    def without(self, entries: Collection[str]) -> TorchLegacy:
        """Return the same checkpoint without these entries of its optimizers' states."""
        prefixes = tuple(f"{name}." for name in entries)
        left = {n: info for n, info in self.tensors.items() if not n.startswith(prefixes)}
        return replace(self, tensors=left, _dropped=(*self._dropped, *entries))

    def with_settings(self, values: Mapping[str, object]) -> TorchLegacy:
        """Return the same checkpoint, whose output has these settings."""
        return replace(self, _new_settings=values)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the size of the zip checkpoint."""
        headers = _PER_RECORD * (len(self._places) + 8)
        return self.source.size + self.growth(shapes, per_tensor=_PER_RECORD) + headers + PAGE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a zip checkpoint with the same pickle and storages, except for `changes`."""
        replacements = {
            name: Replacement.of(
                tuple(array.shape), stored_bytes(array, self.info(name), self.path.name)
            )
            for name, array in changes.items()
        }
        with self.source.naming():
            edited = edit_checkpoint(
                self._pickle,
                self._walked,
                self.tree,
                replacements,
                self._dropped,
                self._edit_further,
            )
        records = []
        for key, (start, length) in self._places.items():
            name = f"{ROOT}data/{key}"
            if key in edited.storages:
                records.append(Fresh.holding(name, edited.storages[key]))
            elif key not in edited.removed:
                records.append(copied_record(name, self.source, start, length, None))
        records += [Fresh.holding(f"{ROOT}data/{k}", edited.storages[k]) for k in edited.added]
        write_checkpoint(self.source, stage, edited.pickle, records, metadata)
        return self.copied_except(changes)

    def _edit_further(self, editor: PickleEditor) -> None:
        self._shorten_identities(editor)
        change_settings(editor, self.tree.settings, self._new_settings)

    def _shorten_identities(self, editor: PickleEditor) -> None:
        """Remove the last part of storage ids (the view), which a zip checkpoint does not have."""
        for persistent in self._walked.persistent:
            storage = storage_of(persistent)
            if storage is None:
                raise ContainerError(
                    "holds the source code of pickled modules, which a zip checkpoint cannot.",
                    "Save model.state_dict() instead, or write the tensors alone: "
                    "-o NAME.safetensors --drop-extras.",
                )
            if len(storage.items) == 6:
                editor.delete(storage.items[5])


class _Window:
    """The rest of a file from its current position, which the walker reads in small pieces."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._start = file.tell()
        self._end = min(size, self._start + _LARGEST_PICKLE)

    def read(self, count: int) -> bytes:
        if count > self._end - self._file.tell():
            return b""  # the walker reports the missing bytes
        return self._file.read(count)

    def readline(self) -> bytes:
        return self._file.readline(_LONGEST_LINE)

    def tell(self) -> int:
        return self._file.tell() - self._start


def _walk(file: BinaryIO, size: int) -> Walked:
    return walk(cast("BinaryIO", _Window(file, size)), size)


def _read_preamble(file: BinaryIO, size: int) -> None:
    if atom_of(_walk(file, size).root) != _MAGIC:
        raise ContainerError(
            "this is a pickle, but not one of torch's checkpoints.",
            "Only files written by torch.save are read.",
        )
    protocol = atom_of(_walk(file, size).root)
    if protocol != _PROTOCOL:
        raise ContainerError(f"states another protocol than {_PROTOCOL}.")
    system = entries_of(_walk(file, size).root) or []
    orders = [atom_of(e.value) for e in system if atom_of(e.key) == "little_endian"]
    if orders[-1:] != [True]:
        raise ContainerError(
            "was written on a big-endian machine; only little-endian files are read.",
            "Load it with torch and save it again on a little-endian machine.",
        )


def _words(walked: Walked) -> list[str]:
    items = sequence_of(walked.root, "list")
    if items is None:
        raise ContainerError("has no list of storages after its pickle.")
    words = [atom_of(item) for item in items]
    if not all(isinstance(word, str) for word in words):
        raise ContainerError("has a list of storages whose keys are not strings.")
    return [str(word) for word in words]


def _read_places(
    file: BinaryIO, size: int, walked: Walked, keys: list[str]
) -> dict[str, tuple[int, int]]:
    """Find the storages: each is stored as its number of elements, then the elements."""
    widths: dict[str, int] = {}
    for persistent in walked.persistent:
        storage = storage_of(persistent)
        if storage is not None:
            if len(storage.items) == 6 and atom_of(storage.items[5]) is not None:
                raise ContainerError("holds views of storages, as torch before 0.4 wrote them.")
            widths[storage.key] = storage.nbytes // max(storage.count, 1)
    places: dict[str, tuple[int, int]] = {}
    position = file.tell()
    for key in keys:
        file.seek(position)
        count = int.from_bytes(file.read(8), "little")
        if key not in widths or key in places:
            raise ContainerError(f"lists the storage {key!r}, which nothing or too much refers to.")
        places[key] = (position + 8, count * widths[key])
        position += 8 + count * widths[key]
        if position > size:
            raise ContainerError(
                f"ends at byte {size}, inside the storage {key!r}.",
                "The file looks truncated; download or copy it again.",
            )
    return places
