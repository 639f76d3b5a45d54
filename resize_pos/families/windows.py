"""What determines the window of a relative table, as data: the image, a fixed window, or neither.

A relative table holds one row per offset inside an attention window of h×w cells. What determines
that window depends on the family; `families.toml` states it under `[family.windows]`. This module
does not import numpy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from resize_pos.core.errors import GeometryError, ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, grid_of


class Follows(StrEnum):
    """What a table's window depends on."""

    IMAGE = "image"  # every cell of the image at its stage
    GLOBAL = "global"  # the image in blocks with global attention; windowed blocks stay
    WINDOW = "window"  # a window that only `--to-window` changes
    UNKNOWN = "unknown"  # not known; such a file is refused
    NOTHING = "nothing"  # a fixed reach, such as a block with its halo


class Clamp(StrEnum):
    """What happens to a window that is larger than the cells of its stage."""

    NEVER = "never"  # the table keeps its shape; the library pads
    EACH_AXIS = "each axis"
    SHORTER_SIDE = "shorter side"  # both sides become the shorter side of the stage


class Rounding(StrEnum):
    """How a stage counts a cell that is only partly inside the image."""

    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How the windows of one family depend on image, stage and request."""

    follows: Follows
    stage: str | None = None  # matches the stage number in a name; None: only one stage
    strides: tuple[int, ...] = (1,)  # pixels per cell, by stage; patches, where a patch is known
    stem: int = 1  # the image is cut into these first; the remainder is dropped
    rounding: Rounding = Rounding.DOWN
    multiples: tuple[int, ...] = (1,)  # a stage's window over the model's, by stage
    clamp: Clamp = Clamp.NEVER
    whole: int = 1  # image sides must be multiples of this, or the library fails
    longer: bool = False  # both axes have the length of the longer side
    pyramid: bool = False  # the table's own size shows the stage: half, a quarter …
    deep: bool = False  # windows have a depth, in time or in a volume
    leader: str | None = None  # a sibling whose grid the table shares
    designs: tuple[tuple[int, ...], ...] = ()  # windows by stage that a known model has by design
    quarters: bool = False  # the last block of each quarter of the blocks sees the whole image
    why: str = ""  # for NOTHING: what determines the window

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> WindowRule:
        """Read `[family.windows]`; refuse unknown keys and values."""
        unknown = set(entry) - set(cls.__slots__)
        if unknown or "follows" not in entry:
            raise ResizePosError(f"windows: unknown keys {sorted(unknown)}, or no `follows`.")
        values: dict[str, Any] = dict(entry)
        values["follows"] = Follows(entry["follows"])
        values["clamp"] = Clamp(entry.get("clamp", Clamp.NEVER))
        values["rounding"] = Rounding(entry.get("rounding", Rounding.DOWN))
        for key in ("strides", "multiples"):
            if key in entry:
                values[key] = tuple(map(int, entry[key]))
        values["designs"] = tuple(tuple(map(int, each)) for each in entry.get("designs", ()))
        if "stage" in entry and re.compile(entry["stage"]).groups != 1:
            raise ResizePosError(f"windows: stage {entry['stage']!r} needs exactly one group.")
        return cls(**values)

    def place(self, name: str) -> tuple[str, int] | None:
        """Return the tower that a name belongs to and its stage's number; None if it has none."""
        if self.stage is None:
            return "", 0
        found = _compiled(self.stage).search(name)
        if found is None or int(found[1]) >= max(len(self.strides), len(self.multiples)):
            return None
        return name[: found.start()], int(found[1])

    def stride(self, stage: int, patch: Size | None) -> Size:
        """Return the pixels per cell of a stage."""
        scale = self.strides[min(stage, len(self.strides) - 1)]
        return Size(scale, scale) if patch is None else Size(*(scale * p for p in _pair(patch)))

    def multiple(self, stage: int) -> int:
        """Return a stage's window as a multiple of the model's."""
        return self.multiples[min(stage, len(self.multiples) - 1)]

    def cells(self, size: Size, stride: Size) -> Grid:
        """Count the cells of an image at a stage, as the library does."""
        if self.whole > 1:
            self._require_whole(size)
        if self.longer:
            size = Size(max(_pair(size)), max(_pair(size)))
        counts = [self._count(s, p) for s, p in zip(_pair(size), _pair(stride), strict=True)]
        if min(counts) < 1:
            raise GeometryError(f"{size} px is less than one cell of {stride} px.")
        return Grid(*counts)

    def sizes(self, cells: int, stride: int) -> tuple[int, int]:
        """Return the smallest and the largest image side that has so many cells."""
        step = stride // self.stem
        if self.rounding is Rounding.DOWN:
            return cells * stride, (cells + 1) * stride - 1
        return ((cells - 1) * step + 1) * self.stem, (cells * step + 1) * self.stem - 1

    def _require_whole(self, size: Size) -> None:
        try:
            grid_of(size, Size(self.whole, self.whole))
        except GeometryError as error:
            message = f"{size} px is not a multiple of {self.whole}, which its windows need."
            raise GeometryError(message, hint=error.hint) from None

    def _count(self, pixels: int, stride: int) -> int:
        coarse, step = pixels // self.stem, stride // self.stem
        return coarse // step if self.rounding is Rounding.DOWN else -(-coarse // step)


@dataclass(frozen=True, slots=True)
class Reach:
    """What is known about a table's window once its geometry is settled; planning uses it."""

    stride: Size  # pixels per cell of its stage
    multiple: int = 1
    nominal: Grid | None = None  # the model's own window, before any stage clamps it
    clamped: bool = False  # whether the nominal window itself may be clamped
    image: Size | None = None  # the size of the source image, if known
    patch: Size | None = None  # pixels per patch, if `--to-grid` can be converted to pixels


@dataclass(frozen=True, slots=True)
class DerivedRule:
    """How a buffer is computed, and from which table's geometry."""

    formula: str
    leader: tuple[str, ...] = ()
    normaliser: str = "window"  # of log-spaced coordinates: "window" or "pretrained"
    why: str = ""  # for the formula "none": why nothing depends on the resolution; else a reason

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> DerivedRule:
        """Read `[family.derived]`; refuse unknown keys."""
        unknown = set(entry) - set(cls.__slots__)
        if unknown or "formula" not in entry:
            raise ResizePosError(f"derived: unknown keys {sorted(unknown)}, or no `formula`.")
        return cls(**{**entry, "leader": tuple(entry.get("leader", ()))})


def clamp_window(window: Grid, cells: Grid, how: Clamp) -> Grid:
    """Limit a window to the size of its stage."""
    if how is Clamp.NEVER:
        return window
    if how is Clamp.SHORTER_SIDE:
        side = min(cells.height, cells.width)
        fits = side > max(window.height, window.width)
        return window if fits else Grid(side, side)
    return Grid(min(window.height, cells.height), min(window.width, cells.width))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _pair(size: Size) -> tuple[int, int]:
    return size.height, size.width
