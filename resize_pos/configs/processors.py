"""The new sizes of an image processor, so that it produces the input that the model now expects.

The crop is set to the target. The resize before the crop keeps its ratio to the crop: 256 before a
crop of 224 becomes 439 before a crop of 384, so the same margin is cut off. Without a crop, the
resize itself is set to the target. These values are set even if they differ from the size of the
table: a model that interpolates at run time often gets another size (DINOv2: 224, table 518). Sizes
that only limit an image are changed only if they equal the old size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resize_pos.configs.keys import (
    BOUNDS,
    CLASS_KEYS,
    PROCESSOR_FILES,
    PROCESSOR_KEYS,
    PROCESSOR_SECTIONS,
    SIZED_BY,
)
from resize_pos.configs.read import as_size, follow
from resize_pos.configs.values import ConfigEdit, Transfer, new_value
from resize_pos.core.geometry import Size
from resize_pos.core.json_edit import Document

# Frequency × time of the audio spectrogram transformer.
_SPECTROGRAMS, _SIDES = "ASTFeatureExtractor", ("num_mel_bins", "max_length")
_MOST_PIXELS = 2**31
# Arguments of torchvision's transforms, in lists: openvla/openvla-7b preprocessor_config.json.
_NAMED_SIZES = (("tvf_resize_params", "size"), ("tvf_crop_params", "output_size"))
# A fixed fraction of the image: SAM's masks.
_FRACTIONS = ("mask_size", "mask_pad_size")


def plan_processor_edits(
    documents: Mapping[str, Document], transfer: Transfer
) -> Iterator[ConfigEdit]:
    """List what changes in every processor file of a folder."""
    old, new = transfer.old_size, transfer.to_size
    if old is None or new is None:
        return
    for file in PROCESSOR_FILES:
        for section in PROCESSOR_SECTIONS:
            part = follow(documents.get(file, {}), section)
            if isinstance(part, dict) and part.get("feature_extractor_type") == _SPECTROGRAMS:
                sides = (new.height, new.width)
                for key, after in zip(_SIDES, sides, strict=True):
                    if key in part:
                        yield ConfigEdit(file, (*section, key), part[key], after)
            elif isinstance(part, dict) and "sampling_rate" not in part:  # not audio
                for key, after in _new_values(part, transfer, old, new):
                    if after is not None:
                        yield ConfigEdit(file, (*section, key), part[key], after)


def processor_size(documents: Mapping[str, Document], keys: tuple[str, ...]) -> Size | None:
    """Read the size of the images that a processor produces, from the first key that states it."""
    for file in PROCESSOR_FILES:
        for section in PROCESSOR_SECTIONS[:2]:
            part = follow(documents.get(file, {}), section)
            for key in keys if isinstance(part, dict) else ():
                size = as_size(part.get(key)) if isinstance(part, dict) else None
                if size is not None:
                    return size
    return None


def _new_values(
    part: Document, transfer: Transfer, old: Size, new: Size
) -> Iterator[tuple[str, Any]]:
    crop = part.get("crop_size")
    crops = as_size(crop) if part.get("do_center_crop", True) else None
    if crop is not None:
        yield "crop_size", _exact(crop, new)
    size = part.get("size")
    if size is not None and SIZED_BY & part.keys():
        yield "size", _bound(size, old, new)
    elif size is not None:
        yield "size", _resize(size, old, new) if crops is None else _before_crop(size, crops, new)
    for key, _ in BOUNDS:
        if part.get(key) is not None:
            yield key, _bound(part[key], old, new)
    for key, name in _NAMED_SIZES:
        if isinstance(part.get(key), list):
            yield key, _each_bound(part[key], name, old, new)
    for key in _FRACTIONS:
        if part.get(key) is not None:
            yield key, _fraction(part[key], old, new)
    for key, kind, _ in PROCESSOR_KEYS:
        if part.get(key) is not None:
            yield key, new_value(kind, part[key], transfer)
    made_by = str(part.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
    for name, key, kind, _ in CLASS_KEYS:
        if name == made_by and part.get(key) is not None:
            yield key, new_value(kind, part[key], transfer)


def _each_bound(steps: list[Any], name: str, old: Size, new: Size) -> Any:
    """Set the sizes in a list of torchvision arguments, one entry per tower."""
    return [
        {**step, name: _bound(step[name], old, new) or step[name]}
        if isinstance(step, dict) and step.get(name) is not None
        else step
        for step in steps
    ]


def _exact(value: Any, new: Size) -> Any:
    """A crop: a height and a width, or one number for both."""
    both = {"height": new.height, "width": new.width}
    if isinstance(value, dict):
        return {**value, **both} if set(value) == set(both) else None
    if type(value) is int:
        return new.height if new.height == new.width else both
    return [new.height, new.width] if isinstance(value, list) and as_size(value) else None


def _resize(value: Any, old: Size, new: Size) -> Any:
    """The only resize: its result is the input of the model."""
    if isinstance(value, dict) and set(value) == {"shortest_edge"}:
        return {"shortest_edge": min(new.height, new.width)}
    if isinstance(value, dict) and set(value) == {"longest_edge"}:
        return _bound(value, old, new)
    if isinstance(value, dict) and set(value) == {"shortest_edge", "longest_edge"}:
        return _edges(value, old, new)
    return _exact(value, new)


def _edges(value: Any, old: Size, new: Size) -> Any:
    """The limits of a side: scale both by the same ratio, if the upper one is the old size.

    If both are sides of the old size (YOLOS: 800×1333), they become the sides of the new one.
    """
    shortest, longest = sorted((old.height, old.width))
    if value == {"shortest_edge": shortest, "longest_edge": longest}:
        after = {"shortest_edge": min(new.height, new.width)}
        after["longest_edge"] = max(new.height, new.width)
        return {key: after[key] for key in value}
    if value["longest_edge"] != longest:
        return None
    ratio = max(new.height, new.width) / longest
    return {key: _scaled(edge, ratio) for key, edge in value.items()}


def _before_crop(value: Any, crop: Size, new: Size) -> Any:
    """The resize before a crop: keep its ratio to the crop, so that the image covers the crop."""
    tall, wide = new.height / crop.height, new.width / crop.width
    if isinstance(value, dict) and set(value) == {"shortest_edge"}:
        edge = _edge(value["shortest_edge"], crop, new)
        return None if edge is None else {"shortest_edge": edge}
    if isinstance(value, dict) and set(value) == {"height", "width"}:
        height, width = _scaled(value["height"], tall), _scaled(value["width"], wide)
        if height is None or width is None:
            return None
        return {**value, "height": height, "width": width}
    if isinstance(value, list) and len(value) == 2:
        sides = [_scaled(value[0], tall), _scaled(value[1], wide)]
        return None if None in sides else sides
    return _edge(value, crop, new)


def _edge(edge: object, crop: Size, new: Size) -> int | None:
    return _scaled(edge, max(new.height, new.width) / max(crop.height, crop.width))


def _bound(value: Any, old: Size, new: Size) -> Any:
    if isinstance(value, dict) and set(value) == {"longest_edge"}:
        same = value["longest_edge"] == max(old.height, old.width)
        return {"longest_edge": max(new.height, new.width)} if same else None
    return _exact(value, new) if as_size(value) == old else None


def _fraction(value: Any, old: Size, new: Size) -> Any:
    """Scale a fixed fraction of the size, if it is a whole number before and after."""
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
    """Scale a number of pixels; return None for any other value."""
    if type(value) is not int or not 0 < value < _MOST_PIXELS:
        return None
    return int(value * ratio + 0.5)
