"""Whether a table is added to the tokens, as positions are, or multiplied with them.

A buffer of rotary angles may have the name and the shape of a position table. Its values are sines
and cosines, which a resize destroys. The graph shows the difference: they are factors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from resize_pos.containers.onnx.model import Node
from resize_pos.core.errors import ContainerError

_MOVES = frozenset({"Reshape", "Flatten", "Transpose", "Identity", "Cast", "Squeeze", "Unsqueeze"})
_MOVES |= {"Slice", "Split", "Gather", "Expand", "Tile", "Concat"}


def require_added(
    nodes: Iterable[Node], tables: Collection[str], constants: Collection[str]
) -> None:
    """Refuse tables that are multiplied with other values than `constants`."""
    carried = {name: name for name in tables}
    for node in nodes:
        moved = [name for name in node.inputs if name in carried]
        if not moved or node.domain:
            continue
        others = [name for name in node.inputs if name not in carried]
        scaled = node.kind == "Mul" and all(name in constants for name in others)
        if node.kind == "Mul" and not scaled:
            raise ContainerError(
                f"node {node} multiplies by {carried[moved[0]]}, as rotary angles are used: they "
                "follow a formula, and cannot be resized like a position table.",
                "Convert the checkpoint, and export it again at the new size.",
            )
        if scaled or (node.kind in _MOVES and moved[0] == node.inputs[0]):
            carried.update((name, carried[moved[0]]) for name in node.outputs)
