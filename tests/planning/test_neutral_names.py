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


BESIDE_A_TABLE: dict[str, tuple[tuple[int, ...], str]] = {
    "blk.0.nearness": ((19 * 27, 4), "one number for each offset in the grid of pos_embed"),
    "blk.0.near.weight": ((19 * 27 + 3, 4), "one number for each offset"),
    "blk.0.square": ((4, 19, 27), "one number for each offset"),
    "blk.0.t1.weight": ((100, 140), "is a layer over 140 cells"),
}


@pytest.mark.parametrize("name", BESIDE_A_TABLE)
def test_offsets_and_layers_over_cells_stop_a_run_that_would_leave_them(
    name: str, tmp_path: Path
) -> None:
    shape, words = BESIDE_A_TABLE[name]
    tensors = transformer("pos_embed", GRID[None])
    for number in range(2):
        tensors[name.replace("0", str(number))] = noise(np.empty(shape))
    if "t1" in name:  # the way back, and biases as long as the cells
        tensors |= {f"blk.{n}.t2.weight": noise(np.empty(shape[::-1])) for n in range(2)}
        tensors |= {f"blk.{n}.t2.bias": np.zeros(140, np.float32) for n in range(2)}
        tensors |= {f"blk.{n}.t1.bias": np.zeros(100, np.float32) for n in range(2)}
    error = refused(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert words in error.message
    assert "--leave" in (error.hint or "")


def test_rows_and_columns_under_neutral_names_are_not_left_behind(tmp_path: Path) -> None:
    """With the size that they agree with they follow; offsets along both stop the run."""
    tensors = transformer("pos_embed", GRID[None])
    tensors |= {"one": noise(np.empty((10, D))), "two": noise(np.empty((14, D)))}
    _, output = convert_with(tmp_path, tensors, ["--from", "160x224", "--to", "192x288"])
    assert result(output, "one").shape == (12, D)
    assert result(output, "two").shape == (18, D)
    output.unlink()
    tensors |= {"three.a": noise(np.empty((19, 12))), "three.b": noise(np.empty((27, 12)))}
    error = refused(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert "offset along rows and columns of the grid of pos_embed" in error.message


def test_two_small_tables_under_neutral_names_are_converted_by_the_printed_command(
    tmp_path: Path,
) -> None:
    down, across = (noise(np.empty((count, D))).cumsum(0) for count in (10, 14))
    tensors = transformer("emb.one.weight", down.astype(np.float32))
    tensors["emb.two.weight"] = across.astype(np.float32)
    error = refused(tmp_path, tensors, "--to 192x288")
    assert "one row per row and per column of a 10×14 grid" in error.message
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, tensors, ["--to", "192x288", *flags])
    assert result(output, "emb.one.weight").shape == (12, D)
    assert result(output, "emb.two.weight").shape == (18, D)


def test_heads_first_and_other_stages_do_not_hide_offsets(tmp_path: Path) -> None:
    """LeViT's tables: one number per head for each of 196 or 49 distances, as lookup weights."""
    tensors = transformer("unused", np.ones((2, 2), np.float32))
    tensors |= {"blk.0.near.weight": noise(np.empty((4, 196)))}
    tensors |= {"blk.1.near.weight": noise(np.empty((8, 196)))}
    error = refused(tmp_path, tensors, "--to 384")
    assert "one number per head for each of 196 offsets" in error.message


def test_a_square_of_cells_per_window_is_not_passed_over(tmp_path: Path) -> None:
    tensors = transformer("unused", np.ones((2, 2), np.float32))
    tensors |= {"blk.0.hidden_pairs": noise(np.empty((16, 49, 49)))}
    error = refused(tmp_path, tensors, "--to 384")
    assert "one row and one column for each of 49 cells, 16 times" in error.message


NO_TABLES: dict[str, tuple[int, ...]] = {
    "stem.gain": (40, 1, 1, 1),  # a NormalizerFreeNet's gain per channel
    "snake.alpha": (1, 64, 1),  # a neural codec's
    "positional_encoder.projector.weight": (32, 2),  # LightGlue reads coordinates
}


@pytest.mark.parametrize("name", NO_TABLES)
def test_gains_and_projections_of_coordinates_are_no_suspects(name: str, tmp_path: Path) -> None:
    tensors = transformer(name, noise(np.empty(NO_TABLES[name])))
    tensors["one"] = np.ones(1, np.float32)
    report, _ = convert(tmp_path, tensors, "--to 384")
    assert not report.plan.changes
    assert not report.plan.looks_like


def test_a_model_of_words_has_no_cells(tmp_path: Path) -> None:
    """The stored decays of linear attention are no pairs of cells of an image."""
    tensors = transformer("layers.0.decay", noise(np.empty((1, 4, 64, 64))), kernel=False)
    tensors["embed_tokens.weight"] = noise(np.empty((300, D)))
    report, _ = convert(tmp_path, tensors, "--to 384")
    assert not report.plan.changes


def test_a_large_lookup_that_is_no_square_is_a_vocabulary(tmp_path: Path) -> None:
    """Dia reads 256 kinds of bytes, and its decoder 9 × 1028 codes; there is no kernel."""
    tensors = transformer("encoder.embedding.weight", noise(np.empty((256, D))), kernel=False)
    error = refused(tmp_path, tensors, "--to 384")
    assert "may be a position table of 16×16" in error.message
    tensors["decoder.embeddings.embed.weight"] = noise(np.empty((9252, D)))
    error = refused(tmp_path, tensors, "--to 384")
    assert "may hold one row per word or frame" in error.message


@pytest.mark.parametrize("rows_of_it", [8193, 64 * 128])
def test_words_beside_a_kernel_over_a_spectrogram_are_no_cells(
    rows_of_it: int, tmp_path: Path
) -> None:
    """Parakeet: 2-D kernels over a spectrogram, and 8192 words and a blank."""
    tensors = transformer("decoder.embedding.weight", noise(np.empty((rows_of_it, D))))
    tensors["cut.weight"] = noise(np.empty((D, 1, 3, 3)))
    report, _ = convert(tmp_path, tensors, "--to 384")
    assert not report.plan.changes


def test_as_many_codes_as_cells_do_not_hide_a_table(tmp_path: Path) -> None:
    """As in GLM-Image: 140 codes of another width, and the table beside no kernel."""
    tensors = transformer("visual.embeddings.foo.weight", noise(GRID))
    tensors["vq.quantize.embedding.weight"] = noise(np.empty((140, 2 * D)))
    error = refused(tmp_path, tensors, "--to 192x288")
    assert "visual.embeddings.foo.weight has 140 rows" in error.message


def test_rows_and_columns_of_latents_of_an_image_are_not_passed_over(tmp_path: Path) -> None:
    """As in diffusers' Transformer2DModel with codes: three lookups of one module."""
    shapes = {"emb": 256, "foo": 10, "bar": 14}
    tensors = transformer("out_norm", np.ones(D, np.float32), kernel=False)
    for name, count in shapes.items():
        tensors[f"latent_image_embedding.{name}.weight"] = noise(np.empty((count, D)))
    error = refused(tmp_path, tensors, "--to 24x36")
    assert "may hold one row per row and per column of a 10×14 grid" in error.message
    flags = pasted_flags((error.hint or "").replace("SIZE", "20x28"))
    _, output = convert_with(tmp_path, tensors, ["--to", "24x36", *flags])
    assert result(output, "latent_image_embedding.foo.weight").shape == (12, D)
    assert result(output, "latent_image_embedding.bar.weight").shape == (18, D)


def test_overlapping_patches_are_converted_by_the_printed_command(tmp_path: Path) -> None:
    """A 16×16 kernel every 8 pixels: 160×224 px are 19×27 cells."""
    tensors = transformer("pos", rows(19, 27)[None])
    error = refused(tmp_path, tensors, "--to 192x288")
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, tensors, ["--to", "192x288", *flags])
    new = result(output, "pos")
    assert new.shape == (1, 23 * 35, D)
    assert likeness(new[0], 23, 35) > 0.97


def test_two_towers_under_neutral_names_are_converted_by_one_command(tmp_path: Path) -> None:
    tensors = {f"a.{name}": value for name, value in transformer("t.weight", GRID).items()}
    coarse = transformer("t.weight", rows(5, 7))
    coarse["cut.weight"] = np.ones((D, 3, 32, 32), np.float32)
    tensors |= {f"b.{name}": value for name, value in coarse.items()}
    error = refused(tmp_path, tensors, "--to 192x288")
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, tensors, ["--to", "192x288", *flags])
    assert result(output, "a.t.weight").shape == (12 * 18, D)
    assert result(output, "b.t.weight").shape == (6 * 9, D)
