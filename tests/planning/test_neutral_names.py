"""Tables whose names say nothing (`foo.weight`) are not passed over, and no layer is suspected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.outside.cases import pasted_flags
from tests.planning.test_by_value import (
    D,
    Tensors,
    convert,
    convert_with,
    likeness,
    refused,
    result,
    rows,
    token,
)

Array = NDArray[np.float32]


def transformer(name: str, table: Array, *, kernel: bool = True) -> Tensors:
    """Make a transformer of two blocks whose names no family knows, with one unknown tensor."""
    rng = np.random.default_rng(6)
    tensors: Tensors = {name: table}
    layers: dict[str, tuple[int, ...]] = {"cut": (D, 3, 16, 16)} if kernel else {}
    for number in range(2):
        layers |= {f"blk.{number}.qkv": (3 * D, D), f"blk.{number}.f1": (4 * D, D)}
        layers |= {f"blk.{number}.o": (D, D), f"blk.{number}.f2": (D, 4 * D)}
        tensors[f"blk.{number}.n.weight"] = np.ones(D, np.float32)
    for layer, shape in (layers | {"head": (10, D)}).items():
        tensors[f"{layer}.weight"] = rng.standard_normal(shape).astype(np.float32)
        tensors[f"{layer}.bias"] = np.zeros(shape[0], np.float32)
    return tensors


def with_row(grid: Array) -> Array:
    """Put a class row before the grid."""
    return np.concatenate([token()[0], grid])


def noise(grid: NDArray[np.floating[Any]]) -> Array:
    return (0.02 * np.random.default_rng(8).standard_normal(grid.shape)).astype(np.float32)


GRID = rows(10, 14)
TABLES: dict[str, Array] = {
    "foo.weight": with_row(GRID),
    "bar": with_row(GRID)[None],
    "emb.weight": with_row(GRID),
    "table": GRID,
    "chart": GRID,
    "P": with_row(GRID)[None],
    "vis.embed.weight": GRID,
    "stages.0.t.weight": GRID,
    "turned": np.ascontiguousarray(GRID.T),
    "stored": np.ascontiguousarray(GRID.T).reshape(1, D, 10, 14),
    "classifier.foo": GRID[None],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_neutral_name_is_converted_by_one_printed_command(name: str, tmp_path: Path) -> None:
    tensors = transformer(name, TABLES[name])
    error = refused(tmp_path, tensors, "--to 192x288")
    assert "SIZE" not in (error.hint or ""), "the values show the grid, and the kernel the patch"
    flags = ["--to", "192x288", *pasted_flags(error.hint or "")]
    _, output = convert_with(tmp_path, tensors, flags)
    new = result(output, name)
    new = new.reshape(D, -1).T if name in ("turned", "stored") else new.reshape(-1, D)
    assert likeness(np.ascontiguousarray(new[-12 * 18 :]), 12, 18) > 0.97


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_untrained_values_do_not_hide_it(name: str, kernel: bool, tmp_path: Path) -> None:
    """With or without a patch kernel: the user decides, and the size that he states is enough."""
    tensors = transformer(name, noise(TABLES[name]), kernel=kernel)
    error = refused(tmp_path, tensors, "--to 192x288")
    assert name in error.message
    assert "--leave" in (error.hint or "")
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, tensors, ["--to", "192x288", *flags])
    old = tensors[name].size // D - 140
    assert result(output, name).size == (old + 12 * 18) * D
    report, _ = convert_with(tmp_path, tensors, ["--to", "192x288", *leave(error.hint)])
    assert not report.plan.changes


def leave(hint: str | None) -> list[str]:
    return pasted_flags((hint or "")[(hint or "").index("--leave") :])


LAYERS: dict[str, tuple[int, ...]] = {
    "to_logits.weight": (100, D),  # a head without a bias
    "visual_projection.weight": (40, D),  # CLIP
    "embed_tokens.weight": (500, D),
    "decoder.query_embed.weight": (100, D),  # DETR
    "quantize.embedding.weight": (512, D),  # VQ-GAN
    "y_embedder.embedding_table.weight": (1001, D),  # DiT
    "blk.0.extra.weight": (3 * D, D),  # as wide as another layer
    "merger.gate_proj.weight": (5 * D + 3, D),
    "class_prompts": (40, D),
    "blk.0.relative_attention_bias.weight": (32, 8),  # T5
    "register_tokens": (1, 16, D),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_lookups_of_other_things_are_no_suspects(name: str, tmp_path: Path) -> None:
    report, output = convert(tmp_path, transformer(name, noise(np.empty(LAYERS[name]))), "--to 384")
    assert not report.plan.changes
    assert not report.plan.looks_like
    assert not output.exists() or result(output, name).shape == LAYERS[name]


def test_one_number_per_head_and_offset_is_not_passed_over(tmp_path: Path) -> None:
    """Tables of relative offsets under a name that no family knows: 13×13 offsets of 7×7 cells."""
    tensors = transformer("unused", np.ones((2, 2), np.float32))
    tensors |= {f"blk.{n}.nearness": noise(np.empty((169, 4))) for n in range(2)}
    error = refused(tmp_path, tensors, "--to 384")
    assert "one number per head for each of 169 offsets" in error.message
    report, _ = convert_with(tmp_path, tensors, ["--to", "384", *leave(error.hint)])
    assert not report.plan.changes


def test_characters_as_many_as_cells_are_left(tmp_path: Path) -> None:
    """PARSeq's vocabulary has 129 rows, and so has its 8×16 grid with a class row."""
    tensors = transformer("pos_embed", with_row(rows(8, 16))[None])
    tensors |= {"cls_token": token(), "patch_embed.proj.weight": tensors.pop("cut.weight")}
    tensors["embed.embedding.weight"] = noise(np.empty((129, D)))
    error = refused(tmp_path, tensors, "--from 128x256 --to 192x288")
    assert "embed.embedding.weight" in error.message
    assert "--leave '^embed\\.embedding\\.weight$'" in (error.hint or "")


