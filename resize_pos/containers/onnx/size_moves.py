"""Which sizes of a graph become which, and the tensors that follow them by a rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from resize_pos.containers.base import GeometryChange
from resize_pos.containers.onnx.inference import Shape
from resize_pos.containers.onnx.model import Graph, Node, Value, nested_integers
from resize_pos.containers.onnx.wire import Frame, Read
from resize_pos.core.errors import ContainerError
from resize_pos.core.geometry import Size

_FEWEST_AXES = 2  # a batch and positions; a bias has one axis


def filled_shapes(
    graph: Graph, change: GeometryChange, follows_rule: Callable[[str], bool], more: int = 0
) -> dict[str, tuple[int, ...]]:
    """Find tensors over all tokens whose values follow a rule, and return their new shapes.

    Exporters store an attention mask that masks nothing as a tensor with one value everywhere, and
    the numbers of the positions as 0, 1, 2 … Both are known at any size. `more` tokens, such as
    registers, may stand beside those that have a row in the table.
    """
    tensors = {tensor.name: tensor for tensor in graph.initializers}
    counts = rows(change, {name: tensor.shape for name, tensor in tensors.items()})
    largest = max(counts, default=0)
    counts |= {largest + extra: counts[largest] + extra for extra in range(1, more + 1) if counts}
    found = {}
    for name, tensor in tensors.items():
        if name in change.shapes or len(tensor.dims) < _FEWEST_AXES:
            continue
        shape = tuple(counts.get(size, size) for size in tensor.shape)
        if shape != tensor.shape and follows_rule(name):
            found[name] = shape
    return found


def known(shapes: Mapping[str, Shape], name: str) -> list[int] | None:
    """Return the shape of a value, if all of it is known."""
    shape = shapes.get(name)
    if shape is None:
        return None
    sizes = [size for size in shape if size is not None]
    return sizes if len(sizes) == len(shape) else None


def moves(change: GeometryChange, before: Mapping[str, tuple[int, ...]]) -> dict[int, set[int]]:
    """Return which numbers become which: sizes in pixels and cells, and rows of tables."""
    pairs: set[tuple[int, int]] = set()
    if change.from_size is not None and change.to_size is not None:
        pairs |= {
            (change.from_size.height, change.to_size.height),
            (change.from_size.width, change.to_size.width),
        }
    for old, new in change.grids:
        pairs |= {(old.height, new.height), (old.width, new.width), (old.cells, new.cells)}
    for name, shape in change.shapes.items():
        pairs |= {(a, b) for a, b in zip(before[name], shape, strict=True) if a != b}
    found: dict[int, set[int]] = {}
    for old_size, new_size in pairs:
        found.setdefault(old_size, set()).add(new_size)
    return found


def rows(change: GeometryChange, before: Mapping[str, tuple[int, ...]]) -> dict[int, int]:
    """Return which numbers of rows become which; those that become two are left out."""
    found = moves(replace(change, from_size=None, to_size=None, grids=()), before)
    return {old: next(iter(new)) for old, new in found.items() if len(new) == 1}


def second_half(change: GeometryChange, via: GeometryChange) -> GeometryChange:
    """Return what is left to change once a model has got to the size in between."""
    after = dict(change.grids)
    grids = tuple((middle, after[old]) for old, middle in via.grids if old in after)
    return GeometryChange(change.shapes, via.to_size, change.to_size, grids)


def image_axes(value: Value, size: Size | None) -> int | None:
    """Return the first of the two axes of an input that are the height and width of the image."""
    sizes = value.sizes
    if size is None or len(sizes) < 3:
        return None
    pairs = [i for i in range(len(sizes) - 1) if sizes[i : i + 2] == (size.height, size.width)]
    if pairs:
        return pairs[-1]
    last = len(sizes) - 2
    open_ends = [i for i in (last, last - 1) if sizes[i] is None and sizes[i + 1] is None]
    return open_ends[0] if open_ends else None


_CHANCE = frozenset(
    {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial"}
)


def require_no_chance(nodes: Iterable[Node]) -> None:
    """Refuse a graph that draws random numbers: masked autoencoders keep a count of patches so.

    How many they keep at another size is not in the graph.
    """
    for node in nodes:
        if node.kind in _CHANCE:
            raise ContainerError(
                f"node {node} draws random numbers, as a mask of random patches needs; how many "
                "patches are kept at the new size is not in the graph.",
                "Convert the checkpoint, and export it again at the new size.",
            )


_GRAPH_NODE, _FUNCTION_NODE = 1, 7  # the fields that hold the nodes


def require_flat(
    nodes: Iterable[Node], functions: Iterable[Frame], read: Read, sizes: Collection[int]
) -> None:
    """Refuse a size that changes inside an If, a Loop or a function: it is not followed there."""
    places = [(f"node {node}", graph, _GRAPH_NODE) for node in nodes for graph in node.graphs]
    places += [("a function of the model", frame, _FUNCTION_NODE) for frame in functions]
    for place, frame, field in places:
        for number in nested_integers(read, frame, field):
            if number in sizes and number > 1:
                raise ContainerError(
                    f"{place}: the number {number} in it may be a size of the old grid or image; "
                    "sizes are followed only in the main graph.",
                    "Convert the checkpoint, and export it again at the new size.",
                )
