"""Which tensor a graph adds to the patches of its image: the position table, under any name.

Exporters fold a lookup of positions into a constant with a name such as `embedding`. The graph
still says what it is: the image goes through the patch convolution, is only moved around (Reshape,
Transpose, Concat with the class token), and then one tensor with a row per token is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resize_pos.containers.onnx.model import Node

_MOVES = frozenset({"Reshape", "Flatten", "Transpose", "Concat", "Identity", "Cast"})
_MOVES |= {"Squeeze", "Unsqueeze", "Slice"}


def added_tables(
    nodes: Iterable[Node], images: Iterable[str], weights: Mapping[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """Return the tensors that are added to the patches, in the order of the graph."""
    pixels, patches, found = set(images), set[str](), list[str]()
    for node in nodes:
        moved = bool(patches.intersection(node.inputs))
        if node.kind == "Conv" and node.inputs[0] in pixels | patches:
            patches.update(node.outputs)
        elif node.kind == "Cast" and pixels.intersection(node.inputs):
            pixels.update(node.outputs)
        elif node.kind in _MOVES and moved:
            patches.update(node.outputs)
        elif node.kind == "Add" and moved:
            tables = [name for name in node.inputs if _has_rows(weights.get(name, ()))]
            if tables:
                found += tables
            else:  # a bias
                patches.update(node.outputs)
    return tuple(dict.fromkeys(found))


def _has_rows(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor has rows and channels, unlike a bias."""
    return len(shape) >= 2 and sum(size > 1 for size in shape) >= 2