HALVES: dict[str, tuple[tuple[int, ...], str]] = {
    "top.weight": ((10, 140 * D), "reads all of 6720 numbers of a grid"),  # a head over all cells
    "over_cells.weight": ((140,), "has an axis of 140"),  # a norm over the cells
    "over_all.weight": ((D, 10, 14), "has the grid of pos_embed in its shape"),
}


@pytest.mark.parametrize("name", HALVES)
def test_layers_over_all_cells_stop_half_a_conversion(name: str, tmp_path: Path) -> None:
    shape, words = HALVES[name]
    tensors = transformer("pos_embed", rows(10, 14)[None])
    tensors["patch_embed.proj.weight"] = tensors.pop("cut.weight")
    tensors |= {
        name: noise(np.empty(shape)),
        name.replace("weight", "bias"): noise(np.empty(shape)),
    }
    error = refused(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert words in error.message


@pytest.mark.parametrize("name", ["foo.weight", "pos.weight", "frames_pe.weight"])
@pytest.mark.parametrize("flag", ["--to", "--to-length"])
def test_a_text_model_is_offered_a_length(name: str, flag: str, tmp_path: Path) -> None:
    tensors = transformer(name, rows(1, 200), kernel=False)
    tensors["words.weight"] = noise(np.empty((900, D)))
    error = refused(tmp_path, tensors, f"{flag} 150")
    words = [flag, "150", *pasted_flags(error.hint or "")]
    assert words[-2:] == ["--axes", "l d"]
    _, output = convert_with(tmp_path, tensors, words)
    assert np.array_equal(result(output, name), tensors[name][:150])


def test_a_text_table_that_its_family_objects_to_keeps_the_reason(tmp_path: Path) -> None:
    """I-BERT has a second, quantised copy of its table."""
    name = "embeddings.position_embeddings.weight"
    tensors = transformer(name, noise(np.empty((130, D))), kernel=False)
    tensors |= {f"{name}_integer": noise(np.empty((130, D)))}
    tensors["embeddings.word_embeddings.weight"] = noise(np.empty((900, D)))
    error = refused(tmp_path, tensors, "--to-length 100")
    assert "weight_integer is in the file" in error.message
    assert "--pattern" not in (error.hint or "")


def test_a_map_over_the_image_is_found_under_the_name_of_a_bias(tmp_path: Path) -> None:
    tensors = transformer("bias_map", TABLES["stored"])
    error = refused(tmp_path, tensors, "--to 192x288")
    words = ["--to", "192x288", *pasted_flags(error.hint or "")]
    _, output = convert_with(tmp_path, tensors, words)
    assert result(output, "bias_map").shape == (1, D, 12, 18)
