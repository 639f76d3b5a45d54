"""Folders of further families: what else of transformers has an image tower and a processor.

Found by listing every model type of transformers 5.22.2 that has a processor and an image
processor. Families without a table that follows the image (Qwen2-VL, Pixtral, Fuyu …) need no row.
"""

from __future__ import annotations

from typing import Any

from tests.vlm.tokens import VOCABULARY, number, tokenizer
from tests.vlm.zoo import (
    CLIP,
    FAMILIES,
    IMAGE,
    LLAMA,
    ODD,
    QWEN2,
    REFERENCE,
    SAM_TOWER,
    SIGLIP,
    SQUARE,
    TEXT,
    TOWER,
    Vlm,
    paligemma,
)

_VIDEO, _START, _END = number("<video>"), number("<boi>"), number("<eoi>")
_MOE = {
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "mlp_layer_types": ["dense", "dense"],
}
_SAM = {key: value for key, value in SAM_TOWER.items() if key != "model_type"}
_SIDES = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
_NO_HEAD = {key: value for key, value in TEXT.items() if key != "head_dim"}
_PIXELS = {
    "patch_size": 8,
    "merge_size": 2,
    "size": {"shortest_edge": 256, "longest_edge": 4096},
}


def phi4_multimodal(t: Any) -> tuple[Any, Any]:
    """Its processor counts 16×16 tokens for the whole image, whatever the size."""
    config = t.Phi4MultimodalConfig(
        **_NO_HEAD,
        original_max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
        vision_config={
            **TOWER,
            "hidden_size": 48,
            "image_size": 448,
            "patch_size": 14,
            "crop_size": 448,
            "image_token_id": IMAGE,
        },
        audio_config={
            "hidden_size": 48,
            "intermediate_size": 48,
            "num_blocks": 1,
            "num_attention_heads": 2,
            "ext_pw_out_channel": 48,
            "depthwise_separable_out_channel": 48,
            "nemo_conv_channels": 48,
            "input_size": 16,
            "audio_token_id": _VIDEO,
        },
    )
    words = tokenizer(audio_token="<video>")
    images = t.Phi4MultimodalImageProcessor(dynamic_hd=2)
    sound = t.Phi4MultimodalFeatureExtractor()
    return t.Phi4MultimodalForCausalLM(config), t.Phi4MultimodalProcessor(images, sound, words)


def ultravbert(t: Any) -> tuple[Any, Any]:
    config = t.UltraVBertConfig(
        text_config={"model_type": "ultrabert", **TEXT},
        vision_config=SIGLIP,
        image_token_id=IMAGE,
        pixel_shuffle_factor=2,
    )
    images = t.UltraVBertImageProcessor(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    processor = t.Idefics3Processor(images, tokenizer(), image_seq_len=4)
    return t.UltraVBertForMaskedLM(config), processor


def pi0(t: Any) -> tuple[Any, Any]:
    """A robot's policy: PaliGemma below `vlm_config`."""
    inner, _ = paligemma(t)
    config = t.PI0Config(
        vlm_config=inner.config,
        dit_config={"model_type": "gemma", **TEXT},
        chunk_size=5,
        max_state_dim=4,
        max_action_dim=4,
    )
    images = t.SiglipImageProcessor(size=SQUARE)
    images.image_seq_length = 16
    processor = t.PI0Processor(images, tokenizer(), chunk_size=5, max_state_dim=4)
    return t.PI0ForConditionalGeneration(config), processor


def deepseek_ocr2(t: Any) -> tuple[Any, Any]:
    """It has learned queries for 48×48 and for 64×64 cells of its SAM tower, and for no others."""
    config = t.DeepseekOcr2Config(
        vision_config={
            "sam_config": {
                **_SAM,
                "image_size": 128,
                "patch_size": 2,
                "downsample_channels": [16, 32],
            },
            "encoder_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "vocab_size": 8,
            },
        },
        text_config={**_NO_HEAD, **_MOE},
        image_token_id=IMAGE,
    )
    images = t.DeepseekOcr2ImageProcessor(size={"height": 128, "width": 128}, tile_size=96)
    processor = t.DeepseekOcr2Processor(images, tokenizer(), patch_size=2, downsample_ratio=4)
    return t.DeepseekOcr2ForConditionalGeneration(config), processor


