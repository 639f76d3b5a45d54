"""ONNX: tables, sizes in the graph and stated shapes change; every other byte stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

from resize_pos import inspect_checkpoint, resize_checkpoint, verify_checkpoint
from resize_pos.cli.app import main
from resize_pos.containers.detect import open_container
from resize_pos.containers.onnx.reshape import groups, new_sizes
from resize_pos.core.errors import ContainerError, OutputError
from resize_pos.report.report import Status
from tests.support.onnx_models import (
    CHANNELS,
    GRID,
    PATCH,
    ROWS,
    initializers,
    model,
    numbers,
    save,
    weights,
)

TO = (56, 32)  # a 7×4 grid
NEW_ROWS = 7 * 4 + 1


def run(path: Path, size: tuple[int, int], batch: int = 1) -> Any:
    image = np.random.default_rng(1).standard_normal((batch, 3, *size)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": image})[0]


def expected(path: Path, size: tuple[int, int], batch: int = 1) -> Any:
    """Compute the model with numpy from the weights in a file."""
    image = np.random.default_rng(1).standard_normal((batch, 3, *size)).astype(np.float32)
    found = initializers(path)
    height, width = size[0] // PATCH, size[1] // PATCH
    cells = image.reshape(batch, 3, height, PATCH, width, PATCH).transpose(0, 2, 4, 1, 3, 5)
    kernel = found["patch_embed.proj.weight"].reshape(CHANNELS, -1)
    rows = cells.reshape(batch, height * width, -1) @ kernel.T + found["patch_embed.proj.bias"]
    tokens = np.concatenate([np.repeat(found["cls_token"], batch, 0), rows], axis=1)
    return (tokens + found["pos_embed"]) @ found["head.weight"]


@pytest.mark.parametrize("described", [False, True])
def test_the_output_is_the_model_at_the_new_size(tmp_path: Path, described: bool) -> None:
    path = save(tmp_path / "m.onnx", model(described=described))
    before = path.read_bytes()
    report = resize_checkpoint(path, to=TO)
    assert path.read_bytes() == before
    output = tmp_path / "m-56x32.onnx"
    assert report.output == output and not report.config_advice
    onnx.checker.check_model(output, full_check=True)
    made, old = onnx.load(output), onnx.load(path)
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [1, 3, *TO]
    sizes = [d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim]
    assert sizes == [1, NEW_ROWS, 700]
    for name, array in weights().items():
        if name != "pos_embed":
            assert initializers(output)[name].tobytes() == array.tobytes()
    assert [n.name for n in made.graph.node] == [n.name for n in old.graph.node]
    np.testing.assert_allclose(run(output, TO), expected(output, TO), rtol=1e-4, atol=1e-4)
    values = {v.name: v.type.tensor_type.shape.dim for v in made.graph.value_info}
    if described:
        assert [d.dim_value for d in values["heads"]] == [1, NEW_ROWS, 4, 4]


def test_the_table_equals_that_of_a_checkpoint(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", model())
    save_file(weights(), tmp_path / "w.safetensors")
    resize_checkpoint(path, to=TO)
    resize_checkpoint(tmp_path / "w.safetensors", to=TO, from_="24x40")
    table = open_container(tmp_path / "w-56x32.safetensors").read("pos_embed")
    assert initializers(tmp_path / "m-56x32.onnx")["pos_embed"].tobytes() == table.tobytes()


def test_twice_is_once_for_what_the_graph_states(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", model(described=True))
    resize_checkpoint(path, to=TO)
    resize_checkpoint(tmp_path / "m-56x32.onnx", to=(24, 40), output=tmp_path / "back.onnx")
    back, old = onnx.load(tmp_path / "back.onnx"), onnx.load(path)
    assert len([e for e in back.metadata_props if e.key == "resize_pos"]) == 1
    del back.metadata_props[:]
    for each in (back, old):
        table = next(t for t in each.graph.initializer if t.name == "pos_embed")
        table.raw_data = b""
    assert back == old


def test_only_the_edited_bytes_differ(tmp_path: Path) -> None:
    """Equal numbers of rows: the file differs in the table, in stated sizes and in its record."""
    path = save(tmp_path / "m.onnx", model())
    resize_checkpoint(path, to=(40, 24))  # 5×3
    old, new = path.read_bytes(), (tmp_path / "m-40x24.onnx").read_bytes()
    table = weights()["pos_embed"].tobytes()
    at = old.index(table)
    differing = [i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
    outside = [i for i in differing if not at <= i < at + len(table)]
    assert len(new) > len(old) and len(outside) == 2  # height and width of the input


def test_the_input_says_the_size_and_the_grid(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", model())
    (table,) = inspect_checkpoint(path).located.tables
    assert (table.grid.height, table.grid.width) == GRID
    assert any("input x 24x40" in words for words in table.evidence)


def test_a_graph_without_a_table_is_still_fixed_to_its_input(tmp_path: Path) -> None:
    convolution = helper.make_graph(
        [helper.make_node("Conv", ["x", "conv.weight"], ["y"], name="conv")],
        "convolution",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 64, 96])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 62, 94])],
        [numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "conv.weight")],
    )
    path = save(tmp_path / "conv.onnx", helper.make_model(convolution))
    with pytest.raises(ContainerError, match="input x has 64x96 px, not 96x64") as caught:
        resize_checkpoint(path, to=(96, 64))
    assert "Export the model again at that size" in str(caught.value.hint)
    assert resize_checkpoint(path, to=(64, 96)).status is Status.UNCHANGED
    for size, code in (("96x64", 1), ("64x96", 0)):
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(path), "--size", size])
        assert ended.value.code == code


def test_another_text_length_is_refused(tmp_path: Path) -> None:
    name = "bert.embeddings.position_embeddings.weight"
    graph = helper.make_graph(
        [helper.make_node("Gather", [name, "ids"], ["y"], name="lookup")],
        "text",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 64, 64])],
        [
            numpy_helper.from_array(np.ones((64, 64), np.float32), name),
            numpy_helper.from_array(
                np.ones((100, 64), np.float32), "bert.embeddings.word_embeddings.weight"
            ),
        ],
    )
    path = save(tmp_path / "text.onnx", helper.make_model(graph))
    with pytest.raises(ContainerError, match=f"{name} would get another length") as caught:
        resize_checkpoint(path, to_length=96, length_method="tile")
    assert caught.value.hint == "Change the length of the checkpoint, and export it again."
    assert [file.name for file in tmp_path.iterdir()] == ["text.onnx"]


def test_a_named_batch_keeps_its_name(tmp_path: Path) -> None:
    heads = [-1, ROWS, 4, 4]
    made = model(batch="n", heads=heads)
    rows = next(n for n in made.graph.node if n.output[0] == "rows_shape")
    rows.attribute[0].ints[:] = [-1, ROWS, CHANNELS]
    flat = next(t for t in made.graph.initializer if t.name == "flat_shape")
    flat.int64_data[:] = [-1, CHANNELS, ROWS - 1]
    made.graph.node[3].input[0] = "tiled"
    made.graph.initializer.append(numbers("one", [0]))
    made.graph.initializer.append(numbers("ones", [1, 1]))
    make = helper.make_node
    shape = [
        make("Shape", ["x"], ["size"]),
        make("Gather", ["size", "one"], ["count"]),
        make("Concat", ["count", "ones"], ["times"], axis=0),
        make("Expand", ["cls_token", "times"], ["tiled"], name="repeat"),
    ]
    nodes = [*shape, *made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    path = save(tmp_path / "m.onnx", made)
    resize_checkpoint(path, to=TO)
    output = tmp_path / "m-56x32.onnx"
    dims = onnx.load(output).graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "n" and [d.dim_value for d in dims[1:]] == [3, *TO]
    np.testing.assert_allclose(run(output, TO, 3), expected(output, TO, 3), rtol=1e-4, atol=1e-4)


MAKE = helper.make_node
EXTRAS: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], list[int]]] = {
    "patches by a slice to the end": (
        [MAKE("Slice", ["tokens", "one", "all", "one"], ["out"])],
        [numbers("one", [1]), numbers("all", [2**63 - 1])],
        [1, NEW_ROWS - 1, CHANNELS],
    ),
    "patches by a slice to a number": (
        [MAKE("Slice", ["tokens", "one", "all", "one"], ["out"])],
        [numbers("one", [1]), numbers("all", [ROWS])],
        [1, NEW_ROWS - 1, CHANNELS],
    ),
    "a split": (
        [MAKE("Split", ["rows", "parts"], ["out"], axis=1)],
        [numbers("parts", [ROWS - 1])],
        [1, NEW_ROWS - 1, CHANNELS],
    ),
    "a map again": (
        [MAKE("Reshape", ["rows", "map"], ["out"])],
        [numbers("map", [1, *GRID, CHANNELS])],
        [1, 7, 4, CHANNELS],
    ),
    "a map twice as large": (
        [MAKE("Resize", ["patches", "", "", "large"], ["out"])],
        [numbers("large", [1, CHANNELS, 2 * GRID[0], 2 * GRID[1]])],
        [1, CHANNELS, 14, 8],
    ),
    "pooling over the map": (
        [MAKE("AveragePool", ["patches"], ["out"], kernel_shape=list(GRID))],
        [],
        [1, CHANNELS, 1, 1],
    ),
    "a mask of ones": (
        [MAKE("ConstantOfShape", ["ones"], ["out"])],
        [numbers("ones", [1, ROWS])],
        [1, NEW_ROWS],
    ),
}


@pytest.mark.parametrize("name", EXTRAS)
def test_sizes_in_other_nodes_follow(name: str, tmp_path: Path) -> None:
    nodes, constants, sizes = EXTRAS[name]
    path = save(tmp_path / "m.onnx", model(extra=tuple(nodes), constants=tuple(constants)))
    resize_checkpoint(path, to=TO)
    output = tmp_path / "m-56x32.onnx"
    onnx.checker.check_model(output, full_check=True)
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    result = session.run(["out"], {"x": np.zeros((1, 3, *TO), np.float32)})[0]
    assert list(result.shape) == sizes


def test_tensors_that_follow_a_rule_grow_with_the_table(tmp_path: Path) -> None:
    """A mask that masks nothing, as initializer; position numbers, as initializer and constant."""
    positions = np.arange(ROWS, dtype=np.int64).reshape(1, ROWS)
    nodes = (
        MAKE("Add", ["tokens", "mask"], ["masked"]),
        MAKE("Gather", ["masked", "numbers"], ["picked"], axis=1),
        MAKE("Constant", [], ["more"], value=numpy_helper.from_array(positions)),
        MAKE("Gather", ["masked", "more"], ["out"], axis=1),
    )
    constants = (
        numpy_helper.from_array(np.full((1, ROWS, 1), 2, np.float32), "mask"),
        numpy_helper.from_array(positions, "numbers"),
    )
    path = save(tmp_path / "m.onnx", model(extra=nodes, constants=constants))
    resize_checkpoint(path, to=TO)
    output = tmp_path / "m-56x32.onnx"
    onnx.checker.check_model(output, full_check=True)
    found = initializers(output)
    assert found["mask"].shape == (1, NEW_ROWS, 1) and (found["mask"] == 2).all()
    assert found["numbers"].tolist() == [list(range(NEW_ROWS))]
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    (result,) = session.run(["out"], {"x": np.zeros((1, 3, *TO), np.float32)})
    assert result.shape == (1, 1, NEW_ROWS, CHANNELS)
    assert verify_checkpoint(output, against=path, to=TO).verdict == "ok"


REFUSED: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], str]] = {
    "a mask of the old grid": (
        [MAKE("Add", ["tokens", "mask"], ["out"], name="masked")],
        [numpy_helper.from_array(np.arange(ROWS, dtype="f4").reshape(1, -1, 1), "mask")],
        r"node masked \(Add\)",
    ),
    "cells in windows": (
        [MAKE("Reshape", ["heads", "windows"], ["out"], name="partition")],
        [numbers("windows", [1, 2, 8, CHANNELS])],
        "node Reshape partition",
    ),
}

TURNED = (GRID[1] * PATCH, GRID[0] * PATCH)  # 5×3: as many cells


def test_a_turned_grid_is_followed_though_no_number_of_rows_changes(tmp_path: Path) -> None:
    nodes, constants, _ = EXTRAS["a map again"]
    path = save(tmp_path / "m.onnx", model(extra=tuple(nodes), constants=tuple(constants)))
    resize_checkpoint(path, to=TURNED)
    output = tmp_path / "m-40x24.onnx"
    onnx.checker.check_model(output, full_check=True)
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    (result,) = session.run(["out"], {"x": np.zeros((1, 3, *TURNED), np.float32)})
    assert result.shape == (1, 5, 3, CHANNELS)
    np.testing.assert_allclose(run(output, TURNED), expected(output, TURNED), rtol=1e-4, atol=1e-4)


def test_a_turned_grid_in_a_folder_is_followed_as_well(tmp_path: Path) -> None:
    nodes, constants, _ = EXTRAS["a map again"]
    folder = tmp_path / "alone"
    folder.mkdir()
    save(folder / "m.onnx", model(extra=tuple(nodes), constants=tuple(constants)))
    resize_checkpoint(folder, to=TURNED)
    shapes = initializers(tmp_path / "alone-40x24" / "m.onnx")
    assert shapes["map"].tolist() == [1, 5, 3, CHANNELS]


def _inside(name: str, shape: list[int]) -> onnx.GraphProto:
    """A subgraph that gives `placed` this shape."""
    return helper.make_graph(
        [MAKE("Reshape", ["tokens", f"{name}_shape"], [name])],
        name,
        [],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)],
        [numbers(f"{name}_shape", shape)],
    )


_SCALE = numpy_helper.from_array(np.array(1 / ROWS, np.float32), "scale")
_ANGLES = np.linspace(0, 6, (ROWS - 1) * CHANNELS, dtype="f4").reshape(1, ROWS - 1, CHANNELS)
REFUSED |= {
    "a sum over the rows, divided by their number": (
        [MAKE("Mul", ["tokens", "scale"], ["out"], name="mean")],
        [_SCALE],
        f"node Mul mean computes with the constant 1/{ROWS}",
    ),
    "pooling to a fixed size": (
        [MAKE("AveragePool", ["patches"], ["out"], kernel_shape=[3, 1], name="pool")],
        [],
        r"node AveragePool pool: windows of \[3, 1\] cut \[3, 5\]",
    ),
    "a size in a branch": (
        [
            MAKE(
                "If",
                ["yes"],
                ["out"],
                name="either",
                then_branch=_inside("a", [ROWS, 4, 4]),
                else_branch=_inside("b", [ROWS, 4, 4]),
            )
        ],
        [numpy_helper.from_array(np.array(True), "yes")],
        f"node If either: the number {ROWS} in it may be a size",
    ),
    "rotary angles under the name of a table": (
        [MAKE("Mul", ["rows", "rope.pos_embed"], ["out"], name="turn")],
        [numpy_helper.from_array(np.sin(_ANGLES), "rope.pos_embed")],
        "node Mul turn multiplies by rope.pos_embed",
    ),
}


def test_what_belongs_to_the_old_grid_is_refused_for_a_turned_one(tmp_path: Path) -> None:
    """Every shape fits, but the coordinates of 3×5 are not those of 5×3."""
    nodes, constants, message = REFUSED["a mask of the old grid"]
    path = save(tmp_path / "m.onnx", model(extra=tuple(nodes), constants=tuple(constants)))
    with pytest.raises(ContainerError, match=message) as caught:
        resize_checkpoint(path, to=TURNED)
    assert "40x24 px has as many cells as 24x40 px, so 80x40 px was tried" in caught.value.message
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_function_with_a_size_is_refused(tmp_path: Path) -> None:
    made = model()
    shape = numpy_helper.from_array(np.array([1, ROWS, 4, 4]))
    inner = [MAKE("Constant", [], ["s"], value=shape), MAKE("Reshape", ["a", "s"], ["b"])]
    opset = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("own", "Heads", ["a"], ["b"], inner, opset))
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.graph.node[6].CopyFrom(MAKE("Heads", ["placed"], ["heads"], domain="own", name="heads"))
    path = save(tmp_path / "m.onnx", made)
    with pytest.raises(ContainerError, match=f"a function of the model: the number {ROWS} in it"):
        resize_checkpoint(path, to=TO)


@pytest.mark.parametrize("name", REFUSED)
def test_a_graph_that_does_not_fit_is_refused_with_its_node(name: str, tmp_path: Path) -> None:
    nodes, constants, message = REFUSED[name]
    path = save(tmp_path / "m.onnx", model(extra=tuple(nodes), constants=tuple(constants)))
    for dry_run in (True, False):
        with pytest.raises(ContainerError, match=message):
            resize_checkpoint(path, to=TO, dry_run=dry_run)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_external_data_is_spliced(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    path = save(
        source / "m.onnx",
        model(),
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=256,
    )
    assert (source / "m.onnx.data").stat().st_size > 40_000
    report = resize_checkpoint(path, to=TO)
    output = source / "m-56x32"
    assert report.output == output
    assert sorted(p.name for p in output.iterdir()) == ["m.onnx", "m.onnx.data"]
    onnx.checker.check_model(output / "m.onnx", full_check=True)
    for name, array in weights().items():
        if name != "pos_embed":
            assert initializers(output / "m.onnx")[name].tobytes() == array.tobytes()
    result = run(output / "m.onnx", TO)
    np.testing.assert_allclose(result, expected(output / "m.onnx", TO), rtol=1e-4, atol=1e-4)
    grown = (output / "m.onnx.data").stat().st_size - (source / "m.onnx.data").stat().st_size
    assert grown % 4096 == 0  # what lies after the table keeps its place within a page
    assert resize_checkpoint(output, to=TO).status == "unchanged"
    with pytest.raises(OutputError, match="output is a folder"):
        resize_checkpoint(path, to=TO, output=tmp_path / "m.onnx")


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/b", ""])
def test_external_data_stays_in_its_folder(location: str, tmp_path: Path) -> None:
    made = model()
    table = next(t for t in made.graph.initializer if t.name == "pos_embed")
    table.ClearField("raw_data")
    table.data_location = onnx.TensorProto.EXTERNAL
    entry = table.external_data.add()
    entry.key, entry.value = "location", location
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ContainerError, match=r"leads out of the folder|is not a file name"):
        inspect_checkpoint(tmp_path / "m.onnx")


def test_a_truncated_or_damaged_file_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", model())
    content = path.read_bytes()
    for end in (3, 60, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(ContainerError):
            inspect_checkpoint(path)
    at = content.index(weights()["pos_embed"].tobytes())
    path.write_bytes(content[: at - 3] + b"\xff" * 3 + content[at:])
    with pytest.raises(ContainerError):
        inspect_checkpoint(path)


def test_a_graph_beside_weights_is_left_out_and_alone_it_is_converted(tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.mkdir()
    save(both / "model.onnx", model())
    save_file(weights(), both / "model.safetensors")
    report = resize_checkpoint(both, to=TO, from_="24x40", edit_configs=False)
    assert [entry.name for entry in report.left_out] == ["model.onnx"]
    alone = tmp_path / "alone"
    alone.mkdir()
    save(alone / "model.onnx", model())
    (alone / "README.md").write_text("x")
    resize_checkpoint(alone, to=TO)
    onnx.checker.check_model(tmp_path / "alone-56x32" / "model.onnx", full_check=True)
    assert (tmp_path / "alone-56x32" / "README.md").read_text() == "x"


@pytest.mark.parametrize(
    ("before", "after", "cut"),
    [
        ([1, 16, 768], [1, 16, 12, 64], [([0], [0]), ([1], [1]), ([2], [2, 3])]),
        ([1, 8, 3, 5], [1, 8, 15], [([0], [0]), ([1], [1]), ([2, 3], [2])]),
        ([12, 16, 64], [1, 12, 16, 64], [([0], [0, 1]), ([1], [2]), ([2], [3])]),
        ([1, 16, 8], [16, 8, 1], [([0, 1], [0]), ([2], [1, 2])]),
        ([2, 3], [7], None),
    ],
)
def test_groups_are_the_smallest_with_equal_products(
    before: list[int], after: list[int], cut: object
) -> None:
    assert groups(before, after) == cut


def test_a_size_is_never_guessed() -> None:
    """64 rows and heads of 64 channels: only the rows change; two readings are no reading."""
    moves = {64: {96}, 8: {8, 12}}
    assert new_sizes([1, 64, 768], [1, 96, 768], [1, 64, 12, 64], moves, ()) == [1, 96, 12, 64]
    assert new_sizes([1, 64, 4], [1, 96, 4], [1, 8, 8, 4], moves, ()) is None
    grids = [((8, 8), (8, 12))]
    assert new_sizes([1, 64, 4], [1, 96, 4], [1, 8, 8, 4], moves, grids) == [1, 8, 12, 4]
