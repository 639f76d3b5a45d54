"""Models whose code is in no package: what they store, written down from their source.

Every function returns names and shapes of a whole state dict for one block, at any size.
"""

from __future__ import annotations

from math import prod

Shapes = dict[str, tuple[int, ...]]
Sides = tuple[int, ...]
WIDTH = 24


def _block(stem: str, width: int = WIDTH) -> Shapes:
    """A block of a vision transformer: names that timm's models and most others share."""
    layers = {"attn.qkv": (3 * width, width), "attn.proj": (width, width)}
    layers |= {"mlp.fc1": (2 * width, width), "mlp.fc2": (width, 2 * width)}
    found: Shapes = {}
    for name, shape in layers.items():
        found |= {f"{stem}{name}.weight": shape, f"{stem}{name}.bias": shape[:1]}
    for name in ("norm1", "norm2"):
        found |= {f"{stem}{name}.weight": (width,), f"{stem}{name}.bias": (width,)}
    return found


def internvideo2(sides: Sides) -> Shapes:
    """InternVideo 2, stage 1.

    OpenGVLab/InternVideo InternVideo2/single_modality/models/internvideo2_pretrain.py:
    PretrainInternVideo2.__init__ (joint positions), tubes of one frame, patch 14.
    """
    cells = sides[0] * (sides[1] // 14) * (sides[2] // 14)
    return {
        "cls_token": (1, 1, WIDTH),
        "pos_embed": (1, cells + 1, WIDTH),
        "clip_pos_embed": (1, cells + 1, WIDTH),
        "mae_pos_embed": (1, cells, WIDTH),
        "patch_embed.proj.weight": (WIDTH, 3, 1, 14, 14),
        "patch_embed.proj.bias": (WIDTH,),
        **_block("blocks.0."),
        "clip_projector.norm1_q.weight": (WIDTH,),
        "clip_decoder.0.head.weight": (32, WIDTH),
        "mae_decoder.0.head.0.weight": (WIDTH, WIDTH),
    }


def internvideo2_stage2(sides: Sides) -> Shapes:
    """InternVideo 2, stage 2: positions of images apart from those of clips, below vision_encoder.

    OpenGVLab/InternVideo InternVideo2/multi_modality/models/backbones/internvideo2/internvideo2.py:
    PretrainInternVideo2.__init__ with sep_image_video_pos_embed.
    """
    image = (sides[1] // 14) * (sides[2] // 14)
    found = internvideo2(sides)
    found |= {f"{name}img_pos_embed": (1, image + 1, WIDTH) for name in ("", "clip_")}
    del found["mae_pos_embed"], found["mae_decoder.0.head.0.weight"]
    text: Shapes = {
        "text_encoder.bert.embeddings.word_embeddings.weight": (60, 32),
        "text_encoder.bert.embeddings.position_embeddings.weight": (512, 32),
        "text_encoder.bert.embeddings.token_type_embeddings.weight": (2, 32),
    }
    return {f"vision_encoder.{name}": shape for name, shape in found.items()} | text


def internvideo2_separate(sides: Sides) -> Shapes:
    """InternVideo 2 with one table over space and one over time.

    internvideo2_pretrain.py: PretrainInternVideo2.__init__ with sep_pos_embed.
    """
    found = internvideo2(sides)
    for name in ("clip_", "mae_", ""):
        del found[f"{name}pos_embed"]
        cells = (sides[1] // 14) * (sides[2] // 14)
        found[f"{name}pos_embed_spatial"] = (1, cells, WIDTH)
        found[f"{name}pos_embed_temporal"] = (1, sides[0], WIDTH)
    return found | {f"{name}pos_embed_cls": (1, 1, WIDTH) for name in ("", "clip_")}


def eat(sides: Sides) -> Shapes:
    """EAT: frames × mel bins, patch 16.

    cwx-worst-one/EAT models/images.py: ImageEncoder.__init__; models/modules.py:
    FixedPositionalEncoder.positions; models/EAT_pretraining.py: modality_encoders.IMAGE.
    """
    mel, time = sides
    stem = "modality_encoders.IMAGE."
    return {
        f"{stem}local_encoder.proj.weight": (WIDTH, 1, 16, 16),
        f"{stem}local_encoder.proj.bias": (WIDTH,),
        f"{stem}fixed_positional_encoder.positions": (1, (time // 16) * (mel // 16), WIDTH),
        f"{stem}extra_tokens": (1, 1, WIDTH),
        f"{stem}context_encoder.norm.weight": (WIDTH,),
        **_block("blocks.0."),
    }


def beats(sides: Sides) -> Shapes:
    """BEATs: nothing that it stores depends on the length.

    microsoft/unilm beats/BEATs.py: BEATs.__init__; beats/backbone.py: TransformerEncoder (pos_conv)
    and MultiheadAttention (relative_attention_bias, 320 buckets).
    """
    layer = "encoder.layers.0."
    found: Shapes = {
        "patch_embedding.weight": (32, 1, 16, 16),
        "layer_norm.weight": (32,),
        "post_extract_proj.weight": (WIDTH, 32),
        "encoder.pos_conv.0.weight_g": (1, 1, 128),
        "encoder.pos_conv.0.weight_v": (WIDTH, 2, 128),
        f"{layer}self_attn.relative_attention_bias.weight": (320, 2),
        f"{layer}self_attn.grep_linear.weight": (8, 12),
        f"{layer}self_attn.grep_a": (1, 2, 1, 1),
        f"{layer}fc1.weight": (48, WIDTH),
    }
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return found | {f"{layer}self_attn.{name}.weight": (WIDTH, WIDTH) for name in names}


def ast(sides: Sides) -> Shapes:
    """AST, original code: a distilled DeiT below `v`, 16×16 patches every 10 cells.

    YuanGongND/ast src/models/ast_models.py: ASTModel.__init__, get_shape.
    """
    rows, columns = ((side - 16) // 10 + 1 for side in sides)
    return {
        "module.v.cls_token": (1, 1, WIDTH),
        "module.v.dist_token": (1, 1, WIDTH),
        "module.v.pos_embed": (1, rows * columns + 2, WIDTH),
        "module.v.patch_embed.proj.weight": (WIDTH, 1, 16, 16),
        "module.v.patch_embed.proj.bias": (WIDTH,),
        **_block("module.v.blocks.0."),
        "module.mlp_head.0.weight": (WIDTH,),
        "module.mlp_head.1.weight": (527, WIDTH),
    }


def sam_med3d(sides: Sides) -> Shapes:
    """SAM-Med3D: blocks of windows, then one that sees the whole volume.

    uni-medical/SAM-Med3D segment_anything/modeling/image_encoder3D.py: ImageEncoderViT3D.
    """
    grid, window, stem = tuple(side // 16 for side in sides), 14, "image_encoder."
    found: Shapes = {
        f"{stem}pos_embed": (1, *grid, WIDTH),
        f"{stem}patch_embed.proj.weight": (WIDTH, 1, 16, 16, 16),
        f"{stem}patch_embed.proj.bias": (WIDTH,),
        f"{stem}neck.0.weight": (8, WIDTH, 1, 1, 1),
        "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix": (3, 12),
    }
    for block in range(4):
        found |= _block(f"{stem}blocks.{block}.")
        for axis, side in zip("dhw", grid if block == 3 else (window,) * 3, strict=True):
            found[f"{stem}blocks.{block}.attn.rel_pos_{axis}"] = (2 * side - 1, 12)
    return found


def satmae(sides: Sides) -> Shapes:
    """SatMAE with groups of channels: two groups, a decoder of its own.

    sustainlab-group/SatMAE models_mae_group_channels.py: MaskedAutoencoderGroupChannelViT.__init__.
    """
    cells = (sides[0] // 8) * (sides[1] // 8)
    return {
        "cls_token": (1, 1, WIDTH),
        "pos_embed": (1, cells + 1, 16),
        "channel_embed": (1, 2, 8),
        "patch_embed.0.proj.weight": (WIDTH, 4, 8, 8),
        "patch_embed.1.proj.weight": (WIDTH, 6, 8, 8),
        **_block("blocks.0."),
        "mask_token": (1, 1, 12),
        "decoder_pos_embed": (1, cells + 1, 8),
        "decoder_channel_embed": (1, 3, 4),
        **_block("decoder_blocks.0.", 12),
    }


def dit(sides: Sides) -> Shapes:
    """DiT: cells of 2×2 latents, 16×16 pixels.

    facebookresearch/DiT models.py: DiT.__init__.
    """
    return {
        "x_embedder.proj.weight": (WIDTH, 4, 2, 2),
        "x_embedder.proj.bias": (WIDTH,),
        "pos_embed": (1, prod(side // 16 for side in sides), WIDTH),
        "t_embedder.mlp.0.weight": (WIDTH, 256),
        "y_embedder.embedding_table.weight": (11, WIDTH),
        **_block("blocks.0."),
    }
