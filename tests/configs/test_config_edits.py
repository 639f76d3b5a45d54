"""Documents in, edits out: what a transfer means for config files."""

from __future__ import annotations

from typing import Any

import pytest

from resize_pos.configs.edits import apply_edits, plan_config_edits
from resize_pos.configs.keys import CONFIG_FILES, PLACES, RESOLUTION_KEYS
from resize_pos.configs.values import Transfer
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Size


def image(old: int | str, new: str, patch: int = 16) -> Transfer:
    before, after = Size.parse(old), Size.parse(new)
    return Transfer(
        before,
        after,
        Grid(before.height // patch, before.width // patch),
        Grid(after.height // patch, after.width // patch),
    )


def text(**lengths: int) -> Transfer:
    return Transfer(lengths={int(k[1:]): v for k, v in lengths.items()})


SQUARE, WIDE = image(224, "384"), image(224, "384x512")
Edits = dict[str, Any]

# what it is, file, document, transfer, edits
TABLE: list[tuple[str, str, Any, Transfer, Edits]] = [
    ("int", "config.json", {"image_size": 224}, SQUARE, {"image_size": 384}),
    ("int to pair", "config.json", {"image_size": 224}, WIDE, {"image_size": [384, 512]}),
    ("pair", "config.json", {"image_size": [224, 224]}, SQUARE, {"image_size": [384, 384]}),
    ("right already", "config.json", {"image_size": 384}, SQUARE, {}),
    (
        "nested",
        "config.json",
        {"model_type": "clip", "vision_config": {"image_size": 224, "patch_size": 16}},
        SQUARE,
        {"vision_config.image_size": 384},
    ),
    (
        "InternVL",
        "config.json",
        {"vision_config": {"image_size": 224}, "force_image_size": 224},
        SQUARE,
        {"vision_config.image_size": 384, "force_image_size": 384},
    ),
    (
        "another tower's size is left",
        "config.json",
        {"vision_config": {"image_size": 224}, "encoder": {"image_size": 1024}},
        SQUARE,
        {"vision_config.image_size": 384},
    ),
    (
        "a stale size is set right",
        "config.json",
        {"image_size": 256},
        SQUARE,
        {"image_size": 384},
    ),
    (
        "pretrain_image_size is history",
        "config.json",
        {"model_type": "seggpt", "image_size": 224, "pretrain_image_size": 1024},
        SQUARE,
        {"image_size": 384},
    ),
    (
        "a default that the file leaves out",
        "config.json",
        {"model_type": "siglip", "vision_config": {"model_type": "siglip_vision_model"}},
        SQUARE,
        {"vision_config.image_size": 384},
    ),
    (
        "SigLIP 2",
        "config.json",
        {"vision_config": {"model_type": "siglip2_vision_model", "num_patches": 196}},
        SQUARE,
        {"vision_config.num_patches": 576},
    ),
    (
        "SigLIP 2, default left out",
        "config.json",
        {"vision_config": {"model_type": "siglip2_vision_model"}},
        SQUARE,
        {"vision_config.num_patches": 576},
    ),
    (
        "LayoutLMv3",
        "config.json",
        {"model_type": "layoutlmv3", "input_size": 224, "max_position_embeddings": 514},
        SQUARE,
        {"input_size": 384},
    ),
    (
        "input_size of another model is something else",
        "config.json",
        {"model_type": "informer", "input_size": 224, "image_size": 224},
        SQUARE,
        {"image_size": 384},
    ),
    (
        "V-JEPA 2",
        "config.json",
        {"model_type": "vjepa2", "crop_size": 224},
        SQUARE,
        {"crop_size": 384},
    ),
    (
        "RADIO",
        "config.json",
        {"model_type": "radio", "max_img_size": 224},
        SQUARE,
        {"max_img_size": 384},
    ),
    (
        "Qwen3-VL",
        "config.json",
        {"vision_config": {"num_position_embeddings": 196, "patch_size": 16}},
        SQUARE,
        {"vision_config.num_position_embeddings": 576},
    ),
    (
        "SAM",
        "config.json",
        {
            "model_type": "sam",
            "vision_config": {"image_size": 224},
            "prompt_encoder_config": {"image_size": 224, "image_embedding_size": 14},
        },
        SQUARE,
        {
            "vision_config.image_size": 384,
            "prompt_encoder_config.image_size": 384,
            "prompt_encoder_config.image_embedding_size": 24,
        },
    ),
    (
        "LLaVA: tokens follow the patches",
        "config.json",
        {"vision_config": {"image_size": 224}, "image_seq_length": 196},
        SQUARE,
        {"vision_config.image_size": 384, "image_seq_length": 576},
    ),
    (
        "InternVL: a quarter of the patches",
        "config.json",
        {"vision_config": {"image_size": 224}, "image_seq_length": 49},
        SQUARE,
        {"vision_config.image_size": 384, "image_seq_length": 144},
    ),
    (
        "LLaVA-NeXT",
        "config.json",
        {"vision_config": {"image_size": 224}, "image_grid_pinpoints": [[224, 448], [672, 224]]},
        SQUARE,
        {"vision_config.image_size": 384, "image_grid_pinpoints": [[384, 768], [1152, 384]]},
    ),
    (
        "timm, fixed input size",
        "config.json",
        {
            "architecture": "vit_tiny_patch16_224",
            "pretrained_cfg": {"input_size": [3, 224, 224], "fixed_input_size": True},
        },
        WIDE,
        {"pretrained_cfg.input_size": [3, 384, 512]},
    ),
    (
        "timm, its input size is stale",
        "config.json",
        {
            "architecture": "vit_tiny_patch16_224",
            "pretrained_cfg": {"input_size": [3, 256, 256], "fixed_input_size": True},
            "model_args": {"img_size": 224},
        },
        SQUARE,
        {"model_args.img_size": 384, "pretrained_cfg.input_size": [3, 384, 384]},
    ),
    (
        "timm builds at its default unless told",
        "config.json",
        {"architecture": "a", "pretrained_cfg": {"input_size": [3, 224, 224]}},
        WIDE,
        {"pretrained_cfg.input_size": [3, 384, 512], "model_args.img_size": [384, 512]},
    ),
    (
        "timm before 0.9",
        "config.json",
        {"architecture": "a", "input_size": [3, 224, 224]},
        SQUARE,
        {"input_size": [3, 384, 384], "fixed_input_size": True},
    ),
    (
        "open_clip",
        "open_clip_config.json",
        {"model_cfg": {"vision_cfg": {"image_size": 224}, "text_cfg": {"context_length": 77}}},
        WIDE,
        {"model_cfg.vision_cfg.image_size": [384, 512]},
    ),
    (
        "open_clip, default left out",
        "open_clip_config.json",
        {"model_cfg": {"vision_cfg": {"patch_size": 16}}, "preprocess_cfg": {"size": 224}},
        SQUARE,
        {"model_cfg.vision_cfg.image_size": 384, "preprocess_cfg.size": 384},
    ),
    (
        "BERT",
        "config.json",
        {"model_type": "bert", "max_position_embeddings": 512},
        text(_512=1024),
        {"max_position_embeddings": 1024},
    ),
    (
        "RoBERTa counts its reserved rows",
        "config.json",
        {"model_type": "roberta", "max_position_embeddings": 514},
        text(_514=1026, _512=1024),
        {"max_position_embeddings": 1026},
    ),
    (
        "OPT does not",
        "config.json",
        {"model_type": "opt", "max_position_embeddings": 2048},
        text(_2050=4098, _2048=4096),
        {"max_position_embeddings": 4096},
    ),
    (
        "GPT-2",
        "config.json",
        {"n_positions": 1024, "n_ctx": 1024},
        text(_1024=2048),
        {"n_positions": 2048, "n_ctx": 2048},
    ),
    (
        "Whisper's decoder",
        "config.json",
        {"max_source_positions": 1500, "max_target_positions": 448},
        text(_448=896),
        {"max_target_positions": 896},
    ),
    (
        "CLIP's text",
        "config.json",
        {"text_config": {"max_position_embeddings": 77}, "vision_config": {"image_size": 224}},
        text(_77=248),
        {"text_config.max_position_embeddings": 248},
    ),
    (
        "open_clip's text",
        "open_clip_config.json",
        {"model_cfg": {"text_cfg": {"context_length": 77}}},
        text(_77=248),
        {"model_cfg.text_cfg.context_length": 248},
    ),
    (
        "RoPE has no table",
        "config.json",
        {"model_type": "llama", "max_position_embeddings": 4096},
        text(_512=1024),
        {},
    ),
    (
        "tokenizer",
        "tokenizer_config.json",
        {"model_max_length": 512},
        text(_512=1024),
        {"model_max_length": 1024},
    ),
    (
        "a tokenizer without a limit",
        "tokenizer_config.json",
        {"model_max_length": 1000000000000000019884624838656},
        text(_512=1024),
        {},
    ),
    (
        "tokenizer.json",
        "tokenizer.json",
        {"truncation": {"max_length": 512}, "model": {"vocab": {"a": 512}}},
        text(_512=1024),
        {"truncation.max_length": 1024},
    ),
    (
        "tokenizer.json without truncation",
        "tokenizer.json",
        {"truncation": None},
        text(_512=1024),
        {},
    ),
    (
        "processor",
        "preprocessor_config.json",
        {"size": {"height": 224, "width": 224}},
        WIDE,
        {"size": {"height": 384, "width": 512}},
    ),
    ("legacy processor", "preprocessor_config.json", {"size": 224}, SQUARE, {"size": 384}),
    (
        "legacy processor, not square",
        "preprocessor_config.json",
        {"size": 224},
        WIDE,
        {"size": {"height": 384, "width": 512}},
    ),
    (
        "CLIP's processor",
        "preprocessor_config.json",
        {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}},
        SQUARE,
        {"crop_size": {"height": 384, "width": 384}, "size": {"shortest_edge": 384}},
    ),
    (
        "the margin before a crop is kept",
        "preprocessor_config.json",
        {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}},
        SQUARE,
        {"crop_size": {"height": 384, "width": 384}, "size": {"shortest_edge": 439}},
    ),
    (
        "a shortest edge covers the wider side",
        "preprocessor_config.json",
        {"size": {"shortest_edge": 256}, "crop_size": 224},
        WIDE,
        {"crop_size": {"height": 384, "width": 512}, "size": {"shortest_edge": 585}},
    ),
    (
        "DINOv2 is fed another size than its table has",
        "preprocessor_config.json",
        {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}},
        image(518, "448", 14),
        {"crop_size": {"height": 448, "width": 448}, "size": {"shortest_edge": 512}},
    ),
    (
        "a crop that is off does not count",
        "preprocessor_config.json",
        {"size": {"height": 224, "width": 224}, "crop_size": None, "do_center_crop": False},
        SQUARE,
        {"size": {"height": 384, "width": 384}},
    ),
    (
        "SAM's processor",
        "preprocessor_config.json",
        {
            "size": {"longest_edge": 1024},
            "pad_size": {"height": 1024, "width": 1024},
            "mask_size": {"longest_edge": 256},
            "mask_pad_size": {"height": 256, "width": 256},
        },
        image(1024, "512"),
        {
            "size": {"longest_edge": 512},
            "pad_size": {"height": 512, "width": 512},
            "mask_size": {"longest_edge": 128},
            "mask_pad_size": {"height": 128, "width": 128},
        },
    ),
    (
        "Idefics3: the tile, not the whole image",
        "preprocessor_config.json",
        {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 224}},
        SQUARE,
        {"max_image_size": {"longest_edge": 384}},
    ),
    (
        "bounds of an area are left",
        "preprocessor_config.json",
        {"size": {"shortest_edge": 3136, "longest_edge": 12845056}},
        SQUARE,
        {},
    ),
    (
        "a processor in a processor",
        "processor_config.json",
        {"image_processor": {"size": {"height": 224, "width": 224}, "image_seq_length": 196}},
        SQUARE,
        {
            "image_processor.size": {"height": 384, "width": 384},
            "image_processor.image_seq_length": 576,
        },
    ),
    (
        "video",
        "video_preprocessor_config.json",
        {"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 255}},
        SQUARE,
        {"crop_size": {"height": 384, "width": 384}, "size": {"shortest_edge": 437}},
    ),
    (
        "lists before a crop",
        "preprocessor_config.json",
        {"size": [256, 256], "crop_size": [224, 224], "do_center_crop": True},
        WIDE,
        {"size": [439, 585], "crop_size": [384, 512]},
    ),
    (
        "YOLOS: both sides of the image",
        "preprocessor_config.json",
        {"size": {"longest_edge": 1344, "shortest_edge": 800}},
        image("800x1344", "512x640"),
        {"size": {"longest_edge": 640, "shortest_edge": 512}},
    ),
    (
        "FLAVA: a mask of the cells, and an image of 8 pixels per cell",
        "preprocessor_config.json",
        {
            "image_processor_type": "FlavaImageProcessorFast",
            "input_size_patches": 14,
            "codebook_size": {"height": 112, "width": 112},
            "codebook_crop_size": 112,
            "total_mask_patches": 75,
        },
        SQUARE,
        {
            "input_size_patches": 24,
            "codebook_size": {"height": 192, "width": 192},
            "codebook_crop_size": 192,
        },
    ),
    ("sound", "preprocessor_config.json", {"size": 224, "sampling_rate": 16000}, SQUARE, {}),
]


