"""1-D tables: what each recipe does to the rows, and what a request means for a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from resize_pos import resize_checkpoint, resize_state_dict, verify_checkpoint
from resize_pos.cli.app import _run
from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError, ResizePosError, TableError, UsageError
from resize_pos.core.operations import Lengthen
from resize_pos.quality.checks import Level
from resize_pos.report.json import report_document
from resize_pos.transforms.sequence import resize_sequence, stretch
from tests.support.builders import raw_tensors, write_safetensors
from tests.support.strategies import LAW, lengths

FLAT = Layout.parse("(p l s) d")
GROWING = ["linear", "cubic", "nearest", "tile", "stretch:3", "keep:zeros", "keep:repeat-last"]


def how(text: str) -> Lengthen:
    method, _, fill = text.partition(":") if text.startswith("keep") else (text, "", "")
    return Lengthen.parse(method, fill or None)


def table(rows: int, channels: int = 6, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, channels)).astype(np.float32)


def resized(
    array: NDArray[Any], target: int, method: str, *, around: tuple[int, int] = (0, 0)
) -> Any:
    prefix, suffix = around
    length = len(array) - prefix - suffix
    return resize_sequence(array, FLAT, prefix, length, suffix, target, how(method))


@pytest.mark.parametrize("method", GROWING)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reserved_rows_are_untouched(method: str, dtype: str) -> None:
    import ml_dtypes

    source = table(2 + 11 + 1).astype(getattr(ml_dtypes, dtype, dtype))
    result = resized(source, 19, method, around=(2, 1))
    assert (result.shape, result.dtype) == ((2 + 19 + 1, 6), source.dtype)
    assert result[:2].tobytes() == source[:2].tobytes()
    assert result[-1:].tobytes() == source[-1:].tobytes()


@LAW
@given(lengths(), lengths())
def test_tiling_repeats_the_block_and_cuts_the_last_copy(length: int, target: int) -> None:
    source = table(2 + length)
    result = resized(source, target, "tile", around=(2, 0))
    for position in range(target):
        assert result[2 + position].tobytes() == source[2 + position % length].tobytes()


@LAW
@given(lengths(), lengths(), st.sampled_from(["repeat-last", "tile", "zeros"]))
def test_keep_leaves_every_old_position_where_it_is(length: int, target: int, fill: str) -> None:
    source = table(length)
    result = resized(source, target, f"keep:{fill}")
    both = min(length, target)
    assert result[:both].tobytes() == source[:both].tobytes()
    new = {"repeat-last": source[-1:], "zeros": np.zeros((1, 6), np.float32)}
    for position in range(length, target):
        expected = source[position % length] if fill == "tile" else new[fill][0]
        assert np.array_equal(result[position], expected)


@LAW
@given(st.integers(3, 40), lengths(80), st.data())
def test_stretch_keeps_the_first_and_is_exact_on_straight_lines(
    length: int, target: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, min(length - 2, target)))
    if target == length or first >= target:
        return
    line = np.arange(length, dtype=np.float64)[:, None] * np.array([[1.0, -2.0]]) + 5.0
    result = resized(line, target, f"stretch:{first}")
    assert result[:first].tobytes() == line[:first].tobytes()
    rest = first + np.arange(target - first) * (length - first) / (target - first)
    np.testing.assert_allclose(result[first:, 0], rest + 5.0, rtol=0, atol=1e-12)


def test_long_clip_is_stretch_20() -> None:
    """Keep 20 of 77, quarter steps between the other 57, and three extrapolated at the end."""
    source = table(77).astype(np.float64)
    result = resized(source, 248, "stretch:20")
    assert len(result) == 20 + 4 * 57
    for index in range(56):
        for quarter in range(4):
            expected = ((4 - quarter) * source[20 + index] + quarter * source[21 + index]) / 4
            np.testing.assert_allclose(result[20 + 4 * index + quarter], expected, atol=1e-15)
    step = (source[76] - source[75]) / 4
    for quarter in range(4):
        np.testing.assert_allclose(result[244 + quarter], source[76] + quarter * step, atol=1e-14)


def test_stretching_one_position_is_refused() -> None:
    with pytest.raises(GeometryError, match="needs two positions"):
        stretch(1, 4)


@pytest.mark.parametrize("method", ["linear", "cubic", "nearest", "stretch:0", "tile"])
def test_a_constant_table_stays_constant(method: str) -> None:
    source = np.full((13, 4), 0.7, np.float32)
    for target in (5, 29):
        np.testing.assert_allclose(resized(source, target, method), 0.7, rtol=0, atol=1e-6)


def test_the_same_length_is_the_same_array() -> None:
    source = table(9)
    assert resized(source, 9, "linear") is source


@pytest.mark.parametrize(
    ("method", "fill"),
    [
        ("lanczos", None),
        ("stretch", None),
        ("stretch:", None),
        ("stretch:x", None),
        ("stretch:-1", None),
        ("linear:3", None),
        ("linear", "zeros"),
        ("keep", "noise"),
    ],
)
def test_a_method_that_makes_no_sense_is_a_usage_error(method: str, fill: str | None) -> None:
    with pytest.raises(UsageError):
        Lengthen.parse(method, fill)


# Files


def bert(rows: int, stem: str = "") -> dict[str, NDArray[Any]]:
    return {
        f"{stem}embeddings.word_embeddings.weight": table(50, 8, 1),
        f"{stem}embeddings.position_embeddings.weight": table(rows, 8, 2),
        f"{stem}embeddings.LayerNorm.bias": np.arange(8, dtype=np.float16),
    }


def clip(length: int = 77, rows: int = 50) -> dict[str, NDArray[Any]]:
    return {
        "visual.class_embedding": table(1, 8)[0],
        "visual.positional_embedding": table(rows, 8),
        "visual.conv1.weight": np.zeros((8, 3, 32, 32), np.float32),
        "positional_embedding": table(length, 8, 3),
        "token_embedding.weight": table(50, 8, 4),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, tensors: dict[str, NDArray[Any]], config: object = None) -> Path:
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})


PLAIN: dict[str, Any] = {"model_type": "unheard-of"}
# rows, name before the key, config → reserved rows, or None: it cannot be told
TOLD: list[tuple[int, str, dict[str, Any] | None, int | None]] = [
    (514, "", None, 2),
    (512, "", None, 0),
    (514, "roberta.", None, 2),
    (300, "roberta.", None, 2),
    (300, "bert.", None, 0),
    (514, "bert.", None, 0),
    (300, "", None, None),
    (300, "", {"model_type": "roberta", "pad_token_id": 1}, 2),
    (300, "", {"model_type": "roberta", "pad_token_id": 4}, 5),
    (300, "", {"model_type": "roberta"}, 2),
    (514, "", {"model_type": "bert", "pad_token_id": 1}, 0),
    (514, "roberta.", {"model_type": "bert"}, 0),
    (66, "", {"model_type": "yoso", "max_position_embeddings": 64}, 2),
    (42, "", {**PLAIN, "max_position_embeddings": 40}, 2),
    (42, "", {**PLAIN, "max_position_embeddings": 42}, None),
    (42, "", {"encoder": {"model_type": "bert"}, "decoder": {"model_type": "roberta"}}, None),
    (
        42,
        "decoder.roberta.",
        {"encoder": {"model_type": "bert"}, "decoder": {"model_type": "roberta"}},
        2,
    ),
    (300, "", {"model_type": "clip", "text_config": {"model_type": "xlm-roberta"}}, 2),
]


@pytest.mark.parametrize(("rows", "stem", "config", "reserved"), TOLD)
def test_reserved_rows_are_told_or_asked_for(
    folder: Path, rows: int, stem: str, config: object, reserved: int | None
) -> None:
    path = written(folder, bert(rows, stem), config)
    if reserved is None:
        with pytest.raises(GeometryError, match=f"{rows} rows") as caught:
            resize_checkpoint(path, to=9)
        assert caught.value.hint is not None
        assert "prefix=0 or prefix=2" in caught.value.hint
        assert resize_checkpoint(path, to=9, prefix=2, dry_run=True).plan.changes
        return
    (step,) = resize_checkpoint(path, to=9, dry_run=True).plan.steps
    assert (step.table.prefix, step.table.length) == (reserved, rows - reserved)


def test_a_row_count_given_as_a_length_is_refused_with_the_truth(folder: Path) -> None:
    path = written(folder, bert(514))
    with pytest.raises(GeometryError) as caught:
        resize_checkpoint(path, to=1024, from_=514, length_method="tile")
    assert "514 = 2 + 512 rows" in caught.value.message
    assert caught.value.hint is not None
    assert "from_=512" in caught.value.hint
    report = resize_checkpoint(path, to=1024, from_=514, prefix=0, length_method="tile")
    assert report.plan.steps[0].table.length == 514


def test_growing_without_a_recipe_is_refused_and_explained(folder: Path) -> None:
    path = written(folder, bert(512))
    with pytest.raises(TableError) as caught:
        resize_checkpoint(path, to=1024)
    assert caught.value.hint is not None
    assert 5 <= len(caught.value.hint.splitlines()) <= 8
    for word in ("tile", "stretch:", "linear", "keep", "Longformer", "Long-CLIP"):
        assert word in caught.value.hint
    assert list(folder.iterdir()) == [path]


def test_shrinking_cuts_off_and_says_so(folder: Path) -> None:
    path = written(folder, bert(514))
    report = resize_checkpoint(path, to=100)
    assert report.output == folder / "model-100.safetensors"
    (step,) = report.plan.changes
    assert "cut off" in step.reason
    before, after = raw_tensors(path)[0], raw_tensors(report.output)[0]
    key = "embeddings.position_embeddings.weight"
    assert after[key][1] == before[key][1][: 102 * 8 * 4]
    assert all(after[name] == before[name] for name in before if name != key)


def test_keep_needs_a_fill_to_grow_and_none_to_shrink(folder: Path) -> None:
    path = written(folder, bert(512))
    with pytest.raises(TableError, match="512 new ones hold"):
        resize_checkpoint(path, to=1024, length_method="keep")
    assert resize_checkpoint(path, to=64, length_method="keep", dry_run=True).plan.changes


def test_stretch_that_keeps_too_much_is_refused(folder: Path) -> None:
    path = written(folder, bert(512))
    with pytest.raises(TableError) as caught:
        resize_checkpoint(path, to=1024, length_method="stretch:511")
    assert caught.value.hint == "K is at most 510 here."


@pytest.mark.parametrize("options", [{"to": "384x512"}, {"to": 64, "to_length": 64}])
def test_a_text_has_one_length(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        resize_checkpoint(written(folder, bert(512)), **options)


def test_a_grid_for_a_text_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(UsageError, match="not a grid"):
        resize_checkpoint(written(folder, bert(512)), to_grid="8x8")


def test_in_a_mixed_file_size_and_length_are_separate(folder: Path) -> None:
    path = written(folder, clip())
    image = resize_checkpoint(path, to=448)
    assert [step.table.name for step in image.plan.changes] == ["visual.positional_embedding"]
    text = resize_checkpoint(path, to_length=248, length_method="stretch:20")
    assert [step.table.name for step in text.plan.changes] == ["positional_embedding"]
    assert text.output == folder / "model-length248.safetensors"
    both = resize_checkpoint(path, to=448, to_length=40)
    assert len(both.plan.changes) == 2
    assert both.output == folder / "model-448-length40.safetensors"
    document = report_document(text)
    entry = document["tables"][1]
    assert entry["from"] == {"length": 77, "rows": 77, "shape": [77, 8]}
    assert entry["to"] == {"length": 248, "rows": 248, "shape": [248, 8]}
    assert (entry["method"], entry["convention"]) == ("stretch:20", None)
    assert document["request"]["to_length"] == 248


def test_flags_for_the_image_do_not_touch_the_text(folder: Path) -> None:
    report = resize_checkpoint(written(folder, clip()), to=448, to_length=40, prefix=1)
    assert [step.table.prefix for step in report.plan.steps] == [1, 0]


def test_a_text_table_that_cannot_be_told_does_not_block_the_image(folder: Path) -> None:
    tensors = clip() | {f"text.{name}": array for name, array in bert(300).items()}
    del tensors["positional_embedding"]
    report = resize_checkpoint(written(folder, tensors), to=448)
    assert [step.table.name for step in report.plan.changes] == ["visual.positional_embedding"]
    kept = [step for step in report.plan.steps if step.table.name.startswith("text.")]
    assert "no length was asked for" in kept[0].reason


def test_of_several_lengths_one_must_be_chosen(folder: Path) -> None:
    tensors = {
        "model.encoder.embed_positions.weight": table(128, 8),
        "model.decoder.embed_positions.weight": table(64, 8),
    }
    path = written(folder, tensors, {"model_type": "led"})
    with pytest.raises(GeometryError, match="different lengths") as caught:
        resize_checkpoint(path, to=256, length_method="tile")
    assert caught.value.hint is not None
    assert "from_=64 or from_=128" in caught.value.hint
    report = resize_checkpoint(path, to=256, from_=128, length_method="tile")
    assert [step.table.name for step in report.plan.changes] == list(tensors)[:1]


def test_bucket_tables_are_kept_with_a_reason(folder: Path) -> None:
    tensors = bert(512, "deberta.") | {"deberta.encoder.rel_embeddings.weight": table(64, 8)}
    report = resize_checkpoint(written(folder, tensors), to=256)
    kept = [step for step in report.plan.steps if step.table.name.endswith("rel_embeddings.weight")]
    assert "no length in it" in kept[0].reason


def test_a_length_for_a_file_without_a_text_is_refused(vit_file: Path) -> None:
    with pytest.raises(TableError, match="no text table"):
        resize_checkpoint(vit_file, to_length=64)


def test_a_custom_line_is_a_sequence(folder: Path) -> None:
    path = written(folder, {"my_line": table(41, 8)})
    options = {"pattern": "my_line$", "axes": "(p l) d", "prefix": 1, "length_method": "linear"}
    report = resize_checkpoint(path, to=80, **options)  # type: ignore[arg-type]
    assert report.plan.steps[0].target_shape == (81, 8)


def test_axes_without_reserved_rows_take_no_prefix(folder: Path) -> None:
    path = written(folder, {"my_line": table(41, 8)})
    options = {"pattern": "my_line$", "axes": "l d"}
    report = resize_checkpoint(path, to=20, **options)  # type: ignore[arg-type]
    assert report.plan.steps[0].target_shape == (20, 8)
    with pytest.raises(GeometryError, match="no rows before"):
        resize_checkpoint(path, to=20, prefix=1, **options)  # type: ignore[arg-type]


def test_a_file_with_nothing_but_buckets_has_nothing_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(folder, {"encoder.relative_attention_bias.weight": table(32, 4)})
    assert _run([str(path), "--to", "1024"], debug=True) == 0
    assert "none of its tables has a length" in capsys.readouterr().out
    assert list(folder.iterdir()) == [path]


def test_an_integer_table_is_refused(folder: Path) -> None:
    tensors = bert(512)
    name = "embeddings.position_embeddings.weight"
    tensors[name] = tensors[name].astype(np.int8)
    with pytest.raises(TableError, match="I8"):
        resize_checkpoint(written(folder, tensors), to=256)


def test_a_converted_text_file_knows_its_reserved_rows(folder: Path) -> None:
    path = written(folder, bert(300))
    report = resize_checkpoint(path, to=400, prefix=2, length_method="tile")
    assert report.output is not None
    again = resize_checkpoint(report.output, to=150, dry_run=True)
    assert (again.plan.steps[0].table.prefix, again.plan.steps[0].table.length) == (2, 400)


def test_a_state_dict_in_memory_gets_the_same_values(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    path = written(folder, clip())
    report = resize_checkpoint(path, to_length=100, length_method="cubic")
    assert report.output is not None
    result = resize_state_dict(load_file(path), to_length=100, length_method="cubic")
    torch.testing.assert_close(result, load_file(report.output), rtol=0, atol=0)


def test_the_dry_run_plans_what_the_run_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(folder, bert(514))
    words = [str(path), "--from", "512", "--to", "1024", "--length-method", "tile", "--json"]
    documents = []
    for extra in (["-n"], []):
        assert _run([*words, *extra], debug=True) == 0
        documents.append(json.loads(capsys.readouterr().out)["tables"][0])
    for document in documents:
        del document["measures"], document["checks"]
    assert documents[0] == documents[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--to", "384x512"], 2),
        (["--to", "1024"], 1),
        (["--to", "1024", "--length-method", "spline"], 2),
        (["--to", "1024", "--length-method", "keep", "--fill", "zeros"], 0),
        (["--to", "1024", "--fill", "zeros"], 2),
        (["--to-length", "1024", "--length-method", "nearest"], 0),
        (["--from", "514", "--to", "1024", "--length-method", "tile"], 1),
    ],
)
def test_exit_codes_of_a_text_file(folder: Path, words: list[str], code: int) -> None:
    path = written(folder, bert(514))
    assert _run([str(path), *words], debug=False) == code


def test_errors_are_one_of_ours(folder: Path) -> None:
    with pytest.raises(ResizePosError):
        resize_checkpoint(written(folder, bert(512)), to_length=0)


VERIFIED = [
    ({"length_method": "tile"}, 1024, "tile"),
    ({"length_method": "stretch:20"}, 900, "stretch:20"),
    ({"length_method": "linear"}, 900, "linear"),
    ({"length_method": "cubic"}, 300, "cubic"),
    ({"length_method": "keep", "fill": "zeros"}, 700, "keep, filled by zeros"),
    ({}, 100, "keep, the rest is cut off"),
]


@pytest.mark.parametrize(("options", "target", "words"), VERIFIED)
def test_verify_finds_the_recipe(
    folder: Path, options: dict[str, Any], target: int, words: str
) -> None:
    path = written(folder, bert(514))
    report = resize_checkpoint(path, to=target, **options)
    assert report.output is not None
    held = verify_checkpoint(report.output, against=path).against
    assert held is not None
    (origin, *_) = held.tables[0].checks
    assert origin.level is Level.OK
    assert f"made by {words}" in origin.detail
    assert held.verdict is Level.OK


def test_verify_says_when_no_recipe_made_a_table(folder: Path) -> None:
    path = written(folder, bert(512))
    other = write_safetensors(folder / "trained.safetensors", bert(1024))
    held = verify_checkpoint(other, against=path).against
    assert held is not None
    (origin, *_) = held.tables[0].checks
    assert origin.level is Level.WARN
    assert "no known method" in origin.detail


def test_verify_finds_the_recipe_beside_an_image(folder: Path) -> None:
    path = written(folder, clip())
    report = resize_checkpoint(path, to=448, to_length=248, length_method="stretch:20")
    assert report.output is not None
    held = verify_checkpoint(report.output, against=path).against
    assert held is not None
    origins = [table.checks[0].detail for table in held.tables]
    assert "bicubic" in origins[0]
    assert "stretch:20" in origins[1]
