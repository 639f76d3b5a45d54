"""The model types that a config names, with what each states about its text positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resize_pos.core.fast_dataclass import dataclass

FILE = "config.json"
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_source_positions",
    "max_target_positions",
    "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
)
_DEEPEST = 3  # text_config of an encoder in a composite


@dataclass(frozen=True, slots=True)
class ConfigModel:
    """One model, or one part of a composite model, that a config describes."""

    file: str
    model_type: str
    pad: int | None  # pad_token_id
    lengths: tuple[tuple[str, int], ...]  # (key, value); may or may not include reserved rows


def model_type_of(section: object) -> str:
    """Return the `model_type` of a section; empty if it has none or if that is no text."""
    found = section.get("model_type") if isinstance(section, dict) else None
    return found if isinstance(found, str) else ""


def config_models(documents: Mapping[str, Mapping[str, Any]]) -> tuple[ConfigModel, ...]:
    """List every model type in `config.json`: the whole model first, then its parts."""
    return tuple(_models(documents.get(FILE, {}), 0))


def _models(document: Mapping[str, Any], depth: int) -> Iterator[ConfigModel]:
    model_type = document.get("model_type")
    if isinstance(model_type, str):
        lengths = tuple((key, document[key]) for key in _LENGTHS if type(document.get(key)) is int)
        pad = document.get("pad_token_id")
        yield ConfigModel(FILE, model_type, pad if type(pad) is int and pad >= 0 else None, lengths)
    if depth < _DEEPEST:
        for part in document.values():
            if isinstance(part, dict):
                yield from _models(part, depth + 1)
