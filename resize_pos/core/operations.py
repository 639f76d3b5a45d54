"""What is done to the values of a table, as data; `transforms/execute.py` carries it out.

Free of numpy, like every value that a plan holds.
"""

from __future__ import annotations

from enum import StrEnum

from resize_pos.core.conventions import Coordinates, Method, OffsetResampling, Resampling
from resize_pos.core.errors import UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.printable import quoted


@dataclass(frozen=True, slots=True)
class Resample:
    """Interpolate the stored grid, one linear operator per axis."""

    resampling: Resampling
    restore_norms: bool = False  # rescale each new vector to the interpolated norm

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return self.resampling.method.value

    def __str__(self) -> str:
        return f"{self.resampling}{', norms restored' if self.restore_norms else ''}"


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


class _NotInterpolated:
    """The base of operations that compute or copy values."""

    __slots__ = ()

    @property
    def resampling(self) -> None:
        """Nothing is interpolated."""
        return


@dataclass(frozen=True, slots=True)
class Rebuild(_NotInterpolated):
    """Compute a buffer again, once the source's was found to be what the formula gives."""

    formula: str
    source: Extent
    target: Extent
    normaliser: str = "window"

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return f"computed: {self.formula}"

    def __str__(self) -> str:
        return f"computed anew ({self.formula})"


class LengthMethod(StrEnum):
    """How a 1-D table of n positions becomes one of m."""

    LINEAR = "linear"  # interpolate between neighbours, half-pixel centres
    CUBIC = "cubic"  # Keys' cubic, half-pixel centres
    NEAREST = "nearest"  # repeat or drop positions
    TILE = "tile"  # the whole block again and again; the last copy is cut off
    KEEP = "keep"  # position i stays position i
    STRETCH = "stretch"  # keep the first K, stretch the rest linearly


class Fill(StrEnum):
    """What the positions are given that `keep` adds."""

    REPEAT_LAST = "repeat-last"
    TILE = "tile"
    ZEROS = "zeros"


# Antialiasing is left out, as in open_clip's resize_text_pos_embed.
_ALONG = {
    LengthMethod.LINEAR: Resampling(Method.BILINEAR, False, Coordinates.HALF_PIXEL),
    LengthMethod.CUBIC: Resampling(Method.BICUBIC, False, Coordinates.HALF_PIXEL),
    LengthMethod.NEAREST: Resampling(Method.NEAREST, False, Coordinates.HALF_PIXEL),
}


@dataclass(frozen=True, slots=True)
class Lengthen:
    """Change the length of a 1-D table by one of the published recipes."""

    method: LengthMethod
    fill: Fill | None = None  # for KEEP, when it grows
    first: int = 0  # for STRETCH: how many positions stay where they are

    @classmethod
    def parse(cls, method: str, fill: str | None = None) -> Lengthen:
        """Read `--length-method` (`linear`, `stretch:20` …) and `--fill`."""
        name, colon, count = method.partition(":")
        if name not in set(LengthMethod) or (bool(colon) != (name == LengthMethod.STRETCH)):
            raise UsageError(
                f"--length-method {quoted(method)} is not known.",
                hint="use linear, cubic, nearest, tile, keep, or stretch:K with a number for K.",
            )
        if colon and not (count.isascii() and count.isdigit() and len(count) < 10):
            raise UsageError(
                f"--length-method {quoted(method)}: {quoted(count)} is not a number of positions.",
                hint="stretch:20 keeps the first 20 positions, as Long-CLIP does.",
            )
        if fill is not None and fill not in set(Fill):
            raise UsageError(f"--fill {quoted(fill)} is not known.", hint=f"use {', '.join(Fill)}.")
        if fill is not None and name != LengthMethod.KEEP:
            raise UsageError("--fill belongs to --length-method keep; other methods fill nothing.")
        return cls(LengthMethod(name), Fill(fill) if fill else None, int(count) if colon else 0)

    @property
    def resampling(self) -> Resampling | None:
        """The interpolation that it is, where it is one."""
        return _ALONG.get(self.method)

    @property
    def method_name(self) -> str:
        """How the report and the command line name it."""
        return f"{self.method}:{self.first}" if self.method is LengthMethod.STRETCH else self.method

    def __str__(self) -> str:
        if self.method is not LengthMethod.KEEP:
            return self.method_name
        return f"keep, filled by {self.fill}" if self.fill else "keep, the rest is cut off"


