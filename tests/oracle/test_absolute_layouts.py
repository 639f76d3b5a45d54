"""Every absolute layout that a library can build: resized, and loaded strictly at the new size.

timm, open_clip and torchvision store what `state_dict` says. transformers renames on saving, so its
models go through `save_pretrained` and `from_pretrained`; see test_absolute_layouts_hf.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import open_clip
import pytest
import timm
import torch
import torchvision
from timm.layers import GatedMlp
from timm.models.crossvit import CrossVit
from timm.models.mlp_mixer import MixerBlock, MlpMixer, ResBlock, SpatialGatingBlock
from timm.models.nest import Nest
from timm.models.volo import VOLO

from resize_pos import resize_state_dict

VALUED = re.compile(r"pos|mlp_tokens|linear_tokens|gate\.proj")
Size = tuple[int, int]
Build = Callable[[Any], Any]


@dataclass(frozen=True)
class Layout:
    """A model at one size, the sizes it is taken to, and which tensors that has to change."""

    build: Build
    source: Size
    targets: tuple[Size, ...]
    tables: frozenset[str]
    options: Mapping[str, Any] = field(default_factory=dict)


def of_timm(name: str, **options: Any) -> Build:
    small = {"embed_dim": 48, "depth": 1, "num_heads": 3, "num_classes": 0} | options
    small = {key: value for key, value in small.items() if value is not None}
    return lambda size: timm.create_model(name, img_size=size, **small)


def as_built(name: str, **options: Any) -> Build:
    return lambda size: timm.create_model(name, img_size=size, num_classes=0, **options)


CLIP_TEXT = {"context_length": 16, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1}


def clip(vision: Mapping[str, Any]) -> Build:
    def build(size: Size) -> Any:
        config = {"image_size": size, **vision}
        return open_clip.CLIP(embed_dim=32, vision_cfg=config, text_cfg=CLIP_TEXT)

    return build


def coca(size: Size) -> Any:
    vision = {"image_size": size, "patch_size": 16, "layers": 1, "width": 32, "head_width": 16}
    vision |= {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
    text = CLIP_TEXT | {"embed_cls": True, "output_tokens": True}
    decoder = CLIP_TEXT | {"attn_pooler_heads": 2}
    return open_clip.CoCa(32, decoder, text, vision)


def torchvision_vit(size: Size) -> Any:
    return torchvision.models.VisionTransformer(size[0], 16, 1, 2, 32, 64)


def torchvision_mvit(size: Size, frames: int = 8) -> Any:
    block = torchvision.models.video.mvit.MSBlockConfig(1, 16, 16, [3, 3, 3], [3, 3, 3], [], [])
    return torchvision.models.video.MViT(
        size, frames, [block, block], residual_pool=False, residual_with_cls_embed=False,
        rel_pos_embed=False, proj_after_attn=False, num_classes=2,
    )  # fmt: skip


def volo(size: Size) -> Any:
    dims, heads = (24, 48, 48, 48), (2, 4, 4, 4)
    return VOLO((1, 1, 1, 1), img_size=size, embed_dims=dims, num_heads=heads)


def nest(size: Size) -> Any:
    dims, heads = (12, 24, 48), (1, 2, 4)
    return Nest(size[0], embed_dims=dims, num_heads=heads, depths=(1, 1, 1))


def crossvit(native: int, scaled: int, **options: Any) -> Build:
    options |= {"embed_dim": (12, 24), "depth": ((1, 1, 0),), "num_heads": (3, 3)}
    scale = (1.0, scaled / native)
    return lambda size: CrossVit(size, scale, (12, 16), **options)


def mixer(block: type[torch.nn.Module], **options: Any) -> Build:
    return lambda size: MlpMixer(
        img_size=size, num_blocks=1, embed_dim=48, block_layer=block, **options
    )


def timm_trunk(size: Size) -> Any:
    vision = {"timm_model_name": "vit_tiny_patch16_224", "timm_pool": "", "timm_proj": "linear"}
    config = {"image_size": 224, "timm_model_pretrained": False, **vision}
    model = open_clip.CLIP(embed_dim=32, vision_cfg=config, text_cfg=CLIP_TEXT)
    model.visual.set_input_size(size)
    return model


def resnet_clip(size: Size) -> Any:
    return clip({"layers": (1, 1, 1, 1), "width": 8, "patch_size": None})(size[0])


def table(*names: str) -> frozenset[str]:
    return frozenset(names)


POS = table("pos_embed")
MIXED = table(*(f"blocks.0.mlp_tokens.{n}" for n in ("fc1.weight", "fc2.weight", "fc2.bias")))
ANY = ((384, 256), (96, 160))  # larger and smaller, both non-square
LAYOUTS: Mapping[str, Layout] = {
    "ViT": Layout(of_timm("vit_tiny_patch16_224"), (224, 224), ANY, POS),
    "ViT 16×64 = 32²": Layout(
        of_timm("vit_tiny_patch16_224"),
        (256, 1024),
        ((256, 512), (512, 512)),
        POS,
        {"from_": "256x1024"},
    ),
    "ViT 8×64": Layout(
        of_timm("vit_tiny_patch16_224"),
        (128, 1024),
        ((64, 512), (256, 256)),
        POS,
        {"from_": "128x1024"},
    ),
    "DeiT distilled": Layout(of_timm("deit_tiny_distilled_patch16_224"), (224, 224), ANY, POS),
    "DeiT-III": Layout(of_timm("deit3_small_patch16_224"), (224, 224), ANY, POS),
    "DINOv2 reg4": Layout(
        of_timm("vit_small_patch14_reg4_dinov2"), (224, 224), ((140, 280), (336, 252)), POS
    ),
    "registers with rows": Layout(
        of_timm("vit_tiny_patch16_224", reg_tokens=4), (224, 224), ANY, POS
    ),
    "SigLIP": Layout(of_timm("vit_base_patch16_siglip_224"), (224, 224), ANY, POS),
    "FlexiViT": Layout(of_timm("flexivit_small"), (240, 240), ANY, POS),
    "AIMv2": Layout(of_timm("aimv2_large_patch14_224"), (224, 224), ((140, 280),), POS),
    "PE core": Layout(of_timm("vit_pe_core_tiny_patch16_384"), (384, 384), ANY, POS),
    "CaiT": Layout(of_timm("cait_xxs24_224"), (224, 224), ANY, POS),
    "ConViT": Layout(of_timm("convit_tiny", num_heads=4, embed_dim=12), (224, 224), ANY, POS),
    "EVA-02": Layout(of_timm("eva02_tiny_patch14_224"), (224, 224), ((140, 280),), POS),
    "BEiT with a table": Layout(
        of_timm("beit_base_patch16_224", use_abs_pos_emb=True, use_rel_pos_bias=False),
        (224, 224),
        ANY,
        POS,
    ),
    "hybrid, whole ResNet": Layout(
        of_timm("vit_small_r26_s32_224"), (224, 224), ((256, 160), (96, 128)), POS
    ),
    "hybrid, stem only": Layout(
        of_timm("vit_tiny_r_s16_p8_224"), (224, 224), ((256, 160), (96, 128)), POS
    ),
    "PiT": Layout(
        as_built("pit_ti_224", base_dims=[8, 8, 8], depth=[1, 1, 1], heads=[1, 2, 4]),
        (224, 224),
        ((256, 192), (128, 160)),
        POS,
    ),
    "PiT distilled": Layout(
        as_built("pit_ti_distilled_224", base_dims=[8, 8, 8], depth=[1, 1, 1], heads=[1, 2, 4]),
        (224, 224),
        ((256, 192), (128, 160)),
        POS,
    ),
    "Visformer": Layout(
        as_built("visformer_tiny", embed_dim=48, num_heads=3, depth=(1, 1, 1)),
        (224, 224),
        ((320, 256), (96, 160)),
        table("pos_embed1", "pos_embed2", "pos_embed3"),
    ),
    "VOLO": Layout(
        volo,
        (224, 224),
        ((320, 256), (96, 160)),
        POS,
    ),
    "NesT": Layout(
        nest,
        (224, 224),
        ((448, 448), (128, 128)),
        table("levels.0.pos_embed", "levels.1.pos_embed", "levels.2.pos_embed"),
    ),
    "CrossViT": Layout(
        crossvit(240, 224),
        (240, 240),
        ((480, 480), (408, 240), (360, 360)),
        table("pos_embed_0", "pos_embed_1"),
    ),
    "CrossViT dagger": Layout(
        crossvit(408, 384, multi_conv=True),
        (408, 408),
        ((816, 816), (204, 408)),
        table("pos_embed_0", "pos_embed_1"),
    ),
    "TNT": Layout(
        as_built("tnt_s_legacy_patch16_224", embed_dim=48, depth=1, num_heads_outer=3),
        (224, 224),
        ANY,
        table("patch_pos"),
    ),
    "CLIP ResNet in timm": Layout(
        as_built("resnet50_clip"),
        (224, 224),
        ((448, 448), (96, 160)),
        table("head.pos_embed"),
    ),
    "MLP-Mixer": Layout(
        mixer(MixerBlock),
        (224, 224),
        ANY,
        MIXED,
    ),
    "MLP-Mixer 8×4": Layout(
        mixer(MixerBlock),
        (128, 64),
        ((192, 96), (64, 96)),
        MIXED,
        {"from_": "128x64"},
    ),
    "gMLP": Layout(
        mixer(SpatialGatingBlock, mlp_layer=GatedMlp, mlp_ratio=4),
        (224, 224),
        ANY,
        table(*(f"blocks.0.mlp_channels.gate.proj.{part}" for part in ("weight", "bias"))),
    ),
    "ResMLP": Layout(
        mixer(ResBlock, mlp_ratio=4),
        (224, 224),
        ANY,
        table("blocks.0.linear_tokens.weight", "blocks.0.linear_tokens.bias"),
    ),
    "flat Hiera": Layout(
        as_built("hiera_tiny_224", embed_dim=16, stages=(1, 1, 1, 1)),
        (224, 224),
        ((256, 192), (160, 320)),
        POS,
    ),
    "flat Hiera, forced": Layout(
        as_built("hiera_tiny_224", embed_dim=16, stages=(1, 1, 1, 1)),
        (224, 224),
        ((256, 192),),
        POS,
        {"force_interpolate": True},
    ),
    "open_clip ViT": Layout(
        clip({"patch_size": 16, "layers": 1, "width": 32, "head_width": 16}),
        (224, 224),
        ANY,
        table("visual.positional_embedding"),
    ),
    "open_clip CoCa": Layout(coca, (224, 224), ANY, table("visual.positional_embedding")),
    "open_clip ResNet": Layout(
        resnet_clip,
        (224, 224),
        ((384, 384), (96, 96)),
        table("visual.attnpool.positional_embedding"),
    ),
    "open_clip with a timm trunk": Layout(
        timm_trunk,
        (224, 224),
        ANY,
        table("visual.trunk.pos_embed"),
    ),
    "torchvision ViT": Layout(
        torchvision_vit, (224, 224), ((384, 384), (96, 96)), table("encoder.pos_embedding")
    ),
    "torchvision MViT": Layout(
        torchvision_mvit,
        (64, 64),
        ((96, 128), (32, 48)),
        table("pos_encoding.spatial_pos"),
    ),
}
CASES = [(name, size) for name, layout in LAYOUTS.items() for size in layout.targets]


@cache
def tensors(name: str) -> Mapping[str, torch.Tensor]:
    """Build a model without memory for its weights, and give only its tables values."""
    layout = LAYOUTS[name]
    with torch.device("meta"):
        state = dict(layout.build(layout.source).state_dict())
    return with_values(state)


def with_values(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give values to position tables and layers over patches: such tensors may be looked at."""
    random = torch.Generator().manual_seed(0)
    return {
        key: torch.randn(value.shape, generator=random) if VALUED.search(key) else value
        for key, value in state.items()
    }


