"""Where config files state a resolution or a length, as data; `configs/edits.py` reads the table.

A place is a key in a section of a file. Its `KeyKind` says what the value means. If possible, the
old value decides whether the key is changed, not the name of the model. `pretrain_image_size` of
ViTDet, SegGPT and SAM 3 is not listed, because it describes how the weights were trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import KeyPath

# Sections that contain a whole model: ColPali and similar models, T5Gemma 2, Qwen Omni.
WRAPPERS: tuple[KeyPath, ...] = ((), ("vlm_config",), ("encoder",), ("thinker_config",))


class KeyKind(StrEnum):
    """What a value counts."""

    SIZE = "size"  # pixels: N, [h, w], [channels, h, w] or {"height": h, "width": w}
    HEIGHT = "height"  # height of the image only: the mel bins of a spectrogram
    WIDTH = "width"  # width of the image only: the frames of a spectrogram
    GRID = "grid"  # patches per side
    GRID_HEIGHT = "grid height"
    GRID_WIDTH = "grid width"
    CELLS = "cells"  # total number of patches
    TOKENS = "tokens"  # image tokens that the model makes from the patches, sometimes pooled
    TOKEN_SIDE = "token side"  # tokens per side
    PER_CELL = "per cell"  # pixels of another image, a whole number of them per cell
    MULTIPLES = "multiples"  # a list of sizes, each a multiple of the image size
    SIDES = "sides"  # pixels per side, one number per tower
    WINDOW = "window"  # cells of an attention window, per side
    PATCH = "patch"  # pixels of a patch, per side
    FRAMES = "frames"  # frames of a video
    LENGTH = "length"  # positions of a text, with or without reserved rows


class Library(StrEnum):
    """The library that a file belongs to: both timm and transformers use config.json."""

    HF = "transformers"
    TIMM = "timm"
    OPEN_CLIP = "open_clip"


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """A key that states a resolution or a length."""

    library: Library
    file: str
    sections: tuple[KeyPath, ...]
    key: str
    kind: KeyKind
    source: str
    models: frozenset[str] = field(default_factory=frozenset)  # model_types; empty: any
    always: bool = False  # changed even if it does not equal the size of the table


_ROOT: KeyPath = ()
_IMAGE: tuple[KeyPath, ...] = (
    ("vision_config",),
    _ROOT,
    ("encoder",),
    ("backbone_config",),
    ("vision_config", "backbone_config"),
    ("image_config",),
    ("high_res_vision_config",),
    ("vision_config", "sam_config"),
)
_TEXT: tuple[KeyPath, ...] = (_ROOT, ("text_config",), ("encoder",), ("decoder",))
_SAM = frozenset({"sam", "sam_hq"})
SPECTROGRAM = "audio-spectrogram-transformer"
# model_types whose configs call the number of frames num_frames.
FRAMED = (
    "timesformer",
    "videomae",
    "vivit",
    "videoprism",
    "videoprism_vision_model",
    "xclip",
    "xclip_vision_model",
)


def _hf(
    key: str, kind: KeyKind, source: str, *models: str, sections: object = _IMAGE
) -> ConfigPlace:
    assert isinstance(sections, tuple)
    return ConfigPlace(Library.HF, "config.json", sections, key, kind, source, frozenset(models))


def _length(file: str, section: KeyPath, key: str, source: str) -> ConfigPlace:
    return ConfigPlace(Library.HF, file, (section,), key, KeyKind.LENGTH, source)


PLACES: tuple[ConfigPlace, ...] = (
    _hf(
        "window_size", KeyKind.WINDOW, "transformers models/swin/configuration_swin.py; donut, clap"
    ),
    ConfigPlace(
        Library.TIMM,
        "config.json",
        (("model_args",),),
        "window_size",
        KeyKind.WINDOW,
        "timm/models/swin_transformer.py: window_size",
    ),
    _hf(
        "image_size", KeyKind.SIZE, "transformers models/vit/configuration_vit.py; clip, siglip, …"
    ),
    _hf("img_size", KeyKind.SIZE, "Swin, EVA and RADIO repositories with code of their own"),
    _hf("force_image_size", KeyKind.SIZE, "InternVL internvl_chat/tools/resize_pos_embed.py:18"),
    _hf(
        "input_size", KeyKind.SIZE, "models/layoutlmv3/configuration_layoutlmv3.py:95", "layoutlmv3"
    ),
    _hf(
        "crop_size",
        KeyKind.SIZE,
        "models/vjepa2/configuration_vjepa2.py:65; phi4_multimodal:61",
        "vjepa2",
        "phi4_multimodal_vision",
    ),
    _hf(
        "max_img_size",
        KeyKind.SIZE,
        "models/radio/configuration_radio.py:79; tvp:67",
        "radio",
        "tvp",
    ),
    _hf(
        "max_image_size",
        KeyKind.SIZE,
        "models/hunyuan_vl/modeling_hunyuan_vl.py: its square root of positions",
        "hunyuan_vl_vision",
    ),
    _hf(
        "num_frames",
        KeyKind.FRAMES,
        "models/timesformer, vivit, videomae, videoprism, x_clip: configuration_….py",
        *FRAMED,
    ),
    _hf("frames_per_clip", KeyKind.FRAMES, "models/vjepa2/configuration_vjepa2.py:66", "vjepa2"),
    _hf(
        "num_mel_bins",
        KeyKind.HEIGHT,
        "models/audio_spectrogram_transformer/modeling…:72-87: frequency × time",
        SPECTROGRAM,
        sections=(_ROOT,),
    ),
    _hf(
        "max_length",
        KeyKind.WIDTH,
        "models/audio_spectrogram_transformer/modeling…:72-87: frequency × time",
        SPECTROGRAM,
        sections=(_ROOT,),
    ),
    _hf(
        "image_size",
        KeyKind.SIZE,
        "models/sam/configuration_sam.py: the prompt encoder has a copy",
        *_SAM,
        sections=(("prompt_encoder_config",),),
    ),
    _hf(
        "image_embedding_size",
        KeyKind.GRID,
        "models/sam/configuration_sam.py: image_size // patch_size, stored",
        *_SAM,
        sections=(("prompt_encoder_config",),),
    ),
    _hf(
        "num_patches",
        KeyKind.CELLS,
        "models/siglip2/configuration_siglip2.py:109; cosmos3_edge",
        "siglip2_vision_model",
        "cosmos3_edge_vision",
    ),
    _hf(
        "num_position_embeddings",
        KeyKind.CELLS,
        "models/qwen3_vl/configuration_qwen3_vl.py:54; molmo2",
    ),
    _hf("image_num_pos", KeyKind.CELLS, "models/molmo2/configuration_molmo2.py:63, released files"),
    _hf("image_default_input_size", KeyKind.SIZE, "models/molmo2/configuration_molmo2.py:61"),
    _hf("pos_emb_height", KeyKind.GRID_HEIGHT, "models/kimi_k25/configuration_kimi_k25.py:45"),
    _hf("pos_emb_width", KeyKind.GRID_WIDTH, "models/kimi_k25/configuration_kimi_k25.py:46"),
    _hf(
        "image_sizes",
        KeyKind.SIDES,
        "openvla/openvla-7b config.json, modeling_prismatic.py: one per featurizer",
        "openvla",
        "prismatic",
        sections=(_ROOT,),
    ),
    _hf(
        "img_size",
        KeyKind.SIZE,
        "models/timm_wrapper: arguments of timm's constructor; perception_lm",
        "timm_wrapper",
        sections=(("vision_config", "model_args"),),
    ),
    _hf(
        "num_patches",
        KeyKind.GRID,
        "models/janus/configuration_janus.py:92,144: the side of the generated image",
        "janus",
        sections=(("vq_config",),),
    ),
    _hf("image_seq_length", KeyKind.TOKENS, "models/llava/configuration_llava.py:73; internvl:117"),
    _hf(
        "num_image_tokens",
        KeyKind.TOKENS,
        "models/paligemma: text_config and vision_config; janus:58",
    ),
    _hf(
        "num_image_tokens",
        KeyKind.TOKENS,
        "models/paligemma/configuration_paligemma.py",
        sections=(("text_config",),),
    ),
    _hf("image_grid_pinpoints", KeyKind.MULTIPLES, "models/llava_next/configuration_llava_next.py"),
    _hf(
        "max_position_embeddings",
        KeyKind.LENGTH,
        "models/bert:59 rows; roberta:71 rows with 2 reserved; opt:53 rows without the 2",
        sections=_TEXT,
    ),
    _hf("n_positions", KeyKind.LENGTH, "models/gpt2/modeling_gpt2.py:493", sections=_TEXT),
    _hf("n_ctx", KeyKind.LENGTH, "GPT-2 configs before transformers 4.6", sections=_TEXT),
    _hf("max_source_positions", KeyKind.LENGTH, "models/whisper:571", sections=_TEXT),
    _hf("max_target_positions", KeyKind.LENGTH, "models/whisper:678", sections=_TEXT),
    _length("tokenizer_config.json", _ROOT, "model_max_length", "tokenization_utils_base.py"),
    _length("generation_config.json", _ROOT, "max_length", "generation/configuration_utils.py"),
    _length("tokenizer.json", ("truncation",), "max_length", "tokenizers: truncation"),
    _length("sentence_bert_config.json", _ROOT, "max_seq_length", "sentence-transformers"),
    ConfigPlace(
        Library.TIMM,
        "config.json",
        (("model_args",),),
        "img_size",
        KeyKind.SIZE,
        "timm/models/_hub.py:185",
        always=True,
    ),
    ConfigPlace(
        Library.TIMM,
        "config.json",
        (("pretrained_cfg",), _ROOT),  # at the root in files from before timm 0.9
        "input_size",
        KeyKind.SIZE,
        "timm/models/_hub.py:158-187",
        always=True,  # save_for_hf always writes the default size, not that of the model
    ),
    ConfigPlace(
        Library.OPEN_CLIP,
        "open_clip_config.json",
        (("model_cfg", "vision_cfg"),),
        "image_size",
        KeyKind.SIZE,
        "open_clip/push_to_hf_hub.py:40-52; model.py CLIPVisionCfg",
        always=True,
    ),
    ConfigPlace(
        Library.OPEN_CLIP,
        "open_clip_config.json",
        (("preprocess_cfg",),),
        "size",
        KeyKind.SIZE,
        "open_clip/transform.py PreprocessCfg",
        always=True,
    ),
    ConfigPlace(
        Library.OPEN_CLIP,
        "open_clip_config.json",
        (("model_cfg", "text_cfg"),),
        "context_length",
        KeyKind.LENGTH,
        "open_clip/model.py CLIPTextCfg",
    ),
)

_COUNTED = (
    "cohere_compass_vision",
    "qwen3_5_moe_vision",
    "qwen3_5_vision",
    "qwen3_omni_moe_vision_encoder",
    "qwen3_vl_moe_vision",
    "qwen3_vl_vision",
    "qwen4_exp_vision",
)
# The key that a model_type reads its resolution from, if it is not image_size. If a config omits a
# default (such as siglip-base-patch16-224), the key that its library reads is added.
RESOLUTION_KEYS: Mapping[str, str] = {
    "layoutlmv3": "input_size",
    "vjepa2": "crop_size",
    "phi4_multimodal_vision": "crop_size",
    "radio": "max_img_size",
    "hunyuan_vl_vision": "max_image_size",
    "tvp": "max_img_size",
    "siglip2_vision_model": "num_patches",
    "cosmos3_edge_vision": "num_patches",
    **dict.fromkeys(_COUNTED, "num_position_embeddings"),
    SPECTROGRAM: "max_length",
}

# model_types that read the sides of their grid from two keys, pos_emb_height and pos_emb_width.
TWO_SIDES = frozenset({"kimi_k25_vision", "muse_glimmer_vision", "muse_spark_vision"})

# Keys of processors that are changed by what they count, in any file.
PROCESSOR_KEYS: tuple[tuple[str, KeyKind, str], ...] = (
    (
        "image_seq_length",
        KeyKind.TOKENS,
        "models/paligemma:76; internvl:62; ovis2:39; florence2:105",
    ),
    ("image_seq_len", KeyKind.TOKENS, "models/idefics3/processing_idefics3.py:67; smolvlm:133"),
    ("num_image_tokens", KeyKind.TOKENS, "models/janus:72; deepseek_vl:54; llava_onevision:68"),
    ("image_grid_pinpoints", KeyKind.MULTIPLES, "models/llava_next:93; llava_onevision:112"),
    ("input_sizes", KeyKind.MULTIPLES, "openvla/openvla-7b preprocessor_config.json"),
)
_FLAVA = "models/flava/image_processing_flava.py: one code per cell, 8 pixels of its image each"
# The same, but only for this processor: in other processors the key means something else.
CLASS_KEYS: tuple[tuple[str, str, KeyKind, str], ...] = (
    (
        "Cohere2VisionImageProcessor",
        "patch_size",
        KeyKind.TOKEN_SIDE,
        "models/cohere2_vision/processing_cohere2_vision.py:44,69",
    ),
    ("FlavaImageProcessor", "input_size_patches", KeyKind.GRID, _FLAVA),
    ("FlavaImageProcessor", "codebook_size", KeyKind.PER_CELL, _FLAVA),
    ("FlavaImageProcessor", "codebook_crop_size", KeyKind.PER_CELL, _FLAVA),
)
# Changed only if equal to the old size, because they may be a limit and not the image size.
BOUNDS: tuple[tuple[str, str], ...] = (
    ("pad_size", "models/sam/image_processing_sam.py"),
    ("max_image_size", "models/idefics3/image_processing_idefics3.py: one tile"),
    ("image_size", "processors with code of their own"),
    ("img_size", "models/aya_vision/processing_aya_vision.py:42"),
    ("tile_size", "models/perception_lm/processing_perception_lm.py:98; lfm2_vl:248"),
    ("high_res_size", "models/deepseek_vl_hybrid/image_processing_deepseek_vl_hybrid.py:40"),
)
# If a processor has one of these keys, it states the size, and `size` is a limit or a default.
SIZED_BY: frozenset[str] = frozenset({"tile_size", "high_res_size"})

# Processors: transformers utils/__init__.py:284-288; image_processing_base.py:284,322.
PROCESSOR_FILES: tuple[str, ...] = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
PROCESSOR_SECTIONS: tuple[KeyPath, ...] = (_ROOT, ("image_processor",), ("video_processor",))

CONFIG_FILES: tuple[str, ...] = tuple(
    dict.fromkeys([place.file for place in PLACES] + list(PROCESSOR_FILES))
)