@pytest.mark.parametrize(
    ("file", "document", "transfer", "expected"), [c[1:] for c in TABLE], ids=[c[0] for c in TABLE]
)
def test_the_edits_are(file: str, document: Any, transfer: Transfer, expected: Edits) -> None:
    found = plan_config_edits({file: document}, transfer)
    assert {edit.key: edit.after for edit in found} == expected
    assert {edit.file for edit in found} <= {file}


@pytest.mark.parametrize(("file", "document", "transfer"), [c[1:4] for c in TABLE])
def test_what_is_edited_needs_no_second_edit(file: str, document: Any, transfer: Transfer) -> None:
    import json

    edits = plan_config_edits({file: document}, transfer)
    after = json.loads(apply_edits(json.dumps(document), edits))
    done = Transfer(transfer.to_size, transfer.to_size, transfer.to_grid, transfer.to_grid)
    assert plan_config_edits({file: after}, done) == ()


SQUARE_ONLY = [
    {"vision_config": {"model_type": "clip_vision_model", "image_size": 224}},
    {"vision_config": {"model_type": "siglip2_vision_model", "num_patches": 196}},
    {"model_type": "layoutlmv3", "input_size": 224},
    {"vision_config": {"model_type": "siglip_vision_model"}},
    {"model_type": "beit", "image_size": 224, "use_absolute_position_embeddings": True},
    {"model_type": "data2vec-vision", "image_size": 224, "use_absolute_position_embeddings": True},
    {"model_type": "vit_mae", "image_size": 224, "architectures": ["ViTMAEForPreTraining"]},
]
PAIRS_TOO = [
    {"model_type": "beit", "image_size": 224, "use_absolute_position_embeddings": False},
    {"model_type": "vit_mae", "image_size": 224, "architectures": ["ViTMAEModel"]},
]


