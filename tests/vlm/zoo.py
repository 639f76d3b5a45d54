"""One small folder per family of vision-language models, built by transformers without network.

Every tower sees 32 pixels in patches of 8 (4×4 cells) unless its family needs more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vlm.tokens import VOCABULARY, number, tokenizer

TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
CLIP = {"model_type": "clip_vision_model", "projection_dim": 32, **TOWER}
SIGLIP = {"model_type": "siglip_vision_model", "vision_use_head": False, **TOWER}
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "pad_token_id": 3,
}
LLAMA = {"model_type": "llama", **TEXT}
QWEN2 = {"model_type": "qwen2", **{k: v for k, v in TEXT.items() if k != "head_dim"}}
GEMMA = {"model_type": "gemma", **TEXT}
IMAGE = number("<image>")
SQUARE = {"height": 32, "width": 32}
PINPOINTS = [[32, 64], [64, 32], [64, 64]]


@dataclass(frozen=True, slots=True)
class Vlm:
    """A family: how to build it, how to ask it, and sizes that it can and cannot take."""

    name: str
    make: Callable[[Any], tuple[Any, Any]]
    prompt: str = "<image> describe the image"
    token: str = "<image>"  # what stands for one image feature in the ids; empty: nothing does
    pixels: str = "pixel_values"  # the input of the tower that is converted
    to: tuple[int, ...] = (48, 64)
    impossible: tuple[tuple[int, str], ...] = ()  # a size, and the nearest that the refusal names
    options: dict[str, Any] = field(default_factory=dict)
    call: dict[str, Any] = field(default_factory=dict)  # what the processor is asked for besides
    fed: bool = True  # whether the processor feeds exactly the size that was asked for
    given: dict[str, tuple[int, ...]] = field(default_factory=dict)  # further inputs, by shape
    slow: bool = False

    @property
    def flags(self) -> list[str]:
        """Write the options as on the command line."""
        return [f"--{key.replace('_', '-')} {value}" for key, value in self.options.items()]

    def save(self, folder: Path) -> Path:
        """Write model and processor as transformers does."""
        import transformers

        model, processor = self.make(transformers)
        model.eval().save_pretrained(folder)
        processor.save_pretrained(folder)
        return folder


def clip_images(t: Any) -> Any:
    return t.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SQUARE)


def siglip_images(t: Any) -> Any:
    return t.SiglipImageProcessor(size=SQUARE)


def llava(t: Any) -> tuple[Any, Any]:
    config = t.LlavaConfig(
        vision_config=CLIP, text_config=LLAMA, image_token_index=IMAGE, image_seq_length=16
    )
    processor = t.LlavaProcessor(
        clip_images(t), tokenizer(), 8, "default", num_additional_image_tokens=1
    )
    return t.LlavaForConditionalGeneration(config), processor


def vipllava(t: Any) -> tuple[Any, Any]:
    config = t.VipLlavaConfig(
        vision_config=CLIP,
        text_config=LLAMA,
        image_token_index=IMAGE,
        image_seq_length=16,
        vision_feature_layers=[-1, -2],
    )
    processor = t.LlavaProcessor(
        clip_images(t), tokenizer(), 8, "default", num_additional_image_tokens=1
    )
    return t.VipLlavaForConditionalGeneration(config), processor


def llava_next(t: Any) -> tuple[Any, Any]:
    config = t.LlavaNextConfig(
        vision_config=CLIP,
        text_config=LLAMA,
        image_token_index=IMAGE,
        image_seq_length=16,
        image_grid_pinpoints=PINPOINTS,
    )
    images = t.LlavaNextImageProcessor(
        size={"shortest_edge": 32}, crop_size=SQUARE, image_grid_pinpoints=PINPOINTS
    )
    processor = t.LlavaNextProcessor(
        images, tokenizer(), 8, "default", num_additional_image_tokens=1
    )
    return t.LlavaNextForConditionalGeneration(config), processor


def llava_next_video(t: Any) -> tuple[Any, Any]:
    config = t.LlavaNextVideoConfig(
        vision_config=CLIP,
        text_config=LLAMA,
        image_token_index=IMAGE,
        video_token_index=number("<video>"),
        image_seq_length=16,
        video_seq_length=4,
        image_grid_pinpoints=PINPOINTS,
    )
    images = t.LlavaNextImageProcessor(
        size={"shortest_edge": 32}, crop_size=SQUARE, image_grid_pinpoints=PINPOINTS
    )
    videos = t.LlavaNextVideoVideoProcessor(size={"shortest_edge": 32}, crop_size=SQUARE)
    processor = t.LlavaNextVideoProcessor(
        videos, images, tokenizer(), None, 8, "default", num_additional_image_tokens=1
    )
    return t.LlavaNextVideoForConditionalGeneration(config), processor


def llava_onevision(t: Any) -> tuple[Any, Any]:
    """30 pixels hold 3 whole patches of 8, as 384 hold 27 of 14: the size says more than them."""
    stated = {"height": 30, "width": 30}
    pinpoints = [[30, 60], [60, 30], [60, 60]]
    config = t.LlavaOnevisionConfig(
        vision_config={**SIGLIP, "image_size": 30},
        text_config=QWEN2,
        image_token_index=IMAGE,
        video_token_index=number("<video>"),
        image_grid_pinpoints=pinpoints,
    )
    images = t.LlavaOnevisionImageProcessor(size=stated, image_grid_pinpoints=pinpoints)
    videos = t.LlavaOnevisionVideoProcessor(size=stated)
    processor = t.LlavaOnevisionProcessor(images, tokenizer(), videos, 9, "full")
    return t.LlavaOnevisionForConditionalGeneration(config), processor


def granite4_vision(t: Any) -> tuple[Any, Any]:
    config = t.Granite4VisionConfig(
        vision_config={**SIGLIP, "hidden_size": 64},
        text_config={
            "model_type": "granite4_vision_text",
            **TEXT,
            "num_local_experts": 0,
            "layer_types": ["attention", "attention"],
            "shared_intermediate_size": 32,
        },
        image_token_index=IMAGE,
        image_seq_length=16,
        image_grid_pinpoints=PINPOINTS,
        downsample_rate="1/2",
        deepstack_layer_map=[[-1, 0]],
        spatial_target_layers=[1, 1, 1, 1],
        vision_feature_select_strategy="full",
        qformer_config={
            "model_type": "blip_2_qformer",
            "hidden_size": 64,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "intermediate_size": 32,
            "encoder_hidden_size": 64,
        },
    )
    images = t.LlavaNextImageProcessor(
        size=SQUARE, crop_size=SQUARE, do_center_crop=False, image_grid_pinpoints=PINPOINTS
    )
    processor = t.Granite4VisionProcessor(images, tokenizer(), 8, "full", downsample_rate="1/2")
    return t.Granite4VisionForConditionalGeneration(config), processor


def internvl(t: Any) -> tuple[Any, Any]:
    tower = {**TOWER, "image_size": [32, 32], "patch_size": [8, 8]}
    config = t.InternVLConfig(
        vision_config=tower,
        text_config=QWEN2,
        image_token_id=number("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    images = t.GotOcr2ImageProcessor(size=SQUARE, crop_to_patches=False)
    videos = t.InternVLVideoProcessor(size=SQUARE)
    processor = t.InternVLProcessor(images, tokenizer(), videos, image_seq_length=4)
    return t.InternVLForConditionalGeneration(config), processor


def qianfan_ocr(t: Any) -> tuple[Any, Any]:
    tower = {**TOWER, "image_size": [32, 32], "patch_size": [8, 8]}
    config = t.QianfanOCRConfig(
        vision_config=tower,
        text_config=QWEN2,
        image_token_id=number("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    images = t.GotOcr2ImageProcessor(size=SQUARE, crop_to_patches=False)
    processor = t.QianfanOCRProcessor(images, tokenizer(), image_seq_length=4)
    return t.QianfanOCRForConditionalGeneration(config), processor


def _paligemma(t: Any) -> tuple[Any, Any]:
    config = t.PaliGemmaConfig(
        vision_config={**SIGLIP, "projection_dim": 32, "num_image_tokens": 16},
        text_config={**GEMMA, "num_image_tokens": 16},
        image_token_index=IMAGE,
        projection_dim=32,
        hidden_size=32,
    )
    images = siglip_images(t)
    images.image_seq_length = 16
    return config, images


def paligemma(t: Any) -> tuple[Any, Any]:
    config, images = _paligemma(t)
    processor = t.PaliGemmaProcessor(images, tokenizer())
    return t.PaliGemmaForConditionalGeneration(config), processor


def colpali(t: Any) -> tuple[Any, Any]:
    inner, images = _paligemma(t)
    config = t.ColPaliConfig(vlm_config=inner, embedding_dim=16)
    return t.ColPaliForRetrieval(config), t.ColPaliProcessor(images, tokenizer())


def colmodernvbert(t: Any) -> tuple[Any, Any]:
    inner = t.ModernVBertConfig(
        text_config={
            "model_type": "modernbert",
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "pad_token_id": 3,
        },
        vision_config=SIGLIP,
        image_token_id=IMAGE,
        pixel_shuffle_factor=2,
    )
    config = t.ColModernVBertConfig(vlm_config=inner, embedding_dim=16)
    images = t.Idefics3ImageProcessor(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False
    )
    processor = t.ColModernVBertProcessor(images, tokenizer(), image_seq_len=4)
    return t.ColModernVBertForRetrieval(config), processor


def idefics2(t: Any) -> tuple[Any, Any]:
    config = t.Idefics2Config(
        vision_config=TOWER,
        text_config={"model_type": "mistral", **TEXT},
        perceiver_config={
            "hidden_size": 32,
            "resampler_n_latents": 5,
            "resampler_depth": 1,
            "resampler_n_heads": 2,
            "resampler_head_dim": 16,
            "num_key_value_heads": 2,
        },
        image_token_id=IMAGE,
    )
    images = t.Idefics2ImageProcessor(
        size={"shortest_edge": 32, "longest_edge": 32}, do_image_splitting=False
    )
    processor = t.Idefics2Processor(images, tokenizer(), image_seq_len=5)
    return t.Idefics2ForConditionalGeneration(config), processor


def idefics3(t: Any) -> tuple[Any, Any]:
    config = t.Idefics3Config(
        vision_config=TOWER, text_config=LLAMA, image_token_id=IMAGE, scale_factor=2
    )
    images = t.Idefics3ImageProcessor(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    processor = t.Idefics3Processor(images, tokenizer(), image_seq_len=4)
    return t.Idefics3ForConditionalGeneration(config), processor


def smolvlm(t: Any) -> tuple[Any, Any]:
    from transformers.models.smolvlm import processing_smolvlm

    processing_smolvlm.num2words = str  # a package that spells numbers, for prompts about videos
    config = t.SmolVLMConfig(
        vision_config=TOWER, text_config=LLAMA, image_token_id=IMAGE, scale_factor=2
    )
    images = t.SmolVLMImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    videos = t.SmolVLMVideoProcessor(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, num_frames=2, fps=1
    )
    processor = t.SmolVLMProcessor(images, tokenizer(), videos, image_seq_len=4)
    return t.SmolVLMForConditionalGeneration(config), processor


GEMMA3_TOWER = {**SIGLIP, "image_size": 64, "patch_size": 8}  # 8×8 cells, pooled to 4×4 tokens


def _gemma3_images(t: Any) -> Any:
    images = t.Gemma3ImageProcessor(size={"height": 64, "width": 64})
    images.image_seq_length = 16
    return images


def gemma3(t: Any) -> tuple[Any, Any]:
    config = t.Gemma3Config(
        vision_config=GEMMA3_TOWER,
        text_config={**TEXT, "sliding_window": 64},
        mm_tokens_per_image=16,
        image_token_index=IMAGE,
        boi_token_index=number("<boi>"),
        eoi_token_index=number("<eoi>"),
    )
    processor = t.Gemma3Processor(_gemma3_images(t), tokenizer(), image_seq_length=16)
    return t.Gemma3ForConditionalGeneration(config), processor


def shieldgemma2(t: Any) -> tuple[Any, Any]:
    model, _ = gemma3(t)
    config = t.ShieldGemma2Config(
        vision_config=model.config.vision_config,
        text_config=model.config.text_config,
        mm_tokens_per_image=16,
        image_token_index=IMAGE,
        boi_token_index=number("<boi>"),
        eoi_token_index=number("<eoi>"),
    )
    config.yes_token_index, config.no_token_index = 5, 6
    processor = t.ShieldGemma2Processor(
        _gemma3_images(t),
        tokenizer(),
        image_seq_length=16,
        chat_template="<boi> describe the image",
    )
    return t.ShieldGemma2ForImageClassification(config), processor


def t5gemma2(t: Any) -> tuple[Any, Any]:
    text = {**TEXT, "sliding_window": 64}
    config = t.T5Gemma2Config(
        encoder={
            "text_config": text,
            "vision_config": GEMMA3_TOWER,
            "mm_tokens_per_image": 16,
            "image_token_index": IMAGE,
            "boi_token_index": number("<boi>"),
            "eoi_token_index": number("<eoi>"),
        },
        decoder=text,
        image_token_index=IMAGE,
        eoi_token_index=number("<eoi>"),
    )
    processor = t.Gemma3Processor(_gemma3_images(t), tokenizer(), image_seq_length=16)
    return t.T5Gemma2ForConditionalGeneration(config), processor


def janus(t: Any) -> tuple[Any, Any]:
    tower = {k: v for k, v in TOWER.items() if k != "intermediate_size"}
    config = t.JanusConfig(
        vision_config={**tower, "projection_dim": 32, "mlp_ratio": 1.0, "num_image_tokens": 16},
        text_config=LLAMA,
        vq_config={
            "embed_dim": 4,
            "num_embeddings": 8,
            "latent_channels": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "projection_dim": 32,
            "image_token_embed_dim": 32,
            "num_hidden_layers": 1,
            "num_patches": 4,
        },
        image_token_id=IMAGE,
    )
    images = t.JanusImageProcessor(size=SQUARE, min_size=8)
    processor = t.JanusProcessor(images, tokenizer(), num_image_tokens=16)
    return t.JanusForConditionalGeneration(config), processor


def deepseek_vl(t: Any) -> tuple[Any, Any]:
    config = t.DeepseekVLConfig(vision_config=SIGLIP, text_config=LLAMA, image_token_id=IMAGE)
    images = t.DeepseekVLImageProcessor(size=SQUARE, min_size=8)
    processor = t.DeepseekVLProcessor(images, tokenizer(), num_image_tokens=16)
    return t.DeepseekVLForConditionalGeneration(config), processor


SAM_TOWER = {
    "model_type": "sam_vision_model",
    "hidden_size": 32,
    "output_channels": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 64,
    "patch_size": 8,
    "mlp_dim": 32,
    "window_size": 3,
    "global_attn_indexes": [1],
}


def deepseek_vl_hybrid(t: Any) -> tuple[Any, Any]:
    config = t.DeepseekVLHybridConfig(
        vision_config=SIGLIP,
        high_res_vision_config=SAM_TOWER,
        text_config=LLAMA,
        image_token_id=IMAGE,
    )
    images = t.DeepseekVLHybridImageProcessor(
        size=SQUARE, high_res_size={"height": 64, "width": 64}, min_size=8
    )
    processor = t.DeepseekVLHybridProcessor(images, tokenizer(), num_image_tokens=16)
    return t.DeepseekVLHybridForConditionalGeneration(config), processor


def siglip2(t: Any) -> tuple[Any, Any]:
    """NaFlex: the tower resamples its table for every image, whose sides follow the image."""
    config = t.Siglip2Config(
        vision_config={
            **{k: v for k, v in TOWER.items() if k != "image_size"},
            "patch_size": 16,
            "num_patches": 16,
        },
        text_config={**TEXT, "projection_size": 32, "max_position_embeddings": 64},
    )
    images = t.Siglip2ImageProcessor(patch_size=16, max_num_patches=20)
    return t.Siglip2Model(config), t.Siglip2Processor(images, tokenizer())


def ovis2(t: Any) -> tuple[Any, Any]:
    config = t.Ovis2Config(
        vision_config={**TOWER, "vocab_size": 24, "hidden_stride": 2},
        text_config=QWEN2,
        image_token_id=number("<IMG_ATOM>"),
        visual_indicator_token_ids=[
            number(f"<IMG_{name}>") for name in ("START", "GRID", "COL", "ROW", "END")
        ],
        hidden_size=32,
        vocab_size=VOCABULARY,
    )
    images = t.Ovis2ImageProcessor(size=SQUARE, crop_to_patches=False)
    processor = t.Ovis2Processor(images, tokenizer(), image_seq_length=4)
    return t.Ovis2ForConditionalGeneration(config), processor


def aya_vision(t: Any) -> tuple[Any, Any]:
    config = t.AyaVisionConfig(
        vision_config=SIGLIP,
        text_config={"model_type": "cohere2", **TEXT},
        image_token_index=number("<|IMG_PATCH|>"),
        downsample_factor=2,
    )
    images = t.GotOcr2ImageProcessor(size=SQUARE, crop_to_patches=False)
    processor = t.AyaVisionProcessor(
        images, tokenizer(), patch_size=8, img_size=32, downsample_factor=2
    )
    return t.AyaVisionForConditionalGeneration(config), processor


def cohere2_vision(t: Any) -> tuple[Any, Any]:
    """Its processor calls `patch_size` the tokens per side of a tile."""
    config = t.Cohere2VisionConfig(
        vision_config=SIGLIP,
        text_config={"model_type": "cohere2", **TEXT},
        image_token_id=IMAGE,
        alignment_intermediate_size=32,
    )
    images = t.Cohere2VisionImageProcessor(size=SQUARE, patch_size=2, crop_to_patches=False)
    processor = t.Cohere2VisionProcessor(images, tokenizer())
    return t.Cohere2VisionForConditionalGeneration(config), processor


def perception_lm(t: Any) -> tuple[Any, Any]:
    config = t.PerceptionLMConfig(
        vision_config={
            "model_type": "timm_wrapper",
            "architecture": "vit_pe_core_large_patch14_336",
            "do_pooling": True,
            "num_classes": 32,
            "global_pool": "map",
            "initializer_range": 0.02,
            "model_args": {
                "embed_dim": 32,
                "depth": 2,
                "num_heads": 2,
                "img_size": [32, 32],
                "patch_size": 8,
                "global_pool": "",
                "use_post_transformer_norm": False,
                "init_values": 0.1,
                "ref_feat_shape": [4, 4],
            },
        },
        text_config=LLAMA,
        vision_use_cls_token=True,
        projector_pooling_ratio=2,
        image_token_id=IMAGE,
        video_token_id=number("<video>"),
    )
    images = t.PerceptionLMImageProcessor(
        tile_size=32, max_num_tiles=4, vision_input_type="thumb+tile"
    )
    videos = t.PerceptionLMVideoProcessor(size=SQUARE)
    processor = t.PerceptionLMProcessor(videos, images, tokenizer(), patch_size=8, pooling_ratio=2)
    return t.PerceptionLMForConditionalGeneration(config), processor


def got_ocr2(t: Any) -> tuple[Any, Any]:
    """64 cells per side are strided to 16 × 16 tokens, as its processor counts by default."""
    tower = {k: v for k, v in SAM_TOWER.items() if k != "model_type"}
    config = t.GotOcr2Config(
        vision_config={**tower, "image_size": 128, "patch_size": 2, "window_size": 14},
        text_config=QWEN2,
        image_token_index=number("<imgpad>"),
        image_seq_length=256,
    )
    images = t.GotOcr2ImageProcessor(size={"height": 128, "width": 128}, crop_to_patches=False)
    return t.GotOcr2ForConditionalGeneration(config), t.GotOcr2Processor(images, tokenizer())


def fast_vlm(t: Any) -> tuple[Any, Any]:
    """A convolutional tower: no position table, one token per 64 × 64 pixels."""
    config = t.FastVlmConfig(
        vision_config={
            "model_type": "timm_wrapper",
            "architecture": "fastvit_mci3",
            "do_pooling": True,
            "global_pool": "avg",
            "hidden_size": 128,
            "initializer_range": 0.02,
            "model_args": {
                "inference_mode": True,
                "embed_dims": [8, 8, 16, 32, 64],
                "layers": [1, 1, 1, 1, 1],
            },
        },
        text_config=QWEN2,
        image_token_index=IMAGE,
        image_seq_length=4,
    )
    side = {"height": 128, "width": 128}
    images = t.CLIPImageProcessor(size={"shortest_edge": 128}, crop_size=side)
    processor = t.LlavaProcessor(images, tokenizer(), 64, "full")
    return t.FastVlmForConditionalGeneration(config), processor


def lfm2_vl(t: Any) -> tuple[Any, Any]:
    config = t.Lfm2VlConfig(
        vision_config={
            "model_type": "siglip2_vision_model",
            **{k: v for k, v in TOWER.items() if k != "image_size"},
            "num_patches": 16,
            "vision_use_head": False,
        },
        text_config={
            "model_type": "lfm2",
            **TEXT,
            "layer_types": ["full_attention", "conv"],
            "block_multiple_of": 8,
        },
        image_token_id=IMAGE,
        projector_hidden_size=32,
    )
    images = t.Lfm2VlImageProcessor(
        tile_size=32, encoder_patch_size=8, min_image_tokens=2, max_image_tokens=4, max_tiles=4
    )
    return t.Lfm2VlForConditionalGeneration(config), t.Lfm2VlProcessor(images, tokenizer())


def florence2(t: Any) -> tuple[Any, Any]:
    """A tower of convolutions and windows; rows and columns of its tokens are looked up."""
    config = t.Florence2Config(
        vision_config={
            "depths": [1, 1, 1, 1],
            "embed_dim": [8, 8, 16, 16],
            "num_heads": [2, 2, 2, 2],
            "num_groups": [2, 2, 2, 2],
            "window_size": 2,
            "projection_dim": 32,
            "max_position_embeddings": 10,
            "max_temporal_embeddings": 4,
        },
        text_config={
            "model_type": "bart",
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 256,
        },
        image_token_id=IMAGE,
    )
    side = {"height": 128, "width": 128}
    images = t.CLIPImageProcessor(size=side, crop_size=side, do_center_crop=False)
    images.image_seq_length = 17
    processor = t.Florence2Processor(images, tokenizer(), num_additional_image_tokens=1)
    return t.Florence2ForConditionalGeneration(config), processor


def _qwen_images(t: Any) -> Any:
    return t.Qwen2VLImageProcessor(
        patch_size=8, merge_size=2, size={"shortest_edge": 256, "longest_edge": 4096}
    )


def qwen3_vl(t: Any) -> tuple[Any, Any]:
    config = t.Qwen3VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "patch_size": 8,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        text_config={
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [4, 2, 2],
                "rope_theta": 1e4,
            },
        },
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
    )
    names = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    videos = t.Qwen3VLVideoProcessor(patch_size=8)
    processor = t.Qwen3VLProcessor(_qwen_images(t), tokenizer(**names), videos)
    return t.Qwen3VLForConditionalGeneration(config), processor


def colqwen2(t: Any) -> tuple[Any, Any]:
    """A tower with rotary positions: nothing in it depends on the size."""
    inner = t.Qwen2VLConfig(
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "num_heads": 2,
            "patch_size": 8,
            "hidden_size": 32,
            "mlp_ratio": 1,
        },
        text_config={
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [4, 2, 2],
                "rope_theta": 1e4,
            },
        },
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
    )
    config = t.ColQwen2Config(vlm_config=inner, embedding_dim=16)
    names = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    processor = t.ColQwen2Processor(_qwen_images(t), tokenizer(**names))
    return t.ColQwen2ForRetrieval(config), processor


def molmo2(t: Any) -> tuple[Any, Any]:
    config = t.Molmo2Config(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "image_size": [32, 32],
            "patch_size": 8,
            "num_position_embeddings": 16,
        },
        adapter_config={
            "vision_feature_layer": [-1],
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 32,
            "text_hidden_size": 32,
        },
        text_config={**TEXT, "additional_vocab_size": 8},
        image_start_token_id=number("<im_start>"),
        low_res_image_start_token_id=number("<low_res_im_start>"),
        image_end_token_id=number("<im_end>"),
        image_patch_id=number("<im_patch>"),
        frame_start_token_id=number("<frame_start>"),
        frame_end_token_id=number("<frame_end>"),
    )
    images = t.Molmo2ImageProcessor(size=SQUARE, patch_size=8, max_crops=2, overlap_margins=[1, 1])
    videos = t.Molmo2VideoProcessor(size=SQUARE, patch_size=8)
    return t.Molmo2ForConditionalGeneration(config), t.Molmo2Processor(images, videos, tokenizer())


def kimi_k25(t: Any) -> tuple[Any, Any]:
    """A table of 6×10 cells, which the tower resamples for every image."""
    vision = {
        "patch_size": 4,
        "pos_emb_height": 6,
        "pos_emb_width": 10,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
    }
    text = t.DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=4,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        qk_nope_head_dim=8,
        first_k_dense_replace=1,
    )
    config = t.Kimi_K25Config(
        text_config=text.to_dict(),
        vision_config=vision,
        projection_hidden_size=32,
        image_token_id=number("<image>"),
        video_token_id=number("<video>"),
    )
    images = t.Kimi_K25ImageProcessor(patch_size=4, size={"max_height": 512, "max_width": 512})
    videos = t.Kimi_K25VideoProcessor(patch_size=4)
    processor = t.Kimi_K25Processor(images, tokenizer(), videos)
    return t.Kimi_K25ForConditionalGeneration(config), processor


QFORMER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "encoder_hidden_size": 32,
    "cross_attention_frequency": 1,
}


def blip_2(t: Any) -> tuple[Any, Any]:
    config = t.Blip2Config(
        vision_config=TOWER,
        qformer_config=QFORMER,
        text_config={"model_type": "opt", **_opt()},
        num_query_tokens=6,
        image_token_index=IMAGE,
    )
    images = t.BlipImageProcessor(size=SQUARE)
    processor = t.Blip2Processor(images, tokenizer(image_token=None), num_query_tokens=6)
    return t.Blip2ForConditionalGeneration(config), processor


def instructblip(t: Any) -> tuple[Any, Any]:
    config = t.InstructBlipConfig(
        vision_config=TOWER,
        qformer_config=QFORMER,
        text_config={"model_type": "opt", **_opt()},
        num_query_tokens=6,
        image_token_index=IMAGE,
    )
    images = t.BlipImageProcessor(size=SQUARE)
    processor = t.InstructBlipProcessor(
        images, tokenizer(image_token=None), tokenizer(), num_query_tokens=6
    )
    return t.InstructBlipForConditionalGeneration(config), processor


def _opt() -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 128,
    }


def kosmos2(t: Any) -> tuple[Any, Any]:
    config = t.Kosmos2Config(
        vision_config={k: v for k, v in CLIP.items() if k not in ("model_type", "projection_dim")},
        text_config={
            "vocab_size": VOCABULARY + 1100,
            "embed_dim": 32,
            "ffn_dim": 32,
            "layers": 1,
            "attention_heads": 2,
            "max_position_embeddings": 256,
        },
        latent_query_num=64,
    )
    processor = t.Kosmos2Processor(clip_images(t), tokenizer(), num_patch_index_tokens=16)
    return t.Kosmos2ForConditionalGeneration(config), processor


def chameleon(t: Any) -> tuple[Any, Any]:
    """An image is a list of codes, one per 8×8 pixels; no table follows the image."""
    codes = {f"IMGIMG{chr(65 + code)}Z": 20 + code for code in range(8)}
    config = t.ChameleonConfig(
        **{key: value for key, value in TEXT.items() if key != "head_dim"},
        vq_config={
            "embed_dim": 4,
            "num_embeddings": 8,
            "latent_channels": 4,
            "resolution": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "attn_resolutions": [],
        },
        vocabulary_map={**codes, "<image>": IMAGE},
    )
    images = t.ChameleonImageProcessor(size={"shortest_edge": 32}, crop_size=SQUARE)
    processor = t.ChameleonProcessor(images, tokenizer(), image_seq_length=16)
    return t.ChameleonForConditionalGeneration(config), processor


def aria(t: Any) -> tuple[Any, Any]:
    """Its processor takes 490 and 980 pixels only."""
    tower = {**TOWER, "hidden_size": 8, "num_hidden_layers": 1, "image_size": 980, "patch_size": 14}
    config = t.AriaConfig(
        vision_config={"model_type": "idefics3_vision", **tower},
        text_config={
            **{key: value for key, value in TEXT.items() if key != "head_dim"},
            "moe_num_experts": 2,
            "moe_topk": 1,
            "moe_num_shared_experts": 1,
        },
        image_token_index=IMAGE,
        projector_patch_to_query_dict={35 * 35: 128, 70 * 70: 256},
    )
    images = t.AriaImageProcessor(max_image_size=980, min_image_size=336)
    return t.AriaForConditionalGeneration(config), t.AriaProcessor(images, tokenizer())


def flava(t: Any) -> tuple[Any, Any]:
    """Its processor also makes a mask of the cells, and an image with 8×8 pixels per cell."""
    part = {key: TOWER[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    config = t.FlavaConfig(
        image_config=TOWER,
        text_config={**part, "num_attention_heads": 2, "vocab_size": VOCABULARY},
        multimodal_config={**part, "num_attention_heads": 2},
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
    return t.FlavaModel(config), t.FlavaProcessor(images, tokenizer())


def llama4(t: Any) -> tuple[Any, Any]:
    config = t.Llama4Config(
        vision_config={
            **TOWER,
            "intermediate_size": 128,
            "vision_output_dim": 32,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "pixel_shuffle_ratio": 0.5,
        },
        text_config={**TEXT, "intermediate_size_mlp": 32, "num_local_experts": 2},
        image_token_index=number("<|patch|>"),
    )
    images = t.Llama4ImageProcessor(size=SQUARE, max_patches=4)
    processor = t.Llama4Processor(images, tokenizer(), patch_size=8)
    return t.Llama4ForConditionalGeneration(config).bfloat16(), processor  # as its processor


REFERENCE = {"reference_grids": "resize"}
ODD = ((40, "32 px and 48 px"), (56, "48 px and 64 px"))  # cells that cannot be pooled by twos
FOURS = ((80, "64 px and 96 px"), (112, "96 px and 128 px"))  # nor into 4 × 4 tokens

FAMILIES: tuple[Vlm, ...] = (
    Vlm("llava", llava),
    Vlm("vipllava", vipllava),
    Vlm("llava_next", llava_next),
    Vlm("llava_next_video", llava_next_video, impossible=ODD),
    Vlm("llava_onevision", llava_onevision),
    Vlm("granite4_vision", granite4_vision, impossible=ODD),
    Vlm("internvl", internvl, "<IMG_CONTEXT> a cat", "<IMG_CONTEXT>", impossible=ODD),
    Vlm("qianfan_ocr", qianfan_ocr, "<image> a cat", "<IMG_CONTEXT>", impossible=ODD),
    Vlm("paligemma", paligemma),
    Vlm("colpali", colpali, ""),
    Vlm("colmodernvbert", colmodernvbert, impossible=ODD),
    Vlm("idefics2", idefics2),
    Vlm("idefics3", idefics3, impossible=ODD),
    Vlm("smolvlm", smolvlm, impossible=ODD),
    Vlm("gemma3", gemma3, "<boi> describe the image", to=(96, 128), impossible=FOURS),
    Vlm("shieldgemma2", shieldgemma2, "<boi> describe the image", to=(96, 128), impossible=FOURS),
    Vlm("t5gemma2", t5gemma2, "<boi> describe the image", to=(96, 128), impossible=FOURS),
    Vlm("janus", janus),
    Vlm("deepseek_vl", deepseek_vl),
    Vlm("deepseek_vl_hybrid", deepseek_vl_hybrid, options={"tower": "vision_model.embeddings"}),
    Vlm(
        "deepseek_vl_hybrid (SAM)",
        deepseek_vl_hybrid,
        to=(96, 128),
        options={"tower": "high_res_vision_model"},
        pixels="high_res_pixel_values",
    ),
    Vlm("siglip2 (NaFlex)", siglip2, "a cat", "", to=(96, 48), options=REFERENCE, fed=False),
    Vlm("ovis2", ovis2, token="<IMG_ATOM>", impossible=ODD),
    Vlm("aya_vision", aya_vision, token="<|IMG_PATCH|>", impossible=ODD),
    Vlm("cohere2_vision", cohere2_vision, impossible=ODD),
    Vlm("perception_lm", perception_lm),
    Vlm("got_ocr2", got_ocr2, "<imgpad> a cat", "<imgpad>", to=(64, 96)),
    Vlm("fast_vlm", fast_vlm, to=(192, 256), impossible=((200, "192 px or 256 px"),)),
    Vlm("lfm2_vl", lfm2_vl, fed=False),
    Vlm(
        "florence2",
        florence2,
        "describe the image",
        to=(192, 256),
        impossible=((352, "320 px"), (200, "192 px or 224 px")),
    ),
    Vlm("qwen3_vl", qwen3_vl, "<|image_pad|> a cat", "<|image_pad|>", options=REFERENCE, fed=False),
    Vlm("colqwen2", colqwen2, "", "<|image_pad|>"),
    Vlm("molmo2", molmo2, token="<im_patch>", options=REFERENCE, fed=False),
    Vlm("kimi_k25", kimi_k25, to=(32, 48), options=REFERENCE, fed=False),
    Vlm("llama4", llama4, "<|image|> a cat", "<|patch|>", impossible=ODD),
    Vlm("chameleon", chameleon, to=(64, 48), impossible=((60, "56 px or 64 px"),)),
    Vlm("aria", aria, to=(490, 490), impossible=((700, "490 px and 980 px"),)),
    Vlm("flava", flava, "a cat", "", call={"return_image_mask": True}),
    Vlm("blip_2", blip_2, "describe the image"),
    Vlm("instructblip", instructblip, "describe the image"),
    Vlm("kosmos2", kosmos2, "describe the image"),
)
