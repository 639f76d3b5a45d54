"""What is done to a table's values, as data: a plan names it, `execute.py` carries it out.

Free of numpy, like every value that a plan holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from resize_pos.conventions import OffsetResampling, Resampling
from resize_pos.geometry import Grid


@dataclass(frozen=True, slots=True)
class Resample:
    """Interpolate the stored grid, one linear operator per axis."""

    resampling: Resampling

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return self.resampling.method.value

    def __str__(self) -> str:
        return str(self.resampling)


@dataclass(frozen=True, slots=True)
class ResampleOffsets:
    """Interpolate a relative table in offset space, one linear operator per axis."""

    resampling: OffsetResampling
    signed: bool = True  # offsets −(n−1) … n−1; otherwise distances 0 … n−1

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return self.resampling.method.value

    def __str__(self) -> str:
        return str(self.resampling)


@dataclass(frozen=True, slots=True)
class Extent:
    """The geometry that a buffer is computed from; what a formula does not read stays empty."""

    grid: Grid | None = None  # a window, or the cells of the image
    blocks: Grid | None = None  # windows along the image
    shift: int = 0
    depth: int = 1  # of a window in time
    extra: int = 0  # rows of the table besides its offsets, for the class token
    rows: int = 0  # positions that are numbered
    value: int = 0  # of a scalar


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Compute a buffer anew, once the source's was found to be what the formula gives."""

    formula: str
    source: Extent
    target: Extent
    normaliser: str = "window"

    @property
    def resampling(self) -> None:
        """Nothing is interpolated."""
        return

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return f"computed: {self.formula}"

    def __str__(self) -> str:
        return f"computed anew ({self.formula})"


Operation = Resample | ResampleOffsets | Rebuild
