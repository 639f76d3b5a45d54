"""The models that transformers can build or run only for square images."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.configs.keys import Library
from resize_pos.configs.model_types import model_type_of
from resize_pos.configs.read import follow
from resize_pos.core.json_edit import Document, KeyPath

# model_types that transformers can build or run only for square images. Each was tried with
# transformers 5.22 at 64×96. Most divide image_size as one number. The DINOv2 models take the
# square root of the number of positions.
SQUARE_ONLY: frozenset[str] = frozenset(
    [
        "aimv2_vision_model",
        "altclip_vision_model",
        "blip_vision_model",
        "blip_2_vision_model",
        "bridgetower_vision_model",
        "chinese_clip_vision_model",
        "clip_vision_model",
        "clipseg_vision_model",
        "deepseek_ocr2_sam_vision_model",
        "dinov2",
        "dinov2_with_registers",
        "dpt",
        "eomt",
        "git_vision_model",
        "glm4v_vision",
        "glm4v_moe_vision",
        "glm_image_vision",
        "idefics2_vision",
        "idefics3_vision",
        "instructblip_vision_model",
        "instructblipvideo_vision_model",
        "internvl_vision",
        "janus_vision_model",
        "kosmos_2_vision_model",
        "layoutlmv3",
        "levit",
        "llama4_vision_model",
        "metaclip_2_vision_model",
        "mlcd_vision_model",
        "mllama_vision_model",
        "ovis2_vision",
        "owlv2_vision_model",
        "owlvit_vision_model",
        "paddleocr_vl_vision",
        "phi4_multimodal_vision",
        "pixio",
        "pvt",
        "radio",
        "rf_detr_dinov2",
        "sam",
        "sam_vision_model",
        "sam_prompt_encoder",
        "sam_hq_vision_model",
        "sam_hq_prompt_encoder",
        "siglip_vision_model",
        "siglip2_vision_model",
        "smolvlm_vision",
        "step3p5_vision",
        "tipsv2_vision_model",
        "tvp",
        "vjepa2",
        "unlimited_ocr_sam_vision_model",
        "xclip_vision_model",
    ]
)

# The same, if the section has this value. BEiT and Data2Vec take the square root of the number of
# positions of their absolute table; ViT-MAE takes it for its decoder (modeling_vit_mae.py:524).
SQUARE_IF: Mapping[str, tuple[str, object]] = {
    "beit": ("use_absolute_position_embeddings", True),
    "data2vec-vision": ("use_absolute_position_embeddings", True),
    "vit_mae": ("architectures", ["ViTMAEForPreTraining"]),
}


def square_only(document: Document, path: KeyPath, library: Library) -> str | None:
    """Return the model_type whose code accepts only one number here; None if a pair is accepted."""
    if library is not Library.HF:
        return None
    section = follow(document, path[:-1])
    model = model_type_of(section) or model_type_of(document)
    key, value = SQUARE_IF.get(model, ("", None))
    limited = bool(key) and isinstance(section, dict) and section.get(key) == value
    return model if limited or model in SQUARE_ONLY else None
