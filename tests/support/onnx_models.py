"""A small vision transformer as an ONNX graph, made node by node, with a 3×5 grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.support.builders import flat

PATCH, CHANNELS = 8, 16
GRID = (3, 5)
ROWS = GRID[0] * GRID[1] + 1


def weights() -> dict[str, NDArray[Any]]:
    """Make the weights; the last one is untouched by a resize, and large enough to be skipped."""
    rng = np.random.default_rng(5)
    return {
        "pos_embed": flat(*GRID, CHANNELS),
        "cls_token": rng.standard_normal((1, 1, CHANNELS)).astype(np.float32),
        "patch_embed.proj.weight": rng.standard_normal((CHANNELS, 3, PATCH, PATCH)).astype("f4"),
        "patch_embed.proj.bias": rng.standard_normal(CHANNELS).astype(np.float32),
        "head.weight": rng.standard_normal((CHANNELS, 700)).astype(np.float32),
    }


def numbers(name: str, values: list[int], *, raw: bool = True) -> onnx.TensorProto:
    """Make an integer constant, as raw bytes or as a list of varints."""
    if raw:
        return numpy_helper.from_array(np.array(values, np.int64), name)
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def model(
    *,
    extra: tuple[onnx.NodeProto, ...] = (),
    constants: tuple[onnx.TensorProto, ...] = (),
    batch: int | str = 1,
    described: bool = False,
    heads: list[int] | None = None,
) -> onnx.ModelProto:
    """Make the graph: patches, class token, table, split into heads and back, classifier.

    `extra` nodes read the value `tokens` (1, rows, channels).
    """
    height, width = (side * PATCH for side in GRID)
    make = helper.make_node
    nodes = [
        make(
            "Conv",
            ["x", "patch_embed.proj.weight", "patch_embed.proj.bias"],
            ["patches"],
            name="patches",
            strides=[PATCH, PATCH],
            kernel_shape=[PATCH, PATCH],
        ),
        make("Reshape", ["patches", "flat_shape"], ["flat"], name="flatten"),
        make("Transpose", ["flat"], ["rows"], perm=[0, 2, 1]),
        make("Concat", ["cls_token", "rows"], ["joined"], axis=1),
        make("Add", ["joined", "pos_embed"], ["placed"], name="add_table"),
        make("Constant", [], ["heads_shape"], value=numbers("", heads or [1, ROWS, 4, 4])),
        make("Reshape", ["placed", "heads_shape"], ["heads"], name="to_heads"),
        make("Constant", [], ["rows_shape"], value_ints=[1, ROWS, CHANNELS]),
        make("Reshape", ["heads", "rows_shape"], ["tokens"], name="from_heads"),
        make("MatMul", ["tokens", "head.weight"], ["y"], name="head"),
        *extra,
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights().items()]
    initializers.append(numbers("flat_shape", [1, CHANNELS, ROWS - 1], raw=False))
    outputs = ["y", *(name for node in extra for name in node.output if name.startswith("out"))]
    sizes: dict[str, list[int | str]] = {"y": [batch, ROWS, 700]}
    graph = helper.make_graph(
        nodes,
        "vit",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, height, width])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, sizes.get(n)) for n in outputs],
        [*initializers, *constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made) if described or extra else made


def save(path: Path, made: onnx.ModelProto, **options: Any) -> Path:
    """Write a model after the library has checked it."""
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, path, **options)
    return path


def initializers(path: Path) -> dict[str, NDArray[Any]]:
    """Read every initializer with the onnx library."""
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def export_square(path: Path) -> Path:
    """Export a small vision transformer of 224 pixels with torch, in one file."""
    import warnings

    import timm
    import torch

    torch.manual_seed(0)
    made = timm.create_model("vit_tiny_patch16_224", depth=1).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecation
        image = torch.randn(1, 3, 224, 224)
        options: dict[str, Any] = {"input_names": ["x"], "dynamo": False}
        torch.onnx.export(made, (image,), path, **options)
    return path
