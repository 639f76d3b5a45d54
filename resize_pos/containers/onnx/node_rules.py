"""What the integers of one node become, from the shapes of its values at both sizes.

One rule per kind of node. A rule returns integers with their new values, or None if a shape is not
known. What is not clear is refused with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from resize_pos.containers.onnx.inference import Shape
from resize_pos.containers.onnx.model import GraphTensor, Node, read_integers
from resize_pos.containers.onnx.reshape import GridPair, new_sizes
from resize_pos.containers.onnx.size_moves import known
from resize_pos.containers.onnx.wire import Integer, Read
from resize_pos.core.errors import ContainerError

_FEW_TOKENS = 16  # a class token, registers: positions that stay where they are
_LONGEST_SHAPE = 64
_POOLING = frozenset({"AveragePool", "MaxPool", "LpPool"})

Elements = tuple[Integer | None, ...]  # None: computed by the graph
Wanted = Sequence[tuple[Integer, int]]


class NodeRules:
    """The nodes of a graph, the shapes of their values at both sizes, and the rules."""

    def __init__(
        self,
        read: Read,
        nodes: Sequence[Node],
        initializers: Mapping[str, GraphTensor],
        moves: Mapping[int, set[int]],
        grids: Sequence[GridPair],
        start: Mapping[Integer, int],
    ) -> None:
        self._read, self._nodes, self._initializers = read, nodes, initializers
        self._producer = {name: node for node in nodes for name in node.outputs}
        self._moves, self._grids, self._start = moves, grids, start
        self._old: Mapping[str, Shape] = {}
        self._new: Mapping[str, Shape] = {}

    def value(self, number: Integer) -> int:
        """Return an integer as it is at the old size."""
        return self._start.get(number, number.value)

    def wanted(self, node: Node) -> Wanted | None:
        """Return what the integers of a node become; None: a shape is not known."""
        rule = _RULES.get(node.kind) if not node.domain else None
        return rule(self, node) if rule is not None else ()

    def elements(self, name: str, depth: int = 0) -> Elements | None:
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
                parts = [self.elements(each, depth + 1) for each in node.inputs]
                if all(part is not None for part in parts):
                    return tuple(number for part in parts for number in part or ())
            if node.kind == "Where":  # of torch's expand: -1 keeps a size, the rest is a shape
                found = self.elements(node.inputs[2], depth + 1)
                if found is not None:
                    return tuple(n if n is not None and self.value(n) > 0 else None for n in found)
            if node.kind in ("Unsqueeze", "Identity", "Cast"):
                found = self.elements(node.inputs[0], depth + 1)
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
        elements = self.elements(node.inputs[1])
        if elements is None or all(n is None or self.value(n) < 1 for n in elements):
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
            if number is not None and self.value(number) > 0
        ]

    def _expand(self, node: Node) -> Wanted | None:
        elements, shapes = self.elements(node.inputs[1]), self._shapes(node)
        if elements is None or shapes is None:
            return () if elements is None else None
        old, new = ([1] * (len(elements) - len(s)) + list(s) for s in shapes)
        return [
            (number, new[i] if old[i] == self.value(number) != 1 else self._moved_at(node, number))
            for i, number in enumerate(elements)
            if number is not None and i < len(old)
        ]

    def moved(self, value: int) -> int:
        """Return what a size becomes; a size that may become two is kept."""
        targets = self._moves.get(value, ())
        return next(iter(targets)) if len(targets) == 1 else value

    def _moved_at(self, node: Node, number: Integer) -> int:
        targets = self._moves.get(self.value(number), ())
        if len(targets) > 1:
            raise ContainerError(
                f"node {node}: {self.value(number)} may become "
                f"{' or '.join(str(size) for size in sorted(targets))}."
            )
        return self.moved(self.value(number))

    def _filled(self, node: Node) -> Wanted | None:
        if node.fill is not None:
            return ()  # a list of numbers, not a mask: its length is a number of axes
        elements = [n for name in node.inputs for n in self.elements(name) or ()]
        return [(n, self._moved_at(node, n)) for n in elements if n is not None]

    def _slice(self, node: Node) -> Wanted | None:
        if len(node.inputs) < 3:
            return ()
        shapes = self._shapes(node)
        bounds = [self.elements(name) or () for name in node.inputs[1:3]]
        axes = self.elements(node.inputs[3]) if len(node.inputs) > 3 else None
        if shapes is None:
            return None
        wanted = []
        for numbers in bounds:
            for i, number in enumerate(numbers):
                axis = axes[i] if axes is not None and i < len(axes) else None
                at = self.value(axis) if axis is not None else i
                if number is not None and -len(shapes[0]) <= at < len(shapes[0]):
                    place = self._place(self.value(number), shapes[0][at], shapes[1][at], node)
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
        elements = self.elements(node.inputs[1]) if len(node.inputs) > 1 else None
        if elements is None or None in elements:
            return ()
        shapes = self._shapes(node)
        numbers = [number for number in elements if number is not None]
        if shapes is None:
            return None
        axis = node.lists["axis"][0].value if "axis" in node.lists else 0
        old, new = shapes[0][axis], shapes[1][axis]
        if old == new:
            return [(number, self.value(number)) for number in numbers]
        *few, largest = sorted(numbers, key=self.value)
        if few and self.value(few[-1]) >= _FEW_TOKENS:
            parts = " + ".join(str(self.value(n)) for n in numbers)
            raise ContainerError(f"node {node}: {old} = {parts} has no clear parts of {new}.")
        return [(n, self.value(n) + (new - old if n is largest else 0)) for n in numbers]

    def _resize(self, node: Node) -> Wanted | None:
        elements = self.elements(node.inputs[3]) if len(node.inputs) > 3 else None
        if elements is None:
            return ()
        shapes = self._shapes(node)
        if shapes is None or len(elements) != len(shapes[0]):
            return None
        wanted = []
        for number, old, new in zip(elements, *shapes, strict=True):
            if number is None:
                continue
            value = self.value(number)
            if old == new:
                wanted.append((number, value))
            elif value % old == 0:
                wanted.append((number, value // old * new))
            else:
                wanted.append((number, self._moved_at(node, number)))
        return wanted

    def _pool(self, node: Node) -> Wanted | None:
        window, shapes = node.lists.get("kernel_shape", ()), self._shapes(node)
        if shapes is None:
            return None
        old, new = list(shapes[0][2:]), list(shapes[1][2:])
        sides = [self.value(number) for number in window]
        if sides == old:  # pools the whole grid
            return list(zip(window, new, strict=True))
        tiles = all(side and size % side == 0 for side, size in zip(sides, old, strict=False))
        if tiles and old != new and len(set(sides)) > 1:
            raise ContainerError(
                f"node {node}: windows of {sides} cut {old} into equal parts, as pooling to a "
                f"fixed size does; its windows for {new} are not clear."
            )
        return ()


_RULES: Mapping[str, Callable[[NodeRules, Node], Wanted | None]] = {
    "Reshape": NodeRules._reshape,
    "Expand": NodeRules._expand,
    "Slice": NodeRules._slice,
    "Split": NodeRules._split,
    "Resize": NodeRules._resize,
    "ConstantOfShape": NodeRules._filled,
    "Range": NodeRules._filled,
    **dict.fromkeys(_POOLING, NodeRules._pool),
}
