"""Where each library takes a size or a length from, for weights that come without a config.

With a config, `configs/edits.py` finds the values themselves. Without one, the family of a table
decides which key its library reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from resize_pos.configs.keys import KeyKind
from resize_pos.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LibraryKey:
    """A key of a file, or an argument of a function."""

    file: str
    key: str
    kind: KeyKind


OTHER = "the model's code"
_HF, _CLIP = "config.json", "open_clip_config.json"
_TIMM, _CONSTRUCTOR = "create_model", "the model's constructor"

_KEYS: Mapping[str, tuple[LibraryKey, ...]] = {
    "transformers": (
        LibraryKey(_HF, "image_size", KeyKind.SIZE),
        LibraryKey(_HF, "patch_size", KeyKind.PATCH),
        LibraryKey(_HF, "window_size", KeyKind.WINDOW),
        LibraryKey(_HF, "num_frames", KeyKind.FRAMES),
        LibraryKey("preprocessor_config.json", "size", KeyKind.SIZE),
        LibraryKey(_HF, "max_position_embeddings", KeyKind.LENGTH),
        LibraryKey("tokenizer_config.json", "model_max_length", KeyKind.LENGTH),
    ),
    "timm": (
        LibraryKey(_TIMM, "img_size", KeyKind.SIZE),
        LibraryKey(_TIMM, "patch_size", KeyKind.PATCH),
        LibraryKey(_TIMM, "window_size", KeyKind.WINDOW),
    ),
    "open_clip": (
        LibraryKey(_CLIP, "model_cfg.vision_cfg.image_size", KeyKind.SIZE),
        LibraryKey(_CLIP, "model_cfg.vision_cfg.patch_size", KeyKind.PATCH),
        LibraryKey(_CLIP, "model_cfg.text_cfg.context_length", KeyKind.LENGTH),
    ),
    "torchvision": (
        LibraryKey(_CONSTRUCTOR, "image_size", KeyKind.SIZE),
        LibraryKey(_CONSTRUCTOR, "patch_size", KeyKind.PATCH),
        LibraryKey(_CONSTRUCTOR, "window_size", KeyKind.WINDOW),
    ),
    OTHER: (
        LibraryKey("its constructor", "image size", KeyKind.SIZE),
        LibraryKey("its constructor", "patch size", KeyKind.PATCH),
        LibraryKey("its constructor", "window size", KeyKind.WINDOW),
        LibraryKey("its constructor", "number of frames", KeyKind.FRAMES),
        LibraryKey("its constructor", "context length", KeyKind.LENGTH),
    ),
}

# The key of a text table, by family, if it is not max_position_embeddings. An audio encoder has no
# tokenizer. transformers models/whisper:571,678; models/gpt2:493; models/openai:304.
_LENGTH_KEYS: Mapping[str, tuple[LibraryKey, ...]] = {
    "whisper-encoder": (LibraryKey(_HF, "max_source_positions", KeyKind.LENGTH),),
    "whisper-decoder": (
        LibraryKey(_HF, "max_target_positions", KeyKind.LENGTH),
        LibraryKey("generation_config.json", "max_length", KeyKind.LENGTH),
    ),
    "gpt2": (
        LibraryKey(_HF, "n_positions", KeyKind.LENGTH),
        LibraryKey("tokenizer_config.json", "model_max_length", KeyKind.LENGTH),
    ),
    "gpt": (LibraryKey(_HF, "n_positions", KeyKind.LENGTH),),
}

# Families whose config counts the reserved rows, too: RoBERTa has 514 rows for 512 positions, and
# its config says 514. OPT and BART leave them out. `text-encoder`: with two reserved rows, RoBERTa.
_COUNTS_RESERVED = frozenset({"roberta", "lilt-box", "luke-entity", "text-encoder"})
# Configs of models with an image tower and a text tower: the section of each.
_SECTIONS = {
    KeyKind.SIZE: "vision_config",
    KeyKind.PATCH: "vision_config",
    KeyKind.LENGTH: "text_config",
}


def without_config(library: str, *, composite: bool) -> Iterator[LibraryKey]:
    """List the keys that a library reads; `composite`: the model has an image and a text tower."""
    for place in _KEYS.get(library, _KEYS[OTHER]):
        yield _in_section(place) if composite else place


def lengths_without_config(
    library: str, family: str, *, composite: bool
) -> Iterator[tuple[LibraryKey, bool]]:
    """List the keys of a text table's length, and whether each counts reserved rows, too."""
    usual = (place for place in _KEYS.get(library, _KEYS[OTHER]) if place.kind is KeyKind.LENGTH)
    for place in _LENGTH_KEYS.get(family, tuple(usual)):
        reserved = place.file == _HF and family in _COUNTS_RESERVED
        yield _in_section(place) if composite else place, reserved


def _in_section(place: LibraryKey) -> LibraryKey:
    section = _SECTIONS.get(place.kind) if place.file == _HF else None
    return place if section is None else replace(place, key=f"{section}.{place.key}")
