"""What an image processor's sizes become, so that it feeds the model what it now expects.

The crop becomes the target. What is resized before it keeps its ratio to the crop, so 256 before a
crop of 224 becomes 439 before one of 384: the same margin of the image is cut off. Without a crop
the resize itself becomes the target. These are set whatever they were, since a model that
interpolates on the fly is often fed another size than its table has (DINOv2: 224 for 518); sizes
that bound an image instead of stating it are set only where they equal the old size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resize_pos.configs.keys import PROCESSOR_FILES, PROCESSOR_SECTIONS, Kind
from resize_pos.configs.read import Document, as_size, follow
from resize_pos.configs.values import ConfigEdit, Transfer, new_value
from resize_pos.core.geometry import Size

# Further keys of processors, by what they count. PaliGemma, LLaVA-NeXT, InternVL.
_PLAIN: Mapping[str, Kind] = {
    "image_seq_length": Kind.TOKENS,
    "image_grid_pinpoints": Kind.MULTIPLES,
}
# Set where they equal the old size: SAM's padding, Idefics' tiles.
_BOUNDS = ("pad_size", "max_image_size", "image_size")
# Frequency × time, of the audio spectrogram transformer.
_SPECTROGRAMS, _SIDES = "ASTFeatureExtractor", ("num_mel_bins", "max_length")
_MOST_PIXELS = 2**31
# A fixed fraction of the image: SAM's masks.
_FRACTIONS = ("mask_size", "mask_pad_size")


def plan_processor_edits(
    documents: Mapping[str, Document], transfer: Transfer
) -> Iterator[ConfigEdit]:
    """List what changes in every processor file of a folder."""
    if transfer.to_size is None or transfer.from_size is None:
        return
    for file in PROCESSOR_FILES:
        for section in PROCESSOR_SECTIONS:
            part = follow(documents.get(file, {}), section)
            if isinstance(part, dict) and part.get("feature_extractor_type") == _SPECTROGRAMS:
                sides = (transfer.to_size.height, transfer.to_size.width)
                for key, after in zip(_SIDES, sides, strict=True):
                    if key in part:
                        yield ConfigEdit(file, (*section, key), part[key], after)
            elif isinstance(part, dict) and "sampling_rate" not in part:  # that one hears
                for key, after in _new_values(part, transfer, transfer.from_size, transfer.to_size):
                    if after is not None:
                        yield ConfigEdit(file, (*section, key), part[key], after)


def _new_values(
    part: Document, transfer: Transfer, old: Size, new: Size
) -> Iterator[tuple[str, Any]]:
    crop = part.get("crop_size")
    crops = as_size(crop) if part.get("do_center_crop", True) else None
    if crop is not None:
        yield "crop_size", _exact(crop, new)
    if part.get("size") is not None:
        size = part["size"]
        yield "size", _resize(size, old, new) if crops is None else _before_crop(size, crops, new)
    for key in _BOUNDS:
        if part.get(key) is not None:
            yield key, _bound(part[key], old, new)
    for key in _FRACTIONS:
        if part.get(key) is not None:
            yield key, _fraction(part[key], old, new)
    for key, kind in _PLAIN.items():
        if part.get(key) is not None:
            yield key, new_value(kind, part[key], transfer)


def _exact(value: Any, new: Size) -> Any:
    """A crop: always a height and a width, though it may be written as one number."""
    both = {"height": new.height, "width": new.width}
    if isinstance(value, dict):
        return {**value, **both} if set(value) == set(both) else None
    if type(value) is int:
        return new.height if new.height == new.width else both
    return [new.height, new.width] if isinstance(value, list) and as_size(value) else None


def _resize(value: Any, old: Size, new: Size) -> Any:
    """The only resize: the model is fed its result."""
    if isinstance(value, dict) and set(value) == {"shortest_edge"}:
        return {"shortest_edge": min(new.height, new.width)}
    if isinstance(value, dict) and set(value) == {"longest_edge"}:
        return _bound(value, old, new)
    return _exact(value, new)


def _before_crop(value: Any, crop: Size, new: Size) -> Any:
    """The resize before a crop: in the old ratio to it, so that it covers any image."""
    tall, wide = new.height / crop.height, new.width / crop.width
    if isinstance(value, dict) and set(value) == {"shortest_edge"}:
        edge = _edge(value["shortest_edge"], crop, new)
        return None if edge is None else {"shortest_edge": edge}
    if isinstance(value, dict) and set(value) == {"height", "width"}:
        height, width = _scaled(value["height"], tall), _scaled(value["width"], wide)
        if height is None or width is None:
            return None
        return {**value, "height": height, "width": width}
    return _edge(value, crop, new)


def _edge(edge: object, crop: Size, new: Size) -> int | None:
    return _scaled(edge, max(new.height, new.width) / max(crop.height, crop.width))


def _bound(value: Any, old: Size, new: Size) -> Any:
    if isinstance(value, dict) and set(value) == {"longest_edge"}:
        same = value["longest_edge"] == max(old.height, old.width)
        return {"longest_edge": max(new.height, new.width)} if same else None
    return _exact(value, new) if as_size(value) == old else None


def _fraction(value: Any, old: Size, new: Size) -> Any:
    """Scale where the fraction is whole before and after."""
    if isinstance(value, dict) and set(value) == {"longest_edge"}:
        side = _part(value["longest_edge"], max(old.height, old.width), max(new.height, new.width))
        return None if side is None else {"longest_edge": side}
    size = as_size(value)
    if size is None or not isinstance(value, dict):
        return None
    height = _part(size.height, old.height, new.height)
    width = _part(size.width, old.width, new.width)
    return None if height is None or width is None else {**value, "height": height, "width": width}


def _part(part: object, old: int, new: int) -> int | None:
    if type(part) is not int or part < 1:
        return None
    return new * part // old if old % part == 0 and new % (old // part) == 0 else None


def _scaled(value: object, ratio: float) -> int | None:
    """Scale a number of pixels; anything else in its place is left alone."""
    if type(value) is not int or not 0 < value < _MOST_PIXELS:
        return None
    return int(value * ratio + 0.5)
