"""The absolute layouts of transformers, as its files hold them: saved, converted, loaded back.

`save_pretrained` renames tensors, so a file is made and converted, and `from_pretrained` has to
find every tensor in it at the target size, with none missing, left over or of another shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from resize_pos import resize_checkpoint

Size = tuple[int, int]
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
TEXT = {"vocab_size": 60, "max_position_embeddings": 20, **SMALL}


@dataclass(frozen=True)
class Layout:
    """A model class and its config, with the size where the config wants it."""

    model: str
    config: str
    options: Mapping[str, Any] = field(default_factory=dict)
    nested: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # sub-configs
    source: Size = (64, 64)
    targets: tuple[Size, ...] = ((96, 96), (32, 32))
    key: str = "image_size"
    listed: bool = False  # the config wants a pair
    stated: Mapping[str, Any] = field(default_factory=dict)  # what is said about the source
    inside: str | None = None  # the sub-config that holds the size
    changes: int = 1

    def build(self, size: Size) -> Any:
        value = list(size) if self.listed or size[0] != size[1] else size[0]
        options = {**self.options, **{name: dict(sub) for name, sub in self.nested.items()}}
        place = options if self.inside is None else options[self.inside]
        place[self.key] = value
        config = getattr(transformers, self.config)(**options)
        torch.manual_seed(0)
        return getattr(transformers, self.model)(config)


def vit(model: str, config: str, **more: Any) -> Layout:
    targets = more.pop("targets", ((96, 64), (32, 48)))
    extra = {key: more.pop(key) for key in list(more) if key in Layout.__dataclass_fields__}
    options = {"patch_size": 8, **SMALL, **more}
    return Layout(model, config, options, targets=targets, **extra)


def clip(model: str, config: str, vision: Mapping[str, Any] | None = None, **more: Any) -> Layout:
    nested = {
        "vision_config": {"patch_size": 8, **SMALL, **(vision or {})},
        "text_config": TEXT,
    }
    return Layout(model, config, {"projection_dim": 16}, nested, inside="vision_config", **more)


PVT = {
    "hidden_sizes": [8, 8, 8, 8],
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 1, 1, 1],
    "sequence_reduction_ratios": [1, 1, 1, 1],
    "num_encoder_blocks": 4,
}
SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}
LAYOUTS: Mapping[str, Layout] = {
    "ViT": vit("ViTModel", "ViTConfig"),
    "DeiT": vit("DeiTModel", "DeiTConfig"),
    "DINOv2": vit("Dinov2Model", "Dinov2Config"),
    "DINOv2 with registers": vit(
        "Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", targets=((96, 96), (32, 32))
    ),
    "MSN": vit("ViTMSNModel", "ViTMSNConfig"),
    "I-JEPA": vit("IJepaModel", "IJepaConfig"),
    "MAE encoder": vit("ViTMAEModel", "ViTMAEConfig", targets=((96, 96), (32, 48))),
    "MAE with decoder": vit(
        "ViTMAEForPreTraining",
        "ViTMAEConfig",
        decoder_hidden_size=16,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=16,
        targets=((96, 96), (32, 32)),
        changes=2,
    ),
    "DPT": vit("DPTModel", "DPTConfig", targets=((96, 96), (32, 32)), backbone_out_indices=[0]),
    "BEiT with a table": vit(
        "BeitModel",
        "BeitConfig",
        use_absolute_position_embeddings=True,
        use_relative_position_bias=False,
    ),
    "data2vec with a table": vit(
        "Data2VecVisionModel",
        "Data2VecVisionConfig",
        use_absolute_position_embeddings=True,
        use_relative_position_bias=False,
    ),
    "FLAVA image": vit("FlavaImageModel", "FlavaImageConfig"),
    "InternVL vision": vit("InternVLVisionModel", "InternVLVisionConfig", listed=True),
    "Pixio, eight class tokens": vit("PixioModel", "PixioConfig", targets=((96, 96), (32, 32))),
    "ViTPose backbone": vit(
        "VitPoseBackbone",
        "VitPoseBackboneConfig",
        source=(64, 48),
        targets=((96, 64), (32, 48)),
        stated={"from_": "64x48"},
        listed=True,
    ),
    "YOLOS": vit(
        "YolosModel",
        "YolosConfig",
        source=(64, 96),
        targets=((96, 128), (32, 48)),
        stated={"from_": "64x96"},
        num_detection_tokens=10,
        use_mid_position_embeddings=True,
        num_hidden_layers=3,
        listed=True,
        changes=2,
    ),
    "LayoutLMv3": Layout(
        "LayoutLMv3Model",
        "LayoutLMv3Config",
        {
            **TEXT,
            "patch_size": 8,
            "coordinate_size": 4,
            "shape_size": 8,
            "max_2d_position_embeddings": 32,
        },
        key="input_size",
    ),
    "MGP-STR": vit(
        "MgpstrForSceneTextRecognition",
        "MgpstrConfig",
        source=(32, 128),
        targets=((32, 64), (64, 128)),
        stated={"from_": "32x128"},
        listed=True,
        max_token_length=4,
        num_character_labels=5,
        num_bpe_labels=5,
        num_wordpiece_labels=5,
    ),
    "AST": Layout(
        "ASTModel",
        "ASTConfig",
        {"max_length": 64, **SMALL},
        source=(32, 32),  # × 64, the frames
        targets=((64, 64), (24, 24)),
        key="num_mel_bins",
        stated={"from_": "32x64"},
    ),
    "PVT": Layout(
        "PvtModel", "PvtConfig", PVT, source=(64, 64), targets=((128, 128), (32, 32)), changes=4
    ),
    "Swin with a table": Layout(
        "SwinModel",
        "SwinConfig",
        {**SWIN, "use_absolute_embeddings": True, "patch_size": 4},
        targets=((96, 64), (32, 32)),
    ),
    "Swin V2 with a table and a dead row": Layout(
        "Swinv2Model",
        "Swinv2Config",
        {**SWIN, "use_absolute_embeddings": True, "patch_size": 4},
        targets=((96, 64), (32, 32)),
    ),
    "CLIP": clip("CLIPModel", "CLIPConfig"),
    "CLIP vision only": vit("CLIPVisionModel", "CLIPVisionConfig", targets=((96, 96), (32, 32))),
    "MetaCLIP 2": clip("MetaClip2Model", "MetaClip2Config"),
    "SigLIP": clip("SiglipModel", "SiglipConfig"),
    "AIMv2": clip("Aimv2Model", "Aimv2Config"),
    "OWL-ViT": clip("OwlViTModel", "OwlViTConfig"),
    "BLIP": clip("BlipModel", "BlipConfig"),
    "BLIP-2 vision": vit("Blip2VisionModel", "Blip2VisionConfig", targets=((96, 96), (32, 32))),
    "Chinese CLIP": clip("ChineseCLIPModel", "ChineseCLIPConfig"),
    "CLIPSeg": clip("CLIPSegModel", "CLIPSegConfig"),
    "GroupViT vision": Layout(
        "GroupViTVisionModel",
        "GroupViTVisionConfig",
        {
            "hidden_size": 32,
            "intermediate_size": 32,
            "depths": [1, 1, 1],
            "num_attention_heads": 4,
            "patch_size": 8,
            "num_hidden_layers": 3,
        },
        targets=((96, 64), (32, 32)),
    ),
    "X-CLIP vision": vit("XCLIPVisionModel", "XCLIPVisionConfig", targets=((96, 96), (32, 32))),
    "GIT vision": vit("GitVisionModel", "GitVisionConfig", targets=((96, 96), (32, 32))),
    "AltCLIP vision": vit(
        "AltCLIPVisionModel", "AltCLIPVisionConfig", targets=((96, 96), (32, 32))
    ),
    "Kosmos-2 vision": Layout(
        "Kosmos2Model",
        "Kosmos2Config",
        {},
        {
            "vision_config": {"patch_size": 8, **SMALL},
            "text_config": {
                "vocab_size": 60,
                "embed_dim": 32,
                "layers": 1,
                "ffn_dim": 32,
                "attention_heads": 2,
                "max_position_embeddings": 20,
            },
        },
        inside="vision_config",
    ),
    "Llama 4, class row last": Layout(
        "Llama4VisionModel",
        "Llama4VisionConfig",
        {
            **SMALL,
            "patch_size": 8,
            "vision_output_dim": 32,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "intermediate_size": 128,
        },
    ),
    "Llama 3.2 vision, tiles": Layout(
        "MllamaVisionModel",
        "MllamaVisionConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_global_layers": 1,
            "attention_heads": 4,
            "intermediate_size": 32,
            "patch_size": 8,
            "max_num_tiles": 2,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
            "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        },
        changes=2,
    ),
    "ViViT": vit(
        "VivitModel",
        "VivitConfig",
        num_frames=8,
        tubelet_size=[2, 8, 8],
        targets=((96, 64), (32, 32)),
        stated={"from_": 64},
    ),
    "TimeSformer": vit(
        "TimesformerModel", "TimesformerConfig", num_frames=4, targets=((96, 64), (32, 32))
    ),
    "Idefics 3 vision": vit(
        "Idefics3VisionTransformer", "Idefics3VisionConfig", targets=((96, 96), (32, 32))
    ),
    "Hiera": Layout(
        "HieraModel",
        "HieraConfig",
        {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1]},
        targets=((96, 128), (32, 160)),
        listed=True,
    ),
    "Hiera-MAE": Layout(
        "HieraForPreTraining",
        "HieraConfig",
        {
            "embed_dim": 8,
            "depths": [1, 1, 1, 1],
            "num_heads": [1, 1, 1, 1],
            "decoder_hidden_size": 16,
            "decoder_depth": 1,
            "decoder_num_heads": 2,
        },
        targets=((96, 128), (32, 160)),
        listed=True,
        changes=2,
    ),
}
CASES = [(name, size) for name, layout in LAYOUTS.items() for size in layout.targets]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Save each model once; its config lies elsewhere, so that only the file can be asked."""
    saved: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in saved:
            saved[name] = tmp_path_factory.mktemp("model")
            layout = LAYOUTS[name]
            layout.build(layout.source).save_pretrained(saved[name])
            (saved[name] / "config.json").unlink()
        return saved[name]

    return get


