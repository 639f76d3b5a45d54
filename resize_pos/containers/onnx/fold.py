"""Lists of integers that a graph computes from shapes, where the onnx library does not follow them.

torch's `expand` is exported as Where(Equal(shape, -1), 1, shape), and its MultiheadAttention with a
Slice of a shape up to Mod(2, 3). The library infers nothing from them, so the shapes of most of the
graph would be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from resize_pos.containers.onnx.model import Node
from resize_pos.containers.onnx.wire import encode_varint, number_field, string_field

# Kinds of nodes that the library does not follow.
FOLDED = frozenset({"Where", "Slice", "Div", "Mod", "Concat", "ConstantOfShape"})
_INTEGERS = (6, 7, 9)  # the numbers of the data types int32, int64 and bool
_LONGEST = 64  # longer lists are data, not shapes
_INT64, _TENSOR = 7, 4
_GRAPH_NODE = 1

Numbers = list[int]


def folded(
    nodes: Sequence[Node],
    constants: Mapping[str, Numbers],
    shapes: Mapping[str, tuple[int | None, ...]],
) -> dict[str, Numbers]:
    """Return every short list of integers that can be computed, by the name of its value."""
    found = dict(constants)
    for node in nodes:
        if node.domain or len(node.outputs) != 1 or node.kind == "Constant":
            continue
        result = _shape(node, shapes) if node.kind == "Shape" else _computed(node, found)
        if result is not None and len(result) <= _LONGEST:
            found[node.outputs[0]] = result
    return found


def _shape(node: Node, shapes: Mapping[str, tuple[int | None, ...]]) -> Numbers | None:
    shape = shapes.get(node.inputs[0])
    sizes = [size for size in shape or () if size is not None]
    if shape is None or len(sizes) != len(shape):
        return None
    first, last = (node.lists.get(key, ()) for key in ("start", "end"))
    return sizes[first[0].value if first else 0 : last[0].value if last else len(sizes)]


def _computed(node: Node, known: Mapping[str, Numbers]) -> Numbers | None:
    names = [name for name in node.inputs if name]
    if not names or any(name not in known for name in names):
        return None
    lists = [known[name] for name in names]
    first = lists[0]
    if node.kind == "Cast" and any(n.value not in _INTEGERS for n in node.lists.get("to", ())):
        return None  # a fraction
    if node.kind in ("Unsqueeze", "Squeeze", "Cast", "Identity", "Reshape"):
        return first
    if node.kind == "Slice" and len(lists) >= 3:
        return _sliced(lists)
    if node.kind == "Concat":
        return [number for numbers in lists for number in numbers]
    if node.kind == "ConstantOfShape" and len(first) == 1 and 0 <= first[0] <= _LONGEST:
        return None if node.fill is None else [node.fill] * first[0]
    if node.kind == "Gather":
        picked = lists[1]
        inside = all(-len(first) <= index < len(first) for index in picked)
        return [first[index] for index in picked] if inside else None
    if node.kind == "Where":
        test, yes, no = (_stretched(numbers, lists) for numbers in lists)
        return [y if t else n for t, y, n in zip(test, yes, no, strict=True)]
    operation = _ARITHMETIC.get(node.kind)
    if operation is None or len(lists) != 2:
        return None
    left, right = (_stretched(numbers, lists) for numbers in lists)
    if node.kind in ("Div", "Mod") and 0 in right:
        return None
    return [operation(a, b) for a, b in zip(left, right, strict=True)]


def _sliced(lists: Sequence[Numbers]) -> Numbers | None:
    data, starts, ends = lists[:3]
    axes, steps = (lists[3] if len(lists) > 3 else [0]), (lists[4] if len(lists) > 4 else [1])
    if axes not in ([0], [-1]) or [len(part) for part in (starts, ends, steps)] != [1, 1, 1]:
        return None
    return data[starts[0] : ends[0] : steps[0]] if steps[0] > 0 else None


def _stretched(numbers: Numbers, others: Sequence[Numbers]) -> Numbers:
    longest = max(len(other) for other in others)
    return numbers * longest if len(numbers) == 1 else numbers[:longest]


_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "Mod": lambda a, b: a % b,
    "Equal": lambda a, b: int(a == b),
}


def constant_node(output: str, numbers: Sequence[int], *, single: bool = False) -> bytes:
    """Write a node that gives a list of integers, or a single one, as a field of a graph."""
    raw = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    tensor = b"" if single else number_field(1, len(numbers))
    tensor += number_field(2, _INT64) + string_field(9, raw)
    attribute = string_field(1, b"value") + string_field(5, tensor)
    attribute += encode_varint(20 << 3) + encode_varint(_TENSOR)
    node = string_field(2, output.encode()) + string_field(4, b"Constant")
    return string_field(_GRAPH_NODE, node + string_field(5, attribute))
