"""Values against each library's own resize of the same model, and the bugs that it must not share.

The numbers in the second half are those of the catalogue of known bugs in docs/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import open_clip
import pytest
import timm
import torch
import torch.nn.functional as F  # noqa: N812
import transformers
from timm.layers import resample_abs_pos_embed_nhwc
from timm.models.nest import Nest, resize_pos_embed

from resize_pos import ResizePosError, resize_state_dict
from tests.support.builders import flat

State = dict[str, torch.Tensor]
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-5}
SMALL = {"embed_dim": 48, "depth": 1, "num_heads": 3, "num_classes": 0}
HF = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
WIDE = (160, 96)


def randomised(model: torch.nn.Module) -> State:
    """Give a model random tables: many libraries initialise them to zero."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return {key: value.clone() for key, value in model.state_dict().items()}


def per_image(rows: torch.Tensor, source: tuple[int, int], target: tuple[int, int]) -> torch.Tensor:
    """Resize (n, h·w, d) with torch, bicubic without antialias."""
    grid = rows.reshape(len(rows), *source, -1).permute(0, 3, 1, 2)
    new = F.interpolate(grid, size=target, mode="bicubic")
    return new.flatten(2).transpose(1, 2)


TIMM = {
    "ViT": ("vit_tiny_patch16_224", {}),
    "DeiT distilled": ("deit_tiny_distilled_patch16_224", {}),
    "DeiT-III": ("deit3_small_patch16_224", {}),
    "registers with rows": ("vit_tiny_patch16_224", {"reg_tokens": 4}),
    "SigLIP": ("vit_base_patch16_siglip_224", {}),
    "EVA": ("eva02_tiny_patch14_224", {"patch_size": 16}),
}


@pytest.mark.parametrize("name", TIMM)
def test_like_timm_is_what_set_input_size_does(name: str) -> None:
    model_name, options = TIMM[name]
    model = timm.create_model(model_name, img_size=112, **SMALL, **options)
    source = randomised(model)
    model.set_input_size(WIDE)
    # Of 49 untrained rows beside a class token, only --from says that they are 7×7.
    ours = resize_state_dict(source, from_=112, to=WIDE, like="timm")
    torch.testing.assert_close(ours["pos_embed"], model.pos_embed.detach(), **CLOSE)


def test_like_timm_is_what_it_does_to_a_stored_grid() -> None:
    model = timm.create_model(
        "samvit_base_patch16", img_size=128, window_size=4, global_attn_indexes=(), **SMALL
    )
    source = randomised(model)
    ours = resize_state_dict(source, to=WIDE, like="timm")["pos_embed"]
    theirs = resample_abs_pos_embed_nhwc(source["pos_embed"], [10, 6])
    torch.testing.assert_close(ours, theirs, **CLOSE)


HUGGING_FACE: dict[str, tuple[str, str, Callable[[Any], Any], str]] = {
    "ViT": ("ViTModel", "ViTConfig", lambda m: m.embeddings, "position_embeddings"),
    "DeiT": ("DeiTModel", "DeiTConfig", lambda m: m.embeddings, "position_embeddings"),
    "DINOv2": ("Dinov2Model", "Dinov2Config", lambda m: m.embeddings, "position_embeddings"),
    "MSN": ("ViTMSNModel", "ViTMSNConfig", lambda m: m.embeddings, "position_embeddings"),
    "I-JEPA": ("IJepaModel", "IJepaConfig", lambda m: m.embeddings, "position_embeddings"),
    "CLIP": (
        "CLIPVisionModel",
        "CLIPVisionConfig",
        lambda m: m.embeddings,
        "position_embedding.weight",
    ),
    "SigLIP": (
        "SiglipVisionModel",
        "SiglipVisionConfig",
        lambda m: m.embeddings,
        "position_embedding.weight",
    ),
    "BLIP": ("BlipVisionModel", "BlipVisionConfig", lambda m: m.embeddings, "position_embedding"),
}


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_like_hf_is_what_interpolate_pos_encoding_does(name: str) -> None:
    model_name, config_name, embeddings, key = HUGGING_FACE[name]
    config = getattr(transformers, config_name)(image_size=112, patch_size=16, **HF)
    model = getattr(transformers, model_name)(config)
    source = randomised(model)
    rows = source[f"embeddings.{key}"].shape[-2] - 49 + 60
    theirs = embeddings(model).interpolate_pos_encoding(torch.zeros(1, rows, 32), *WIDE)
    ours = resize_state_dict(source, to=WIDE, like="hf")[f"embeddings.{key}"]
    torch.testing.assert_close(ours.reshape(theirs.shape), theirs.detach(), **CLOSE)


