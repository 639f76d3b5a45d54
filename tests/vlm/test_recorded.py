"""Families whose code transformers does not have: their config keys recorded, their towers real.

OpenVLA and Prismatic: `image_sizes`, one for each tower, from openvla/openvla
prismatic/extern/hf/configuration_prismatic.py; `vision_backbone.featurizer` and `fused_featurizer`,
both timm models, from its modeling_prismatic.py; the processor's keys from openvla/openvla-7b
preprocessor_config.json.

Molmo as it was released (allenai/Molmo-7B-D-0924): names of its image tower, and the keys of its
preprocessor_config.json. Its size stands in its code (modeling_molmo.py, VisionBackboneConfig).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from resize_pos.api import resize_checkpoint
from resize_pos.core.errors import GeometryError
from resize_pos.verify.folder import check_folder

OLD, PATCH = 28, 14


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


def write(folder: Path, model_type: str) -> None:
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


@pytest.mark.parametrize("model_type", ["openvla", "prismatic"])
@pytest.mark.parametrize("to", [56, 42])
def test_openvla(model_type: str, to: int, tmp_path: Path) -> None:
    source, output = tmp_path / "old", tmp_path / "new"
    write(source, model_type)
    resize_checkpoint(source, to=to, output=output)
    tensors = load_file(output / "model.safetensors")
    for name, tower in towers(to).items():
        own = {
            k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")
        }
        tower.load_state_dict(own)
    config = json.loads((output / "config.json").read_text())
    processor = json.loads((output / "preprocessor_config.json").read_text())
    assert config["image_sizes"] == [to, to]
    assert config["text_config"] == {"model_type": "llama", "max_position_embeddings": 64}
    assert processor["input_sizes"] == [[3, to, to], [3, to, to]]
    assert [each["size"] for each in processor["tvf_resize_params"]] == [[to, to]] * 2
    assert [each["output_size"] for each in processor["tvf_crop_params"]] == [[to, to]] * 2
    for folder in (source, output):
        answer = check_folder(folder)
        assert answer.agrees, answer.disagreements
    (output / "preprocessor_config.json").write_bytes(
        (source / "preprocessor_config.json").read_bytes()
    )
    assert not check_folder(output).agrees


def molmo(folder: Path) -> Path:
    import torch

    folder.mkdir()
    stem = "model.vision_backbone."
    shapes = {
        f"{stem}image_vit.class_embedding": (32,),
        f"{stem}image_vit.positional_embedding": (577, 32),
        f"{stem}image_vit.patch_embedding.weight": (32, 588),
        f"{stem}image_pooling_2d.wq.weight": (32, 64),
        "model.transformer.wte.embedding": (40, 32),
    }
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "molmo", "hidden_size": 32, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    processor = {
        "base_image_input_size": [336, 336],
        "image_patch_size": 14,
        "image_token_length_h": 12,
        "image_token_length_w": 12,
        "max_crops": 12,
        "overlap_margins": [4, 4],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def test_the_released_molmo_stays_as_it_is(tmp_path: Path) -> None:
    source = molmo(tmp_path / "molmo")
    report = resize_checkpoint(source, to=448)
    assert report.output is None and not report.plan.config_edits
    with pytest.raises(GeometryError, match="the code of molmo states the number of positions"):
        resize_checkpoint(source, to=448, reference_grids="resize")
    assert [each.name for each in tmp_path.iterdir()] == ["molmo"]
