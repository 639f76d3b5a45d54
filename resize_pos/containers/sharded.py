"""Sharded checkpoints: an index that says which file holds which tensor, and those files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container, Copied
from resize_pos.containers.detect import is_index, open_container
from resize_pos.containers.io.link_or_copy import (
    require_bare,
    require_inside,
    require_no_pointer,
)
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.several_files import PartsContainer
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse, replace_value
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHARD = lazy_regex(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<variant>\.[\w-]+)?\.\w+")
_LARGEST_TOTAL = 2**63
_LARGEST_INDEX = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class ShardedCheckpoint(PartsContainer):
    """An index whose every shard has been opened and agrees with it."""

    index: SourceFile
    tensors: Mapping[str, TensorInfo]
    shards: Mapping[str, Container] = field(repr=False)  # by file name
    _shard_of: Mapping[str, str] = field(repr=False)  # tensor → file name
    _text: str = field(repr=False)
    link: bool = False

    @classmethod
    def open(cls, path: Path) -> ShardedCheckpoint:
        """Read the index and the header of every shard; raise if they disagree."""
        index = SourceFile.of(path)
        text, shard_of = _read_index(index)
        names = list(dict.fromkeys(shard_of.values()))
        nested = next((name for name in names if is_index(name)), None)
        if nested is not None:
            raise ContainerError(f"{path.name}: names {nested}, which is an index, as a shard.")
        missing = [name for name in names if not _is_file(path.parent / name)]
        if missing and isinstance(path, RemotePath):
            from resize_pos.containers.remote.tree import object_info

            object_info(path.parent / missing[0])  # one that may not be seen is refused as such
        if missing:
            raise ContainerError(
                f"{path.name}: {len(missing)} of {len(names)} shards are missing, the first is "
                f"{missing[0]}.",
                "Download or copy the folder again.",
            )
        _require_no_stray(path, names)
        shards = {}
        for name in names:
            file = require_inside(path.parent, name)
            require_no_pointer(file)
            shards[name] = open_container(file)
        _require_agreement(path, shard_of, shards)
        tensors = {name: shards[shard].tensors[name] for name, shard in shard_of.items()}
        return cls(index, tensors, shards, shard_of, text)

    @property
    def path(self) -> Path:
        """Where the index lies."""
        return self.index.path

    @property
    def parts(self) -> Iterable[Container]:
        """The shards, in the order in which the index names them."""
        return self.shards.values()

    def locate(self, name: str) -> tuple[Container, str]:
        """Return the shard that holds a tensor."""
        return self.shards[self._shard_of[name]], name

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        kinds = dict.fromkeys(shard.format for shard in self.shards.values())
        return f"{' and '.join(kinds)} in {len(self.shards)} shards"

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the index and its shards."""
        return (self.path.name, *self.shards)

    def with_configs(self, edited_files: Mapping[str, str], *, link: bool) -> ShardedCheckpoint:
        """Return the same checkpoint, set to copy or to link the shards that do not change."""
        del edited_files  # configs belong to a folder
        return replace(self, link=link)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the bytes written: every file is counted as copied."""
        total = len(self._text) + 4096
        for file, shard in self.shards.items():
            own = {n: shape for n, shape in shapes.items() if self._shard_of[n] == file}
            total += shard.output_bytes(own)
        return total

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Make a folder with the index and its shards, in which only `changes` differ."""
        stage.mkdir()
        return self.write_into(stage, changes, metadata, link=self.link)

    def write_into(
        self,
        folder: Path,
        changes: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str],
        *,
        link: bool,
    ) -> Copied:
        """Write the shards that change, copy or link the others, and write the index last."""
        linked = 0
        for file, shard in self.shards.items():
            new = {name: array for name, array in changes.items() if self._shard_of[name] == file}
            if new:
                shard.write(folder / file, new, metadata)
            else:
                linked += shard.write_or_link(folder / file, link=link).linked
        self.index.require_unchanged()
        text = self._new_index({name: array.shape for name, array in changes.items()})
        (folder / self.path.name).write_bytes(text.encode())
        return self.copied_except(changes) + Copied(0, 0, linked=linked)

    def _new_index(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Adjust the totals in the index by the difference; the rest of the text is not changed.

        A total is not recomputed, because programs disagree on what it counts (shared tensors,
        buffers).
        """
        new = {n: TensorInfo(n, shape, self.tensors[n].dtype) for n, shape in shapes.items()}
        grown = {
            "total_size": sum(i.nbytes - self.tensors[n].nbytes for n, i in new.items()),
            "total_parameters": sum(i.elements - self.tensors[n].elements for n, i in new.items()),
        }
        metadata = parse(self._text).get("metadata")
        text = self._text
        for key, difference in grown.items():
            old = metadata.get(key) if isinstance(metadata, dict) else None
            number = old if type(old) in (int, float) else None
            if difference and number is not None and abs(number) < _LARGEST_TOTAL:
                text = replace_value(text, ("metadata", key), number + difference)
        return text


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long, or it is a link to itself
        return False


def _read_index(index: SourceFile) -> tuple[str, dict[str, str]]:
    path = index.path
    if index.size > _LARGEST_INDEX:
        raise ContainerError(f"{path.name}: is too large for an index.")
    try:
        text = index.read(0, index.size).decode("utf-8")
        document = parse(text)
    except ValueError as error:
        raise ContainerError(f"{path.name}: is not JSON: {error}.") from error
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found:
        raise ContainerError(
            f"{path.name}: has no weight_map.", "An index maps every tensor to the file it is in."
        )
    return text, {name: require_bare(file, path.name) for name, file in found.items()}


def _require_no_stray(path: Path, names: Iterable[str]) -> None:
    """Refuse a shard of the same series that the index does not list."""
    if isinstance(path, RemotePath) and path.scheme in ("http", "https"):
        return  # a web server does not list its files
    known = set(names)
    series = {
        (m["stem"], m["variant"], Path(n).suffix) for n in known if (m := _SHARD.fullmatch(n))
    }
    for file in sorted(path.parent.iterdir()):
        match = _SHARD.fullmatch(file.name)
        if match is None or file.name in known:
            continue
        if (match["stem"], match["variant"], file.suffix) in series:
            raise ContainerError(
                f"{path.name}: does not name {file.name}, which lies beside it.",
                "Two downloads were mixed, or the index is out of date.",
            )


def _require_agreement(
    path: Path, shard_of: Mapping[str, str], shards: Mapping[str, Container]
) -> None:
    for name, file in shard_of.items():
        if name not in shards[file].tensors:
            raise ContainerError(
                f"{path.name}: says that {name} is in {file}, which does not hold it.",
                "The index and the shards do not belong together.",
            )
    for file, shard in shards.items():
        for name in shard.tensors:
            if shard_of.get(name) != file:
                raise ContainerError(
                    f"{path.name}: does not say that {name} is in {file}, which holds it.",
                    "The index and the shards do not belong together.",
                )
