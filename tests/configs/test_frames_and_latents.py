"""Models that store no table over time or over latents: their configs state the size alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
import transformers

from resize_pos import ResizePosError, resize_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {
    "hidden_size": 24,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
}


def read(folder: Path, name: str = "config.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def videomae(folder: Path) -> Path:
    config = transformers.VideoMAEConfig(**SMALL, image_size=32, patch_size=8, num_frames=8)
    transformers.VideoMAEModel(config).save_pretrained(folder)
    crop = {"height": 32, "width": 32}
    transformers.VideoMAEImageProcessor(size={"shortest_edge": 32}, crop_size=crop).save_pretrained(
        folder
    )
    return folder


def vjepa2(folder: Path) -> Path:
    config = transformers.VJEPA2Config(
        **SMALL, crop_size=32, patch_size=8, frames_per_clip=8, pred_hidden_size=24,
        pred_num_attention_heads=2, pred_num_hidden_layers=1,
    )  # fmt: skip
    transformers.VJEPA2Model(config).save_pretrained(folder)
    crop = {"height": 32, "width": 32}
    processor = transformers.VJEPA2VideoProcessor(
        size={"shortest_edge": 36}, crop_size=crop, num_frames=8, do_sample_frames=True
    )
    processor.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("size", "frames"), [(48, 16), (16, 4)])
def test_videomae_runs_with_more_frames_of_another_size(
    size: int, frames: int, tmp_path: Path
) -> None:
    report = resize_checkpoint(videomae(tmp_path / "old"), to=size, to_frames=frames)
    assert report.output is not None
    config = read(report.output)
    assert (config["image_size"], config["num_frames"]) == (size, frames)
    assert read(report.output, "preprocessor_config.json")["crop_size"]["height"] == size
    model, found = transformers.VideoMAEModel.from_pretrained(
        report.output, output_loading_info=True
    )
    assert not any(found.values())
    with torch.no_grad():
        tokens = model(torch.zeros(1, frames, 3, size, size)).last_hidden_state.shape[1]
    assert tokens == frames // 2 * (size // 8) ** 2


@pytest.mark.parametrize(("size", "frames"), [(48, 16), (16, 4)])
def test_vjepa2_runs_with_more_frames_of_another_size(
    size: int, frames: int, tmp_path: Path
) -> None:
    source = vjepa2(tmp_path / "old")
    report = resize_checkpoint(source, to=size, to_frames=frames)
    assert report.output is not None
    config = read(report.output)
    assert (config["crop_size"], config["frames_per_clip"]) == (size, frames)
    processor = read(report.output, "video_preprocessor_config.json")
    assert (processor["crop_size"]["width"], processor["num_frames"]) == (size, frames)
    model, found = transformers.VJEPA2Model.from_pretrained(report.output, output_loading_info=True)
    assert not any(found.values())
    with torch.no_grad():
        model(torch.zeros(1, frames, 3, size, size))
    weights = "model.safetensors"
    assert (report.output / weights).read_bytes() == (source / weights).read_bytes()


def test_frames_alone_and_frames_that_fill_no_tube(tmp_path: Path) -> None:
    source = videomae(tmp_path / "old")
    report = resize_checkpoint(source, to_frames=16)
    assert [str(edit) for edit in report.plan.config_edits] == ["config.json: num_frames 8 → 16"]
    with pytest.raises(ResizePosError, match="not a multiple of tubelet_size 2") as refusal:
        resize_checkpoint(source, to_frames=15)
    assert "14 and 16" in str(refusal.value.hint)
    (source / "config.json").unlink()
    assert resize_checkpoint(source / "model.safetensors", to_frames=16).output is None


DIT = {"num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 1}
SD3 = {
    "num_layers": 1,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "caption_projection_dim": 16,
    "pooled_projection_dim": 16,
    "pos_embed_max_size": 48,
}
PIXART = {**DIT, "cross_attention_dim": 24, "caption_channels": 16, "norm_num_groups": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dit": ("DiTTransformer2DModel", DIT),
    "sd3": ("SD3Transformer2DModel", SD3),
    "pixart": ("PixArtTransformer2DModel", PIXART),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [512, 384])
def test_sample_size_counts_latents(name: str, size: int, tmp_path: Path) -> None:
    kind, options = MODELS[name]
    build: Any = getattr(diffusers, kind)
    source = tmp_path / "transformer"
    build(**options, sample_size=32).save_pretrained(source)
    report = resize_checkpoint(source, to=size)
    assert report.output is not None
    before = read(source)
    assert read(report.output) == {**before, "sample_size": size // 8}
    model, found = build.from_pretrained(report.output, output_loading_info=True)
    assert not any(found.values())
    assert model.config.sample_size == size // 8


def test_pixart_keeps_the_embeddings_that_it_has(tmp_path: Path) -> None:
    """diffusers adds three at sample_size 128, unless the config says that there are none."""
    source = tmp_path / "transformer"
    build: Any = diffusers.PixArtTransformer2DModel
    build(**PIXART, sample_size=64).save_pretrained(source)
    report = resize_checkpoint(source, to=1024)
    assert report.output is not None
    assert read(report.output)["use_additional_conditions"] is False
    _, found = build.from_pretrained(report.output, output_loading_info=True)
    assert not any(found.values())


def test_latents_that_the_model_cannot_have_are_refused(tmp_path: Path) -> None:
    build: Any = diffusers.SD3Transformer2DModel
    build(**SD3, sample_size=32).save_pretrained(tmp_path / "sd3")
    for size, said, near in (
        (500, "multiple of 16 px", "496 px and 512 px"),
        (1024, "pos_embed_max_size in config.json is 48", "768 px"),
    ):
        with pytest.raises(ResizePosError, match=said) as refusal:
            resize_checkpoint(tmp_path / "sd3", to=size)
        assert near in str(refusal.value.hint)
    assert [each.name for each in tmp_path.iterdir()] == ["sd3"]
