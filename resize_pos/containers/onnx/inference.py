"""The shapes of all values of a model, inferred by the `onnx` library from a copy without weights.

The copy has the same nodes and small constants. Large initializers become inputs of the same type,
so the library parses a few hundred kB even if the model has gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resize_pos.containers.io.splice import CopyRange, NewBytes
from resize_pos.containers.onnx.model import Graph, GraphTensor
from resize_pos.containers.onnx.wire import (
    Edit,
    Field,
    Read,
    edited,
    encode_varint,
    number_field,
    string_field,
)
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

Shape = tuple[int | None, ...]

SMALL = 1024  # bytes; larger initializers hold weights, not shapes

_GRAPH_INPUT = 11
_WHICH = lazy_regex(
    r"\(op_type: ?(?P<kind>[^,)]*)(?:, node name: ?(?P<name>[^)]*))?\): ?(?P<why>.*)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A model as it would be at some size."""

    inputs: Mapping[str, tuple[int, ...]]  # every dimension of every input
    shapes: Mapping[str, tuple[int, ...]]  # of the tables that change
    edits: tuple[Edit, ...] = ()


def infer(
    read: Read, size: int, graph: Graph, variant: Variant, *, strict: bool
) -> Mapping[str, Shape]:
    """Return the shape of every value; with `strict`, refuse a model that is not consistent."""
    onnx = _library()
    model = _outline(read, size, graph, variant)
    try:
        if strict:
            onnx.checker.check_model(model)
        found = onnx.shape_inference.infer_shapes(
            model, check_type=strict, strict_mode=strict, data_prop=True
        )
        if isinstance(found, bytes):
            found = onnx.load_model_from_string(found)
    except Exception as error:  # the library raises classes of several modules
        raise ContainerError(
            f"the graph is not consistent at the new size: {_node_in(error)}",
            "Convert the checkpoint, and export it again at the new size.",
        ) from error
    shapes: dict[str, Shape] = {tensor.name: tensor.shape for tensor in graph.initializers}
    shapes |= variant.shapes
    for value in (*found.graph.input, *found.graph.value_info, *found.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            shapes[value.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim
            )
    return shapes


def _library() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.shape_inference
    except ImportError:
        raise ContainerError(
            "the package onnx is needed to check the graph at the new size.",
            "Install it: pip install 'resize-pos[onnx]'",
        ) from None
    return onnx


def _node_in(error: Exception) -> str:
    """Return the node that the library complains about, and its reason, in one line."""
    text = " ".join(str(error).split())
    found = _WHICH.search(text)
    if found is None:
        return text[:500]
    why = found["why"].replace("[ShapeInferenceError] ", "").replace("[TypeInferenceError] ", "")
    why = why.partition(" (op_type")[0]  # nodes after it fail because this one does
    return f"node {found['name'] or '(no name)'} ({found['kind']}): {why[:300]}"


def _outline(read: Read, size: int, graph: Graph, variant: Variant) -> bytes:
    edits = [*variant.edits]
    listed = {value.name for value in graph.inputs}
    for tensor in graph.initializers:
        if _is_large(tensor) or tensor.name in variant.shapes:
            shape = variant.shapes.get(tensor.name, tensor.shape)
            new = b"" if tensor.name in listed else _as_input(tensor, shape)
            edits.append(replaced(tensor.field, new, graph))
    for value in graph.values:
        edits.append(replaced(value.field, b"", graph))
    for value in graph.outputs:
        for dimension in value.shape or ():  # sizes of the source; inference finds the new ones
            frame = dimension.frames[-1]
            edits.append(Edit(frame.begin, frame.end, (), 0, dimension.frames))
    for value in graph.inputs:
        sizes = variant.inputs.get(value.name) or variant.shapes.get(value.name) or ()
        for dimension, number in zip(value.shape or (), sizes, strict=False):
            frame, content = dimension.frames[-1], number_field(1, number)
            edit = (NewBytes(content),)
            edits.append(Edit(frame.begin, frame.end, edit, len(content), dimension.frames))
    pieces = []
    for segment in edited(edits, size):
        if isinstance(segment, CopyRange):
            pieces.append(read(segment.offset, segment.length))
        elif isinstance(segment, NewBytes):
            pieces.append(bytes(segment.data))
    return b"".join(pieces)


def replaced(field: Field, new: bytes, graph: Graph) -> Edit:
    """Return the edit that writes other fields in the place of one of the graph's own."""
    return Edit(field.begin, field.end, (NewBytes(new),), len(new), (graph.frame,))


def _is_large(tensor: GraphTensor) -> bool:
    return bool(tensor.external) or tensor.field.end - tensor.field.begin > SMALL


def _as_input(tensor: GraphTensor, shape: Iterable[int]) -> bytes:
    """Write the description of an input that has the name and type of an initializer."""
    dims = b"".join(string_field(1, number_field(1, size)) for size in shape)
    kind = encode_varint(1 << 3) + encode_varint(tensor.data_type) + string_field(2, dims)
    name = string_field(1, tensor.name.encode("utf-8", "backslashreplace"))
    return string_field(_GRAPH_INPUT, name + string_field(2, string_field(1, kind)))
