"""Generated from the table in `core/options.py`. Do not edit.

`python -m resize_pos.core.options_source` writes this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from resize_pos.core.conventions import DEFAULT, RelativeConvention, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Sides, Size
from resize_pos.core.operations import Lengthen, SinCosMode

SizeLike = Sides | Size
GridLike = Sides | Grid


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What is asked for, parsed; None: not given."""

    to_size: Size | None = None
    to_grid: Grid | None = None
    from_size: Size | None = None
    from_grid: Grid | None = None
    patch: Size | None = None
    prefix: int | None = None
    suffix: int | None = None
    family: str | None = None
    pattern: tuple[str, ...] | None = None
    axes: tuple[str, ...] | None = None
    also: tuple[str, ...] | None = None
    leave: tuple[str, ...] | None = None
    yes_by_value: bool = False
    like: str | None = None
    resampling: Resampling = DEFAULT.resampling
    restore_norms: bool = False
    attention_scale: bool = False
    to_window: Grid | None = None
    from_window: Grid | None = None
    relative: RelativeConvention | None = None
    optimizer: str | None = None
    to_length: int | None = None
    from_length: int | None = None
    lengthen: Lengthen | None = None
    sincos: SinCosMode | None = None
    to_patch: Size | None = None
    to_frames: int | None = None
    floor: bool = False
    to_time: int | None = None
    to_mel: int | None = None
    tower: str | None = None
    to_rows: int | None = None
    reference_grids: str = "keep"
    tile_window: Grid | None = None
    force_interpolate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFields:
    """How a conversion is run."""

    device: str = "cpu"
    force: bool = False
    edit_configs: bool = True
    edit_sizes: bool = False
    link: bool = False
    drop_extras: bool = False
    select: str | None = None
    durable: bool = False
    dry_run: bool = False


class Options(TypedDict, total=False):
    """Keyword arguments that the API and the command line share; None: not given."""

    to_grid: GridLike | None
    from_: SizeLike | None
    from_grid: GridLike | None
    patch: SizeLike | None
    prefix: int | None
    suffix: int | None
    family: str | None
    pattern: str | Sequence[str] | None
    axes: str | Sequence[str] | None
    also: str | Sequence[str] | None
    leave: str | Sequence[str] | None
    yes_by_value: bool | None
    method: str | None
    antialias: bool | None
    like: str | None
    restore_norms: bool | None
    attention_scale: bool | None
    to_window: GridLike | None
    from_window: GridLike | None
    relative_like: str | None
    optimizer: str | None
    to_length: int | None
    from_length: int | None
    length_method: str | None
    fill: str | None
    sincos: str | None
    to_patch: SizeLike | None
    to_frames: int | None
    floor: bool | None
    to_time: int | None
    to_mel: int | None
    tower: str | None
    to_rows: int | None
    reference_grids: str | None
    tile_window: GridLike | None
    force_interpolate: bool | None


class RequestOptions(Options, total=False):
    """All of them, with the target size."""

    to: SizeLike | None


class ResizeOptions(Options, total=False):
    """Those, and how a conversion is run."""

    device: str | None
    force: bool | None
    edit_configs: bool | None
    edit_sizes: bool | None
    link: bool | None
    drop_extras: bool | None
    select: str | None
    durable: bool | None
    dry_run: bool | None
