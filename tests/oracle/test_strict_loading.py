"""Files of real models are converted and loaded strictly into the same library's target model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
import torchvision
import transformers
from safetensors.torch import load_file, save_file

from resize_pos import resize_checkpoint
from tests.support.builders import raw_tensors

Build = Callable[[tuple[int, int]], Any]
SMALL = {"embed_dim": 48, "depth": 1, "num_heads": 3, "num_classes": 0}
HF = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def of_timm(name: str, **options: Any) -> Build:
    return lambda size: timm.create_model(name, img_size=size, **(SMALL | options))


def sam(size: tuple[int, int]) -> Any:
    return of_timm("samvit_base_patch16", depth=3, window_size=7, global_attn_indexes=(2,))(size)


def hf_vit(size: tuple[int, int]) -> Any:
    config = transformers.ViTConfig(image_size=size, patch_size=16, **HF)
    return transformers.ViTModel(config)


def hf_clip(size: tuple[int, int]) -> Any:
    vision = {"image_size": size[0], "patch_size": 16, **HF}
    text = {"vocab_size": 100, "max_position_embeddings": 77, **HF}
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision))


def clip(size: tuple[int, int]) -> Any:
    vision = {"image_size": size, "patch_size": 16, "layers": 1, "width": 64, "head_width": 32}
    text = {"context_length": 77, "vocab_size": 100, "width": 64, "heads": 2, "layers": 1}
    return open_clip.CLIP(embed_dim=32, vision_cfg=vision, text_cfg=text)


def torchvision_vit(size: tuple[int, int]) -> Any:
    return torchvision.models.VisionTransformer(size[0], 16, 1, 2, 32, 64)


# name: build, source size, target sizes, what to say about the source
MODELS: Mapping[str, tuple[Build, tuple[int, int], list[tuple[int, int]], dict[str, Any]]] = {
    "timm ViT": (of_timm("vit_tiny_patch16_224"), (224, 224), [(384, 256), (96, 160)], {}),
    "DeiT-distilled": (
        of_timm("deit_tiny_distilled_patch16_224"),
        (224, 224),
        [(384, 256), (96, 160)],
        {},
    ),
    "DeiT-III": (of_timm("deit3_small_patch16_224"), (224, 224), [(384, 256), (96, 160)], {}),
    "DINOv2 with registers": (
        of_timm("vit_small_patch14_reg4_dinov2"),
        (518, 518),
        [(224, 448)],
        {},
    ),
    "non-square ViT": (
        of_timm("vit_tiny_patch16_224"),
        (128, 1024),
        [(128, 512), (256, 256)],
        {"from_": "128x1024"},
    ),
    "SAM encoder": (sam, (256, 256), [(512, 384), (128, 192)], {}),
    "HF ViT": (hf_vit, (224, 224), [(384, 256), (96, 160)], {}),
    "HF CLIP": (hf_clip, (224, 224), [(384, 384), (96, 96)], {}),
    "open_clip CLIP": (clip, (224, 224), [(384, 256), (96, 160)], {}),
    "torchvision ViT": (torchvision_vit, (224, 224), [(384, 384), (96, 96)], {}),
}
CASES = [(name, target) for name, entry in MODELS.items() for target in entry[2]]


@pytest.mark.parametrize(("name", "target"), CASES, ids=lambda value: str(value))
def test_a_converted_file_loads_strictly(
    name: str, target: tuple[int, int], tmp_path: Path
) -> None:
    build, size, _, stated = MODELS[name]
    source = tmp_path / "source.safetensors"
    save_file(
        {key: tensor.contiguous() for key, tensor in build(size).state_dict().items()},
        source,
        metadata={"format": "pt"},
    )
    report = resize_checkpoint(source, to=target, **stated)
    assert report.output is not None
    build(target).load_state_dict(load_file(report.output), strict=True)
    changed = {step.table.name for step in report.plan.changes}
    before, after = raw_tensors(source)[0], raw_tensors(report.output)[0]
    assert changed
    assert list(before) == list(after)
    assert {key for key in before if before[key] != after[key]} == changed


def test_dinov2_in_its_original_layout_is_read_with_one_row_for_cls(tmp_path: Path) -> None:
    """Registers are in the file and own no rows; built by hand, the hub's code is not a package."""
    timm_model = of_timm("vit_small_patch14_reg4_dinov2")((518, 518))
    tensors = {key: tensor.contiguous() for key, tensor in timm_model.state_dict().items()}
    tensors["register_tokens"] = tensors.pop("reg_token")
    tensors["mask_token"] = torch.zeros(1, 48)
    tensors["pos_embed"] = torch.randn(1, 1370, 48)
    source = tmp_path / "dinov2.safetensors"
    save_file(tensors, source)
    report = resize_checkpoint(source, to=(224, 448), like="dinov2-reg")
    assert report.output is not None
    resized = load_file(report.output)["pos_embed"]
    grid = tensors["pos_embed"][:, 1:].reshape(1, 37, 37, 48).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(grid, size=(16, 32), mode="bicubic", antialias=True)
    torch.testing.assert_close(resized[:, :1], tensors["pos_embed"][:, :1], rtol=0, atol=0)
    torch.testing.assert_close(
        resized[:, 1:], expected.permute(0, 2, 3, 1).reshape(1, -1, 48), rtol=0, atol=1e-5
    )