@pytest.mark.parametrize(("name", "size"), CASES, ids=str)
def test_the_converted_file_loads_strictly(
    name: str, size: Size, folder: Any, tmp_path: Path
) -> None:
    layout, source = LAYOUTS[name], folder(name) / "model.safetensors"
    target = layout.build(size)
    to: Any = (size[0], 64) if name == "AST" else size
    report = resize_checkpoint(
        source, to=to, output=tmp_path / "model.safetensors", **layout.stated
    )
    assert len(report.plan.changes) == layout.changes
    target.config.save_pretrained(tmp_path)
    _, info = type(target).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info


LEFT_ALONE = {
    "SigLIP 2": vit("Siglip2VisionModel", "Siglip2VisionConfig", key="num_patches"),
    "Qwen3-VL": Layout(
        "Qwen3VLVisionModel",
        "Qwen3VLVisionConfig",
        {
            "hidden_size": 32,
            "depth": 1,
            "num_heads": 4,
            "intermediate_size": 32,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        key="spatial_merge_size_unused",
    ),
    "GLM-4V": Layout(
        "Glm4vVisionModel",
        "Glm4vVisionConfig",
        {
            "hidden_size": 32,
            "depth": 1,
            "num_heads": 4,
            "intermediate_size": 32,
            "out_hidden_size": 32,
        },
        source=(112, 112),
    ),
    "RADIO": Layout(
        "RadioModel",
        "RadioConfig",
        {**SMALL, "patch_size": 8, "max_img_size": 128},
    ),
    "SAM 2": Layout(
        "Sam2HieraDetModel",
        "Sam2HieraDetConfig",
        {
            "hidden_size": 8,
            "blocks_per_stage": [1, 1, 1, 1],
            "embed_dim_per_stage": [8, 8, 8, 8],
            "num_attention_heads_per_stage": [1, 1, 1, 1],
            "global_attention_blocks": [2],
        },
        listed=True,
    ),
    "ViTDet": vit("VitDetModel", "VitDetConfig", pretrain_image_size=64),
    "Kimi": Layout(
        "Kimi_K25VisionModel",
        "Kimi_K25VisionConfig",
        {**SMALL, "pos_emb_height": 8, "pos_emb_width": 8},
        key="unused",
    ),
    "Pix2Struct": Layout(
        "Pix2StructVisionModel",
        "Pix2StructVisionConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "d_ff": 32,
            "d_kv": 8,
            "patch_embed_hidden_size": 32,
            "seq_len": 16,
        },
        key="unused",
    ),
    "SAM 3": vit("Sam3ViTModel", "Sam3ViTConfig", pretrain_image_size=64, window_size=4),
    "Gemma 4": Layout(
        "Gemma4VisionModel",
        "Gemma4VisionConfig",
        {**SMALL, "num_key_value_heads": 4, "head_dim": 8, "position_embedding_size": 32},
        key="unused",
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_the_library_handles_itself_is_left_alone(name: str, tmp_path: Path) -> None:
    layout = LEFT_ALONE[name]
    layout.build(layout.source).save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    report = resize_checkpoint(tmp_path / "model.safetensors", to=(128, 160))
    assert report.output is None
    assert report.tables
    assert all(table.step.table.family.why in table.step.reason for table in report.tables)
    assert not report.plan.near_misses


def test_frames_of_a_tube_model_change_on_request(tmp_path: Path) -> None:
    layout = LAYOUTS["ViViT"]
    layout.build((64, 64)).save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    report = resize_checkpoint(tmp_path / "model.safetensors", from_=64, to_frames=16)
    (step,) = report.plan.changes
    assert step.target_shape == (1, 1 + 8 * 8 * 8, 32)