def unlimited_ocr(t: Any) -> tuple[Any, Any]:
    """A SAM tower, and a CLIP tower that reads its cells and resamples for every image."""
    tower = {**TOWER, "num_hidden_layers": 1}
    config = t.UnlimitedOcrConfig(
        vision_config={
            "sam_config": {**_SAM, "patch_size": 4, "downsample_channels": [16, 32]},
            "encoder_config": tower,
        },
        text_config={**_NO_HEAD, **_MOE},
        image_token_id=IMAGE,
    )
    images = t.UnlimitedOcrImageProcessor(
        size={"height": 64, "width": 64}, tile_size=48, maximum_pad_value=48
    )
    processor = t.UnlimitedOcrProcessor(images, tokenizer(), patch_size=4, downsample_ratio=4)
    return t.UnlimitedOcrForConditionalGeneration(config), processor


def step3p7(t: Any) -> tuple[Any, Any]:
    """Its processor calls the side of a crop `patch_size`; two convolutions halve the grid."""
    config = t.Step3p7Config(
        vision_config={**TOWER, "image_size": 64, "max_position_embeddings": 64},
        text_config={
            **TEXT,
            "moe_intermediate_size": 16,
            "n_routed_experts": 2,
            "num_experts_per_tok": 1,
            "num_local_experts": 2,
            "share_expert_dim": 16,
            "sliding_window": 64,
        },
        image_token_id=number("<im_patch>"),
    )
    images = t.Step3p7ImageProcessor(
        size={"height": 64, "width": 64}, patch_size=32, vision_patch_size=8, max_image_size=256
    )
    return t.Step3p7ForConditionalGeneration(config), t.Step3p7Processor(images, tokenizer())


def paddleocr_vl(t: Any) -> tuple[Any, Any]:
    config = t.PaddleOCRVLConfig(
        text_config={**TEXT, "rope_parameters": _SIDES},
        vision_config=TOWER,
        image_token_id=IMAGE,
        video_token_id=_VIDEO,
        vision_start_token_id=_START,
        vision_end_token_id=_END,
    )
    processor = t.PaddleOCRVLProcessor(t.PaddleOCRVLImageProcessor(**_PIXELS), tokenizer())
    return t.PaddleOCRVLForConditionalGeneration(config), processor


def glm4v(t: Any) -> tuple[Any, Any]:
    config = t.Glm4vConfig(
        text_config={**_NO_HEAD, "rope_parameters": _SIDES},
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "out_hidden_size": 32,
        },
        image_token_id=IMAGE,
        video_token_id=_VIDEO,
        image_start_token_id=_START,
        image_end_token_id=_END,
        video_start_token_id=number("<im_start>"),
        video_end_token_id=number("<im_end>"),
    )
    images, videos = t.Glm4vImageProcessor(**_PIXELS), t.Glm4vVideoProcessor(patch_size=8)
    processor = t.Glm4vProcessor(images, tokenizer(), videos)
    return t.Glm4vForConditionalGeneration(config), processor


