"""How vision-language models turn a tower's cells into image tokens, as data with sources.

A tower returns one feature per cell. The model pools them by a factor per side. The results are the
image tokens, and the processor must write the same number of placeholders into the text. Each model
states the factor in its config under a different key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from resize_pos.configs.keys import WRAPPERS
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.json_edit import Document, KeyPath


class FactorForm(StrEnum):
    """How a factor is computed from the value of its key."""

    VALUE = "value"  # 2: two cells per side become one token
    RECIPROCAL = "reciprocal"  # 0.5 means the same
    DENOMINATOR = "denominator"  # "3/8": windows of 8 cells per side
    ROOT = "root"  # a total of 256 tokens is 16 per side


class Tokens(StrEnum):
    """What the model's token count follows."""

    POOLED = "pooled"  # cells divided by the factor, per side
    CELLS = "cells"  # one per cell, for every factor
    FIXED = "fixed"  # a fixed number; the factor limits the possible grids


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a model turns cells into tokens, and for which grids it can."""

    models: frozenset[str]
    tokens: Tokens
    key: KeyPath = ()  # path of the factor in the model's section; empty: always `default`
    read: FactorForm = FactorForm.VALUE
    default: int = 1  # if the config omits the key
    divides: bool = True  # whether the grid has to be a multiple of the factor
    up: bool = False  # whether remaining cells also give a token
    most: KeyPath = ()  # key of the largest number of tokens per side
    stride: KeyPath | int = 0  # if no table states it: pixels per cell, or its key
    halved_by: KeyPath = ()  # a list of steps; each one after the first halves the grid
    cells_in: KeyPath = ()  # a mapping whose keys are all possible numbers of cells
    only_cells: tuple[int, ...] = ()  # all possible numbers of cells, if the code fixes them
    sized_by: tuple[str, ...] = ()  # and the processor keys that state the size
    source: str = ""

    def factor(self, model: Document) -> int:
        """Read the factor that a model's config states."""
        value = _follow(model, self.key) if self.key else None
        if value is None:
            return self.default
        match self.read:
            case FactorForm.RECIPROCAL if isinstance(value, int | float) and value > 0:
                return max(1, round(1 / value))
            case FactorForm.DENOMINATOR if isinstance(value, str) and "/" in value:
                return int(value.split("/")[1])
            case FactorForm.ROOT if type(value) is int and value > 0:
                return math.isqrt(value)
            case FactorForm.VALUE if type(value) is int and value > 0:
                return value
        return self.default

    def pixels_per_cell(self, model: Document) -> int | None:
        """Return the pixels per cell of a tower without a table that follows the image."""
        halves = _follow(model, self.halved_by) if self.halved_by else None
        if isinstance(halves, list) and 0 < len(halves) < 16:
            return int(2 ** (len(halves) - 1))
        value = self.stride if isinstance(self.stride, int) else _follow(model, self.stride)
        steps = value if isinstance(value, list) else [value]
        whole = all(type(step) is int and step > 0 for step in steps)
        return math.prod(steps) if whole else None


def _pooling(*models: str, tokens: Tokens = Tokens.POOLED, **options: Any) -> Pooling:
    return Pooling(frozenset(models), tokens, **options)