@pytest.mark.parametrize("document", SQUARE_ONLY)
def test_a_rectangle_is_refused_where_the_library_takes_one_number(document: Any) -> None:
    with pytest.raises(GeometryError, match="square images only, not for 384x512 px") as caught:
        plan_config_edits({"config.json": document}, WIDE)
    assert "--no-config" in (caught.value.hint or "")


@pytest.mark.parametrize("document", PAIRS_TOO)
def test_a_rectangle_is_stated_where_the_library_takes_a_pair(document: Any) -> None:
    (edit,) = plan_config_edits({"config.json": document}, WIDE)
    assert edit.after == [384, 512]


def test_one_number_of_patches_cannot_state_a_rectangle() -> None:
    document = {"image_processor_type": "FlavaImageProcessor", "input_size_patches": 14}
    with pytest.raises(GeometryError, match="14 patches per side as one number"):
        plan_config_edits({"preprocessor_config.json": document}, WIDE)


def test_a_table_of_another_training_is_refused() -> None:
    document = {"model_type": "vitdet", "image_size": 1024, "pretrain_image_size": 224}
    with pytest.raises(GeometryError, match="pretrain_image_size"):
        plan_config_edits({"config.json": document}, SQUARE)
    assert plan_config_edits({"config.json": document}, image(1024, "1024")) == ()


def test_without_a_patch_size_pixels_cannot_be_stated() -> None:
    transfer = Transfer(from_grid=Grid(14, 14), to_grid=Grid(24, 32))
    with pytest.raises(GeometryError, match="patch size is not known") as caught:
        plan_config_edits({"config.json": {"image_size": 224}}, transfer)
    assert "--patch" in (caught.value.hint or "")
    assert plan_config_edits({}, transfer) == ()


def test_every_place_has_a_source_and_a_file_that_is_read() -> None:
    for place in PLACES:
        assert place.source
        assert place.file in CONFIG_FILES
    keys = {place.key for place in PLACES}
    assert set(RESOLUTION_KEYS.values()) <= keys
