"""Layouts that no library here can build, from their names and shapes: what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from resize_pos.core.errors import ResizePosError
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import Located
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.rules.base import Surroundings

Shape = tuple[int, ...]
CONV16 = (8, 3, 16, 16)
TUBE16 = (8, 3, 2, 16, 16)


@dataclass(frozen=True)
class Header:
    """Tensors of a file, a request, and the tables that have to change, with their new shapes."""

    tensors: Mapping[str, Shape]
    changes: Mapping[str, Shape]
    request: Mapping[str, Any] = field(default_factory=lambda: {"to": "384x256"})


def jax(name: str, rows: int, cls: bool) -> Header:
    tensors: dict[str, Shape] = {name: (1, rows, 8), "embedding/kernel": (16, 16, 3, 8)}
    if cls:
        tensors["cls"] = (1, 1, 8)
    return Header(tensors, {name: (1, rows - 196 + 24 * 16, 8)})


HEADERS = {
    "JAX, old names": jax("Transformer/posembed_input/pos_embedding", 197, cls=True),
    "JAX, middle names": jax("Transformer/pos_embedding", 197, cls=True),
    "JAX, new names": jax("pos_embedding", 196, cls=False),
    "JAX, inside a tower": Header(
        {
            "params/img/pos_embedding": (1, 196, 8),
            "params/img/embedding/kernel": (16, 16, 3, 8),
            "params/txt/pos_embedding": (1, 64, 8),
        },
        {"params/img/pos_embedding": (1, 384, 8)},
    ),
    "scenic ViViT": Header(
        {
            "Transformer/posembed_input/pos_embedding": (1, 1 + 16 * 196, 8),
            "embedding/kernel": (2, 16, 16, 3, 8),
            "cls": (1, 1, 8),
        },
        {"Transformer/posembed_input/pos_embedding": (1, 1 + 16 * 384, 8)},
        {"from_": 224, "to": "384x256"},
    ),
    "vit-pytorch": Header(
        {
            "pos_embedding": (1, 197, 8),
            "cls_token": (1, 1, 8),
            "to_patch_embedding.2.weight": (8, 768),
        },
        {"pos_embedding": (1, 385, 8)},
    ),
    "BEiT-3": Header(
        {
            "beit3.encoder.embed_positions.A.weight": (199, 8),
            "beit3.vision_embed.cls_token": (1, 1, 8),
            "beit3.vision_embed.proj.weight": CONV16,
        },
        {"beit3.encoder.embed_positions.A.weight": (387, 8)},
    ),
    "torchtune": Header(
        {
            "clip.token_pos_embedding.local_token_positional_embedding": (17, 8),
            "clip.token_pos_embedding.global_token_positional_embedding": (3, 3, 17, 8),
            "clip.token_pos_embedding.gate": (1,),
            "clip.pre_tile_pos_embed.embedding": (3, 3, 1, 8),
            "clip.conv.weight": CONV16,
        },
        {
            "clip.token_pos_embedding.local_token_positional_embedding": (49, 8),
            "clip.token_pos_embedding.global_token_positional_embedding": (3, 3, 49, 8),
        },
        {"to": "96x128"},
    ),
    "MAE-ST": Header(
        {
            "pos_embed_spatial": (1, 196, 8),
            "pos_embed_temporal": (1, 8, 8),
            "pos_embed_class": (1, 1, 8),
            "decoder_pos_embed_spatial": (1, 196, 4),
            "decoder_pos_embed_temporal": (1, 8, 4),
            "decoder_pos_embed_class": (1, 1, 4),
            "patch_embed.proj.weight": TUBE16,
        },
        {"pos_embed_spatial": (1, 384, 8), "decoder_pos_embed_spatial": (1, 384, 4)},
    ),
    "MAE-ST with more frames": Header(
        {
            "pos_embed_spatial": (1, 196, 8),
            "pos_embed_temporal": (1, 8, 8),
            "patch_embed.proj.weight": TUBE16,
        },
        {"pos_embed_temporal": (1, 16, 8)},
        {"to_frames": 32},
    ),
    "MViT": Header(
        {
            "pos_embed_spatial": (1, 56 * 56, 8),
            "pos_embed_temporal": (1, 8, 8),
            "patch_embed.proj.weight": (8, 3, 3, 7, 7),
        },
        {"pos_embed_spatial": (1, 96 * 64, 8)},
    ),
    "TimeSformer": Header(
        {
            "model.pos_embed": (1, 197, 8),
            "model.time_embed": (1, 8, 8),
            "model.cls_token": (1, 1, 8),
            "model.patch_embed.proj.weight": CONV16,
        },
        {"model.pos_embed": (1, 385, 8)},
    ),
    "I-JEPA with its predictor": Header(
        {
            "encoder.module.pos_embed": (1, 196, 8),
            "encoder.module.patch_embed.proj.weight": CONV16,
            "encoder.module.norm.weight": (8,),
            "predictor.module.predictor_pos_embed": (1, 196, 4),
            "predictor.module.mask_token": (1, 1, 4),
            "target_encoder.module.pos_embed": (1, 196, 8),
            "target_encoder.module.patch_embed.proj.weight": CONV16,
            "target_encoder.module.norm.weight": (8,),
        },
        {
            "encoder.module.pos_embed": (1, 384, 8),
            "predictor.module.predictor_pos_embed": (1, 384, 4),
            "target_encoder.module.pos_embed": (1, 384, 8),
        },
    ),
    "V-JEPA with its predictor": Header(
        {
            "encoder.module.backbone.pos_embed": (1, 8 * 196, 8),
            "encoder.module.backbone.patch_embed.proj.weight": TUBE16,
            "predictor.module.backbone.predictor_pos_embed": (1, 8 * 196, 4),
            "predictor.module.backbone.mask_tokens.0": (1, 1, 4),
            "predictor.module.backbone.mask_tokens.1": (1, 1, 4),
        },
        {
            "encoder.module.backbone.pos_embed": (1, 8 * 384, 8),
            "predictor.module.backbone.predictor_pos_embed": (1, 8 * 384, 4),
        },
        {"from_": 224, "to": "384x256"},
    ),
    "MAE": Header(
        {
            "pos_embed": (1, 197, 8),
            "decoder_pos_embed": (1, 197, 4),
            "cls_token": (1, 1, 8),
            "patch_embed.proj.weight": CONV16,
        },
        {"pos_embed": (1, 385, 8), "decoder_pos_embed": (1, 385, 4)},
    ),
    "Swin, flat": Header(
        {"absolute_pos_embed": (1, 3136, 8), "patch_embed.proj.weight": (8, 3, 4, 4)},
        {"absolute_pos_embed": (1, 96 * 64, 8)},
    ),
    "Swin, channels first": Header(
        {"absolute_pos_embed": (1, 8, 56, 56), "patch_embed.proj.weight": (8, 3, 4, 4)},
        {"absolute_pos_embed": (1, 8, 96, 64)},
    ),
    "PVT, original": Header(
        {
            "pos_embed1": (1, 3136, 8),
            "pos_embed2": (1, 784, 8),
            "pos_embed3": (1, 196, 8),
            "pos_embed4": (1, 50, 8),
            "cls_token": (1, 1, 8),
            "patch_embed1.proj.weight": (8, 3, 4, 4),
            "patch_embed2.proj.weight": (8, 8, 2, 2),
            "patch_embed3.proj.weight": (8, 8, 2, 2),
            "patch_embed4.proj.weight": (8, 8, 2, 2),
        },
        {
            "pos_embed1": (1, 96 * 64, 8),
            "pos_embed2": (1, 48 * 32, 8),
            "pos_embed3": (1, 24 * 16, 8),
            "pos_embed4": (1, 12 * 8 + 1, 8),
        },
    ),
    "AST, original": Header(
        {
            "module.v.pos_embed": (1, 1214, 8),
            "module.v.cls_token": (1, 1, 8),
            "module.v.dist_token": (1, 1, 8),
            "module.v.patch_embed.proj.weight": (8, 1, 16, 16),
            "module.mlp_head.0.weight": (8,),
        },
        {"module.v.pos_embed": (1, 2 + 12 * 50, 8)},
        {"from_": "128x1024", "to": "128x512"},
    ),
    "Perceiver, a row per pixel": Header(
        {
            "perceiver.input_preprocessor.position_embeddings.position_embeddings": (50176, 8),
            "perceiver.embeddings.latents": (4, 8),
        },
        {"perceiver.input_preprocessor.position_embeddings.position_embeddings": (98304, 8)},
    ),
    "InternViT": Header(
        {
            "vision_model.embeddings.position_embedding": (1, 197, 8),
            "vision_model.embeddings.class_embedding": (1, 1, 8),
            "vision_model.embeddings.patch_embedding.weight": CONV16,
        },
        {"vision_model.embeddings.position_embedding": (1, 385, 8)},
    ),
    "ViTDet: the grid of the pre-training stays, global blocks follow the image": Header(
        {
            "backbone.net.pos_embed": (1, 197, 8),
            "backbone.net.patch_embed.proj.weight": CONV16,
            "backbone.net.blocks.0.attn.rel_pos_h": (27, 4),
            "backbone.net.blocks.0.attn.rel_pos_w": (27, 4),
            "backbone.net.blocks.1.attn.rel_pos_h": (127, 4),
            "backbone.net.blocks.1.attn.rel_pos_w": (127, 4),
        },
        {
            "backbone.net.blocks.1.attn.rel_pos_h": (63, 4),
            "backbone.net.blocks.1.attn.rel_pos_w": (31, 4),
        },
        {"to": "512x256"},
    ),
    "a reference grid, forced": Header(
        {"visual.pos_embed.weight": (2304, 8), "visual.patch_embed.proj.weight": TUBE16},
        {"visual.pos_embed.weight": (384, 8)},
        {"to": "384x256", "reference_grids": "resize"},
    ),
    "rows by number, extended": Header(
        {"row_embedder.weight": (50, 8), "column_embedder.weight": (50, 8)},
        {"row_embedder.weight": (64, 8), "column_embedder.weight": (64, 8)},
        {"to_rows": 64},
    ),
    "Gemma 4, cut": Header(
        {"patch_embedder.position_embedding_table": (2, 100, 8)},
        {"patch_embedder.position_embedding_table": (2, 40, 8)},
        {"to_rows": 40},
    ),
}  # fmt: skip

LEFT_ALONE: Mapping[str, Mapping[str, Shape]] = {
    "V-JEPA 2": {
        "target_encoder.module.backbone.pos_embed": (1, 8192, 8),
        "target_encoder.module.backbone.patch_embed.proj.weight": TUBE16,
        "predictor.module.backbone.predictor_pos_embed": (1, 8192, 4),
        **{f"predictor.module.backbone.mask_tokens.{i}": (1, 1, 4) for i in range(10)},
    },
    "JAX NaFlex": {"pos_embedding": (16, 16, 8), "embedding/kernel": (768, 8)},
    "Perception Encoder": {
        "visual.positional_embedding": (577, 8),
        "visual.class_embedding": (8,),
        "visual.conv1.weight": (8, 3, 14, 14),
        "visual.attn_pool.probe": (1, 1, 8),
    },
    "SAM 2": {
        "image_encoder.trunk.pos_embed": (1, 8, 7, 7),
        "image_encoder.trunk.pos_embed_window": (1, 8, 8, 8),
        "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix": (2, 128),
        "maskmem_tpos_enc": (7, 1, 1, 8),
    },
    "RADIO": {
        "radio_model.model.patch_generator.pos_embed": (1, 16384, 8),
        "radio_model.model.patch_generator.cls_token.token": (10, 8),
        "radio_model.model.patch_generator.embedder.weight": (8, 768),
    },
    "Gemma 4 unified": {"embed_vision.pos_embedding": (100, 2, 8)},
    "DETR": {
        "model.backbone.position_embedding.row_embeddings.weight": (50, 8),
        "model.backbone.position_embedding.column_embeddings.weight": (50, 8),
        "model.query_position_embeddings.weight": (100, 8),
    },
    "LayoutLM's coordinates": {
        "embeddings.x_position_embeddings.weight": (1024, 8),
        "embeddings.h_position_embeddings.weight": (1024, 8),
        "encoder.rel_pos_bias.weight": (12, 32),
    },
    "decoys by the dozen": {
        "pos_embed.token_projection.weight": (8, 64, 1, 1),
        "stages.0.blocks.1.pos_embd.token_projection.weight": (8, 64, 1, 1),
        "pos_block.0.proj.0.weight": (8, 1, 3, 3),
        "stages.3.pos_emb.pos_enc.weight": (8, 1, 7, 7),
        "encoder.pos_conv_embed.conv.weight": (8, 1, 128),
        "shared_image_embedding.positional_embedding": (2, 128),
        "blocks.0.attn.pos_proj.weight": (4, 3),
        "layers.0.attn.cpb_mlp.0.weight": (8, 2),
        "class_pos_emb": (1, 32),
        "post_layernorm.weight": (8,),
    },
    "nothing that sounds like a position": {
        "conv1.weight": (8, 3, 7, 7),
        "layer1.0.bn1.weight": (8,),
        "fc.weight": (10, 8),
    },
}


def locate(tensors: Mapping[str, Shape], **options: Any) -> tuple[Located, Request]:
    infos = {name: TensorInfo(name, shape, "F32") for name, shape in tensors.items()}
    request = Request.make(**options)
    return locate_tables(Surroundings(infos, request)), request


def plan(tensors: Mapping[str, Shape], **options: Any) -> Plan:
    return make_plan(*locate(tensors, **options))


@pytest.mark.parametrize("name", HEADERS)
def test_exactly_these_tables_change(name: str) -> None:
    header = HEADERS[name]
    changes = plan(header.tensors, **header.request).changes
    assert {step.table.name: step.target_shape for step in changes} == header.changes


@pytest.mark.parametrize("name", [n for n, h in HEADERS.items() if "to" in h.request])
@pytest.mark.parametrize("wrap", ["module.", "_orig_mod.", "state/ema/"])
def test_a_wrapper_changes_nothing_about_that(name: str, wrap: str) -> None:
    header = HEADERS[name]
    tensors = {wrap + key: shape for key, shape in header.tensors.items()}
    changes = plan(tensors, **header.request).changes
    found = {step.table.name: step.target_shape for step in changes}
    assert found == {wrap + key: shape for key, shape in header.changes.items()}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_no_size_decides_is_left_alone_with_the_reason(name: str) -> None:
    located, request = locate(LEFT_ALONE[name], to="384x256")
    assert not located.near_misses
    assert not located.unsettled
    made = make_plan(located, request)
    assert not made.changes
    assert all(step.table.family.why in step.reason for step in made.steps)
    assert all(entry.family.why for entry in made.left_alone)


def test_a_video_table_without_evidence_is_refused_with_every_reading() -> None:
    tensors = {
        "embeddings.position_embeddings": (1, 3137, 8),
        "embeddings.cls_token": (1, 1, 8),
        "embeddings.patch_embeddings.projection.weight": TUBE16,
    }
    with pytest.raises(ResizePosError) as caught:
        plan(tensors, to=448)
    assert "3137 = 1 + 16×14×14" in caught.value.message
    assert "--from SIZE" in str(caught.value.hint)


def test_towers_with_images_of_different_sizes_need_a_choice() -> None:
    tensors = {
        "low.pos_embed": (1, 196, 8),
        "low.patch_embed.proj.weight": CONV16,
        "high.pos_embed": (1, 4096, 8),
        "high.patch_embed.proj.weight": CONV16,
    }
    with pytest.raises(ResizePosError) as caught:
        plan(tensors, to=512)
    assert "low.pos_embed 224 px, high.pos_embed 1024 px" in caught.value.message


def test_a_grid_for_stages_with_grids_of_their_own_is_refused() -> None:
    with pytest.raises(ResizePosError, match="different grids"):
        plan(HEADERS["PVT, original"].tensors, to_grid=16)


def test_blocks_that_do_not_fit_are_refused_with_the_multiple() -> None:
    tensors = {"levels.0.pos_embed": (1, 16, 196, 8), "patch_embed.proj.weight": (8, 3, 4, 4)}
    with pytest.raises(ResizePosError, match="cannot be cut into 4×4 blocks"):
        plan(tensors, to=232)


def test_frames_that_no_tube_divides_are_refused() -> None:
    with pytest.raises(ResizePosError, match="not a multiple of the 2 frames"):
        plan(HEADERS["MAE-ST"].tensors, to_frames=9)


def test_frames_for_a_file_without_time_are_refused() -> None:
    with pytest.raises(ResizePosError, match="no table in this file has a time axis"):
        plan(HEADERS["MAE"].tensors, to=384, to_frames=8)


def test_one_tensor_that_cannot_be_handled_stops_everything() -> None:
    tensors = {**HEADERS["MAE"].tensors, "mine.relative_position_bias_table": (169, 3)}
    with pytest.raises(ResizePosError, match=r"mine\.relative_position_bias_table"):
        plan(tensors, to=384)


def test_unknown_names_alone_are_an_error_that_names_them() -> None:
    tensors = {"pos_embed_window": (1, 8, 8, 8), "my.position_table": (1, 100, 8)}
    with pytest.raises(ResizePosError, match=r"my\.position_table"):
        plan(tensors, to=384)
