"""Models of the table in docs/vlm.md that take no text, or whose code transformers does not have.

OpenVLA and Prismatic: `image_sizes`, one for each tower, from openvla/openvla
prismatic/extern/hf/configuration_prismatic.py; `vision_backbone.featurizer` and `fused_featurizer`,
both timm models, from its modeling_prismatic.py; the processor's keys from openvla/openvla-7b
preprocessor_config.json.

Molmo as it was released (allenai/Molmo-7B-D-0924), read in a public copy of its repository
(reubzdubz/Molmo7B_D_NF4Quant edf464b): names from modeling_molmo.py (VisionTransformer,
OLMoVisionBackbone), every key of preprocessor_config.json, and config.json, which has no key for
the image tower. Its size stands in the code (VisionBackboneConfig); add_pos_emb resamples the table
there. The image processor asserts that image_token_length_h is half the patches of a crop.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OLD, PATCH = 28, 14


@dataclass(frozen=True, slots=True)
class Apart:
    """A model with a test of its own: how to save it, what to ask for, and what that test sees."""

    name: str
    save: Callable[[Path], None]
    flags: str
    seen: str
    options: dict[str, Any] = field(default_factory=dict)


def save_rf_detr(folder: Path) -> None:
    """Save a small model for 32 px: 8×8 cells in 2×2 windows."""
    import transformers as t
    from transformers.models.rf_detr.configuration_rf_detr import RfDetrDinov2Config

    backbone = RfDetrDinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        image_size=32,
        patch_size=4,
        num_windows=2,
        out_features=["stage2", "stage4"],
    )
    config = t.RfDetrConfig(
        backbone_config=backbone,
        d_model=32,
        decoder_layers=2,
        decoder_self_attention_heads=2,
        decoder_cross_attention_heads=2,
        decoder_ffn_dim=32,
        num_queries=5,
        group_detr=2,
        num_labels=3,
    )
    t.RfDetrForObjectDetection(config).save_pretrained(folder)
    t.DetrImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


def towers(size: int) -> dict[str, Any]:
    """Build the two towers as timm does: DINOv2 with registers, and SigLIP."""
    from timm.models.vision_transformer import VisionTransformer

    small = {"patch_size": PATCH, "embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 0}
    return {
        "vision_backbone.featurizer": VisionTransformer(
            img_size=size, reg_tokens=4, no_embed_class=True, init_values=1e-5, **small
        ),
        "vision_backbone.fused_featurizer": VisionTransformer(
            img_size=size, class_token=False, global_pool="map", **small
        ),
    }


def save_openvla(folder: Path, model_type: str = "openvla") -> None:
    """Save both towers, with the keys of the released configs."""
    from safetensors.torch import save_file

    folder.mkdir()
    tensors = {
        f"{name}.{key}": value.contiguous()
        for name, tower in towers(OLD).items()
        for key, value in tower.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {
        "model_type": model_type,
        "vision_backbone_id": "dinosiglip-vit-so-224px",
        "image_sizes": [OLD, OLD],
        "image_resize_strategy": "resize-naive",
        "use_fused_vision_backbone": True,
        "timm_model_ids": [
            "vit_large_patch14_reg4_dinov2.lvd142m",
            "vit_so400m_patch14_siglip_224",
        ],
        "text_config": {"model_type": "llama", "max_position_embeddings": 64},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    processor = {
        "input_sizes": [[3, OLD, OLD], [3, OLD, OLD]],
        "interpolations": ["bicubic", "bicubic"],
        "image_resize_strategy": "resize-naive",
        "tvf_resize_params": [{"antialias": True, "interpolation": 3, "size": [OLD, OLD]}] * 2,
        "tvf_crop_params": [{"output_size": [OLD, OLD]}] * 2,
        "use_fused_vision_backbone": True,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2))


def save_molmo(folder: Path) -> None:
    """Save the names of the released image tower, with the keys of its processor."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    stem = "model.vision_backbone."
    shapes = {
        f"{stem}image_vit.class_embedding": (32,),
        f"{stem}image_vit.positional_embedding": (577, 32),
        f"{stem}image_vit.patch_embedding.weight": (32, 588),
        f"{stem}image_vit.pre_ln.weight": (32,),
        f"{stem}image_vit.pre_ln.bias": (32,),
        f"{stem}image_vit.transformer.resblocks.0.attention.wq.weight": (32, 32),
        f"{stem}image_vit.transformer.resblocks.0.feed_forward.w1.weight": (48, 32),
        f"{stem}image_pooling_2d.wq.weight": (32, 64),
        f"{stem}image_projector.w1.weight": (48, 32),
        "model.transformer.wte.embedding": (40, 32),
    }
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "molmo", "hidden_size": 32, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    processor = {
        "base_image_input_size": [336, 336],
        "do_normalize": True,
        "image_padding_mask": True,
        "image_patch_size": 14,
        "image_processor_type": "MolmoImageProcessor",
        "image_token_length_h": 12,
        "image_token_length_w": 12,
        "max_crops": 12,
        "overlap_margins": [4, 4],
        "processor_class": "MolmoProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


APART: tuple[Apart, ...] = (
    Apart("rf_detr", save_rf_detr, "--to 48", "runs", {"to": 48}),
    Apart(
        "openvla, prismatic",
        save_openvla,
        "--to 56",
        "both towers load strictly into timm's models",
        {"to": 56},
    ),
    Apart(
        "molmo (released)",
        save_molmo,
        "--to 448",
        "stays, it resamples for every image; `--reference-grids resize` is refused",
        {"to": 448},
    ),
)
