"""Sharded checkpoints: an index that says which file holds which tensor, and those files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container, Copied, missing, peek_into
from resize_pos.containers.io.link_or_copy import (
    carry_over,
    require_bare,
    require_inside,
    require_no_pointer,
)
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse, replace_value
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

Opener = Callable[[Path], Container]

_INDEX = re.compile(r".+\.index(\.[\w-]+)?\.json")
_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<variant>\.[\w-]+)?\.\w+")
_LARGEST_TOTAL = 2**63
_LARGEST_INDEX = 256 * 2**20


def is_index(path: Path) -> bool:
    """Tell by its name whether a file is the index of a sharded checkpoint."""
    return _INDEX.fullmatch(path.name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class ShardedCheckpoint:
    """An index whose every shard has been opened and agrees with it."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    shards: Mapping[str, Container] = field(repr=False)  # by file name
    _homes: Mapping[str, str] = field(repr=False)  # tensor → file name
    _text: str = field(repr=False)
    copy: bool = False

    @classmethod
    def open(cls, path: Path, opener: Opener) -> ShardedCheckpoint:
        """Read the index and the header of every shard; refuse any disagreement."""
        text, homes = _read_index(path)
        names = list(dict.fromkeys(homes.values()))
        nested = next((name for name in names if is_index(Path(name))), None)
        if nested is not None:
            raise ContainerError(f"{path.name}: names {nested}, which is an index, as a shard.")
        missing = [name for name in names if not _is_file(path.parent / name)]
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
            shards[name] = opener(file)
        _require_agreement(path, homes, shards)
        tensors = {name: shards[home].tensors[name] for name, home in homes.items()}
        return cls(path, tensors, shards, homes, text)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        kinds = dict.fromkeys(shard.format for shard in self.shards.values())
        return f"{' and '.join(kinds)} in {len(self.shards)} shards"

    @property
    def metadata(self) -> Mapping[str, str]:
        """The strings kept in the shards; the first shard that has a key speaks for it."""
        merged: dict[str, str] = {}
        for shard in self.shards.values():
            merged = {**shard.metadata, **merged}
        return merged

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the index and its shards."""
        return (self.path.name, *self.shards)

    def copying(self, copy: bool) -> ShardedCheckpoint:
        """Give the same checkpoint, set to copy or to link the shards that do not change."""
        return replace(self, copy=copy)

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        if name not in self._homes:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        return self.shards[self._homes[name]].read(name)

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""
        return peek_into(self.shards[self._homes[name]], name, start, count)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how much is written: an upper bound, as if nothing could be linked."""
        total = len(self._text) + 4096
        for home, shard in self.shards.items():
            total += shard.output_bytes({n: s for n, s in shapes.items() if self._homes[n] == home})
        return total

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Make a folder with the index and its shards, in which only `changes` differ."""
        stage.mkdir()
        return self.write_into(stage, changes, metadata)

    def write_into(
        self, folder: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write shards that change, carry the others over, and write the index last."""
        linked = 0
        for home, shard in self.shards.items():
            new = {name: array for name, array in changes.items() if self._homes[name] == home}
            if new:
                shard.write(folder / home, new, metadata)
            else:
                linked += carry_over(shard.path, folder / home, copy=self.copy)
        text = self._new_index({name: array.shape for name, array in changes.items()})
        (folder / self.path.name).write_bytes(text.encode())
        kept = [info.nbytes for name, info in self.tensors.items() if name not in changes]
        return Copied(len(kept), sum(kept), files=0, linked=linked)

    def _new_index(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Bring the totals up to date by what changed, and leave the rest of the text alone.

        By the difference: what a total counts (shared tensors, buffers) is its maker's choice.
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


def _read_index(path: Path) -> tuple[str, dict[str, str]]:
    try:
        if path.stat().st_size > _LARGEST_INDEX:
            raise ContainerError(f"{path.name}: is too large for an index.")
        text = path.read_bytes().decode("utf-8")
        document = parse(text)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise ContainerError(f"{path.name}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ContainerError(f"{path.name}: is not JSON: {error}.") from error
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found:
        raise ContainerError(
            f"{path.name}: has no weight_map.", "An index maps every tensor to the file it is in."
        )
    return text, {name: require_bare(home, path.name) for name, home in found.items()}


def _require_no_stray(path: Path, names: Iterable[str]) -> None:
    """Refuse a shard of the same series that the index does not know."""
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
    path: Path, homes: Mapping[str, str], shards: Mapping[str, Container]
) -> None:
    for name, home in homes.items():
        if name not in shards[home].tensors:
            raise ContainerError(
                f"{path.name}: says that {name} is in {home}, which does not hold it.",
                "The index and the shards do not belong together.",
            )
    for home, shard in shards.items():
        for name in shard.tensors:
            if homes.get(name) != home:
                raise ContainerError(
                    f"{path.name}: does not say that {name} is in {home}, which holds it.",
                    "The index and the shards do not belong together.",
                )
