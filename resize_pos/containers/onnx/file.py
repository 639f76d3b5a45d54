"""ONNX models in one file: weights, and a graph in which sizes are written as constants.

Only the protobuf is read; nothing in it is executed. A conversion edits the tables, the integers
that depend on the image size, and the sizes that the model states. All other bytes are copied.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from resize_pos.containers.arrays import (
    array_type,
    native,
    read_array,
    require_dtype,
    stored_bytes,
)
from resize_pos.containers.base import Container, Copied, FileContainer, GeometryChange, Promised
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import LaterBytes, NewBytes, Segment, write_spliced
from resize_pos.containers.onnx.model import Graph, GraphTensor, read_graph, read_nodes
from resize_pos.containers.onnx.wire import Edit, Read, edited, string_field
from resize_pos.core.errors import ContainerError, OutputError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST = (1 << 31) - 1  # protobuf reads no larger message
_ALLOWANCE = 1 << 16  # bytes of edited numbers and of the record
_METADATA = 14  # the field of a model
_CHANNELS = (1, 3, 4)
_MOST_REGISTERS = 8
_LARGEST_MASK = 64 << 20  # bytes

# The numbers of TensorProto.DataType. Strings and packed 4-bit integers cannot be tables.
_DTYPES: Mapping[int, str] = {
    1: "F32",
    2: "U8",
    3: "I8",
    4: "U16",
    5: "I16",
    6: "I32",
    7: "I64",
    9: "BOOL",
    10: "F16",
    11: "F64",
    12: "U32",
    13: "U64",
    14: "C64",
    15: "C128",
    16: "BF16",
    17: "F8_E4M3",
    18: "F8_E4M3FNUZ",
    19: "F8_E5M2",
    20: "F8_E5M2FNUZ",
}
_INTEGERS = (6, 7)
_LONGEST_SHAPE = 64  # a 1-D integer tensor up to this length is a part of the graph


def open_model(path: Path) -> Container:
    """Read the outline of a model; its weights may lie in another file beside it."""
    source = SourceFile.of(path)
    with source.naming(), _reading(source) as read:
        graph = read_graph(read, source.size)
    if any(tensor.external for tensor in graph.initializers):
        from resize_pos.containers.onnx.external import ExternalModel

        return ExternalModel.of(source, graph)
    return OnnxFile.of(source, graph)


@dataclass(frozen=True, slots=True, eq=False)
class OnnxFile(FileContainer):
    """A model whose weights lie in its own file."""

    source: SourceFile = field(repr=False)
    tensors: Mapping[str, TensorInfo]
    _graph: Graph = field(repr=False)
    _stored: Mapping[str, GraphTensor] = field(repr=False)
    _edits: tuple[Edit, ...] | None = field(default=None, repr=False)
    _filled: tuple[str, ...] = ()  # tensors whose values follow a rule, already in their new shape

    holds_graph = True

    @classmethod
    def of(cls, source: SourceFile, graph: Graph) -> Self:
        """Describe every initializer, and check that it has as many bytes as its shape needs."""
        tensors, stored = described(source, graph)
        return cls(source, tensors, graph, stored)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return "ONNX"

    @property
    def metadata(self) -> Mapping[str, str]:
        """The strings that the model keeps."""
        return {key: entry.value for key, entry in self._graph.metadata.items()}

    @property
    def image_sizes(self) -> Mapping[str, Size]:
        """The sizes of the inputs that are images."""
        return {f"input {name}": size for name, size in _images(self._graph)}

    @property
    def added_tables(self) -> Mapping[str, tuple[int, int] | None]:
        """The tensors that the graph adds to its patches, and the tokens around these."""
        from resize_pos.containers.onnx.added import added_tables

        images = [name for name, _ in _images(self._graph)]
        shapes = {name: info.shape for name, info in self.tensors.items()}
        with self.source.naming(), _reading(self.source) as read:
            return added_tables(read_nodes(read, self._graph), images, shapes)

    @property
    def layer_weights(self) -> frozenset[str]:
        """The tensors that are only multiplied as matrices, if the input states its size."""
        from resize_pos.containers.onnx.added import multiplied_only

        if not self.image_sizes:
            return frozenset()
        with self.source.naming(), _reading(self.source) as read:
            return multiplied_only(read_nodes(read, self._graph), self.tensors)

    def at_size(self, change: GeometryChange) -> Container:
        """Find the edits that the graph needs, and let the onnx library check the result."""
        try:
            return self._prepared(change, 0)
        except ContainerError:
            try:
                return self._prepared(change, _MOST_REGISTERS)
            except ContainerError:
                pass
            raise

    def _prepared(self, change: GeometryChange, more: int) -> Container:
        """Prepare the graph; up to `more` tokens may have no row in the table."""
        from resize_pos.containers.onnx.size_edits import size_edits
        from resize_pos.containers.onnx.size_moves import filled_shapes

        def follows(name: str) -> bool:
            return self.rule_of(name) is not None

        filled, via = filled_shapes(self._graph, change, follows, more), change.via
        if via is not None:
            shapes = {**via.shapes, **filled_shapes(self._graph, via, follows, more)}
            via = replace(via, shapes=shapes)
        change = replace(change, shapes={**change.shapes, **filled}, via=via)
        with _reading(self.source) as read:
            edits = size_edits(read, self.source.size, self._graph, change)
        tensors = {
            name: replace(info, shape=filled.get(name, info.shape))
            for name, info in self.tensors.items()
        }
        return replace(self, tensors=tensors, _edits=edits, _filled=tuple(filled))

    def rule_of(self, name: str) -> str | None:
        """Return `one value` with its bytes, or `0, 1, 2 …`; None for trained tensors."""
        info = self.tensors.get(name)
        if info is None or not 0 < info.nbytes <= _LARGEST_MASK:
            return None
        data, width = self.peek(name, 0, info.nbytes), info.nbytes // info.elements
        if data == data[:width] * info.elements:
            return f"one value: {data[:width].hex()}"
        return "0, 1, 2 …" if self._counts(name, data) else None

    def _counts(self, name: str, data: bytes) -> bool:
        info = self.tensors[name]
        width = {"I32": 4, "I64": 8}.get(info.dtype)
        if width is None or info.elements != max(info.shape):
            return False
        return all(
            int.from_bytes(data[i * width : (i + 1) * width], "little") == i
            for i in range(info.elements)
        )

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        begin, _ = self._span(name)
        return read_array(self.source, self.info(name), begin)

    def span(self, name: str) -> tuple[int, int] | None:
        """Return where in the file a tensor's bytes lie."""
        return self._span(name)

    def _span(self, name: str) -> tuple[int, int]:
        data = self._stored[self.info(name).name].data
        if not data and self.info(name).nbytes:
            raise TableError(
                f"{name}: its values are not stored as raw data.",
                "Store it so: numpy_helper.from_array(numpy_helper.to_array(TENSOR), NAME), with "
                "onnx.numpy_helper.",
            )
        return (data[-1].begin, data[-1].end) if data else (0, 0)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the file size if these tensors get these shapes."""
        return self.source.size + self.growth(shapes) + _ALLOWANCE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` and the sizes of the graph differ."""
        for name, array in changes.items():
            require_dtype(array, self.info(name), self.path.name)
        return self.write_early(stage, Promised.kept(changes), metadata)

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Like `write`, but wait for the new tensors after everything else is written."""
        segments = self._segments(self._all_changes(changes), metadata)
        write_spliced(self.source, stage, segments)
        return self.copied_except(changes.shapes)

    def check_with_reference(self) -> None:
        """Refuse a file that the onnx library finds inconsistent."""
        if self.source.size > _LARGEST:
            raise OutputError(f"{self.path.name}: protobuf reads no file beyond {_LARGEST} bytes.")
        from resize_pos.containers.onnx.size_edits import check_at_own_size

        with _reading(self.source) as read:
            check_at_own_size(read, self.source.size, self._graph)

    def _segments(self, changes: Promised, metadata: Mapping[str, str]) -> list[Segment]:
        """Put together the new file: edits of the graph, new tables, and the record at the end."""
        if changes.shapes and self._edits is None:
            raise ContainerError(f"{self.path.name}: the graph was not prepared for a new size.")
        edits = list(self._edits or ())
        for name, shape in changes.shapes.items():
            edits += self._table_edits(name, shape, changes)
        edits += self._more_edits(changes)
        for key in metadata:
            if key in self._graph.metadata:
                old = self._graph.metadata[key].field
                edits.append(Edit(old.begin, old.end, (), 0, ()))
        pairs = [
            string_field(1, key.encode())
            + string_field(2, value.encode("utf-8", "backslashreplace"))
            for key, value in metadata.items()
        ]
        note = b"".join(string_field(_METADATA, pair) for pair in pairs)
        return [*edited(edits, self.source.size), NewBytes(note)]

    def _table_edits(self, name: str, shape: tuple[int, ...], changes: Promised) -> Iterator[Edit]:
        tensor = self._stored[self.info(name).name]
        begin, end = self._span(name)
        yield from new_dims(tensor, shape)
        length = TensorInfo(name, shape, self.info(name).dtype).nbytes
        later = LaterBytes(length, partial(self._awaited, changes, name), changes.failed)
        yield Edit(begin, end, (later,), length, tensor.data)

    def _all_changes(self, changes: Promised) -> Promised:
        """Add the tensors whose values follow a rule to the new tables."""
        shapes = {name: self.tensors[name].shape for name in self._filled}

        def wait() -> Mapping[str, NDArray[Any]]:
            arrays = changes.wait()  # first: two threads must not import numpy at once
            import numpy as np

            filled = {}
            for name, shape in shapes.items():
                dtype = array_type(self.tensors[name], self.path.name)
                start = native(np.frombuffer(self.peek(name, 0, 2 * dtype.itemsize), dtype))
                if start[0] == start[-1]:
                    filled[name] = np.full(shape, start[0], dtype)
                else:
                    filled[name] = np.arange(math.prod(shape), dtype=dtype).reshape(shape)
            return {**arrays, **filled}

        return Promised({**changes.shapes, **shapes}, wait, changes.failed)

    def _more_edits(self, changes: Promised) -> Iterator[Edit]:
        """Return what else a new table changes: nothing, if its bytes lie in this file."""
        del changes
        return iter(())

    def _awaited(self, changes: Promised, name: str) -> memoryview:
        """Wait for a new tensor, and return the bytes that the file stores."""
        array = changes.wait()[name]  # wait first: two threads must not import numpy at once
        return stored_bytes(array, self.tensors[name], self.path.name)


def described(
    source: SourceFile, graph: Graph
) -> tuple[dict[str, TensorInfo], dict[str, GraphTensor]]:
    """Describe every initializer that holds weights; one with too few bytes is refused."""
    stored = {tensor.name: tensor for tensor in graph.initializers if _is_weight(tensor)}
    tensors = {
        name: TensorInfo(name, tensor.shape, _DTYPES[tensor.data_type])
        for name, tensor in stored.items()
    }
    for name, info in tensors.items():
        data = stored[name].data
        if min(info.shape, default=1) < 0:
            raise ContainerError(f"{source.path.name}: {name}: {list(info.shape)} is no shape.")
        if data and data[-1].end - data[-1].begin != info.nbytes:
            raise ContainerError(
                f"{source.path.name}: {info} takes {info.nbytes} bytes but the file holds "
                f"{data[-1].end - data[-1].begin}."
            )
    return tensors, stored


def new_dims(tensor: GraphTensor, shape: tuple[int, ...]) -> Iterator[Edit]:
    """Return the edits of a tensor's own shape."""
    for dim, size in zip(tensor.dims, shape, strict=True):
        if dim.value != size:
            yield dim.changed(size)


