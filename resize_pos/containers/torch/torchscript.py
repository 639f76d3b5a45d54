"""TorchScript archives, such as OpenAI's CLIP: the tensors of the module, never its program.

Reading runs nothing. The output is a plain checkpoint, a dict of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import stored_bytes
from resize_pos.containers.base import Copied, OptimizerState
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import PAGE
from resize_pos.containers.torch.archive import Archive
from resize_pos.containers.torch.edit import TensorSpec
from resize_pos.containers.torch.new_checkpoint import (
    ROOT,
    copied_record,
    copied_spec,
    fresh_pickle,
    write_checkpoint,
)
from resize_pos.containers.torch.stored_tensors import TorchContainer
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.containers.torch.tree import Tree
from resize_pos.containers.zip.layout import Fresh
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.notes import Note
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.reformat import Exported

_PER_RECORD = 512  # bytes of headers, padding and pickle that a storage takes


@dataclass(frozen=True, slots=True, eq=False)
class TorchScript(TorchContainer):
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
    def source(self) -> SourceFile:
        """The file that it is read from."""
        return self.archive.source

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return "TorchScript archive"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Always empty: the format cannot store free-form strings."""
        return {}

    @property
    def settings(self) -> Mapping[str, object]:
        """Always empty: the output holds only the tensors of the module."""
        return {}

    @property
    def optimizers(self) -> tuple[OptimizerState, ...]:
        """Always empty: the output holds only the tensors of the module."""
        return ()

    def storage_offset(self, ref: TensorRef) -> int:
        """Return at which byte of the file a tensor's storage begins."""
        return self.archive.storage_offset(ref)

    output_tag = "state-dict"

    @property
    def notes(self) -> tuple[Note, ...]:
        """Say that the program is lost, before and after."""
        return (
            Note(
                "the source is a TorchScript archive; the output holds its tensors alone, as a "
                "plain state dict, and not its program: torch.load and load_state_dict read it, "
                "torch.jit.load does not."
            ),
        )

    @property
    def wrapper(self) -> str:
        """Always empty: the output is a plain state dict."""
        return ""

    def write_unchanged(self, stage: Path) -> Copied:
        """Write the tensors alone, as for a new size: the same kind of file in every case."""
        return self.write(stage, {}, {})

    def exported(self) -> Exported:
        """Omit the program and its flags without --drop-extras: no tensor file can store them."""
        return replace(TorchContainer.exported(self), asks_for_extras=False)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the size of the checkpoint."""
        names = _PER_RECORD * (len(self.tensors) + 8) + sum(map(len, self.tensors))
        return self.source.size + self.growth(shapes) + names + PAGE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a dict of all tensors as a zip checkpoint; shared storages stay shared."""
        records: list[Fresh] = []
        keys: dict[str, str] = {}  # of the storages that are copied
        specs: list[tuple[str, TensorSpec]] = []
        for name in self.tensors:
            ref, key = self.ref(name), str(len(records))
            if name in changes:
                data = stored_bytes(changes[name], self.info(name), self.path.name)
                records.append(Fresh.of(f"{ROOT}data/{key}", data))
                specs.append((name, TensorSpec(ref.dtype, tuple(changes[name].shape), key)))
                continue
            if ref.storage.key not in keys:
                keys[ref.storage.key] = key
                records.append(self._copied(ref, key))
            specs.append((name, copied_spec(ref, keys[ref.storage.key])))
        write_checkpoint(self.source, stage, fresh_pickle(specs), records, metadata)
        return self.copied_except(changes)

    def _copied(self, ref: TensorRef, key: str) -> Fresh:
        record, length = self.archive.records[f"data/{ref.storage.key}"], ref.storage.nbytes
        crc = record.crc if record.size == length else None
        return copied_record(f"{ROOT}data/{key}", self.source, record.data, length, crc)
