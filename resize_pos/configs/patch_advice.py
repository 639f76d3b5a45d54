"""Where configs state the patch size. It is never edited, so `--to-patch` leaves it to the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resize_pos.configs.keys import PLACES, WRAPPERS, KeyKind, Library
from resize_pos.configs.read import as_size, follow, library_of
from resize_pos.configs.values import ConfigEdit, as_pixels
from resize_pos.core.geometry import Size
from resize_pos.core.json_edit import Document, KeyPath

_KEY = "patch_size"
_CONFIG, _CLIP = "config.json", "open_clip_config.json"
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TIMM: KeyPath = ("model_args",)
_CLIP_TOWER: KeyPath = ("model_cfg", "vision_cfg")
# Sections of transformers that may state an image tower.
_TOWERS: tuple[KeyPath, ...] = tuple(
    dict.fromkeys(
        (*wrapper, *section)
        for place in PLACES
        if place.library is Library.HF and place.kind is KeyKind.SIZE
        for wrapper in WRAPPERS
        for section in place.sections
    )
)


def patch_edits(documents: Mapping[str, Document], old: Size, new: Size) -> Iterator[ConfigEdit]:
    """List what must change so that a library builds patches of the new size.

    Where a config does not state the patch size, its library uses a default, so the key is missing.
    """
    for file, document in documents.items():
        sections = tuple(_sections(file, document))
        stated = [
            ConfigEdit(file, (*section, _KEY), value, _like(value, new))
            for section in sections
            if as_size(value := follow(document, (*section, _KEY))) == old
        ]
        yield from stated
        silent = not any(follow(document, (*section, _KEY)) for section in sections)
        if silent and file in (_CONFIG, _CLIP) and sections:
            yield ConfigEdit(file, (*_own(document, sections), _KEY), None, as_pixels(new))


def _sections(file: str, document: Document) -> Iterator[KeyPath]:
    """List the sections of a file in which its library reads a patch size."""
    if file == _CLIP:
        yield _CLIP_TOWER
    elif file in _PROCESSORS:
        yield from ((), ("image_processor",))
    elif file == _CONFIG and library_of(file, document) is Library.HF:
        yield from _TOWERS
    elif file == _CONFIG and "pretrained_cfg" in document:  # else timm does not read model_args
        yield _TIMM


def _own(document: Document, sections: tuple[KeyPath, ...]) -> KeyPath:
    """Choose the section to which a missing key belongs."""
    if len(sections) == 1:
        return sections[0]
    named = ("vision_config",)
    return named if isinstance(follow(document, named), dict) else ()


def _like(value: object, size: Size) -> object:
    """Write a size in the form of the old value."""
    if isinstance(value, dict):
        return {**value, "height": size.height, "width": size.width}
    if isinstance(value, list):
        return [*value[:-2], size.height, size.width] if len(value) > 1 else [size.height]
    return as_pixels(size)
