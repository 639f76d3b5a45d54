"""Which integers of a graph depend on the image size, and what they become.

Exporters write sizes as constants: the shapes of Reshape and Expand, the ends of a Slice, the parts
of a Split, the sizes of a Resize, the window of a pooling. The shapes of all values at the old and
at the new size show which of them must change. What is not clear is refused with its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from resize_pos.containers.base import GeometryChange
from resize_pos.containers.io.splice import NewBytes
from resize_pos.containers.onnx.added_only import require_added
from resize_pos.containers.onnx.fold import FOLDED, constant_node, folded
from resize_pos.containers.onnx.inference import Shape, Variant, infer, replaced
from resize_pos.containers.onnx.model import Graph, Node, Value, read_integers, read_nodes
from resize_pos.containers.onnx.node_rules import NodeRules
from resize_pos.containers.onnx.reshape import new_sizes
from resize_pos.containers.onnx.size_moves import (
    image_axes,
    known,
    moves,
    require_flat,
    require_no_chance,
    rows,
    second_half,
)
from resize_pos.containers.onnx.size_numbers import require_no_size_as_factor
from resize_pos.containers.onnx.wire import Edit, Integer, Read
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size


def size_edits(read: Read, size: int, graph: Graph, change: GeometryChange) -> tuple[Edit, ...]:
    """Return every edit that a new size needs besides the tensors themselves, and check them.

    A grid may get another shape and as many cells: 3×5 → 5×3. Then no shape of the graph shows what
    depends on the grid, so the way leads over a size with another number of cells.
    """
    axes = {value.name: image_axes(value, change.from_size) for value in graph.inputs}
    source = _Source(read, size, graph, axes)
    if change.via is None:
        return _Sizes(source, change, _Stage(change.from_size)).edits()
    try:
        half = _Sizes(source, change.via, _Stage(change.from_size)).stage()
    except ContainerError as error:
        error.message = (
            f"{change.to_size} px has as many cells as {change.from_size} px, so "
            f"{change.via.to_size} px was tried to find what depends on the size: {error.message}"
        )
        raise
    return _Sizes(source, second_half(change, change.via), half).edits()


def check_at_own_size(read: Read, size: int, graph: Graph) -> None:
    """Let the onnx library check a model as it is."""
    inputs = {value.name: tuple(s or 1 for s in value.sizes) for value in graph.inputs}
    infer(read, size, graph, Variant(inputs, {}), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The file, its graph, and which axes of each input are an image."""

    read: Read
    size: int
    graph: Graph
    axes: Mapping[str, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """The model at some size: what differs from the file."""

    size: Size | None
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    integers: Mapping[Integer, int] = field(default_factory=dict)
    positions: tuple[Edit, ...] = ()


class _Sizes(NodeRules):
    """One search: the graph, its shapes at the old size, and the integers that change."""

    def __init__(self, source: _Source, change: GeometryChange, start: _Stage) -> None:
        self._size, self._graph, self._change = source.size, source.graph, change
        self._axes = source.axes
        initializers = {tensor.name: tensor for tensor in self._graph.initializers}
        stored = {name: tensor.shape for name, tensor in initializers.items()}
        super().__init__(
            source.read,
            tuple(read_nodes(source.read, source.graph)),
            initializers,
            moves(change, {**stored, **start.tables}),
            tuple(((old.height, old.width), (new.height, new.width)) for old, new in change.grids),
            start.integers,
        )
        require_no_chance(self._nodes)
        require_flat(self._nodes, self._graph.functions, self._read, self._moves)
        self._require_image()
        stored_values = {*initializers, *(n.outputs[0] for n in self._nodes if n.constant)}
        require_added(self._nodes, change.shapes, stored_values)
        require_no_size_as_factor(self._nodes, initializers, source.read, change, stored)
        self._unfollowed = {n.outputs[0] for n in self._nodes if n.kind in FOLDED and not n.domain}
        self._positions = tuple(self._more_positions(rows(change, stored)))
        self._old = self._shapes_at(start, strict=False)
        self._new = self._old

    def edits(self) -> tuple[Edit, ...]:
        """Return the edits of integers and of stated shapes."""
        integers = (number.changed(value) for number, value in self._changed().items())
        return (*integers, *self._positions, *self._described())

    def stage(self) -> _Stage:
        """Return the model at the new size."""
        return self._at_new(self._changed())

    def _changed(self) -> dict[Integer, int]:
        try:
            return self._settled(self._guessed())
        except ContainerError:  # a guess may stand in the way; without any it only takes longer
            return self._settled({})

    def _settled(self, changed: dict[Integer, int]) -> dict[Integer, int]:
        """Infer shapes and derive integers from them in turn, until nothing changes."""
        for _ in range(len(self._nodes) + 2):
            self._new = self._shapes_at(self._at_new(changed), strict=False)
            again = self._exact(changed)
            if again == changed:
                break
            changed = again
        self._new = self._shapes_at(self._at_new(changed), strict=True)
        self._require_known()
        return changed

    # The two sizes of the model.

    def _require_image(self) -> None:
        size = self._change.from_size
        if size is None or any(axis is not None for axis in self._axes.values()):
            return
        shown = ", ".join(f"{v.name} {[s or '?' for s in v.sizes]}" for v in self._images())
        raise ContainerError(
            f"no input of the model has {size} pixels: {shown or 'none'}.",
            "If the tables were read with a wrong grid, state it: --from SIZE --prefix N.",
        )

    def _images(self) -> Iterator[Value]:
        return (value for value in self._graph.inputs if value.name not in self._initializers)

    def _inputs(self, size: Size | None) -> dict[str, tuple[int, ...]]:
        found = {}
        for value in self._images():
            sizes = [number or 1 for number in value.sizes]
            axes = self._axes[value.name]
            if size is not None and axes is not None:
                sizes[axes], sizes[axes + 1] = size.height, size.width
            found[value.name] = tuple(sizes)
        return found

    def _at_new(self, changed: Mapping[Integer, int]) -> _Stage:
        return _Stage(self._change.to_size, self._change.shapes, changed, self._positions)

    def _shapes_at(self, stage: _Stage, *, strict: bool) -> Mapping[str, Shape]:
        """Infer shapes; where the library cannot follow a list of integers, compute it."""
        constants = self._constants(stage.integers)
        given: dict[str, bytes] = {}
        while True:
            nodes = [
                replaced(part, given[node.outputs[0]], self._graph)
                for part, node in zip(self._graph.node_fields, self._nodes, strict=True)
                if node.outputs and node.outputs[0] in given
            ]
            edits = (*(number.changed(n) for number, n in stage.integers.items()), *nodes)
            edits += stage.positions
            variant = Variant(self._inputs(stage.size), stage.tables, edits)
            shapes = infer(self._read, self._size, self._graph, variant, strict=strict)
            lists = folded(self._nodes, constants, shapes)
            found = {
                name: constant_node(name, lists[name], single=shapes.get(name) == ())
                for name in self._unfollowed
                if name in lists
            }
            if found.keys() <= given.keys():
                return shapes
            given = found

    def _more_positions(self, counts: Mapping[int, int]) -> Iterator[Edit]:
        """Continue constants that number the rows of a table: 0, 1, 2 …"""
        for node in self._nodes:
            tensor = node.constant if node.kind == "Constant" else None
            if tensor is None or not tensor.data or not set(tensor.shape) & counts.keys():
                continue
            numbers = read_integers(self._read, tensor)
            if [number.value for number in numbers] != list(range(max(tensor.shape))):
                continue
            count = max(tensor.shape)
            for dim in tensor.dims:
                if dim.value == count:
                    yield dim.changed(counts[count])
            width, frame = numbers[0].width, tensor.data[-1]
            new = b"".join(i.to_bytes(width, "little") for i in range(counts[count]))
            yield Edit(frame.begin, frame.end, (NewBytes(new),), len(new), tensor.data)

    def _constants(self, changed: Mapping[Integer, int]) -> dict[str, list[int]]:
        """Return the short lists of integers that the model stores, with their new values."""
        stored = {node.outputs[0] for node in self._nodes if node.kind == "Constant"}
        found = {}
        for name in stored | self._initializers.keys():
            numbers = [n for n in self.elements(name) or () if n is not None]
            if numbers:
                found[name] = [changed.get(number, number.value) for number in numbers]
        return found

    # The integers that change.

    def _guessed(self) -> dict[Integer, int]:
        """Guess from the old shapes alone; this saves most rounds of inference."""
        changed: dict[Integer, int] = {}
        for node in self._nodes:
            if node.kind != "Reshape" or node.domain:
                continue
            elements = self.elements(node.inputs[1])
            before, after = known(self._old, node.inputs[0]), known(self._old, node.outputs[0])
            if elements is None or before is None or after is None or len(elements) != len(after):
                continue
            moved = [self.moved(size) for size in before]
            sizes = new_sizes(before, moved, after, self._moves, self._grids) or after
            for number, size in zip(elements, sizes, strict=True):
                if number is not None and self.value(number) > 0 and number.value != size:
                    changed[number] = size
        return changed

    def _exact(self, before: Mapping[Integer, int]) -> dict[Integer, int]:
        """Derive every integer from the shapes at both sizes; without shapes, keep the guess."""
        changed: dict[Integer, int] = {}
        wanted_by: dict[Integer, tuple[int, Node]] = {}
        for node in self._nodes:
            wanted = self.wanted(node)
            if wanted is None:
                wanted = [
                    (number, before[number])
                    for name in node.inputs[1:]
                    for number in self.elements(name) or ()
                    if number is not None and number in before
                ]
                changed |= {n: value for n, value in wanted if n not in wanted_by}
                continue
            for number, value in wanted:
                other = wanted_by.setdefault(number, (value, node))
                if other[0] != value:
                    raise ContainerError(
                        f"the nodes {other[1]} and {node} share the constant {self.value(number)}, "
                        f"which would have to be {other[0]} for one and {value} for the other."
                    )
                changed[number] = value
        return {number: value for number, value in changed.items() if value != number.value}

    # What is left: the description of the values, and the proof.

    def _described(self) -> Iterator[Edit]:
        """Correct the sizes that the model states for its inputs, outputs and inner values."""
        sizes = self._inputs(self._change.to_size)
        for value in (*self._graph.inputs, *self._graph.values, *self._graph.outputs):
            new = sizes.get(value.name) or self._new.get(value.name, ())
            for dimension, now in zip(value.shape or (), new, strict=False):
                if dimension.size is not None and now is not None and now != dimension.size.value:
                    yield dimension.size.changed(now)

    def _require_known(self) -> None:
        """Refuse a graph in which the new size cannot be followed from the input to the output."""
        for node in self._nodes:
            for name in node.outputs:
                if name and known(self._new, name) is None:
                    raise ContainerError(
                        f"node {node}: the shape of {name} at the new size is not known, so the "
                        "graph cannot be checked.",
                        f"The operators of {node.domain} are not followed: convert the model "
                        "before it is optimised for a runtime."
                        if node.domain
                        else None,
                    )
