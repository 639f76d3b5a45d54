"""Factors that a graph computes with and that are sizes: a sum over the patches, divided by 196.

An exporter writes such a number as a constant of one to four floats. It belongs to the old size,
and shapes do not show it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping

from resize_pos.containers.base import GeometryChange
from resize_pos.containers.onnx.model import GraphTensor, Node
from resize_pos.containers.onnx.wire import Read
from resize_pos.core.errors import ContainerError

_USES = frozenset({"Mul", "Div"})
_FORMATS: Mapping[int, str] = {1: "<f", 10: "<e", 11: "<d"}  # by the number of the data type
_MOST = 4  # a factor, or the height and width of a box twice
_SMALLEST = 16  # smaller numbers are everywhere
_FORMS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("{}", float),
    ("1/{}", lambda size: 1 / size),
    ("log {}", math.log),
)


def require_no_size_as_factor(
    nodes: Iterable[Node],
    initializers: Mapping[str, GraphTensor],
    read: Read,
    change: GeometryChange,
    before: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse a graph that multiplies or divides by a size which changes."""
    sizes = set(_sizes(change, before))
    nodes = tuple(nodes)
    constants = {n.outputs[0]: n.constant for n in nodes if n.kind == "Constant" and n.constant}
    for node in nodes:
        if node.kind not in _USES or node.domain:
            continue
        for name in node.inputs:
            tensor = constants.get(name) or initializers.get(name)
            found = None if tensor is None else _named(tensor, read, sizes)
            if found:
                raise ContainerError(
                    f"node {node} computes with the constant {found}, which is a size of the old "
                    "grid or image.",
                    "Convert the checkpoint, and export it again at the new size.",
                )


def _sizes(change: GeometryChange, before: Mapping[str, tuple[int, ...]]) -> Iterator[int]:
    """List the numbers of pixels, cells and rows that change."""
    old, new = change.from_size, change.to_size
    pairs = [(a.cells, b.cells) for a, b in change.grids]
    if old is not None and new is not None:
        pairs += [(old.height, new.height), (old.width, new.width)]
    for name, shape in change.shapes.items():
        pairs += zip(before[name], shape, strict=True)
    return (a for a, b in pairs if a != b and a >= _SMALLEST)


def _named(tensor: GraphTensor, read: Read, sizes: Iterable[int]) -> str | None:
    """Return the value of a short tensor in which every number is a size, in words."""
    form = _FORMATS.get(tensor.data_type)
    if form is None or not tensor.data or math.prod(tensor.shape) > _MOST:
        return None
    begin, end = tensor.data[-1].begin, tensor.data[-1].end
    width = struct.calcsize(form)
    if not 0 < end - begin <= _MOST * width:
        return None
    content = read(begin, end - begin)
    known = {}
    for words, computed in _FORMS:
        for size in sizes:
            known[struct.pack(form, computed(size))] = words.format(size)
    found = [known.get(content[at : at + width]) for at in range(0, len(content), width)]
    return None if None in found else ", ".join(str(each) for each in found)