@pytest.mark.parametrize(("name", "size"), CASES, ids=str)
def test_the_resized_state_loads_strictly(name: str, size: Size) -> None:
    layout, source = LAYOUTS[name], tensors(name)
    resized = resize_state_dict(source, to=size, **layout.options)
    with torch.device("meta"):
        target = layout.build(size)
    target.load_state_dict(resized, strict=True, assign=True)
    assert {key for key in source if resized[key] is not source[key]} == layout.tables


@pytest.mark.parametrize("name", LAYOUTS)
def test_its_own_size_changes_nothing(name: str) -> None:
    layout, source = LAYOUTS[name], tensors(name)
    same = resize_state_dict(source, to=layout.source, **layout.options)
    assert all(same[key] is source[key] for key in source)


WRAPPERS = ("module.", "_orig_mod.", "teacher.backbone.", "model_ema.module.", "student/")


@pytest.mark.parametrize("name", ["ViT", "CrossViT", "Visformer", "open_clip ViT", "NesT"])
def test_every_copy_is_transferred_whatever_wraps_it(name: str) -> None:
    layout, source = LAYOUTS[name], tensors(name)
    wrapped = {wrap + key: value for wrap in WRAPPERS for key, value in source.items()}
    resized = resize_state_dict(wrapped, to=layout.targets[0], **layout.options)
    alone = resize_state_dict(source, to=layout.targets[0], **layout.options)
    for wrap in WRAPPERS:
        for key in layout.tables:
            torch.testing.assert_close(resized[wrap + key], alone[key], rtol=0, atol=0)


