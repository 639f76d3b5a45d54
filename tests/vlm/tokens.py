"""A tokenizer that knows every special token that a processor of transformers asks for."""

from __future__ import annotations

from typing import Any

_WORDS = ("a", "cat", "describe", "the", "image", "what", "is", "this", "question", "user")
_PLAIN = ("<unk>", "<s>", "</s>", "<pad>")

# attribute of the tokenizer → token
NAMED = {
    "image_token": "<image>",
    "video_token": "<video>",
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "boi_token": "<boi>",
    "eoi_token": "<eoi>",
    "img_line_break_token": "<line_break>",
    "image_boundary_token": "<fake_token_around_image>",
    "fake_image_token": "<fake_token_around_image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
_MORE = (
    "<IMG_ATOM>",
    "<IMG_START>",
    "<IMG_GRID>",
    "<IMG_COL>",
    "<IMG_ROW>",
    "<IMG_END>",
    "<|START_OF_IMG|>",
    "<|END_OF_IMG|>",
    "<|IMG_PATCH|>",
    "<|IMG_LINE_BREAK|>",
    "TILE",
    "TILE_GLOBAL",
    "<imgpad>",
    "<|im_start|>",
    "<|im_end|>",
    "<|image_start|>",
    "<|image_end|>",
    "<|img_thumbnail|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image|>",
    "<im_start>",
    "<im_end>",
    "<im_patch>",
    "<im_col>",
    "<low_res_im_start>",
    "<frame_start>",
    "<frame_end>",
    "<im_low>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
    *(f"TILE_{number}" for number in range(1, 13)),
    "<|patch|>",
    "<|tile_x_separator|>",
    "<|tile_y_separator|>",
    *(f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5)),
)
VOCABULARY = 160 + 1200  # room for the 1152 places that PaliGemma's processor adds


def tokenizer(**named: str | None) -> Any:
    """Build a word-level tokenizer in memory; `named` changes which token an attribute gives."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = dict.fromkeys((*NAMED.values(), *_MORE))
    words = dict.fromkeys((*_PLAIN, *_WORDS, *special))
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens={k: v for k, v in {**NAMED, **named}.items() if v is not None},
    )
    made.add_special_tokens({"additional_special_tokens": list(special)}, False)
    return made


def number(token: str) -> int:
    """Give a token's id."""
    special = dict.fromkeys((*NAMED.values(), *_MORE))
    return list(dict.fromkeys((*_PLAIN, *_WORDS, *special))).index(token)
