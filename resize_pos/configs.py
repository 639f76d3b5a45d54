"""What config files say about the resolution: evidence for the geometry of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resize_pos.errors import UsageError
from resize_pos.geometry import Size

_LARGEST = 16 * 2**20  # a config is a few kB; anything larger is something else


@dataclass(frozen=True, slots=True)
class ConfigSize:
    """An image size, and perhaps a patch size, that a config file states."""

    file: str
    key: str
    size: Size
    patch: Size | None


# file, key path of the image size (channels first where it has three entries), of the patch size
_PLACES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("config.json", ("vision_config", "image_size"), ("vision_config", "patch_size")),
    ("config.json", ("image_size",), ("patch_size",)),
    ("config.json", ("model_args", "img_size"), ("model_args", "patch_size")),
    ("config.json", ("pretrained_cfg", "input_size"), ()),
    (
        "open_clip_config.json",
        ("model_cfg", "vision_cfg", "image_size"),
        ("model_cfg", "vision_cfg", "patch_size"),
    ),
)


def read_config_sizes(folder: Path) -> tuple[ConfigSize, ...]:
    """Collect every image size that a config in a folder states; unreadable ones say nothing."""
    documents: dict[str, Mapping[str, Any]] = {}
    for name in sorted({place[0] for place in _PLACES}):
        document = _read_object(folder / name)
        if document is not None:
            documents[name] = document
    return tuple(_sizes(documents))


def _sizes(documents: Mapping[str, Mapping[str, Any]]) -> Iterator[ConfigSize]:
    for file, size_path, patch_path in _PLACES:
        if file not in documents:
            continue
        size = _size(_follow(documents[file], size_path))
        if size is not None:
            patch = _size(_follow(documents[file], patch_path)) if patch_path else None
            yield ConfigSize(file, ".".join(size_path), size, patch)


def _read_object(path: Path) -> Mapping[str, Any] | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _follow(document: Mapping[str, Any], path: tuple[str, ...]) -> object:
    value: object = document
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _size(value: object) -> Size | None:
    if isinstance(value, int) and not isinstance(value, bool):
        pair: list[int] = [value, value]
    elif isinstance(value, list) and all(type(part) is int for part in value):
        pair = value[-2:] if len(value) in (2, 3) else value * 2
    else:
        return None
    try:
        return Size.parse((pair[0], pair[1])) if len(pair) == 2 else None
    except UsageError:
        return None
