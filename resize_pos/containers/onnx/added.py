"""Which tensor a graph adds to the patches of its image: the position table, under any name.

Exporters fold a lookup of positions into a constant with a name such as `embedding`. The graph
still says what it is: the image goes through the patch convolution (or is cut into patches by
Reshape and Transpose, and goes through a layer), is only moved around (Reshape, Transpose, Concat
with the class token), and then one tensor with a row per token is added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from resize_pos.containers.onnx.model import Node

RowsAround = tuple[int, int]  # tokens before and after the patches

_TOKEN_AXES = 3  # batch, tokens, channels
_REPEATS = frozenset({"Expand", "Tile", "Identity", "Cast"})
_MOVES = frozenset({"Reshape", "Flatten", "Transpose", "Concat", "Identity", "Cast"})
_MOVES |= {"Squeeze", "Unsqueeze", "Slice"}
_EMBEDS = frozenset({"Conv", "MatMul", "Gemm"})  # a kernel, or a layer over the pixels of a patch
_LAYERS = frozenset({"MatMul", "Gemm", "MatMulInteger"})


def added_tables(
    nodes: Iterable[Node], images: Iterable[str], weights: Mapping[str, tuple[int, ...]]
) -> dict[str, RowsAround | None]:
    """Return the tensors that are added to the patches, in the order of the graph.

    With each of them, how many tokens stand before and after the patches; None: it is not known.
    """
    pixels, found = set(images), dict[str, RowsAround | None]()
    patches: dict[str, RowsAround | None] = {}
    tokens = {name: shape[-2] for name, shape in weights.items() if len(shape) == _TOKEN_AXES}
    for node in nodes:
        if node.constant is not None and len(node.constant.shape) == _TOKEN_AXES:
            tokens[node.outputs[0]] = node.constant.shape[-2]
        moved = [name for name in node.inputs if name in patches]
        embeds = node.kind in _EMBEDS and node.inputs[0] in pixels
        if embeds or (node.kind == "Conv" and moved):
            patches.update(dict.fromkeys(node.outputs, (0, 0)))
        elif node.kind in _MOVES and pixels.intersection(node.inputs):
            pixels.update(node.outputs)
        elif node.kind == "Concat" and moved:
            patches[node.outputs[0]] = _joined(node, patches, tokens)
        elif node.kind in _MOVES and moved:
            around = None if node.kind == "Slice" else patches[moved[0]]
            patches.update(dict.fromkeys(node.outputs, around))
        elif node.kind == "Add" and moved:
            tables = [name for name in node.inputs if _has_rows(weights.get(name, ()))]
            if tables:
                found |= {name: patches[moved[0]] for name in tables if name not in found}
            else:  # a bias
                patches[node.outputs[0]] = patches[moved[0]]
        elif node.kind in _REPEATS and node.inputs[0] in tokens:
            tokens[node.outputs[0]] = tokens[node.inputs[0]]
    return found


def _joined(
    node: Node, patches: Mapping[str, RowsAround | None], tokens: Mapping[str, int]
) -> RowsAround | None:
    """Count the tokens around the patches after a Concat along the tokens."""
    axis = [number.value for number in node.lists.get("axis", ())]
    places = [i for i, name in enumerate(node.inputs) if name in patches]
    around = patches[node.inputs[places[0]]]
    others = [tokens.get(name) for name in node.inputs if name not in patches]
    counts = [count for count in others if count is not None]
    if axis not in ([1], [-2]) or len(places) > 1 or around is None or len(counts) < len(others):
        return None
    at = places[0]
    return around[0] + sum(counts[:at]), around[1] + sum(counts[at:])


def multiplied_only(nodes: Iterable[Node], weights: Collection[str]) -> frozenset[str]:
    """Return the tensors that are only the matrix of a MatMul or a Gemm.

    Exporters transpose these matrices and give them names such as `val_21`, by which nobody sees
    that they are layers.
    """
    layers, others = set[str](), set[str]()
    for node in nodes:
        is_layer = node.kind in _LAYERS and not node.domain
        for index, name in enumerate(node.inputs):
            if name in weights:
                (layers if is_layer and index == 1 else others).add(name)
    return frozenset(layers - others)


def _has_rows(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor has rows and channels, unlike a bias."""
    return len(shape) >= 2 and sum(size > 1 for size in shape) >= 2