def hunyuan_vl(t: Any) -> tuple[Any, Any]:
    """`max_image_size` of its tower counts the positions."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "xdrope_section": [2, 2, 2, 2]}
    config = t.HunYuanVLConfig(
        text_config={**TEXT, "rope_parameters": rope},
        vision_config={
            **{key: value for key, value in TOWER.items() if key != "image_size"},
            "out_hidden_size": 32,
            "max_image_size": 64,
            "min_image_size": 16,
            "img_max_token_num": 64,
            "max_vit_seq_len": 256,
            "text_hidden_size": 32,
        },
        image_token_id=IMAGE,
        im_start_id=_START,
        im_end_id=_END,
        im_newline_id=number("<im_col>"),
    )
    words = tokenizer(
        image_start_token="<boi>", image_end_token="<eoi>", image_newline_token="<im_col>"
    )
    processor = t.HunYuanVLProcessor(t.HunYuanVLImageProcessor(**_PIXELS), words)
    return t.HunYuanVLForConditionalGeneration(config), processor


def cosmos3_edge(t: Any) -> tuple[Any, Any]:
    config = t.Cosmos3EdgeConfig(
        text_config={**TEXT, "rope_parameters": _SIDES},
        vision_config={
            **{key: value for key, value in TOWER.items() if key != "image_size"},
            "num_patches": 16,
        },
        projector_hidden_size=32,
        image_token_id=IMAGE,
        video_token_id=_VIDEO,
        vision_start_token_id=_START,
        vision_end_token_id=_END,
    )
    images, videos = t.Cosmos3EdgeImageProcessor(**_PIXELS), t.Cosmos3EdgeVideoProcessor()
    processor = t.Cosmos3EdgeProcessor(images, tokenizer(), videos)
    return t.Cosmos3EdgeForConditionalGeneration(config), processor


def muse_glimmer(t: Any) -> tuple[Any, Any]:
    """Its patches are a linear layer over two frames, so the patch size has to be given."""
    token = number("<|patch|>")
    config = t.MuseGlimmerConfig(
        text_config={**TEXT, "layer_types": ["sliding_attention", "full_attention"]},
        vision_config={
            **{key: value for key, value in TOWER.items() if key != "image_size"},
            "pos_emb_height": 4,
            "pos_emb_width": 4,
            "max_position_embeddings": 16,
        },
        out_hidden_size=128,
        projector_hidden_size=32,
        image_token_id=token,
        video_token_id=_VIDEO,
    )
    processor = t.MuseGlimmerProcessor(
        image_processor=t.MuseGlimmerImageProcessor(patch_size=8, max_image_tokens=64),
        tokenizer=tokenizer(image_token="<|patch|>"),
        video_processor=t.MuseGlimmerVideoProcessor(patch_size=8),
    )
    return t.MuseGlimmerForConditionalGeneration(config), processor


def minicpmv4_6(t: Any) -> tuple[Any, Any]:
    """Its tower looks positions up by where a patch lies in the image, as Idefics 2 does."""
    config = t.MiniCPMV4_6Config(
        text_config=QWEN2,
        vision_config={**TOWER, "num_hidden_layers": 3, "insert_layer_id": 1},
        insert_layer_id=1,
        image_token_id=IMAGE,
        video_token_id=_VIDEO,
    )
    words = tokenizer(
        image_start_token="<boi>",
        image_end_token="<eoi>",
        slice_start_token="<im_start>",
        slice_end_token="<im_end>",
        image_id_start_token="<im_col>",
        image_id_end_token="<im_low>",
    )
    images = t.MiniCPMV4_6ImageProcessor(scale_resolution=64, patch_size=8, max_slice_nums=2)
    processor = t.MiniCPMV4_6Processor(images, t.MiniCPMV4_6VideoProcessor(), words)
    return t.MiniCPMV4_6ForConditionalGeneration(config), processor


def mllama(t: Any) -> tuple[Any, Any]:
    """Its image is attended to, not written as tokens."""
    config = t.MllamaConfig(
        vision_config={
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_global_layers": 1,
            "attention_heads": 2,
            "intermediate_size": 32,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
            "image_size": 32,
            "patch_size": 8,
            "max_num_tiles": 4,
            "supported_aspect_ratios": [
                *([1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1])
            ],
        },
        text_config={**_NO_HEAD, "cross_attention_layers": [1]},
        image_token_index=number("<|image|>"),
    )
    images = t.MllamaImageProcessor(size=SQUARE, max_image_tiles=4)
    processor = t.MllamaProcessor(images, tokenizer(image_token="<|image|>"))
    return t.MllamaForConditionalGeneration(config), processor


def video_llava(t: Any) -> tuple[Any, Any]:
    config = t.VideoLlavaConfig(
        vision_config=CLIP,
        text_config=LLAMA,
        image_token_index=IMAGE,
        video_token_index=_VIDEO,
        image_seq_length=16,
        video_seq_length=136,
    )
    edge = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
    images, videos = t.VideoLlavaImageProcessor(**edge), t.VideoLlavaVideoProcessor(**edge)
    processor = t.VideoLlavaProcessor(
        images, videos, tokenizer(), 8, "default", num_additional_image_tokens=1
    )
    return t.VideoLlavaForConditionalGeneration(config), processor


def flava_pretraining(t: Any) -> tuple[Any, Any]:
    """FLAVA with its codebook, which reads 8×8 pixels of an image of its own for each cell."""
    part = {key: TOWER[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    config = t.FlavaConfig(
        image_config=TOWER,
        text_config={**part, "num_attention_heads": 2, "vocab_size": VOCABULARY},
        multimodal_config={**part, "num_attention_heads": 2},
        image_codebook_config={"hidden_size": 8, "num_blocks_per_group": 1, "vocab_size": 16},
        hidden_size=32,
        projection_dim=32,
    )
    images = t.FlavaImageProcessor(
        size=SQUARE,
        crop_size=SQUARE,
        codebook_size=SQUARE,
        codebook_crop_size=SQUARE,
        input_size_patches=4,
        total_mask_patches=4,
        mask_group_min_patches=1,
        mask_group_max_patches=4,
    )
    return t.FlavaForPreTraining(config), t.FlavaProcessor(images, tokenizer())


_TYPES = {"return_mm_token_type_ids": True}
MORE: tuple[Vlm, ...] = (
    Vlm(
        "phi4_multimodal",
        phi4_multimodal,
        pixels="image_pixel_values",
        to=(434, 434),
        slow=True,
        impossible=((224, "434 px and 448 px"), (896, "434 px and 448 px")),
    ),
    Vlm("ultravbert", ultravbert, impossible=ODD),
    Vlm("pi0", pi0, "a cat", given={"state": (1, 4), "noise": (1, 5, 4), "timestep": (1,)}),
    Vlm(
        "deepseek_ocr2",
        deepseek_ocr2,
        to=(96, 96),
        slow=True,
        impossible=((64, "96 px and 128 px"),),
    ),
    Vlm("unlimited_ocr", unlimited_ocr, to=(96, 128), impossible=((88, "80 px and 96 px"),)),
    Vlm("step3p7", step3p7, "<im_patch> a cat", "<im_patch>", to=(96, 128), options=REFERENCE),
    Vlm("paddleocr_vl", paddleocr_vl, options=REFERENCE, fed=False, slow=True),
    Vlm("glm4v", glm4v, options=REFERENCE, fed=False, slow=True),
    Vlm("hunyuan_vl", hunyuan_vl, "<boi><image><eoi> a cat", options=REFERENCE, fed=False),
    Vlm("cosmos3_edge", cosmos3_edge, options=REFERENCE, fed=False, call=_TYPES),
    Vlm(
        "muse_glimmer",
        muse_glimmer,
        "<|patch|> a cat",
        "<|patch|>",
        options={"patch": 8, **REFERENCE},
        fed=False,
        slow=True,
    ),
    Vlm("minicpmv4_6", minicpmv4_6, fed=False, slow=True),
    Vlm("mllama", mllama, "<|image|> a cat", "", slow=True),
    Vlm("video_llava", video_llava, pixels="pixel_values_images", slow=True),
    Vlm(
        "flava (pretraining)",
        flava_pretraining,
        "a cat",
        "",
        call={"return_codebook_pixels": True, "return_image_mask": True},
    ),
)
ALL = (*FAMILIES, *MORE)
