"""TorchScript archives, such as OpenAI's CLIP: the tensors of the module, never its program.

Read without running anything; written as a plain checkpoint, a dict of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Copied
from resize_pos.containers.io.splice import PAGE
from resize_pos.containers.torch.arrays import peek_span, read_tensor, stored_bytes
from resize_pos.containers.torch.edit import TensorSpec
from resize_pos.containers.torch.new_checkpoint import (
    ROOT,
    carried_spec,
    copied_record,
    fresh_pickle,
    write_checkpoint,
)
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.torch.tree import Tree
from resize_pos.containers.torch.zip_checkpoint import Archive
from resize_pos.containers.zip.layout import Fresh
from resize_pos.core.errors import TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PER_RECORD = 512  # bytes of headers, padding and pickle that a storage takes


def is_torchscript(archive: Archive) -> bool:
    """Tell a program from a plain checkpoint."""
    return "constants.pkl" in archive.records


@dataclass(frozen=True, slots=True, eq=False)
class TorchScript:
    """A TorchScript archive whose attributes have been walked."""

    archive: Archive = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    tree: Tree = field(repr=False)

    @classmethod
    def of(cls, archive: Archive) -> TorchScript:
        """Walk the attributes of the module; its code is not looked at."""
        archive.require_little_endian()
        tree = archive.walk()[2]
        archive.require_storages(tree.tensors.values())
        return cls(archive, {name: ref.info(name) for name, ref in tree.tensors.items()}, tree)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.archive.source.path

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return "TorchScript archive"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Nothing: the format has no place for it."""
        return {}

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype; no other byte of the data is touched."""
        ref = self._ref(name)
        return read_tensor(self.archive.source, name, ref, self.archive.place(ref))

    def span(self, name: str) -> tuple[int, int] | None:
        """Tell where in the file a tensor's bytes lie; None: not in one piece, in order."""
        ref, info = self._ref(name), self.tensors[name]
        if ref.lazy or not ref.is_contiguous:
            return None
        step = info.nbytes // max(ref.elements, 1)
        start = self.archive.place(ref) + ref.offset * step
        return start, start + info.nbytes

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""
        span = self.span(name)
        if span is None:
            return self.read(name).tobytes()[start : start + count]
        return peek_span(self.archive.source, span, start, count)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how large the checkpoint becomes when these tensors take these shapes."""
        new = (TensorInfo(name, shape, self._ref(name).dtype) for name, shape in shapes.items())
        names = _PER_RECORD * (len(self.tensors) + 8) + sum(map(len, self.tensors))
        return self.archive.source.size + sum(t.nbytes for t in new) + names + PAGE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a dict of all tensors as a zip checkpoint; shared storages stay shared."""
        source = self.archive.source
        records: list[Fresh] = []
        keys: dict[str, str] = {}  # of the storages that are carried over
        specs: list[tuple[str, TensorSpec]] = []
        for name in self.tensors:
            ref, key = self._ref(name), str(len(records))
            if name in changes:
                data = stored_bytes(source, name, ref, changes[name])
                records.append(Fresh.of(f"{ROOT}data/{key}", data))
                specs.append((name, TensorSpec(ref.dtype, tuple(changes[name].shape), key)))
                continue
            if ref.storage.key not in keys:
                keys[ref.storage.key] = key
                records.append(self._carried(ref, key))
            specs.append((name, carried_spec(ref, keys[ref.storage.key])))
        write_checkpoint(self.path, stage, fresh_pickle(specs), records, metadata)
        source.require_unchanged()
        untouched = [info.nbytes for name, info in self.tensors.items() if name not in changes]
        return Copied(len(untouched), sum(untouched))

    def _carried(self, ref: TensorRef, key: str) -> Fresh:
        record, length = self.archive.records[f"data/{ref.storage.key}"], ref.storage.nbytes
        crc = record.crc if record.size == length else None
        return copied_record(f"{ROOT}data/{key}", self.path, record.data, length, crc)

    def _ref(self, name: str) -> TensorRef:
        if name not in self.tensors:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        return self.tree.tensors[name]
