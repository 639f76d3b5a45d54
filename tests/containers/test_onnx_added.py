"""A graph says by itself which tensor is added to its patches."""

from __future__ import annotations

import pytest
from onnx import helper

from resize_pos.containers.onnx.added import added_tables, multiplied_only
from resize_pos.containers.onnx.fold import folded
from resize_pos.containers.onnx.model import Node
from resize_pos.containers.onnx.wire import Integer

SHAPES = {"bias": (1, 32, 1, 1), "cls": (1, 1, 32), "table": (1, 16, 32), "late": (1, 16, 32)}
SHAPES |= {"boxes": (1, 10, 32)}
START = (
    ("Conv", ("x", "kernel"), ("patches",)),
    ("Add", ("patches", "bias"), ("biased",)),
    ("Reshape", ("biased", "shape"), ("flat",)),
    ("Transpose", ("flat",), ("rows",)),
    ("Concat", ("cls", "rows"), ("tokens",)),
)


def nodes(*described: tuple[str, tuple[str, ...], tuple[str, ...]]) -> list[Node]:
    made = []
    for kind, inputs, outputs in described:
        helper.make_node(kind, inputs, outputs)  # refuses what is no node
        axis = {"axis": (Integer(1, 0, 0, 0, ()),)} if kind == "Concat" else {}
        made.append(Node("", kind, "", inputs, outputs, None, axis, None))
    return made


@pytest.mark.parametrize("inputs", [("tokens", "table"), ("table", "tokens")])
def test_the_tensor_that_is_added_to_the_tokens_is_the_table(inputs: tuple[str, ...]) -> None:
    graph = nodes(*START, ("Add", inputs, ("placed",)), ("Add", ("placed", "late"), ("y",)))
    assert added_tables(graph, ["x"], SHAPES) == {"table": (1, 0)}


def test_what_is_added_after_a_computation_is_no_table() -> None:
    graph = nodes(
        *START, ("MatMul", ("tokens", "w"), ("mixed",)), ("Add", ("mixed", "late"), ("y",))
    )
    assert added_tables(graph, ["x"], SHAPES) == {}


def test_a_graph_without_an_image_has_none() -> None:
    graph = nodes(*START, ("Add", ("tokens", "table"), ("y",)))
    assert added_tables(graph, [], SHAPES) == {}


def test_tokens_before_and_after_the_patches_are_counted_by_the_graph() -> None:
    """YOLOS puts its detection tokens after the patches: no shape says so."""
    graph = nodes(
        *START[:-1],
        ("Expand", ("cls", "batch"), ("first",)),
        ("Concat", ("first", "rows", "boxes"), ("tokens",)),
        ("Add", ("tokens", "table"), ("y",)),
    )
    assert added_tables(graph, ["x"], SHAPES) == {"table": (1, 10)}
    unknown = nodes(
        *START[:-1],
        ("Relu", ("cls",), ("first",)),
        ("Concat", ("first", "rows"), ("tokens",)),
        ("Add", ("tokens", "table"), ("y",)),
    )
    assert added_tables(unknown, ["x"], SHAPES) == {"table": None}


def test_patches_may_be_cut_without_a_convolution() -> None:
    graph = nodes(
        ("Reshape", ("x", "shape"), ("cut",)),
        ("Transpose", ("cut",), ("turned",)),
        ("MatMul", ("turned", "weight"), ("rows",)),
        ("Add", ("rows", "table"), ("y",)),
    )
    assert added_tables(graph, ["x"], SHAPES) == {"table": (0, 0)}


def test_a_matrix_that_is_only_multiplied_is_a_layer() -> None:
    graph = nodes(
        ("MatMul", ("x", "layer"), ("a",)),
        ("MatMul", ("a", "both"), ("b",)),
        ("Add", ("b", "both"), ("y",)),
    )
    assert multiplied_only(graph, ["layer", "both"]) == {"layer"}


def test_lists_of_integers_are_followed_through_slice_mod_and_div() -> None:
    """As torch's MultiheadAttention computes a shape: up to the axis 2 mod 3, and after it."""
    graph = nodes(
        ("Shape", ("x",), ("shape",)),
        ("Mod", ("two", "three"), ("axis",)),
        ("Slice", ("shape", "zero", "axis"), ("before",)),
        ("Div", ("before", "minus_two"), ("halves",)),
        ("Slice", ("shape", "zero", "three", "zero", "two"), ("every_second",)),
    )
    given = {"two": [2], "three": [3], "zero": [0], "minus_two": [-2]}
    found = folded(graph, given, {"x": (5, 7, 96)})
    assert found["before"] == [5, 7]
    assert found["halves"] == [-2, -3]  # towards zero
    assert found["every_second"] == [5, 96]
