"""Which integers of a graph depend on the image size, and what they become.

Exporters write sizes as constants: the shapes of Reshape and Expand, the ends of a Slice, the parts
of a Split, the sizes of a Resize, the window of a pooling. The shapes of all values at the old and
at the new size show which of them must change. What is not clear is refused with its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from resize_pos.containers.base import GeometryChange
from resize_pos.containers.io.splice import NewBytes
from resize_pos.containers.onnx.fold import constant_node, folded
from resize_pos.containers.onnx.inference import Shape, Variant, infer, replaced
from resize_pos.containers.onnx.model import Graph, Node, Value, read_integers, read_nodes
from resize_pos.containers.onnx.reshape import GridPair, new_sizes
from resize_pos.containers.onnx.size_moves import (
    image_axes,
    known,
    moves,
    require_no_chance,
    rows,
)
from resize_pos.containers.onnx.wire import Edit, Integer, Read
from resize_pos.core.errors import ContainerError
from resize_pos.core.geometry import Size

_FEW_TOKENS = 16  # a class token, registers: positions that stay where they are
_LONGEST_SHAPE = 64
_POOLING = frozenset({"AveragePool", "MaxPool", "LpPool"})

Elements = tuple[Integer | None, ...]  # None: computed by the graph
Wanted = Sequence[tuple[Integer, int]]


def size_edits(read: Read, size: int, graph: Graph, change: GeometryChange) -> tuple[Edit, ...]:
    """Return every edit that a new size needs besides the tensors themselves, and check them."""
    return _Sizes(read, size, graph, change).edits()


def check_at_own_size(read: Read, size: int, graph: Graph) -> None:
    """Let the onnx library check a model as it is."""
    inputs = {value.name: tuple(s or 1 for s in value.sizes) for value in graph.inputs}
    infer(read, size, graph, Variant(inputs, {}), strict=True)


class _Sizes:
    """One search: the graph, its shapes at the old size, and the integers that change."""

    def __init__(self, read: Read, size: int, graph: Graph, change: GeometryChange) -> None:
        self._read, self._size, self._graph, self._change = read, size, graph, change
        self._nodes = tuple(read_nodes(read, graph))
        require_no_chance(self._nodes)
        self._producer = {name: node for node in self._nodes for name in node.outputs}
        self._initializers = {tensor.name: tensor for tensor in graph.initializers}
        self._moves = moves(change, self._initializers)
        self._grids: tuple[GridPair, ...] = tuple(
            ((old.height, old.width), (new.height, new.width)) for old, new in change.grids
        )
        self._axes = {v.name: image_axes(v, change.from_size) for v in self._images()}
        self._require_image()
        self._unfollowed = {n.outputs[0] for n in self._nodes if n.kind == "Where" and not n.domain}
        self._positions = tuple(self._more_positions())
        self._old: Mapping[str, Shape] = {}
        self._old = self._shapes_at(change.from_size, {}, {}, strict=False)
        self._new: Mapping[str, Shape] = self._old

    def edits(self) -> tuple[Edit, ...]:
        try:
            changed = self._settled(self._guessed())
        except ContainerError:  # a guess may stand in the way; without any it only takes longer
            changed = self._settled({})
        integers = (number.changed(value) for number, value in changed.items())
        return (*integers, *self._positions, *self._described())

    def _settled(self, changed: dict[Integer, int]) -> dict[Integer, int]:
        """Infer shapes and derive integers from them in turn, until nothing changes."""
        for _ in range(len(self._nodes) + 2):
            self._new = self._infer(changed, strict=False)
            again = self._exact(changed)
            if again == changed:
                break
            changed = again
        self._new = self._infer(changed, strict=True)
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

    def _infer(self, changed: Mapping[Integer, int], *, strict: bool) -> Mapping[str, Shape]:
        return self._shapes_at(self._change.to_size, self._change.shapes, changed, strict=strict)

    def _shapes_at(
        self,
        size: Size | None,
        tables: Mapping[str, tuple[int, ...]],
        changed: Mapping[Integer, int],
        *,
        strict: bool,
    ) -> Mapping[str, Shape]:
        """Infer shapes; where the library cannot follow a list of integers, compute it."""
        constants = self._constants(changed)
        given: dict[str, list[int]] = {}
        while True:
            nodes = [
                replaced(field, constant_node(node.outputs[0], given[node.outputs[0]]), self._graph)
                for field, node in zip(self._graph.node_fields, self._nodes, strict=True)
                if node.outputs and node.outputs[0] in given
            ]
            edits = (*(number.changed(value) for number, value in changed.items()), *nodes)
            edits += self._positions if tables else ()
            variant = Variant(self._inputs(size), tables, edits)
            shapes = infer(self._read, self._size, self._graph, variant, strict=strict)
            lists = folded(self._nodes, constants, shapes)
            found = {name: lists[name] for name in self._unfollowed if name in lists}
            if found.keys() <= given.keys():
                return shapes
            given = found

    def _more_positions(self) -> Iterator[Edit]:
        """Continue constants that number the rows of a table: 0, 1, 2 …"""
        counts = rows(self._change, self._initializers)
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
            numbers = [n for n in self._elements(name) or () if n is not None]
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
            elements = self._elements(node.inputs[1])
            before, after = known(self._old, node.inputs[0]), known(self._old, node.outputs[0])
            if elements is None or before is None or after is None or len(elements) != len(after):
                continue
            moved = [self._moved(size) for size in before]
            sizes = new_sizes(before, moved, after, self._moves, self._grids) or after
            for number, size in zip(elements, sizes, strict=True):
                if number is not None and 0 < number.value != size:
                    changed[number] = size
        return changed

    def _exact(self, before: Mapping[Integer, int]) -> dict[Integer, int]:
        """Derive every integer from the shapes at both sizes; without shapes, keep the guess."""
        changed: dict[Integer, int] = {}
        wanted_by: dict[Integer, tuple[int, Node]] = {}
        for node in self._nodes:
            rule = _RULES.get(node.kind) if not node.domain else None
            wanted = rule(self, node) if rule is not None else ()
            if wanted is None:
                wanted = [
                    (number, before[number])
                    for name in node.inputs[1:]
                    for number in self._elements(name) or ()
                    if number is not None and number in before
                ]
                changed |= {n: value for n, value in wanted if n not in wanted_by}
                continue
            for number, value in wanted:
                other = wanted_by.setdefault(number, (value, node))
                if other[0] != value:
                    raise ContainerError(
                        f"the nodes {other[1]} and {node} share the constant {number.value}, which "
                        f"would have to be {other[0]} for one and {value} for the other."
                    )
                changed[number] = value
        return {number: value for number, value in changed.items() if value != number.value}

    def _elements(self, name: str, depth: int = 0) -> Elements | None:
        """Return the integers of a 1-D value; None in the place of those that are computed."""
        tensor, node = self._initializers.get(name), self._producer.get(name)
        if node is not None and node.kind == "Constant":
            if node.constant is None:
                lists = [n for key in ("value_ints", "value_int") for n in node.lists.get(key, ())]
                return tuple(lists) or None
            tensor = node.constant
        if tensor is not None:
            small = len(tensor.dims) <= 1 and max(tensor.shape, default=1) <= _LONGEST_SHAPE
            return read_integers(self._read, tensor) or None if small else None
        if node is not None and depth < _LONGEST_SHAPE:
            if node.kind == "Concat":
                parts = [self._elements(each, depth + 1) for each in node.inputs]
                if all(part is not None for part in parts):
                    return tuple(number for part in parts for number in part or ())
            if node.kind == "Where":  # of torch's expand: -1 keeps a size, the rest is a shape
                found = self._elements(node.inputs[2], depth + 1)
                if found is not None:
                    return tuple(n if n is not None and n.value > 0 else None for n in found)
            if node.kind in ("Unsqueeze", "Identity", "Cast"):
                found = self._elements(node.inputs[0], depth + 1)
                if found is not None:
                    return found
        shape = self._old.get(name, (None,))
        count = shape[0] if shape else 1
        return (None,) * count if len(shape) <= 1 and count is not None else None

    # One rule per kind of node: the integers with their new values, or None: shapes are not known.

    def _shapes(self, node: Node) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the shape of the first input at the old and at the new size."""
        old, new = known(self._old, node.inputs[0]), known(self._new, node.inputs[0])
        return (old, new) if old is not None and new is not None else None

    def _reshape(self, node: Node) -> Wanted | None:
        elements = self._elements(node.inputs[1])
        if elements is None or all(number is None or number.value < 1 for number in elements):
            return ()
        shapes, out = self._shapes(node), known(self._old, node.outputs[0])
        if shapes is None or out is None or len(out) != len(elements):
            return None
        if shapes[0] == shapes[1]:
            sizes: Sequence[int] | None = out
        else:
            sizes = new_sizes(*shapes, out, self._moves, self._grids)
        if sizes is None:
            raise ContainerError(
                f"node {node}: {list(shapes[0])} → {list(out)} becomes {list(shapes[1])} → ?; its "
                "new shape is not clear."
            )
        return [
            (number, size)
            for number, size in zip(elements, sizes, strict=True)
            if number is not None and number.value > 0
        ]

    def _expand(self, node: Node) -> Wanted | None:
        elements, shapes = self._elements(node.inputs[1]), self._shapes(node)
        if elements is None or shapes is None:
            return () if elements is None else None
        old, new = ([1] * (len(elements) - len(s)) + list(s) for s in shapes)
        return [
            (number, new[i] if old[i] == number.value != 1 else self._moved(number.value))
            for i, number in enumerate(elements)
            if number is not None and i < len(old)
        ]

    def _moved(self, value: int) -> int:
        targets = self._moves.get(value, ())
        return next(iter(targets)) if len(targets) == 1 else value

    def _filled(self, node: Node) -> Wanted | None:
        if node.fill is not None:
            return ()  # a list of numbers, not a mask: its length is a number of axes
        elements = [n for name in node.inputs for n in self._elements(name) or ()]
        return [(n, self._moved(n.value)) for n in elements if n is not None]

    def _slice(self, node: Node) -> Wanted | None:
        if len(node.inputs) < 3:
            return ()
        shapes = self._shapes(node)
        bounds = [self._elements(name) or () for name in node.inputs[1:3]]
        axes = self._elements(node.inputs[3]) if len(node.inputs) > 3 else None
        if shapes is None:
            return None
        wanted = []
        for numbers in bounds:
            for i, number in enumerate(numbers):
                axis = axes[i] if axes is not None and i < len(axes) else None
                at = axis.value if axis is not None else i
                if number is not None and -len(shapes[0]) <= at < len(shapes[0]):
                    place = self._place(number.value, shapes[0][at], shapes[1][at], node)
                    wanted.append((number, place))
        return wanted

    def _place(self, value: int, old: int, new: int, node: Node) -> int:
        """Return the new bound of a slice along an axis that had `old` entries and gets `new`."""
        if old == new or value < 0 or value > old or value < min(_FEW_TOKENS, old):
            return value
        if old - value < _FEW_TOKENS:
            return new - (old - value)
        raise ContainerError(f"node {node}: position {value} of {old} has no clear place in {new}.")

    def _split(self, node: Node) -> Wanted | None:
        elements = self._elements(node.inputs[1]) if len(node.inputs) > 1 else None
        if elements is None or None in elements:
            return ()
        shapes = self._shapes(node)
        numbers = [number for number in elements if number is not None]
        if shapes is None:
            return None
        axis = node.lists["axis"][0].value if "axis" in node.lists else 0
        old, new = shapes[0][axis], shapes[1][axis]
        if old == new:
            return [(number, number.value) for number in numbers]
        *few, largest = sorted(numbers, key=lambda number: number.value)
        if few and few[-1].value >= _FEW_TOKENS:
            raise ContainerError(
                f"node {node}: {old} = {' + '.join(str(n.value) for n in numbers)} has no clear "
                f"parts of {new}."
            )
        return [(n, n.value + (new - old if n is largest else 0)) for n in numbers]

    def _resize(self, node: Node) -> Wanted | None:
        elements = self._elements(node.inputs[3]) if len(node.inputs) > 3 else None
        if elements is None:
            return ()
        shapes = self._shapes(node)
        if shapes is None or len(elements) != len(shapes[0]):
            return None
        wanted = []
        for number, old, new in zip(elements, *shapes, strict=True):
            if number is None:
                continue
            if old == new:
                wanted.append((number, number.value))
            elif number.value % old == 0:
                wanted.append((number, number.value // old * new))
            else:
                wanted.append((number, self._moved(number.value)))
        return wanted

    def _pool(self, node: Node) -> Wanted | None:
        window, shapes = node.lists.get("kernel_shape", ()), self._shapes(node)
        if shapes is None:
            return None
        old, new = list(shapes[0][2:]), list(shapes[1][2:])
        whole = [number.value for number in window] == old  # pools the whole grid
        return list(zip(window, new, strict=True)) if whole else ()

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
                        "graph cannot be checked."
                    )


_RULES: Mapping[str, Callable[[_Sizes, Node], Wanted | None]] = {
    "Reshape": _Sizes._reshape,
    "Expand": _Sizes._expand,
    "Slice": _Sizes._slice,
    "Split": _Sizes._split,
    "Resize": _Sizes._resize,
    "ConstantOfShape": _Sizes._filled,
    "Range": _Sizes._filled,
    **dict.fromkeys(_POOLING, _Sizes._pool),
}
