"""The `.metadata` of a torch distributed checkpoint: a pickle, read without running anything.

torch's own reader unpickles this file, and a pickle may call whatever it names. Here it is read by
an unpickler that knows the few classes of which such metadata consists and refuses every other
name; what comes out is checked field by field before torch's reader is given it.
"""

from __future__ import annotations

import io
import itertools
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resize_pos.containers.io.link_or_copy import require_bare, require_inside
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

METADATA = ".metadata"
_LARGEST = 256 * 2**20
_TORCH = "torch.distributed.checkpoint"

# Nothing here does more than hold values: data classes, tuples, enumerations, paths.
_ALLOWED: Mapping[str, frozenset[str]] = {
    f"{_TORCH}.metadata": frozenset(
        {
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        }
    ),
    f"{_TORCH}.filesystem": frozenset({"_StorageInfo"}),
    "torch.serialization": frozenset({"_get_layout"}),  # looks a name up in a table of layouts
    "collections": frozenset({"OrderedDict"}),
    "pathlib": frozenset({"Path", "PosixPath", "PurePosixPath"}),
    "pathlib._local": frozenset({"Path", "PosixPath", "PurePosixPath"}),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of a .distcp file: a whole tensor, a part of one, or a pickled object."""

    index: Any  # torch's MetadataIndex, the key of the entry
    file: str
    begin: int
    end: int


def read_metadata(folder: Path) -> Any:
    """Read and check the metadata; give torch's own `Metadata` object."""
    path = require_inside(folder, METADATA)
    try:
        if path.stat().st_size > _LARGEST:
            raise ContainerError(f"{METADATA} is too large.")
        found = _Reader(io.BytesIO(path.read_bytes())).load()
    except OSError as error:
        raise ContainerError(f"{METADATA} cannot be read: {error.strerror}.") from error
    except ContainerError:
        raise
    except Exception as error:  # a malformed pickle can fail in any way
        raise ContainerError(f"{METADATA} is damaged: {error}.") from error
    _check(found)
    return found


def pieces(folder: Path, metadata: Any) -> tuple[Piece, ...]:
    """List every entry of every file, in the order in which they lie."""
    found = []
    sizes: dict[str, int] = {}
    for index, place in metadata.storage_data.items():
        name = require_bare(place.relative_path, METADATA)
        if name not in sizes:
            path = require_inside(folder, name)
            if not path.is_file():
                raise ContainerError(f"{name}, which {METADATA} names, is missing.")
            sizes[name] = path.stat().st_size
        begin, end = place.offset, place.offset + place.length
        if begin < 0 or end < begin or end > sizes[name]:
            raise ContainerError(
                f"{METADATA} says that {index.fqn} is at bytes {begin} to {end} of {name}, which "
                f"has {sizes[name]}."
            )
        found.append(Piece(index, name, begin, end))
    found.sort(key=lambda piece: (piece.file, piece.begin, piece.end))
    for before, after in itertools.pairwise(found):
        if before.file == after.file and after.begin < before.end:
            raise ContainerError(
                f"{METADATA} says that {before.index.fqn} and {after.index.fqn} overlap in "
                f"{after.file}."
            )
    return tuple(found)


class _Reader(pickle.Unpickler):
    """Builds metadata and nothing else; any other name is refused before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and re.fullmatch(r"\w+", name):
            import torch

            value = getattr(torch, name, None)
            if value is torch.Size or isinstance(value, torch.dtype | torch.layout):
                return value
        raise ContainerError(
            f"{METADATA} asks for {module}.{name}, which no checkpoint needs; it was not run.",
            "There is no unsafe fallback: the file may be malicious, or it was made by other code.",
        )

    def persistent_load(self, pid: Any) -> Any:
        raise ContainerError(f"{METADATA} refers to {str(pid)[:80]!r}, outside of the file.")


def _check(metadata: Any) -> None:
    from torch import Size, dtype
    from torch.distributed.checkpoint import filesystem as files
    from torch.distributed.checkpoint import metadata as kinds

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise ContainerError(f"{METADATA}: {what} is not what it should be.")

    def counts(value: object) -> bool:
        return isinstance(value, Size) and all(type(n) is int and n >= 0 for n in value)

    require(type(metadata) is kinds.Metadata, "its content")
    tensors, places = metadata.state_dict_metadata, metadata.storage_data
    require(isinstance(tensors, dict) and isinstance(places, dict), "the list of tensors")
    for name, entry in tensors.items():
        require(isinstance(name, str), f"the name {name!r}")
        if type(entry) is kinds.BytesStorageMetadata:
            continue
        require(type(entry) is kinds.TensorStorageMetadata, name)
        require(counts(entry.size) and isinstance(entry.chunks, list), f"the size of {name}")
        require(type(entry.properties) is kinds.TensorProperties, f"the type of {name}")
        require(isinstance(entry.properties.dtype, dtype), f"the dtype of {name}")
        for chunk in entry.chunks:
            require(type(chunk) is kinds.ChunkStorageMetadata, f"a part of {name}")
            require(counts(chunk.offsets) and counts(chunk.sizes), f"a part of {name}")
            fits = len(chunk.sizes) == len(chunk.offsets) == len(entry.size) and all(
                begin + size <= whole
                for begin, size, whole in zip(chunk.offsets, chunk.sizes, entry.size, strict=True)
            )
            require(fits, f"a part of {name}")
    for index, place in places.items():
        require(type(index) is kinds.MetadataIndex and index.fqn in tensors, f"the entry {index!r}")
        require(type(place) is files._StorageInfo, f"the place of {index.fqn}")
        numbers = type(place.offset) is int and type(place.length) is int
        require(numbers, f"the place of {index.fqn}")