@contextmanager
def _reading(source: SourceFile) -> Iterator[Read]:
    """Open the file for a parser that jumps from field to field."""
    with (
        source.handle() as handle,
        io.BufferedReader(io.FileIO(handle, closefd=False)) as file,
    ):

        def read(offset: int, count: int) -> bytes:
            file.seek(offset)
            return file.read(count)

        yield read


def _is_weight(tensor: GraphTensor) -> bool:
    """Leave out strings, packed integers, and the short integer lists that are shapes."""
    if tensor.data_type not in _DTYPES:
        return False
    listed = len(tensor.dims) <= 1 and max(tensor.shape, default=1) <= _LONGEST_SHAPE
    return not (tensor.data_type in _INTEGERS and listed)


def _images(graph: Graph) -> Iterator[tuple[str, Size]]:
    """List the inputs with the axes N C H W or N H W C, and the size of their image."""
    weights = {tensor.name for tensor in graph.initializers}
    for value in graph.inputs:
        if value.name in weights or len(value.sizes) != 4:
            continue
        sizes = value.sizes
        height, width = sizes[2:] if sizes[1] in _CHANNELS else sizes[1:3]
        if height and width and (sizes[1] in _CHANNELS or sizes[3] in _CHANNELS):
            yield value.name, Size(height, width)
