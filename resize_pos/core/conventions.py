"""How to resample, as data: methods, coordinate rules, and the exact convention of each library.

Free of numpy, so that a plan can name a resampling without importing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from resize_pos.core.fast_dataclass import dataclass


class Method(StrEnum):
    """The interpolating kernel."""

    BICUBIC = "bicubic"
    BILINEAR = "bilinear"
    NEAREST = "nearest"


class Coordinates(StrEnum):
    """Where target position i of m lies among the n source positions."""

    HALF_PIXEL = "half-pixel"  # (i + ½)·n/m − ½
    CORNERS = "corners"  # i·(n − 1)/(m − 1)
    OFFSET = "offset"  # (i + ½)·n/(m + 0.1) − ½: a scale factor with DINO's rounding guard in it


@dataclass(frozen=True, slots=True)
class Resampling:
    """One exact way to resample an axis."""

    method: Method = Method.BICUBIC
    antialias: bool = True
    coordinates: Coordinates = Coordinates.HALF_PIXEL

    @property
    def in_words(self) -> str:
        """The kernel as a sentence names it."""
        kernel = f"{'antialiased' if self.antialias else 'plain'} {self.method.value}"
        where = {
            Coordinates.CORNERS: " with aligned corners",
            Coordinates.OFFSET: " with a scale factor + 0.1",
        }
        return kernel + where.get(self.coordinates, "")

    def __str__(self) -> str:
        parts = [self.method.value]
        if self.antialias:
            parts.append("antialias")
        if self.coordinates is not Coordinates.HALF_PIXEL:
            parts.append({"corners": "aligned corners", "offset": "scale + 0.1"}[self.coordinates])
        return ", ".join(parts)


class OffsetMethod(StrEnum):
    """The kernel that interpolates between offsets."""

    BICUBIC = "bicubic"
    BILINEAR = "bilinear"
    SPLINE = "cubic spline"  # interpolating, not-a-knot: what FITPACK gives without smoothing


class Spacing(StrEnum):
    """Where the source's offsets lie among the target's."""

    UNIFORM = "uniform"  # the window is stretched as a whole, offset zero stays in the middle
    GEOMETRIC = "geometric"  # near offsets stay, far ones are spread: see progression.py


@dataclass(frozen=True, slots=True)
class OffsetResampling:
    """One exact way to resample a table of offsets."""

    method: OffsetMethod = OffsetMethod.BICUBIC
    spacing: Spacing = Spacing.UNIFORM
    antialias: bool = False
    ratio: float | None = None  # of the progression, where it is fixed
    extrapolate: bool = False  # beyond the source's reach: go on, or stay at the last value
    folded: bool = False  # a table of distances |Δ| is resampled as if it were an image

    def __str__(self) -> str:
        parts = [self.method.value, f"{self.spacing.value} offsets"]
        if self.antialias:
            parts.append("antialias")
        if self.folded:
            parts.append("distances as an image")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Convention:
    """What a named library does when it resizes a table of its own."""

    name: str
    resampling: Resampling
    source: str  # where that library says so


@dataclass(frozen=True, slots=True)
class RelativeConvention:
    """What a named library does when it resizes a relative table of its own."""

    name: str
    resampling: OffsetResampling
    source: str


def _like(
    name: str, method: Method, antialias: bool, coordinates: Coordinates, source: str
) -> Convention:
    return Convention(name, Resampling(method, antialias, coordinates), source)


_CUBIC, _LINEAR, _NEAREST = Method.BICUBIC, Method.BILINEAR, Method.NEAREST
_HALF, _CORNERS, _OFFSET = Coordinates.HALF_PIXEL, Coordinates.CORNERS, Coordinates.OFFSET

CONVENTIONS: Mapping[str, Convention] = {
    convention.name: convention
    for convention in (
        _like("timm", _CUBIC, True, _HALF, "timm/layers/pos_embed.py: resample_abs_pos_embed"),
        _like("hf", _CUBIC, False, _HALF, "transformers models/vit: interpolate_pos_encoding"),
        _like("dinov2", _CUBIC, False, _OFFSET, "dinov2/models/vision_transformer.py: hub default"),
        _like("dinov2-reg", _CUBIC, True, _HALF, "dinov2/hub/backbones.py: models with registers"),
        _like("open_clip", _CUBIC, True, _HALF, "open_clip/model.py: resize_pos_embed"),
        _like("torchvision", _CUBIC, False, _CORNERS, "torchvision: interpolate_embeddings"),
        _like("jax", _LINEAR, False, _CORNERS, "vision_transformer, big_vision: zoom, order 1"),
        _like("deit", _CUBIC, False, _HALF, "deit/main.py, mae/util/pos_embed.py, beit, eva"),
        _like("dpt", _LINEAR, False, _HALF, "transformers models/dpt; perception_models; radio"),
        _like("timesformer", _NEAREST, False, _HALF, "timesformer/models/vit.py:263"),
        _like("siglip2", _LINEAR, True, _HALF, "transformers models/siglip2, on the CPU"),
    )
}

# Whom a result is compared with, and what may be suggested instead: nearest copies vectors, so it
# keeps every norm and is far from everybody; both say nothing about its quality.
PEERS: tuple[Convention, ...] = tuple(
    convention for convention in CONVENTIONS.values() if convention.resampling.method != _NEAREST
)

# Relative tables are resampled in offset space, by default as the family's own library does it.
_UNIFORM, _GEOMETRIC = Spacing.UNIFORM, Spacing.GEOMETRIC
RELATIVE_CONVENTIONS: Mapping[str, RelativeConvention] = {
    name: RelativeConvention(name, how, source)
    for name, how, source in (
        (
            "swin",
            OffsetResampling(OffsetMethod.BICUBIC, _UNIFORM),
            "Swin-Transformer utils.py:75-82; timm/layers/pos_embed_rel.py: …_table_simple",
        ),
        (
            "beit",
            OffsetResampling(OffsetMethod.SPLINE, _GEOMETRIC),
            "unilm beit/run_class_finetuning.py:351-411; mmpretrain utils/embed.py:62-115",
        ),
        (
            "timm",
            OffsetResampling(OffsetMethod.BILINEAR, _GEOMETRIC),
            "timm/layers/pos_embed_rel.py: resize_rel_pos_bias_table",
        ),
        (
            "sam",
            OffsetResampling(OffsetMethod.BILINEAR, _UNIFORM),
            "segment_anything/modeling/image_encoder.py:304-315",
        ),
        (
            "hf",
            OffsetResampling(OffsetMethod.BILINEAR, _UNIFORM),
            "transformers models/beit: BeitRelativePositionBias.forward",
        ),
        (
            "eva",
            OffsetResampling(OffsetMethod.SPLINE, _GEOMETRIC, ratio=1.0903078, extrapolate=True),
            "EVA EVA-02/asuka/run_class_finetuning.py:491-520: decoupled tables",
        ),
        (
            "tinyvit",
            OffsetResampling(OffsetMethod.BICUBIC, _UNIFORM, antialias=True, folded=True),
            "timm/layers/pos_embed_rel.py: resize_rel_pos_bias_table_levit",
        ),
    )
}

DEFAULT = CONVENTIONS["timm"]

# The library that a convention is named after, where its name is another.
LIBRARIES: Mapping[str, str] = {"hf": "transformers"}

# Other names that people type after --like.
ALIASES: Mapping[str, str] = {
    "transformers": "hf",
    "huggingface": "hf",
    "openclip": "open_clip",
    "open-clip": "open_clip",
    "mae": "deit",
    "beit": "deit",
    "big_vision": "jax",
}
