"""ONNX models whose weights lie in files beside the graph. The output is a folder with all of them.

A new table is spliced into its data file. Padding after it keeps the alignment of what follows, and
the graph's offsets follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from resize_pos.containers.arrays import read_array
from resize_pos.containers.base import Copied, Promised
from resize_pos.containers.io.link_or_copy import link_or_copy, require_bare, require_inside
from resize_pos.containers.io.source_file import TRUNCATED, SourceFile
from resize_pos.containers.io.splice import (
    CopyRange,
    LaterBytes,
    NewBytes,
    Segment,
    congruence,
    write_spliced,
)
from resize_pos.containers.onnx.file import OnnxFile, described, new_dims
from resize_pos.containers.onnx.model import Graph, GraphTensor, Text
from resize_pos.containers.onnx.wire import Edit
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST_NUMBER = 18  # digits


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the bytes of a tensor lie."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class ExternalModel(OnnxFile):
    """A model with at least one tensor in a data file of the same folder."""

    _data: Mapping[str, SourceFile] = field(default_factory=dict, repr=False)
    _places: Mapping[str, _Place] = field(default_factory=dict, repr=False)
    link: bool = False

    is_folder = True

    @classmethod
    def of(cls, source: SourceFile, graph: Graph) -> Self:
        """Open every data file that the model names, and check that its tensors lie inside."""
        tensors, stored = described(source, graph)
        data: dict[str, SourceFile] = {}
        places: dict[str, _Place] = {}
        with source.naming():
            for name, tensor in stored.items():
                if not tensor.external:
                    continue
                location = tensor.external.get("location")
                file = require_bare(location.value if location else "", name)
                if file not in data:
                    data[file] = SourceFile.of(require_inside(source.path.parent, file))
                places[name] = _place(tensor, tensors[name], file, data[file].size)
        return cls(source, tensors, graph, stored, None, (), data, places)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return f"ONNX with weights in {', '.join(self._data)}"

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the graph and of its data files."""
        return (self.path.name, *self._data)

    def with_configs(self, edited_files: Mapping[str, str], *, link: bool) -> ExternalModel:
        """Return the same model, set to copy or to link the data files that do not change."""
        del edited_files
        return replace(self, link=link)

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        place = self._places.get(self.info(name).name)
        if place is None:
            return OnnxFile.read(self, name)
        return read_array(self._data[place.file], self.info(name), place.begin)

    def span(self, name: str) -> tuple[int, int] | None:
        """Return where in the graph's own file a tensor's bytes lie."""
        return None if self.info(name).name in self._places else OnnxFile.span(self, name)

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` little-endian bytes of a tensor, from its byte `start` on."""
        place = self._places.get(self.info(name).name)
        if place is None:
            return OnnxFile.peek(self, name, start, count)
        length = max(0, min(count, place.end - place.begin - start))
        return self._data[place.file].read(place.begin + start, length)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the bytes written: every file is counted as copied."""
        files = sum(file.size + congruence(file.size) for file in self._data.values())
        return OnnxFile.output_bytes(self, shapes) + files

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Make a folder with the graph and its data files."""
        stage.mkdir()
        changes = self._all_changes(changes)
        linked = 0
        for name, file in self._data.items():
            changed = [n for n in changes.shapes if n in self._places and self._at(n).file == name]
            if changed:
                write_spliced(file, stage / name, self._data_segments(name, changed, changes))
            else:
                linked += link_or_copy(file, stage / name, link=self.link)
        write_spliced(self.source, stage / self.path.name, self._segments(changes, metadata))
        return self.copied_except(changes.shapes) + Copied(0, 0, linked=linked)

    def write_unchanged(self, stage: Path) -> Copied:
        """Copy the files as they are."""
        stage.mkdir()
        return self.write_or_link(stage / self.path.name, link=self.link)

    def write_or_link(self, target: Path, *, link: bool) -> Copied:
        """Copy or link all files into the folder of the target."""
        copied = OnnxFile.write_or_link(self, target, link=link)
        for name, file in self._data.items():
            linked = link_or_copy(file, target.parent / name, link=link)
            copied += Copied(0, 0, linked=int(linked))
        return copied

    def _at(self, name: str) -> _Place:
        return self._places[name]

    def _grown(self, name: str, shape: tuple[int, ...]) -> int:
        """Return by how many bytes everything after a new table moves: a multiple of a page."""
        place = self._at(name)
        new = TensorInfo(name, shape, self.info(name).dtype).nbytes
        unit = congruence(self._data[place.file].size)
        return -((place.end - place.begin - new) // unit) * unit

    def _data_segments(self, file: str, changed: list[str], changes: Promised) -> Iterator[Segment]:
        position = 0
        for name in sorted(changed, key=lambda each: self._at(each).begin):
            place = self._at(name)
            other = next(
                (n for n, p in self._places.items() if n != name and _meet(p, place)), None
            )
            if other is not None:
                raise ContainerError(f"{self.path.name}: {name} and {other} share their bytes.")
            length = TensorInfo(name, changes.shapes[name], self.info(name).dtype).nbytes
            moved = self._grown(name, changes.shapes[name])
            yield CopyRange(position, place.begin - position)
            yield LaterBytes(length, partial(self._awaited, changes, name), changes.failed)
            yield NewBytes(bytes(place.end - place.begin + moved - length))
            position = place.end
        yield CopyRange(position, self._data[file].size - position)

    def _table_edits(self, name: str, shape: tuple[int, ...], changes: Promised) -> Iterator[Edit]:
        if name not in self._places:
            yield from OnnxFile._table_edits(self, name, shape, changes)
            return
        tensor = self._stored[name]
        if "checksum" in tensor.external:
            raise ContainerError(
                f"{self.path.name}: {name} has a checksum, which is not supported."
            )
        yield from new_dims(tensor, shape)
        length = TensorInfo(name, shape, self.info(name).dtype).nbytes
        yield from _new_text(tensor.external.get("length"), length)

    def _more_edits(self, changes: Promised) -> Iterator[Edit]:
        """Move the offsets of the tensors that lie after a new table in its file."""
        moved = {
            name: self._grown(name, shape)
            for name, shape in changes.shapes.items()
            if name in self._places
        }
        for name, place in self._places.items():
            before = [
                amount
                for other, amount in moved.items()
                if self._at(other).file == place.file and self._at(other).begin < place.begin
            ]
            if sum(before):
                offset = self._stored[name].external.get("offset")
                yield from _new_text(offset, place.begin + sum(before))


def _place(tensor: GraphTensor, info: TensorInfo, file: str, size: int) -> _Place:
    begin = _number(tensor.external.get("offset"), 0, info.name)
    length = _number(tensor.external.get("length"), size - begin, info.name)
    if length != info.nbytes:
        raise ContainerError(f"{info} takes {info.nbytes} bytes but {length} are stated.")
    if begin + length > size:
        raise ContainerError(
            f"{info.name}: its bytes end at {begin + length}, but {file} has {size}.", TRUNCATED
        )
    return _Place(file, begin, begin + length)


def _number(text: Text | None, default: int, name: str) -> int:
    if text is None:
        return default
    if not (text.value.isascii() and text.value.isdigit()) or len(text.value) > _LONGEST_NUMBER:
        raise ContainerError(f"{name}: {text.value[:40]!r} is no place in a file.")
    return int(text.value)


def _new_text(text: Text | None, value: int) -> Iterator[Edit]:
    if text is not None:
        frame, new = text.frames[-1], str(value).encode()
        yield Edit(frame.begin, frame.end, (NewBytes(new),), len(new), text.frames)


def _meet(one: _Place, other: _Place) -> bool:
    return one.file == other.file and one.begin < other.end and other.begin < one.end
