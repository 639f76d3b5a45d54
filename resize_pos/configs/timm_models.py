"""Which timm model a bare file of weights belongs to, for the code that loads it.

Only plain vision transformers are named. Every tensor of the model must be there under its name and
with its shape, and no other; so the name is right, or none is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

# (width, number of blocks) → name. timm/models/vision_transformer.py, the entrypoints vit_*: their
# heads have 64 or 80 channels, which the shapes do not state, so other widths have no name.
_SIZES: Mapping[tuple[int, int], str] = {
    (192, 12): "tiny",
    (384, 12): "small",
    (768, 12): "base",
    (1024, 24): "large",
    (1280, 32): "huge",
}
_PATCHES: Mapping[str, tuple[int, ...]] = {
    "tiny": (16,),
    "small": (8, 16, 32),
    "base": (8, 16, 32),
    "large": (14, 16, 32),
    "huge": (14,),
}
_CHANNELS, _CLASSES = 3, 1000  # what timm builds if nothing is stated
_WITHOUT_CLASSES = frozenset({("small", 8), ("large", 32), ("huge", 14)})  # for these, no head


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of timm, and the arguments that differ from its defaults."""

    name: str
    arguments: Mapping[str, int] = field(default_factory=dict)


def timm_model(tensors: Mapping[str, TensorInfo]) -> KnownModel | None:
    """Return the model whose tensors these are; None: it cannot be told."""
    shapes = {name: info.shape for name, info in tensors.items()}
    table, kernel = shapes.get("pos_embed", ()), shapes.get("patch_embed.proj.weight", ())
    if len(table) != 3 or len(kernel) != 4 or kernel[2] != kernel[3]:
        return None
    width = table[2]
    depth = sum(name.endswith(".norm1.weight") for name in shapes)
    size = _SIZES.get((width, depth), "")
    patch = kernel[2]
    if patch not in _PATCHES.get(size, ()):
        return None
    classes = shapes.get("head.weight", (0,))[0]
    expected = dict(_shapes(width, depth, patch, kernel[1], classes)) | {"pos_embed": table}
    if shapes != expected:
        return None
    arguments = {"num_classes": classes, "in_chans": kernel[1]}
    usual = 0 if (size, patch) in _WITHOUT_CLASSES else _CLASSES
    defaults = {"num_classes": usual, "in_chans": _CHANNELS}
    changed = {key: value for key, value in arguments.items() if value != defaults[key]}
    return KnownModel(f"vit_{size}_patch{patch}_224", changed)


def _shapes(
    width: int, depth: int, patch: int, channels: int, classes: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """List every tensor of a plain vision transformer, except the position table."""
    yield "cls_token", (1, 1, width)
    yield "patch_embed.proj.weight", (width, channels, patch, patch)
    yield "patch_embed.proj.bias", (width,)
    layers = {"attn.qkv": (3, 1), "attn.proj": (1, 1), "mlp.fc1": (4, 1), "mlp.fc2": (1, 4)}
    for block in range(depth):
        for norm in ("norm1", "norm2"):
            yield f"blocks.{block}.{norm}.weight", (width,)
            yield f"blocks.{block}.{norm}.bias", (width,)
        for layer, (out, into) in layers.items():
            yield f"blocks.{block}.{layer}.weight", (out * width, into * width)
            yield f"blocks.{block}.{layer}.bias", (out * width,)
    yield "norm.weight", (width,)
    yield "norm.bias", (width,)
    if classes:
        yield "head.weight", (classes, width)
        yield "head.bias", (classes,)
