"""Models whose code is in no package: what they store, written down from their source.

Every function returns names and shapes of a whole state dict for one block, at any size. The commit
after a repository is the one that was read.
"""

from __future__ import annotations

from math import prod

Shapes = dict[str, tuple[int, ...]]
Sides = tuple[int, ...]
WIDTH = 24


def _layer(name: str, *shape: int) -> Shapes:
    """A layer with a bias: as long as the first axis of its weight."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _block(
    stem: str, width: int = WIDTH, mlp: tuple[str, str] = ("fc1", "fc2"), norms: bool = True
) -> Shapes:
    """A block of a vision transformer: names that timm's models and most others share."""
    found = _layer(f"{stem}attn.qkv", 3 * width, width) | _layer(f"{stem}attn.proj", width, width)
    found |= _layer(f"{stem}mlp.{mlp[0]}", 2 * width, width)
    found |= _layer(f"{stem}mlp.{mlp[1]}", width, 2 * width)
    if norms:
        found |= _layer(f"{stem}norm1", width) | _layer(f"{stem}norm2", width)
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
    """AST, original code: a distilled DeiT of timm 0.4.5 below `v`, 16×16 patches every 10 cells.

    YuanGongND/ast 2e00ccb src/models/ast_models.py: ASTModel.__init__ and get_shape. The released
    file was saved from DataParallel, hence `module.`.
    """
    rows, columns = ((side - 16) // 10 + 1 for side in sides)
    found: Shapes = {
        "cls_token": (1, 1, WIDTH),
        "dist_token": (1, 1, WIDTH),
        "pos_embed": (1, rows * columns + 2, WIDTH),
        **_layer("patch_embed.proj", WIDTH, 1, 16, 16),
        **_block("blocks.0."),
        **_layer("norm", WIDTH),
        **_layer("head", 1000, WIDTH),
        **_layer("head_dist", 1000, WIDTH),
    }
    classes = _layer("module.mlp_head.0", WIDTH) | _layer("module.mlp_head.1", 527, WIDTH)
    return {f"module.v.{name}": shape for name, shape in found.items()} | classes


def sam_med3d(sides: Sides) -> Shapes:
    """SAM-Med3D: blocks of windows, then one that sees the whole volume.

    uni-medical/SAM-Med3D 1ebf2fe segment_anything/modeling/image_encoder3D.py: ImageEncoderViT3D;
    build_sam3D.py: patch 16, windows of 14. It builds cubes; a tower with other sides stores the
    same tables with one length per axis.
    """
    grid, window, stem = tuple(side // 16 for side in sides), 14, "image_encoder."
    found: Shapes = {
        f"{stem}pos_embed": (1, *grid, WIDTH),
        **_layer(f"{stem}patch_embed.proj", WIDTH, 1, 16, 16, 16),
        f"{stem}neck.0.weight": (8, WIDTH, 1, 1, 1),
        **_layer(f"{stem}neck.1", 8),
        f"{stem}neck.2.weight": (8, 8, 3, 3, 3),
        **_layer(f"{stem}neck.3", 8),
        "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix": (3, 4),
    }
    for block in range(3):
        found |= _block(f"{stem}blocks.{block}.", mlp=("lin1", "lin2"))
        for axis, side in zip("dhw", grid if block == 2 else (window,) * 3, strict=True):
            found[f"{stem}blocks.{block}.attn.rel_pos_{axis}"] = (2 * side - 1, 12)
    return found


def _satmae(sides: Sides) -> Shapes:
    """What both models of SatMAE share: three groups of channels, and narrow positions."""
    groups = {f"patch_embed.{group}.proj": channels for group, channels in enumerate((4, 4, 2))}
    found: Shapes = {
        "cls_token": (1, 1, WIDTH),
        "pos_embed": (1, (sides[0] // 8) * (sides[1] // 8) + 1, 16),
        "channel_embed": (1, 3, 8),
        **_block("blocks.0."),
        **_layer("norm", WIDTH),
    }
    for name, channels in groups.items():
        found |= _layer(name, WIDTH, channels, 8, 8)
    return found


def satmae(sides: Sides) -> Shapes:
    """SatMAE with groups of channels: an encoder, and a decoder with a table of its own.

    sustainlab-group/SatMAE b182634 models_mae_group_channels.py:
    MaskedAutoencoderGroupChannelViT.__init__. It builds square images only.
    """
    found: Shapes = {
        **_layer("decoder_embed", 12, WIDTH),
        "mask_token": (1, 1, 12),
        "decoder_pos_embed": (1, (sides[0] // 8) * (sides[1] // 8) + 1, 8),
        "decoder_channel_embed": (1, 4, 4),
        **_block("decoder_blocks.0.", 12),
        **_layer("decoder_norm", 12),
    }
    for group, channels in enumerate((4, 4, 2)):
        found |= _layer(f"decoder_pred.{group}", channels * 64, 12)
    return _satmae(sides) | found


def satmae_classifier(sides: Sides) -> Shapes:
    """SatMAE with groups of channels, fine-tuned.

    sustainlab-group/SatMAE b182634 models_vit_group_channels.py:
    GroupChannelsVisionTransformer.__init__. It builds square images only.
    """
    return _satmae(sides) | {"channel_cls_embed": (1, 1, 8), **_layer("head", 62, WIDTH)}


def dit(sides: Sides) -> Shapes:
    """DiT: cells of 2×2 latents, 16×16 pixels. Its norms have no weights.

    facebookresearch/DiT 00d70ac models.py: DiT.__init__. It builds square images only.
    """
    return {
        "pos_embed": (1, prod(side // 16 for side in sides), WIDTH),
        **_layer("x_embedder.proj", WIDTH, 4, 2, 2),
        **_layer("t_embedder.mlp.0", WIDTH, 256),
        **_layer("t_embedder.mlp.2", WIDTH, WIDTH),
        "y_embedder.embedding_table.weight": (1001, WIDTH),
        **_block("blocks.0.", norms=False),
        **_layer("blocks.0.adaLN_modulation.1", 6 * WIDTH, WIDTH),
        **_layer("final_layer.linear", 2 * 2 * 8, WIDTH),
        **_layer("final_layer.adaLN_modulation.1", 2 * WIDTH, WIDTH),
    }