POOLINGS: tuple[Pooling, ...] = (
    _pooling(
        "llava",
        "vipllava",
        "llava_next",
        "llava_onevision",
        "paligemma",
        "janus",
        "deepseek_vl",
        "deepseek_vl_hybrid",
        tokens=Tokens.CELLS,
        source="models/llava/processing_llava.py:73; llava_onevision:47; paligemma:76; janus:63",
    ),
    _pooling(
        "llava_next_video",
        tokens=Tokens.CELLS,
        key=("spatial_pool_stride",),
        default=2,
        source="models/llava_next_video/modeling…:113: frames are pooled; processing…:113: by 4",
    ),
    _pooling(
        "granite4_vision",
        tokens=Tokens.CELLS,
        key=("downsample_rate",),
        read=FactorForm.DENOMINATOR,
        source="models/granite4_vision/modeling_granite4_vision.py:150-198: windows of cells",
    ),
    _pooling(
        "internvl",
        "qianfan_ocr",
        key=("downsample_ratio",),
        read=FactorForm.RECIPROCAL,
        default=2,
        source="models/internvl/processing_internvl.py:58; configuration_internvl.py:117",
    ),
    _pooling(
        "llama4",
        key=("vision_config", "pixel_shuffle_ratio"),
        read=FactorForm.RECIPROCAL,
        default=2,
        source="models/llama4/modeling_llama4.py: pixel_shuffle; processing_llama4.py",
    ),
    _pooling(
        "idefics3",
        "smolvlm",
        key=("scale_factor",),
        default=2,
        source="models/idefics3/processing_idefics3.py:61; smolvlm/processing_smolvlm.py:126",
    ),
    _pooling(
        "modernvbert",
        "ultravbert",
        key=("pixel_shuffle_factor",),
        default=4,
        source="models/modernvbert/configuration_modernvbert.py; ultravbert",
    ),
    _pooling(
        "aya_vision",
        "cohere2_vision",
        key=("downsample_factor",),
        default=2,
        source="models/aya_vision/processing_aya_vision.py:79,104; cohere2_vision:69",
    ),
    _pooling(
        "ovis2",
        key=("vision_config", "hidden_stride"),
        source="models/ovis2/configuration_ovis2.py:49; processing_ovis2.py:39",
    ),
    _pooling(
        "perception_lm",
        key=("projector_pooling_ratio",),
        divides=False,
        source="models/perception_lm/processing_perception_lm.py:64",
    ),
    _pooling(
        "got_ocr2",
        default=4,
        divides=False,
        up=True,
        source="models/got_ocr2/modeling_got_ocr2.py: two convolutions of stride 2",
    ),
    _pooling(
        "gemma3",
        "shieldgemma2",
        "t5gemma2",
        "t5gemma2_encoder",
        tokens=Tokens.FIXED,
        key=("mm_tokens_per_image",),
        read=FactorForm.ROOT,
        default=16,
        source="models/gemma3/modeling_gemma3.py:663-665: average pooling to a fixed grid",
    ),
    _pooling(
        "idefics2",
        "blip-2",
        "instructblip",
        "instructblipvideo",
        "kosmos-2",
        tokens=Tokens.FIXED,
        divides=False,
        source="models/idefics2/processing_idefics2.py:63; blip_2:157; kosmos2:81: a resampler",
    ),
    _pooling(
        "rf_detr",
        tokens=Tokens.CELLS,
        key=("backbone_config", "num_windows"),
        default=4,
        source="models/rf_detr/configuration_rf_detr.py:88: the image is cut into windows",
    ),
    _pooling(
        "fast_vlm",
        tokens=Tokens.CELLS,
        stride=64,
        sized_by=("crop_size", "size"),
        source="models/fast_vlm/configuration_fast_vlm.py: fastvit_mci3 has stride 64",
    ),
    _pooling(
        "chameleon",
        tokens=Tokens.CELLS,
        stride=16,
        halved_by=("vq_config", "channel_multiplier"),
        sized_by=("crop_size", "size"),
        source="models/chameleon/configuration_chameleon.py: the encoder's steps; processing:44",
    ),
    _pooling(
        "aria",
        tokens=Tokens.FIXED,
        divides=False,
        cells_in=("projector_patch_to_query_dict",),
        source="models/aria/modeling_aria.py:202: queries by the number of cells",
    ),
    _pooling(
        "phi4_multimodal",
        default=2,
        only_cells=(31 * 31, 32 * 32),
        divides=False,
        up=True,
        source="models/phi4_multimodal/image_processing…:188: 256 tokens, 16 rows, for any size",
    ),
    _pooling(
        "deepseek_ocr2",
        default=4,
        only_cells=(48 * 48, 64 * 64),
        divides=False,
        source="models/deepseek_ocr2/modeling…:965-976: 144 queries for 768 px, 256 for 1024 px",
    ),
    _pooling(
        "unlimited_ocr",
        "step3p7",
        default=4,
        source="models/unlimited_ocr/processing…; step3p7: two convolutions of stride 2",
    ),
    _pooling(
        "florence2",
        tokens=Tokens.CELLS,
        stride=("vision_config", "patch_stride"),
        most=("vision_config", "max_position_embeddings"),
        sized_by=("size",),
        source="models/florence2/processing_florence2.py:105; configuration_florence2.py:66-81",
    ),
    _pooling(
        "lfm2_vl",
        key=("downsample_factor",),
        default=2,
        divides=False,
        up=True,
        stride=("vision_config", "patch_size"),
        sized_by=("tile_size",),
        source="models/lfm2_vl/processing_lfm2_vl.py:226-253: tiles of a tower that resamples",
    ),
)
_BY_MODEL = {model: pooling for pooling in POOLINGS for model in pooling.models}


