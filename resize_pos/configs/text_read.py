"""What a config file says about the text side of a model: its type, and its reserved rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resize_pos.configs.read import parse_texts, read_texts
from resize_pos.core.fast_dataclass import dataclass

_FILE = "config.json"
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
class ConfigText:
    """One model, or one part of a composite model, that a config describes."""

    file: str
    model_type: str
    pad: int | None
    lengths: tuple[tuple[str, int], ...]  # (key, value); whether reserved rows count is not said


def read_config_texts(folder: Path) -> tuple[ConfigText, ...]:
    """Collect every model type that `config.json` in a folder names, the whole before its parts."""
    documents = parse_texts(read_texts(folder, (_FILE,)))
    return texts_of(documents.get(_FILE, {}))


def texts_of(document: Mapping[str, Any]) -> tuple[ConfigText, ...]:
    """Collect the model types of a config that has been read."""
    return tuple(_texts(document, 0))


def _texts(document: Mapping[str, Any], depth: int) -> Iterator[ConfigText]:
    model_type = document.get("model_type")
    if isinstance(model_type, str):
        lengths = tuple((key, document[key]) for key in _LENGTHS if type(document.get(key)) is int)
        pad = document.get("pad_token_id")
        yield ConfigText(_FILE, model_type, pad if type(pad) is int and pad >= 0 else None, lengths)
    if depth < _DEEPEST:
        for part in document.values():
            if isinstance(part, dict):
                yield from _texts(part, depth + 1)