def test_frames_are_kept_unless_asked_for() -> None:
    source = dict(torchvision_mvit((64, 64), 8).state_dict())
    kept = resize_state_dict(source, to=(96, 128))
    assert kept["pos_encoding.temporal_pos"] is source["pos_encoding.temporal_pos"]
    for frames in (8, 16, 4):
        resized = resize_state_dict(source, to=(96, 128), to_frames=frames)
        expected = torchvision_mvit((96, 128), frames).state_dict()
        assert {k: v.shape for k, v in resized.items()} == {k: v.shape for k, v in expected.items()}


NOTHING_TO_DO: Mapping[str, tuple[str, dict[str, Any]]] = {
    "XCiT": ("xcit_nano_12_p16_224", {"depth": 1}),
    "Twins": ("twins_svt_small", {}),
    "EdgeNeXt": ("edgenext_xx_small", {}),
    "ConvNeXt": ("convnext_atto", {}),
    "ConvMixer": ("convmixer_768_32", {}),
    "ResNet": ("resnet18", {}),
    "FastViT": ("fastvit_t8", {}),
    "Hiera abs-win": ("hiera_small_abswin_256", {"embed_dim": 16, "stages": (1, 1, 1, 1)}),
    "SAM 2": ("sam2_hiera_tiny", {"embed_dim": 16, "stages": (1, 1, 1, 1)}),
    "NaFlex": ("naflexvit_base_patch16_gap", {"embed_dim": 48, "num_heads": 3, "depth": 1}),
    "NaFlex factorised": (
        "naflexvit_base_patch16_parfac_gap",
        {"embed_dim": 48, "num_heads": 3, "depth": 1},
    ),
    "Gemma 4": ("gemma4_vit_167m", {"embed_dim": 48, "num_heads": 3, "depth": 1}),
}


@pytest.mark.parametrize("name", NOTHING_TO_DO)
def test_a_model_that_fits_every_size_is_left_alone(name: str) -> None:
    model, options = NOTHING_TO_DO[name]
    with torch.device("meta"):
        state = timm.create_model(model, num_classes=0, **options).state_dict()
    source = with_values(state)
    same = resize_state_dict(source, to=(384, 512))
    assert all(same[key] is source[key] for key in source)


def test_a_reference_grid_is_resized_on_request() -> None:
    model, options = NOTHING_TO_DO["NaFlex factorised"]
    source = dict(timm.create_model(model, num_classes=0, **options).state_dict())
    resized = resize_state_dict(source, to=(384, 512), reference_grids="resize")
    assert resized["embeds.pos_embed_y"].shape == (1, 24, 48)
    assert resized["embeds.pos_embed_x"].shape == (1, 32, 48)
