"""A graph says by itself which tensor is added to its patches."""

from __future__ import annotations

import pytest
from onnx import helper

from resize_pos.containers.onnx.added import added_tables
from resize_pos.containers.onnx.model import Node

SHAPES = {"bias": (1, 32, 1, 1), "cls": (1, 1, 32), "table": (1, 16, 32), "late": (1, 16, 32)}
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
        made.append(Node("", kind, "", inputs, outputs, None, {}, None))
    return made


@pytest.mark.parametrize("inputs", [("tokens", "table"), ("table", "tokens")])
def test_the_tensor_that_is_added_to_the_tokens_is_the_table(inputs: tuple[str, ...]) -> None:
    graph = nodes(*START, ("Add", inputs, ("placed",)), ("Add", ("placed", "late"), ("y",)))
    assert added_tables(graph, ["x"], SHAPES) == ("table",)


def test_what_is_added_after_a_computation_is_no_table() -> None:
    graph = nodes(
        *START, ("MatMul", ("tokens", "w"), ("mixed",)), ("Add", ("mixed", "late"), ("y",))
    )
    assert added_tables(graph, ["x"], SHAPES) == ()


def test_a_graph_without_an_image_has_none() -> None:
    graph = nodes(*START, ("Add", ("tokens", "table"), ("y",)))
    assert added_tables(graph, [], SHAPES) == ()
