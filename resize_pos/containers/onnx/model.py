"""The parts of an ONNX model that a new image size touches, with their places in the file.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resize_pos.containers.onnx.wire import (
    BYTES,
    Field,
    Frame,
    Integer,
    Read,
    decode_varint,
    fields,
    signed,
)
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_MOST_PARTS = 1_000_000  # nodes, initializers … of one graph
_LARGEST_PART = 64 << 20  # bytes of a node or a description; initializers may be larger
_LONGEST_NAME = 1 << 16
_MOST_DIMS = 64
_DEEPEST = 64  # subgraphs inside each other

# The numbers that fields have in the messages that are read here.
_MODEL_GRAPH, _MODEL_METADATA, _MODEL_FUNCTION = 7, 14, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_VALUE = 11, 12, 13
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TENSOR_FLOATS, _TENSOR_INT32S, _TENSOR_INT64S, _TENSOR_DOUBLES = 4, 5, 7, 10
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_INT32, _INT64 = 6, 7


@dataclass(frozen=True, slots=True)
class Text:
    """A string in the file, and the messages around it (its own frame is the last one)."""

    value: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ModelProperty:
    """A string that the model keeps under a key, and its field."""

    value: str
    field: Field


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor of the model: an initializer, or the value of a constant."""

    name: str
    dims: tuple[Integer, ...]
    data_type: int
    field: Field
    data: tuple[Frame, ...]  # the frames of its bytes, where they lie in this file as they are
    integers: tuple[Field, ...]  # its values, where they are written as varints
    external: Mapping[str, Text]  # where the bytes lie, if they are in another file
    frames: tuple[Frame, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return tuple(dim.value for dim in self.dims)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of an input, an output or a value between two nodes."""

    size: Integer | None  # None: a name stands for it, or nothing
    frames: tuple[Frame, ...]  # the last one is its own


@dataclass(frozen=True, slots=True)
class Value:
    """An input, an output or a value between two nodes, with its type."""

    name: str
    field: Field
    shape: tuple[Dimension, ...] | None

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Its dimensions; None for those without a number."""
        return tuple(d.size.value if d.size is not None else None for d in self.shape or ())


@dataclass(frozen=True, slots=True)
class Node:
    """An operation of the graph."""

    name: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constant: GraphTensor | None  # of a Constant
    lists: Mapping[str, tuple[Integer, ...]]  # its integer attributes
    fill: int | None  # of a ConstantOfShape, if it is an integer
    graphs: tuple[Frame, ...] = ()  # of an If or a Loop

    def __str__(self) -> str:
        return f"{self.kind} {self.name or (self.outputs[0] if self.outputs else '')}".strip()


@dataclass(frozen=True, slots=True)
class Graph:
    """The outline of a model; nodes are parsed when they are asked for."""

    frame: Frame
    initializers: tuple[GraphTensor, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    values: tuple[Value, ...]
    node_fields: tuple[Field, ...]
    metadata: Mapping[str, ModelProperty]
    functions: tuple[Frame, ...] = ()


def read_graph(read: Read, size: int) -> Graph:
    """Read the outline of a model; the bytes of its tensors are skipped."""
    graphs: list[Frame] = []
    functions: list[Frame] = []
    metadata: dict[str, ModelProperty] = {}
    for field in _limited(read, Frame(0, 0, size)):
        if field.number == _MODEL_GRAPH and field.wire == BYTES:
            graphs.append(field.frame)
        elif field.number == _MODEL_FUNCTION and field.wire == BYTES:
            functions.append(field.frame)
        elif field.number == _MODEL_METADATA and field.wire == BYTES:
            key, value = _pair(read, field.frame)
            metadata[key] = ModelProperty(value.value, field)
    if len(graphs) != 1:
        raise ContainerError(f"an ONNX model has one graph, but {len(graphs)} were found.")
    frame = graphs[0]
    tensors: list[GraphTensor] = []
    values: dict[int, list[Value]] = {_GRAPH_INPUT: [], _GRAPH_OUTPUT: [], _GRAPH_VALUE: []}
    nodes: list[Field] = []
    for field in _limited(read, frame):
        if field.wire != BYTES:
            continue
        if field.number == _GRAPH_NODE:
            nodes.append(field)
        elif field.number == _GRAPH_INITIALIZER:
            tensors.append(_tensor(read, field, (frame,)))
        elif field.number in values:
            values[field.number].append(_value(read, field, frame))
        elif field.number == _GRAPH_SPARSE:
            raise ContainerError("the model has sparse initializers, which are not supported.")
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise ContainerError("two initializers of the model have the same name.")
    return Graph(
        frame,
        tuple(tensors),
        tuple(values[_GRAPH_INPUT]),
        tuple(values[_GRAPH_OUTPUT]),
        tuple(values[_GRAPH_VALUE]),
        tuple(nodes),
        metadata,
        tuple(functions),
    )


def read_nodes(read: Read, graph: Graph) -> Iterator[Node]:
    """Parse the operations of the graph, in their order."""
    for field in graph.node_fields:
        yield _node(_in_memory(read, field.frame), field, graph.frame)


def read_integers(read: Read, tensor: GraphTensor) -> tuple[Integer, ...]:
    """Return the values of an integer tensor with their places; empty for other tensors."""
    if tensor.data_type not in (_INT32, _INT64) or tensor.external:
        return ()
    if tensor.data:
        frame, width = tensor.data[-1], 8 if tensor.data_type == _INT64 else 4
        content = read(frame.begin, frame.end - frame.begin)
        return tuple(
            Integer(
                int.from_bytes(content[at : at + width], "little", signed=True),
                frame.begin + at,
                frame.begin + at + width,
                width,
                tensor.data,
            )
            for at in range(0, len(content) - width + 1, width)
        )
    return tuple(
        number for field in tensor.integers for number in _integers(read, field, tensor.frames)
    )


def nested_integers(read: Read, frame: Frame, nodes: int, depth: int = 0) -> Iterator[int]:
    """List all integer constants of a subgraph or a function; `nodes` is the field of its nodes."""
    if depth > _DEEPEST:
        raise ContainerError(f"the model has subgraphs in more than {_DEEPEST} levels.")
    for field in _messages(read, frame):
        if field.number == _GRAPH_INITIALIZER and nodes == _GRAPH_NODE:
            tensor = _tensor(read, field, (frame,))
            yield from (number.value for number in read_integers(read, tensor))
        elif field.number == nodes:
            node = _node(_in_memory(read, field.frame), field, frame)
            yield from (number.value for numbers in node.lists.values() for number in numbers)
            if node.constant is not None:
                yield from (number.value for number in read_integers(read, node.constant))
            for graph in node.graphs:
                yield from nested_integers(read, graph, _GRAPH_NODE, depth + 1)


def _limited(read: Read, frame: Frame) -> Iterator[Field]:
    for count, field in enumerate(fields(read, frame.begin, frame.end)):
        if count >= _MOST_PARTS:
            raise ContainerError(f"the model has more than {_MOST_PARTS} parts.")
        yield field


def _in_memory(read: Read, frame: Frame) -> Read:
    length = frame.end - frame.begin
    if length > _LARGEST_PART:
        raise ContainerError(f"a part of the graph has {length} bytes; {_LARGEST_PART} are read.")
    content = read(frame.begin, length)
    return lambda offset, count: content[offset - frame.begin : offset - frame.begin + count]


def _text(read: Read, frame: Frame) -> str:
    if frame.end - frame.begin > _LONGEST_NAME:
        raise ContainerError(f"a name in the model has {frame.end - frame.begin} bytes.")
    return read(frame.begin, frame.end - frame.begin).decode("utf-8", "backslashreplace")


def _pair(read: Read, frame: Frame, around: tuple[Frame, ...] = ()) -> tuple[str, Text]:
    """Read an entry of a map of strings."""
    key, value = "", Text("", around)
    for field in fields(read, frame.begin, frame.end):
        if field.number == 1 and field.wire == BYTES:
            key = _text(read, field.frame)
        elif field.number == 2 and field.wire == BYTES:
            value = Text(_text(read, field.frame), (*around, frame, field.frame))
    return key, value


def _integers(read: Read, field: Field, frames: tuple[Frame, ...]) -> Iterator[Integer]:
    """List the numbers of a repeated field, packed into one or not."""
    if field.wire != BYTES:
        yield Integer(signed(field.value), field.frame.begin, field.frame.end, 0, frames)
        return
    frame = field.frame
    if frame.end - frame.begin > _LONGEST_NAME:
        raise ContainerError(
            f"a list of integers in the model has {frame.end - frame.begin} bytes."
        )
    content, position = read(frame.begin, frame.end - frame.begin), 0
    while position < len(content):
        value, after = decode_varint(content, position)
        place = (frame.begin + position, frame.begin + after)
        yield Integer(signed(value), *place, 0, (*frames, frame))
        position = after


def _tensor(read: Read, whole: Field, around: tuple[Frame, ...]) -> GraphTensor:
    frames = (*around, whole.frame)
    name, data_type, outside = "", 0, False
    dims: list[Integer] = []
    data: tuple[Frame, ...] = ()
    integers: list[Field] = []
    external: dict[str, Text] = {}
    for field in fields(read, whole.frame.begin, whole.frame.end):
        if field.number == _TENSOR_DIMS:
            dims += _integers(read, field, frames)
        elif field.number == _TENSOR_TYPE:
            data_type = field.value
        elif field.number == _TENSOR_NAME and field.wire == BYTES:
            name = _text(read, field.frame)
        elif field.number in (_TENSOR_RAW, _TENSOR_FLOATS, _TENSOR_DOUBLES):
            if field.wire == BYTES:  # packed numbers have the same bytes as raw data
                data = (*frames, field.frame)
        elif field.number in (_TENSOR_INT32S, _TENSOR_INT64S):
            integers.append(field)
        elif field.number == _TENSOR_EXTERNAL and field.wire == BYTES:
            key, value = _pair(read, field.frame, frames)
            external[key] = value
        elif field.number == _TENSOR_LOCATION:
            outside = field.value == 1
        if len(dims) > _MOST_DIMS or len(integers) > _LONGEST_NAME:
            raise ContainerError(f"a tensor of the model has {len(dims)} dimensions.")
    return GraphTensor(
        name,
        tuple(dims),
        data_type,
        whole,
        data,
        tuple(integers),
        external if outside else {},
        frames,
    )


def _value(read: Read, whole: Field, graph: Frame) -> Value:
    read = _in_memory(read, whole.frame)
    name, shape = "", None
    for field in _messages(read, whole.frame):
        if field.number == 1:
            name = _text(read, field.frame)
        elif field.number == 2:
            for kind in _messages(read, field.frame):  # a sequence or a map has no shape
                for part in _messages(read, kind.frame) if kind.number == 1 else ():
                    if part.number == 2:
                        frames = (graph, whole.frame, field.frame, kind.frame, part.frame)
                        shape = tuple(_dimensions(read, part, frames))
    return Value(name, whole, shape)


def _messages(read: Read, frame: Frame) -> Iterator[Field]:
    return (field for field in fields(read, frame.begin, frame.end) if field.wire == BYTES)


def _dimensions(read: Read, shape: Field, frames: tuple[Frame, ...]) -> Iterator[Dimension]:
    for field in fields(read, shape.frame.begin, shape.frame.end):
        if field.number != 1 or field.wire != BYTES:
            continue
        size = None
        around = (*frames, field.frame)
        for part in fields(read, field.frame.begin, field.frame.end):
            if part.number == 1 and part.wire != BYTES:
                size = Integer(signed(part.value), part.frame.begin, part.frame.end, 0, around)
        yield Dimension(size, around)


def _node(read: Read, whole: Field, graph: Frame) -> Node:
    name = kind = domain = ""
    inputs, outputs = [], []
    constant: GraphTensor | None = None
    lists: dict[str, tuple[Integer, ...]] = {}
    graphs: list[Frame] = []
    frames = (graph, whole.frame)
    for field in fields(read, whole.frame.begin, whole.frame.end):
        if field.wire != BYTES:
            continue
        if field.number == 5:
            attribute, tensor, integers = _attribute(read, field, frames)
            graphs += (f.frame for f in _messages(read, field.frame) if f.number in (6, 11))
            constant = tensor if attribute == "value" else constant
            if integers:
                lists[attribute] = integers
        elif field.number in (1, 2, 3, 4, 7):
            text = _text(read, field.frame)
            if field.number == 1:
                inputs.append(text)
            elif field.number == 2:
                outputs.append(text)
            elif field.number == 3:
                name = text
            elif field.number == 4:
                kind = text
            else:
                domain = text
    filled = kind == "ConstantOfShape" and constant is not None
    numbers = read_integers(read, constant) if filled and constant is not None else ()
    fill = numbers[0].value if len(numbers) == 1 else None
    return Node(
        name, kind, domain, tuple(inputs), tuple(outputs), constant, lists, fill, tuple(graphs)
    )


def _attribute(
    read: Read, whole: Field, frames: tuple[Frame, ...]
) -> tuple[str, GraphTensor | None, tuple[Integer, ...]]:
    around = (*frames, whole.frame)
    name, tensor = "", None
    numbers: list[Integer] = []
    for field in fields(read, whole.frame.begin, whole.frame.end):
        if field.number == 1 and field.wire == BYTES:
            name = _text(read, field.frame)
        elif field.number == 5 and field.wire == BYTES:
            tensor = _tensor(read, field, around)
        elif field.number in (3, 8):
            numbers += _integers(read, field, around)
    return name, tensor, tuple(numbers)