class SinCosMode(StrEnum):
    """What becomes of a table that a sin-cos formula gave."""

    INTERPOLATE = "interpolate"  # resample the stored values, like any other table
    RESCALED = "rescaled"  # the formula at (i + ½)·n/m − ½: the old image, sampled elsewhere
    ABSOLUTE = "absolute"  # the formula at i: what the library makes for a new model


@dataclass(frozen=True, slots=True)
class SinCosTable:
    """A formula that a table's values were found to follow, and where its positions begin."""

    formula: str
    dimensions: int  # how many axes the formula reads
    start: int = 0  # the position number of the first row after the prefix
    # Frames, height and width in whose places it was computed, where an earlier transfer did that.
    places: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class SinCos(_NotInterpolated):
    """Compute a fixed sin-cos table from its formula."""

    table: SinCosTable
    mode: SinCosMode

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return f"sincos-{self.mode}"

    def __str__(self) -> str:
        return f"sin-cos ({self.table.formula}), {self.mode} coordinates"


@dataclass(frozen=True, slots=True)
class ResampleKernel:
    """Resize a patch embedding so that it sees a resized image as the old one saw the original."""

    resampling: Resampling

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return f"pseudo-inverse {self.resampling.method}"

    def __str__(self) -> str:
        return f"pseudo-inverse of {self.resampling}"


@dataclass(frozen=True, slots=True)
class SetLength(_NotInterpolated):
    """Cut a looked-up table off, or extend it by repeating its last row."""

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return "rows"

    def __str__(self) -> str:
        return "rows kept, the last one repeated"


@dataclass(frozen=True, slots=True)
class ScaleQueries(_NotInterpolated):
    """Multiply the rows of a projection that make the queries of attention."""

    factor: float
    rows: int  # from the first on; the rest makes keys and values

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return "scale"

    def __str__(self) -> str:
        return f"queries × {self.factor:.4f} (experimental)"


@dataclass(frozen=True, slots=True)
class ResampleTiled:
    """Resize a table that repeats with a window: tile the mean window, interpolate the rest."""

    resampling: Resampling
    window: Grid  # in cells

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return f"tiled {self.window}, {self.resampling.method}"

    def __str__(self) -> str:
        return f"mean {self.window} window tiled, the rest {self.resampling}"


class Mixing(StrEnum):
    """What the weights of a layer over patches do with the patches."""

    READS = "reads"  # patches → hidden units: W·R⁺
    WRITES = "writes"  # hidden units → patches, or one bias per patch: R·W, R·b
    BOTH = "both"  # patches → patches: R·W·R⁺


@dataclass(frozen=True, slots=True)
class ResampleMixing:
    """Transfer a layer over patches: R resamples the grid, R⁺ is its pseudo-inverse."""

    resampling: Resampling
    mixing: Mixing

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return f"{MIXING_FORMULA[self.mixing]}, {self.resampling.method}"

    def __str__(self) -> str:
        return f"{MIXING_FORMULA[self.mixing]} with R {self.resampling}"


MIXING_FORMULA = {Mixing.READS: "W·R⁺", Mixing.WRITES: "R·W", Mixing.BOTH: "R·W·R⁺"}

TableOperation = (
    Resample
    | ResampleOffsets
    | ResampleTiled
    | ResampleMixing
    | Rebuild
    | Lengthen
    | SinCos
    | ResampleKernel
    | SetLength
    | ScaleQueries
)


@dataclass(frozen=True, slots=True)
class ResizeState:
    """Resize optimizer state like its table; non-negative state stays non-negative.

    Adam takes the square root of its second moments, and bicubic interpolation can undershoot.
    """

    how: TableOperation

    @property
    def resampling(self) -> Resampling | OffsetResampling | None:
        """The interpolation that it is, where it is one."""
        return self.how.resampling

    @property
    def method_name(self) -> str:
        """How the report names it."""
        return self.how.method_name

    def __str__(self) -> str:
        return f"{self.how}, no new negative values"


Operation = TableOperation | ResizeState
