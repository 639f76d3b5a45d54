"""Faults that models outside the libraries showed, each held to the model that showed it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from resize_pos.core.errors import GeometryError, ResizePosError, TableError
from resize_pos.run.job import Job, run
from tests.outside.cases import Case, cases, materialise, outcome, read, request

ALL = {case.name: case for case in cases()}


def refusal(case: Case, folder: Path, flags: list[str]) -> ResizePosError:
    source = folder / "model.safetensors"
    materialise(case, source)
    with pytest.raises(ResizePosError) as caught:
        run(Job(source, request(flags), output=folder / "out.safetensors"))
    assert not (folder / "out.safetensors").exists()
    return caught.value


def test_windows_without_a_patch_embedding_are_not_the_image(tmp_path: Path) -> None:
    """Uformer's stages have windows of 8×8, and no patch embedding stands beside them."""
    case = ALL["spandrel:Uformer.Uformer"]
    source = tmp_path / "model.safetensors"
    materialise(case, source)
    report = run(Job(source, request(["--to", "16"]), output=tmp_path / "out.safetensors"))
    assert report.plan.changes == ()


def write(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, place, data = {}, 0, b""
    for name, values in tensors.items():
        dtype = {"f": "F32", "i": "I64"}[values.dtype.kind]
        raw = values.astype("<f4" if dtype == "F32" else "<i8").tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [place, place + len(raw)],
        }
        place, data = place + len(raw), data + raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_one_stage_of_windows_without_a_patch_embedding_is_for_the_user(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tensors = {
        f"blocks.{block}.attn.{name}": values
        for block in range(2)
        for name, values in {
            "relative_position_bias_table": random.standard_normal((225, 4)),
            "relative_position_index": np.zeros((64, 64), np.int64),
            "qkv.weight": random.standard_normal((96, 32)),
            "qkv.bias": random.standard_normal(96),
        }.items()
    }
    write(tmp_path / "model.safetensors", tensors)
    with pytest.raises(GeometryError, match="no patch embedding beside it") as caught:
        run(Job(tmp_path / "model.safetensors", request(["--to", "32"]), output=tmp_path / "o"))
    assert r"--leave '^blocks\.\d+\.attn\.relative_position_bias_table$'" in (
        caught.value.hint or ""
    )


def test_numbered_rows_and_columns_get_a_pattern_each(tmp_path: Path) -> None:
    """DALL-E's weights.0 are rows and weights.1 columns: one pattern for both would mix them up."""
    case = ALL["dalle-pytorch:dalle_pytorch.DALLE"]
    hint = refusal(case, tmp_path, ["--to", "256"]).hint or ""
    assert r"--pattern '^image_pos_emb\.weights\.0$' --axes '1 h 1 d'" in hint
    assert r"--pattern '^image_pos_emb\.weights\.1$' --axes '1 1 w d'" in hint
    end = outcome(case, tmp_path)
    assert end.kind == "hint"


def test_two_branches_are_not_rows_and_columns(tmp_path: Path) -> None:
    """CrossViT's pos_embed.0 and pos_embed.1 have widths of their own."""
    random = np.random.default_rng(0)
    tensors = {
        name: values
        for branch, (rows, width) in enumerate(((401, 96), (197, 192)))
        for name, values in {
            f"pos_embed.{branch}": random.standard_normal((1, rows, width)),
            f"norm.{branch}.weight": random.standard_normal(width),
            f"norm.{branch}.bias": random.standard_normal(width),
        }.items()
    }
    write(tmp_path / "model.safetensors", tensors)
    with pytest.raises(GeometryError, match="pos_embed") as caught:
        run(Job(tmp_path / "model.safetensors", request(["--to", "480"]), output=tmp_path / "o"))
    assert "per column" not in caught.value.message


def test_scales_of_one_image_follow_its_size(tmp_path: Path) -> None:
    case = ALL["rectified-flow-pytorch:lap_flow.LapFlowDiT"]
    assert "scales of one image, pass its --from SIZE" in (
        refusal(case, tmp_path, ["--to", "96"]).hint or ""
    )
    end = outcome(case, tmp_path)
    assert end.kind == "hint"
    rows = [read(tmp_path / "out.safetensors")[f"pos_embeds.{n}"][0].shape[0] for n in range(3)]
    assert rows == [36, 144, 576]


def test_layers_over_tokens_forbid_to_say_that_nothing_depends(tmp_path: Path) -> None:
    case = ALL["linformer:linformer.Linformer"]
    assert "none as long as a width of this model" in (
        refusal(case, tmp_path, ["--to", "320"]).message
    )


def test_names_that_state_sizes_are_not_kept(tmp_path: Path) -> None:
    case = ALL["nvidia-physicsnemo:song_unet.SongUNetPosEmbd"]
    error = refusal(case, tmp_path, ["--to", "96"])
    assert "enc.64x64_conv.weight and enc.32x32" in error.message
    assert r"--leave '\d+x\d+'" in (error.hint or "")
    flags = request(["--to", "96", "--leave", r"\d+x\d+"])
    run(Job(tmp_path / "model.safetensors", flags, output=tmp_path / "out.safetensors"))


def test_an_index_is_not_offered_as_a_table(tmp_path: Path) -> None:
    error = refusal(ALL["parti-pytorch:vit_vqgan.VitVQGanVAE"], tmp_path, ["--to", "384"])
    assert isinstance(error, TableError)
    assert "--pattern" not in (error.hint or "")


def test_a_mask_without_a_patch_embedding_is_refused(tmp_path: Path) -> None:
    """MANIQA's window model has 28×28 cells of unknown size; a cell is not one pixel."""
    case = ALL["pyiqa:maniqa_swin.SwinTransformer"]
    assert "how many pixels a cell has" in refusal(case, tmp_path, ["--to", "448"]).message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fightingcv:Container.VisionTransformer", "unchanged"),  # a depthwise convolution
        ("fastreid:vision_transformer.VisionTransformer#1", "hint"),  # patches overlap
        ("voltron-robotics:vmvp.VMVP", "right"),  # a decoder's table follows one found by value
        ("vision-xformer:vision_performer.ViP", "right"),  # random features as wide as 8×8 cells
        ("spandrel:ATD.ATD", "hint"),  # --leave answers for windows of an unknown model
        ("phenaki-pytorch:cvivit.CViViT", "hint"),  # a tensor without any element
        ("stam-pytorch:stam.STAM", "right"),  # 5 frames of 1 + 8×8, and no 5×65 cells
    ],
)
def test_what_was_refused_or_half_converted(name: str, kind: str, tmp_path: Path) -> None:
    assert outcome(ALL[name], tmp_path).kind == kind