def test_like_hf_is_what_yolos_does_with_its_detection_rows() -> None:
    config = transformers.YolosConfig(
        image_size=[64, 96], patch_size=16, num_detection_tokens=5, **HF
    )
    model = transformers.YolosModel(config)
    source = randomised(model)
    name = "embeddings.position_embeddings"
    theirs = model.embeddings.interpolation(model.embeddings.position_embeddings, WIDE)
    ours = resize_state_dict(source, to=WIDE, from_="64x96", like="hf")[name]
    torch.testing.assert_close(ours, theirs.detach(), **CLOSE)


def test_like_timesformer_is_nearest_in_space_and_time() -> None:
    config = transformers.TimesformerConfig(image_size=64, patch_size=16, num_frames=4, **HF)
    source = randomised(transformers.TimesformerModel(config))
    ours = resize_state_dict(source, to=WIDE, to_frames=6, like="timesformer")
    time = source["embeddings.time_embeddings"].transpose(1, 2)
    expected = F.interpolate(time, size=6, mode="nearest").transpose(1, 2)
    torch.testing.assert_close(ours["embeddings.time_embeddings"], expected, rtol=0, atol=0)


# --- known bugs -----------------------------------------------------------------------------------


def test_bug_4_equal_counts_are_still_two_grids() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=(64, 256), **SMALL)
    source = randomised(model)
    model.set_input_size((128, 128))
    assert torch.equal(model.pos_embed, source["pos_embed"]), "timm has fixed it: note that"
    ours = resize_state_dict(source, to=128, from_="64x256", like="hf")["pos_embed"]
    torch.testing.assert_close(ours[:, :1], source["pos_embed"][:, :1], rtol=0, atol=0)
    expected = per_image(source["pos_embed"][:, 1:], (4, 16), (8, 8))
    torch.testing.assert_close(ours[:, 1:], expected, **CLOSE)


