"""Every recipe is followed to the letter: its commands and its code are run in one folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file

from tests.docs.test_docs import shell
from tests.modalities.models import MODELS
from tests.support.folder_builders import save_hf
from tests.support.onnx_models import export_square
from tests.vlm.apart import save_rf_detr

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.M | re.S)
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}


def _weights(name: str, **options: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return dict(timm.create_model(name, **options).state_dict())


def _tiny(folder: Path) -> None:
    save_file(_weights("vit_tiny_patch16_224"), folder / "vit_tiny.safetensors")


def _tutorial(folder: Path) -> None:
    save_file(_weights("vit_tiny_patch16_224"), folder / "vit.safetensors")


def _swin(folder: Path) -> None:
    save_file(_weights("swin_tiny_patch4_window7_224"), folder / "swin.safetensors")


def _hf_vit(folder: Path) -> None:
    config = transformers.ViTConfig(**SMALL, intermediate_size=64)
    processor = transformers.ViTImageProcessor(size={"height": 224, "width": 224})
    save_hf(transformers.ViTModel(config), processor, folder / "vit-hf")


def _bert(folder: Path) -> None:
    config = transformers.BertConfig(**SMALL, intermediate_size=64, vocab_size=50)
    transformers.BertModel(config).save_pretrained(folder / "bert")


def _trocr(folder: Path) -> None:
    encoder = transformers.ViTConfig(**SMALL, intermediate_size=64, image_size=384)
    decoder = transformers.TrOCRConfig(
        d_model=32, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=64, vocab_size=50
    )
    joined = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    processor = transformers.ViTImageProcessor(size={"height": 384, "width": 384})
    save_hf(transformers.VisionEncoderDecoderModel(joined), processor, folder / "trocr")


def _sam(folder: Path) -> None:
    vision = {
        **SMALL,
        "num_hidden_layers": 2,
        "global_attn_indexes": [1],
        "output_channels": 32,
        "mlp_dim": 64,
    }
    mask = {"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4, "iou_head_hidden_dim": 32}
    config = transformers.SamConfig(
        vision_config=vision,
        mask_decoder_config=mask,
        prompt_encoder_config={"hidden_size": 32},
    )
    transformers.SamModel(config).save_pretrained(folder / "sam")


def _dinov2(folder: Path) -> None:
    save_file(_weights("vit_small_patch14_dinov2"), folder / "dinov2.safetensors")


def _beit(folder: Path) -> None:
    config = transformers.BeitConfig(
        **SMALL, intermediate_size=64, use_relative_position_bias=True, image_size=224
    )
    transformers.BeitModel(config).save_pretrained(folder / "beit")


def _depth_anything(folder: Path) -> None:
    backbone = transformers.Dinov2Config(
        **SMALL | {"num_hidden_layers": 2},
        mlp_ratio=2,
        image_size=518,
        patch_size=14,
        out_indices=[1, 2],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[16, 16],
        fusion_hidden_size=16,
        head_hidden_size=8,
    )
    model = transformers.DepthAnythingForDepthEstimation(config)
    model.save_pretrained(folder / "depth-anything")


TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
}


def _llava(folder: Path) -> None:
    vision = {**SMALL, "intermediate_size": 64, "image_size": 336, "patch_size": 14}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**vision),
        text_config=transformers.LlamaConfig(**TEXT),
        image_seq_length=(336 // 14) ** 2,
        image_token_index=99,
    )
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder / "llava")


def _gemma3(folder: Path) -> None:
    vision = {**SMALL, "intermediate_size": 64, "image_size": 896, "patch_size": 14}
    config = transformers.Gemma3Config(
        vision_config=transformers.SiglipVisionConfig(**vision),
        text_config=transformers.Gemma3TextConfig(**TEXT),
        mm_tokens_per_image=256,
    )
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(folder / "gemma3")


def _open_clip(folder: Path) -> None:
    vision = {"image_size": 224, "layers": 1, "width": 64, "patch_size": 16}
    text = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    config = {"embed_dim": 32, "vision_cfg": vision, "text_cfg": text}
    torch.manual_seed(0)
    model = open_clip.CLIP(**config)
    (folder / "clip").mkdir()
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "clip" / "open_clip_model.safetensors")
    document = {"model_cfg": config, "preprocess_cfg": {"size": [224, 224]}}
    (folder / "clip" / "open_clip_config.json").write_text(json.dumps(document))


def _resume(folder: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224")
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**saved, "hyper_parameters": {"img_size": 224}}, folder / "run.pth")


def _onnx(folder: Path) -> None:
    export_square(folder / "model.onnx")


def _satellite(folder: Path) -> None:
    model = next(model for model in MODELS if model.name == "TerraMind")
    torch.save(model.state((224, 224)), folder / "terramind.pt")


def _internvideo(folder: Path) -> None:
    model = next(model for model in MODELS if model.name == "InternVideo 2, stage 2")
    torch.save(model.state((8, 224, 224)), folder / "internvideo2.pth")


# Recipe → what makes the files that it talks about.
RECIPES: dict[str, Callable[[Path], None]] = {
    "recipes/timm.md": _tiny,
    "recipes/transformers.md": _hf_vit,
    "recipes/swin.md": _swin,
    "recipes/bert-length.md": _bert,
    "recipes/trocr.md": _trocr,
    "recipes/sam.md": _sam,
    "recipes/resume.md": _resume,
    "recipes/open_clip.md": _open_clip,
    "recipes/dinov2.md": _dinov2,
    "recipes/beit.md": _beit,
    "recipes/depth-anything.md": _depth_anything,
    "recipes/llava.md": _llava,
    "recipes/gemma3.md": _gemma3,
    "recipes/onnx.md": _onnx,
    "recipes/satellite.md": _satellite,
    "recipes/internvideo.md": _internvideo,
    "recipes/rf-detr.md": lambda folder: save_rf_detr(folder / "rf-detr"),
    "onnx.md": _onnx,
    "tutorial.md": _tutorial,
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_does_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RECIPES[name](tmp_path)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    blocks = BLOCK.findall(text)
    assert blocks
    for language, block in blocks:
        if language == "python":
            exec(compile(block, name, "exec"), names)
            continue
        for command in re.findall(r"^\$ (.*)", block, re.M):
            done = shell(command, tmp_path)
            assert done.returncode == 0, (command, done.stderr)
    made = names.get("model")
    if isinstance(made, torch.nn.Module):
        assert all(bool(torch.isfinite(p).all()) for p in made.parameters())
    if "result" in names:
        assert np.isfinite(names["result"]).all()
