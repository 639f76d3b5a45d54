"""Pixels and patches: `Size` and `Grid`, and the arithmetic between them.

The order is depth, height, width. A depth of 0 means that there is none: an image, not a volume.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.printable import quoted

LARGEST = 1_000_000_000  # of any size, grid or count: more is a mistake, not a model

# Also 384,512 or (384, 512) and, for pixels, 384px: what people type.
_SIDES = lazy_regex(r"[1-9][0-9]*(?:(?: ?[x×*,] ?| )[1-9][0-9]*){0,2}", re.IGNORECASE | re.ASCII)
_BRACKETS = lazy_regex(r"\((.*)\)|\[(.*)\]")
_TOO_SMALL = lazy_regex(  # a side that is 0 or negative, alone or beside others
    r"(?:[0-9]+ ?[x×*,] ?)*(?:-[0-9]+|0+)(?: ?[x×*,] ?-?[0-9]+)*", re.IGNORECASE | re.ASCII
)
_PIXELS = lazy_regex(r" ?px\Z", re.IGNORECASE)
_NUMBER = lazy_regex(r"[0-9]+")
Sides = str | int | tuple[int, int] | tuple[int, int, int]


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """An extent in pixels: an image, one patch, or a volume in voxels."""

    height: int
    width: int
    depth: int = 0

    @classmethod
    def parse(cls, text: Sides | Size, what: str = "size") -> Size:
        """Read `384`, `384x512` (height × width), `64x96x96` (depth first), a number or a tuple."""
        bare = _PIXELS.sub("", text) if isinstance(text, str) else text
        return cls(*_sides(bare, what, _SIZE_HINT))

    def __str__(self) -> str:
        if self.depth:
            return f"{self.depth}x{self.height}x{self.width}"
        return str(self.height) if self.height == self.width else f"{self.height}x{self.width}"


@dataclass(frozen=True, slots=True, order=True)
class Grid:
    """An extent in patches. Two grids with equal cell counts are still two grids.

    A table with time or depth has one such grid per frame or slice; `depth` is set only in what a
    user states.
    """

    height: int
    width: int
    depth: int = 0

    @classmethod
    def parse(cls, text: Sides | Grid, what: str = "grid") -> Grid:
        """Read `14`, `8x64` (height × width), `4x6x8` (depth first), a number or a tuple."""
        return cls(*_sides(text, what, _GRID_HINT))

    @property
    def plane(self) -> Grid:
        """One slice: the same grid without its depth."""
        return Grid(self.height, self.width)

    @property
    def cells(self) -> int:
        """How many patches the grid holds."""
        return self.height * self.width

    @property
    def is_square(self) -> bool:
        """Whether height equals width."""
        return self.height == self.width

    def pixels(self, patch: Size) -> Size:
        """Return the image size that this grid covers."""
        return Size(self.height * patch.height, self.width * patch.width)

    def __str__(self) -> str:
        plane = f"{self.height}×{self.width}"
        return f"{self.depth}×{plane}" if self.depth else plane


def grid_of(size: Size, patch: Size) -> Grid:
    """Divide an image into patches; refuse a size that does not divide, naming the nearest ones."""
    if size.height % patch.height or size.width % patch.width:
        below, above = _nearest(size, patch)
        shown = f"{below} px or {above} px" if below is not None else f"{above} px"
        raise GeometryError(
            f"{size} px is not a multiple of the patch size {patch}: "
            f"{size.height}/{patch.height} × {size.width}/{patch.width} patches.",
            hint=f"the nearest sizes that fit are {shown}.",
        )
    return Grid(size.height // patch.height, size.width // patch.width)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How an image is cut into cells: one every `step` pixels, each seeing `window` pixels."""

    step: Size
    window: Size | None = None  # None: the step itself, so that nothing overlaps

    def grid(self, size: Size) -> Grid:
        """Cut an image; where windows overlap, a remainder smaller than a window is dropped."""
        if self.window is None:
            return grid_of(size, self.step)
        height = (size.height - self.window.height) // self.step.height + 1
        width = (size.width - self.window.width) // self.step.width + 1
        if height < 1 or width < 1:
            raise GeometryError(f"{size} px is smaller than one patch of {self.window}.")
        return Grid(height, width)

    def whole_patches(self, size: Size) -> Grid:
        """Cut an image and drop a remainder that is smaller than a patch, as a convolution does."""
        if self.window is not None:
            return self.grid(size)
        grid = Grid(size.height // self.step.height, size.width // self.step.width)
        if grid.height < 1 or grid.width < 1:
            raise GeometryError(f"{size} px is smaller than one patch of {self.step}.")
        return grid

    def divides(self, size: Size) -> bool:
        """Whether patches that do not overlap cover the image without a remainder."""
        return not (self.window or size.height % self.step.height or size.width % self.step.width)

    def nearest(self, size: Size) -> str:
        """Name the nearest sizes without a remainder."""
        below, above = _nearest(size, self.step)
        return f"{above} px" if below is None else f"{below} px or {above} px"

    def pixels(self, grid: Grid) -> Size:
        """Return the smallest image that has this grid."""
        whole = grid.pixels(self.step)
        if self.window is None:
            return whole
        return Size(
            whole.height - self.step.height + self.window.height,
            whole.width - self.step.width + self.window.width,
        )

    def __str__(self) -> str:
        return str(self.step) if self.window is None else f"{self.window}, step {self.step}"


def size_of(tiling: Tiling, grid: Grid, asked: Size | None) -> Size:
    """Return the image size of a grid: the one asked for, if it has this grid, else the pixels.

    With overlapping patches or a remainder, several sizes have the same grid.
    """
    if asked is not None:
        with contextlib.suppress(GeometryError):
            if tiling.whole_patches(asked) == grid:
                return Size(asked.height, asked.width)
    return tiling.pixels(grid)


def _nearest(size: Size, patch: Size) -> tuple[Size | None, Size]:
    def around(pixels: int, step: int) -> tuple[int, int]:
        return pixels // step * step, -(-pixels // step) * step

    low_height, high_height = around(size.height, patch.height)
    low_width, high_width = around(size.width, patch.width)
    below = Size(low_height, low_width) if low_height and low_width else None
    return below, Size(high_height, high_width)


def _sides(text: Sides | Size | Grid, what: str, hint: str) -> tuple[int, int, int]:
    """Return height, width and depth; a depth of 0 where none is stated."""
    sides: tuple[int, ...]
    match _plain(text):
        case Size() | Grid() as known:
            return known.height, known.width, known.depth
        case str() as text:
            bare = _BRACKETS.sub(r"\1\2", text.strip()).strip()
            if _TOO_SMALL.fullmatch(bare) is not None:
                raise _out_of_range(text, what)
            if _SIDES.fullmatch(bare) is None:
                raise _malformed(text, what, hint)
            numbers = _NUMBER.findall(text)
            if max(map(len, numbers)) > len(str(LARGEST)):
                raise _out_of_range(text, what)
            sides = tuple(map(int, numbers))
        case bool():
            raise _malformed(text, what, hint)
        case int() as side:
            sides = (side,)
        case (int(), int()) | (int(), int(), int()) as several:
            sides = several
        case _:
            raise _malformed(text, what, hint)
    if not all(1 <= side <= LARGEST for side in sides):
        raise _out_of_range(text, what)
    if len(sides) == 3:
        return sides[1], sides[2], sides[0]
    return sides[0], sides[-1], 0


def _plain(value: Any) -> Any:
    """Return numbers of numpy and torch as Python's, and a size of an image processor as a pair."""
    if isinstance(value, str | int | Size | Grid):
        return value
    if isinstance(value, Mapping) and value.keys() == {"height", "width"}:
        value = (value["height"], value["width"])
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


_SIZE_HINT = "write 384, or 384x512 for 384 high and 512 wide; 64x96x96 for a volume, depth first."
_GRID_HINT = "write 24, or 24x32 for 24 high and 32 wide; 4x6x6 for a volume, depth first."


def _malformed(value: object, what: str, hint: str) -> UsageError:
    return UsageError(
        f"{what} {quoted(value)} is neither a whole number nor HEIGHTxWIDTH.", hint=hint
    )


def _out_of_range(value: object, what: str) -> UsageError:
    return UsageError(
        f"{what} {quoted(value)} must be between 1 and {LARGEST:,} in both directions."
    )