@pytest.mark.parametrize(
    ("source", "target"), [((128, 1024), (128, 512)), ((256, 1024), (256, 512))], ids=str
)
def test_bug_5_a_wide_source_is_resized_as_it_is(
    source: tuple[int, int], target: tuple[int, int]
) -> None:
    state = randomised(timm.create_model("vit_tiny_patch16_224", img_size=source, **SMALL))
    ours = resize_state_dict(state, to=target, from_=source, like="hf")["pos_embed"]
    old, new = [(h // 16, w // 16) for h, w in (source, target)]
    expected = per_image(state["pos_embed"][:, 1:], old, new)
    torch.testing.assert_close(ours[:, 1:], expected, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bug_7_the_dtype_is_kept_and_rounded_once(dtype: torch.dtype) -> None:
    state = randomised(timm.create_model("vit_tiny_patch16_224", img_size=112, **SMALL))
    half = {key: value.to(dtype) for key, value in state.items()}
    ours = resize_state_dict(half, to=WIDE)["pos_embed"]
    wide = {key: value.double() for key, value in half.items()}
    exact = resize_state_dict(wide, to=WIDE)["pos_embed"]
    assert ours.dtype is dtype
    assert torch.equal(ours, exact.to(dtype))


def test_bug_9_nest_is_resized_in_image_space() -> None:
    options = {"embed_dims": (12, 24, 48), "num_heads": (1, 2, 4), "depths": (1, 1, 1)}
    source = randomised(Nest(112, **options))
    target = Nest(160, **options)
    ours = resize_state_dict(source, to=160, like="hf")
    for name, parameter in target.named_parameters():
        if name.endswith("pos_embed"):
            theirs = resize_pos_embed(source[name], parameter)
            torch.testing.assert_close(ours[name], theirs, **CLOSE)


def test_bug_11_a_non_square_table_is_itself_at_its_own_size() -> None:
    config = transformers.ViTConfig(image_size=(64, 256), patch_size=16, **HF)
    source = randomised(transformers.ViTModel(config))
    name = "embeddings.position_embeddings"
    same = resize_state_dict(source, to="64x256", from_="64x256")
    assert same[name] is source[name]
    ours = resize_state_dict(source, to="96x128", from_="64x256", like="hf")[name]
    expected = per_image(source[name][:, 1:], (4, 16), (6, 8))
    torch.testing.assert_close(ours[:, 1:], expected, **CLOSE)


def test_bug_13_every_stage_of_pvt_is_resized() -> None:
    options = {
        "hidden_sizes": [8] * 4,
        "depths": [1] * 4,
        "num_attention_heads": [1] * 4,
        "sequence_reduction_ratios": [1] * 4,
    }
    config = transformers.PvtConfig(image_size=64, **options)
    source = randomised(transformers.PvtModel(config))
    ours = resize_state_dict(source, to=(96, 160), like="hf")
    for stage, stride in enumerate((4, 8, 16, 32)):
        name = f"encoder.patch_embeddings.{stage}.position_embeddings"
        prefix = 1 if stage == 3 else 0
        grids = (64 // stride, 64 // stride), (96 // stride, 160 // stride)
        expected = per_image(source[name][:, prefix:], *grids)
        torch.testing.assert_close(ours[name][:, prefix:], expected, **CLOSE)


def test_bug_14_vivit_is_resized_frame_by_frame() -> None:
    config = transformers.VivitConfig(image_size=64, num_frames=8, tubelet_size=[2, 16, 16], **HF)
    source = randomised(transformers.VivitModel(config))
    name = "embeddings.position_embeddings"
    ours = resize_state_dict(source, to=WIDE, from_=64, like="hf")[name]
    frames = source[name][:, 1:].reshape(4, 16, 32)
    expected = per_image(frames, (4, 4), (10, 6)).reshape(1, 240, 32)
    torch.testing.assert_close(ours[:, 1:], expected, **CLOSE)


CLIP_TEXT = {"context_length": 16, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1}


def clip(size: Any, **vision: Any) -> State:
    config = {"image_size": size, "patch_size": 16, "layers": 1, "width": 32, **vision}
    return randomised(open_clip.CLIP(embed_dim=32, vision_cfg=config, text_cfg=CLIP_TEXT))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bug_17_half_precision_is_resized_on_the_cpu(dtype: torch.dtype) -> None:
    state = {key: value.to(dtype) for key, value in clip(112, head_width=16).items()}
    ours = resize_state_dict(state, to=WIDE, like="open_clip")["visual.positional_embedding"]
    wide = state["visual.positional_embedding"].double()
    grid = wide[1:].reshape(1, 7, 7, 32).permute(0, 3, 1, 2)
    exact = F.interpolate(grid, size=(10, 6), mode="bicubic", antialias=True)
    expected = exact.flatten(2).transpose(1, 2)[0]
    assert ours.dtype is dtype
    error = (ours[1:].double() - expected).abs() / expected.abs().clamp(min=1e-3)
    assert float(error.max()) <= float(torch.finfo(dtype).eps)


def test_bug_18_equal_counts_pools_and_texts() -> None:
    state = clip((112, 448), head_width=16)
    ours = resize_state_dict(state, to=224, from_="112x448", like="hf")
    name = "visual.positional_embedding"
    expected = per_image(state[name][None, 1:], (7, 28), (14, 14))[0]
    torch.testing.assert_close(ours[name][1:], expected, **CLOSE)
    assert ours["positional_embedding"] is state["positional_embedding"]
    pool = clip(224, layers=(1, 1, 1, 1), width=8)
    resized = resize_state_dict(pool, to=(320, 192), like="hf")
    name = "visual.attnpool.positional_embedding"
    expected = per_image(pool[name][None, 1:], (7, 7), (10, 6))[0]
    torch.testing.assert_close(resized[name][1:], expected, **CLOSE)


def test_a_wide_table_is_not_silently_read_as_a_square() -> None:
    """16×64 has as many cells as 32×32; a table that was learned says which it is."""
    state = {
        "pos_embed": torch.from_numpy(flat(16, 64, 48)),
        "cls_token": torch.zeros(1, 1, 48),
        "patch_embed.proj.weight": torch.zeros(48, 3, 16, 16),
    }
    with pytest.raises(ResizePosError) as caught:
        resize_state_dict(state, to=256)
    assert "1025 = 1 + 32×32 is the only square" in caught.value.message
    assert "smoothly over 16×64 instead" in caught.value.message
    assert resize_state_dict(state, to=256, from_grid="16x64")["pos_embed"].shape[1] == 257
