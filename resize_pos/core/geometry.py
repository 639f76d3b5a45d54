"""Pixels and patches: `Size` and `Grid`, and the arithmetic between them. Height before width."""

from __future__ import annotations

import re

from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.printable import quoted

LARGEST = 1_000_000_000  # of any size, grid or count: more is a mistake, not a model

_PAIR = re.compile(r"([1-9][0-9]*)(?:[x×]([1-9][0-9]*))?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """An extent in pixels: an image, or one patch."""

    height: int
    width: int

    @classmethod
    def parse(cls, text: str | int | tuple[int, int] | Size, what: str = "size") -> Size:
        """Read `384`, `384x512` (height × width), an integer or a pair."""
        return cls(*_pair(text, what))

    def __str__(self) -> str:
        return str(self.height) if self.height == self.width else f"{self.height}x{self.width}"


@dataclass(frozen=True, slots=True, order=True)
class Grid:
    """An extent in patches. Two grids with equal cell counts are still two grids."""

    height: int
    width: int

    @classmethod
    def parse(cls, text: str | int | tuple[int, int] | Grid, what: str = "grid") -> Grid:
        """Read `14`, `8x64` (height × width), an integer or a pair."""
        return cls(*_pair(text, what))

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
        return f"{self.height}×{self.width}"


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


def _nearest(size: Size, patch: Size) -> tuple[Size | None, Size]:
    def around(pixels: int, step: int) -> tuple[int, int]:
        return pixels // step * step, -(-pixels // step) * step

    low_height, high_height = around(size.height, patch.height)
    low_width, high_width = around(size.width, patch.width)
    below = Size(low_height, low_width) if low_height and low_width else None
    return below, Size(high_height, high_width)


def _pair(text: str | int | tuple[int, int] | Size | Grid, what: str) -> tuple[int, int]:
    match text:
        case Size() | Grid():
            return text.height, text.width
        case str():
            found = _PAIR.fullmatch(text.strip())
            if found is None:
                raise _malformed(text, what)
            if max(map(len, filter(None, found.groups()))) > len(str(LARGEST)):
                raise _out_of_range(text, what)
            height = int(found[1])
            width = int(found[2]) if found[2] else height
        case bool():
            raise _malformed(text, what)
        case int():
            height, width = text, text
        case (int() as height, int() as width):
            pass
        case _:
            raise _malformed(text, what)
    if not (1 <= height <= LARGEST and 1 <= width <= LARGEST):
        raise _out_of_range(text, what)
    return height, width


def _malformed(value: object, what: str) -> UsageError:
    return UsageError(
        f"{what} {quoted(value)} is neither a number nor HEIGHTxWIDTH.",
        hint="write 384, or 384x512 for 384 high and 512 wide.",
    )


def _out_of_range(value: object, what: str) -> UsageError:
    return UsageError(
        f"{what} {quoted(value)} must be between 1 and {LARGEST:,} in both directions."
    )