def test_names_of_rows_and_columns_may_be_capital_letters(tmp_path: Path) -> None:
    """Earthformer's H_embed and W_embed; the hint resized the rows alone."""
    end = outcome(ALL["earthformer:cuboid_transformer.PosEmbed"], tmp_path)
    assert end.kind == "right"
    assert end.report is not None
    assert {step.name for step in end.report.plan.changes} == {"H_embed.weight", "W_embed.weight"}


def test_relative_tables_of_encoder_and_decoder_are_left_by_one_flag(tmp_path: Path) -> None:
    case = ALL["earthformer:cuboid_transformer.CuboidTransformerModel"]
    hint = refusal(case, tmp_path, case.flags).hint or ""
    assert hint.count("--leave") == 1
    for part in ("encoder", "decoder\\.self_blocks", "decoder\\.cross_blocks"):
        assert f"^{part}\\." in hint.replace("^encoder\\.blocks", "^encoder\\.")
    assert outcome(case, tmp_path).kind == "hint"


def test_a_causal_mask_over_the_rows_of_a_table_is_not_left_behind(tmp_path: Path) -> None:
    """It is called bias, has the shape [1, 1, n, n], and n is a multiple of the model's width."""
    case = ALL["stable-worldmodel:module.CausalPredictor"]
    flags = [*case.flags, "--from", "224", "--pattern", "^pos_embedding$"]
    error = refusal(case, tmp_path, [*flags, "--axes", "1 (p t h w s) d"])
    assert "transformer.layers.0.0.bias" in error.message
    assert "has a number for each two rows of pos_embedding" in error.message


def test_the_mask_of_a_text_masks_no_windows(tmp_path: Path) -> None:
    case = ALL["modelscope:clip.CLIP"]
    assert "textual.attn_mask" in case.tensors
    assert outcome(case, tmp_path).kind == "right"


def test_a_generator_with_layers_for_each_size_is_refused(tmp_path: Path) -> None:
    case = ALL["spandrel-extra-arches:MAT.FirstStage"]
    error = refusal(case, tmp_path, case.flags)
    assert "dec_conv.0.toRGB.bias and dec_conv.1.toRGB.bias put out images" in error.message
    told = refusal(case, tmp_path, [*case.flags, "--leave", "[tT]o_?[rR][gG][bB]"])
    assert "toRGB" not in told.message


@pytest.mark.parametrize(
    "name",
    [
        "nuwa-pytorch:nuwa_pytorch.AxialPositionalEmbedding",
        "torchmultimodal-nightly:position_embedding.BroadcastedPositionEmbedding",
    ],
)
def test_a_file_of_two_axes_alone_needs_no_flag(name: str, tmp_path: Path) -> None:
    """Nothing else shows a width; the printed pattern took both for rows."""
    assert outcome(ALL[name], tmp_path).kind == "right"