def models_in(document: Document) -> Iterator[tuple[KeyPath, str, Document]]:
    """Yield every whole model that a config describes: its path, its type and its section."""
    for wrapper in WRAPPERS:
        section = _follow(document, wrapper)
        if isinstance(section, dict) and isinstance(section.get("model_type"), str):
            yield wrapper, section["model_type"], section


def pooling_of(document: Document) -> tuple[Pooling, str, Document] | None:
    """Return how the model of a config pools its cells, with its type and its section."""
    found = [
        (_BY_MODEL[model], model, section)
        for _, model, section in models_in(document)
        if model in _BY_MODEL
    ]
    # T5Gemma 2 has its type at the root, but states its tokens in the section of its encoder.
    telling = (each for each in found if each[0].key and _follow(each[2], each[0].key) is not None)
    return next(telling, next(iter(found), None))


def tokens_of(document: Document, grid: Grid) -> int | None:
    """Count the tokens of a grid; None if the model is unknown or its number of tokens is fixed."""
    found = pooling_of(document)
    if found is None or found[0].tokens is Tokens.FIXED:
        return None
    pooling, _, model = found
    factor = 1 if pooling.tokens is Tokens.CELLS else pooling.factor(model)
    rest = factor - 1 if pooling.up else 0
    return ((grid.height + rest) // factor) * ((grid.width + rest) // factor)


def require_runnable(document: Document, grid: Grid, patch: Size) -> None:
    """Refuse a grid that the model cannot pool, and name the nearest possible sizes."""
    found = pooling_of(document)
    if found is None:
        return
    pooling, name, model = found
    factor = pooling.factor(model)
    if pooling.divides and (grid.height % factor or grid.width % factor):
        raise GeometryError(
            f"{name} cannot run a grid of {grid} cells: each side has to be a multiple of {factor} "
            f"({_reason(pooling, model)}).",
            hint=f"the nearest sizes that it can run are {_nearest(grid, factor, patch)}.",
        )
    possible = _follow(model, pooling.cells_in) if pooling.cells_in else None
    if isinstance(possible, dict) and str(grid.cells) not in possible:
        raise GeometryError(
            f"{name} cannot run a grid of {grid} cells: {'.'.join(pooling.cells_in)} has no entry "
            f"for {grid.cells} cells.",
            hint=f"the sizes that it can run are {_squares(possible, patch)}.",
        )
    if pooling.only_cells and grid.cells not in pooling.only_cells:
        raise GeometryError(
            f"{name} cannot run a grid of {grid} cells: its code counts the image tokens for other "
            "sizes only.",
            hint=f"the sizes that it can run are {_squares(map(str, pooling.only_cells), patch)}.",
        )
    most = _follow(model, pooling.most) if pooling.most else None
    if type(most) is int and max(grid.height, grid.width) > most:
        raise GeometryError(
            f"{name} cannot run a grid of {grid} tokens: it has {most} row and column positions "
            f"({'.'.join(pooling.most)}).",
            hint=f"the largest size that it can run is {Grid(most, most).pixels(patch)} px.",
        )


def _squares(possible: Iterable[str], patch: Size) -> str:
    """List the square sizes with these numbers of cells."""
    sides = [math.isqrt(int(cells)) for cells in possible if cells.isdecimal() and len(cells) < 9]
    return " px and ".join(str(Grid(side, side).pixels(patch)) for side in sorted(sides)) + " px"


def _reason(pooling: Pooling, model: Document) -> str:
    if not pooling.key:
        return "fixed in its code"
    value = _follow(model, pooling.key)
    return f"{'.'.join(pooling.key)} {pooling.default if value is None else value}"


def _nearest(grid: Grid, factor: int, patch: Size) -> str:
    """Return the nearest sizes below and above; for a square grid they are square, too."""
    below = Grid(*(max(side // factor, 1) * factor for side in (grid.height, grid.width)))
    above = Grid(*(-(-side // factor) * factor for side in (grid.height, grid.width)))
    sizes = dict.fromkeys((str(below.pixels(patch)), str(above.pixels(patch))))
    return " px and ".join(sizes) + " px"


def _follow(document: object, path: KeyPath) -> object:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document
