"""Fixed sin-cos tables: the published formulas, which of them a table follows, and new values.

A formula splits the channels into blocks, one per axis, each with its own frequencies. Positions
are real numbers, so a table can be computed at any place, not only at whole positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import SinCos, SinCosMode, SinCosTable
from resize_pos.transforms.absolute import round_once

_BASE = 10000.0
_ARITHMETIC = 2.0**-20  # relative: the error of a phase that was computed in float32
_MARGIN = 4.0  # the second-best formula must be this many tolerances away

Positions = Mapping[str, NDArray[np.float64]]  # per axis (t, y, x or l), one per row


@dataclass(frozen=True, slots=True)
class Formula:
    """One published way to fill a table with sines and cosines."""

    name: str
    title: str
    axes: tuple[str, ...]  # which position feeds each block of channels, in their order
    shares: tuple[int, ...]  # how the channels are divided among the blocks
    last_included: bool = False  # ω runs to 1/10000 itself: k/(K − 1) instead of k/K
    interleaved: bool = False  # sin, cos, sin, cos … instead of all sines, then all cosines
    thirds: bool = False  # blocks of 2·ceil(D/6) channels, cut off at D
    source: str = ""

    @property
    def dimensions(self) -> int:
        """How many axes it reads: 1, 2 or 3."""
        return len(self.axes)

    def widths(self, channels: int) -> tuple[int, ...] | None:
        """Divide the channels among the blocks; None when they cannot be."""
        if self.thirds:
            return (-(-channels // 6) * 2,) * self.dimensions
        total = sum(self.shares)
        widths = tuple(channels * share // total for share in self.shares)
        whole = sum(widths) == channels and all(w % 2 == 0 and w > 0 for w in widths)
        return widths if whole and (min(widths) > 2 or not self.last_included) else None

    def values(self, positions: Positions, channels: int) -> NDArray[np.float64]:
        """Compute (rows, channels) in float64."""
        widths = self.widths(channels)
        assert widths is not None
        blocks = [
            self._block(positions[axis], width)
            for axis, width in zip(self.axes, widths, strict=True)
        ]
        return np.concatenate(blocks, axis=1)[:, :channels]

    def _block(self, position: NDArray[np.float64], width: int) -> NDArray[np.float64]:
        count = width // 2
        steps = np.arange(count, dtype=np.float64) / (count - 1 if self.last_included else count)
        phase = position[:, None] * (1.0 / _BASE**steps)
        if not self.interleaved:
            return np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
        return np.stack([np.sin(phase), np.cos(phase)], axis=2).reshape(len(position), width)


def _formula(name: str, title: str, axes: str, source: str, **how: Any) -> Formula:
    shares = how.pop("shares", (1,) * len(axes))
    return Formula(name, title, tuple(axes), shares, source=source, **how)


FORMULAS: Mapping[str, Formula] = {
    formula.name: formula
    for formula in (
        _formula(
            "mae",
            "x then y, as in MAE, I-JEPA, ViTMAE and open_clip sin_cos_2d",
            "xy",
            "mae/util/pos_embed.py:20-67",
        ),
        _formula(
            "moco-v3",
            "y then x, as in MoCo-v3 and V-JEPA 2 on images",
            "yx",
            "moco-v3/vits.py:53-69; vjepa2/src/models/utils/pos_embs.py:41-57",
        ),
        _formula(
            "big-vision",
            "x then y up to 1/10000, as in big_vision and simple_vit",
            "xy",
            "big_vision/models/vit.py:34-44",
            last_included=True,
        ),
        _formula(
            "vjepa-video",
            "time, y, x, as in V-JEPA 2 on videos",
            "tyx",
            "vjepa2/src/models/utils/pos_embs.py:9-38",
            shares=(2, 1, 1),
        ),
        _formula(
            "vjepa-video-uniform",
            "time, y, x with equal shares, as in V-JEPA 2 with uniform_power",
            "tyx",
            "vjepa2/src/models/utils/pos_embs.py:9-38",
            thirds=True,
        ),
        _formula(
            "whisper",
            "sines then cosines up to 1/10000, as in Whisper, tensor2tensor and fairseq",
            "l",
            "transformers models/whisper/modeling_whisper.py:56-65",
            last_included=True,
        ),
        _formula(
            "marian",
            "sines then cosines, as in Marian and Pegasus",
            "l",
            "transformers models/marian/modeling_marian.py:72-93",
        ),
        _formula(
            "interleaved",
            "sines and cosines in turn, as in the original transformer, DistilBERT and VideoMAE",
            "l",
            "transformers models/distilbert/modeling_distilbert.py:52-66; videomae:106",
            interleaved=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Recognition:
    """The formula that a table follows, how closely, and how far the next one is."""

    table: SinCosTable
    difference: float  # largest absolute difference to the formula
    runner_up: str | None
    runner_up_difference: float

    @property
    def evidence(self) -> str:
        """The finding in words."""
        words = (
            f"its values follow the sin-cos formula {self.table.formula} "
            f"({FORMULAS[self.table.formula].title}) to {self.difference:.1e}"
        )
        if self.table.places is not None:
            frames, height, width = self.table.places
            grid = f"{height}×{width}" if frames == 1 else f"{frames}×{height}×{width}"
            words += f", in the places of {grid}"
        if self.runner_up is None:
            return words
        return f"{words}; the next, {self.runner_up}, is {self.runner_up_difference:.2g} away"


def recognise(cells: NDArray[Any], starts: tuple[int, ...] = (0,)) -> Recognition | None:
    """Compare (copies, h, w, d) cells with every formula; None when none fits, or none alone.

    A table with several copies is read as one with a time axis. `starts` are the position numbers
    that the first row of a 1-D table may have. Positions are whole numbers, or those that a
    transfer in rescaled coordinates has left.
    """
    return _recognise(cells, starts, _whole) or _recognise(cells, starts, _rescaled)


_Places = Callable[[NDArray[np.float64], Formula, int], Iterator[tuple[int, int, int] | None]]


def _recognise(cells: NDArray[Any], starts: tuple[int, ...], places: _Places) -> Recognition | None:
    copies, height, width, channels = cells.shape
    with np.errstate(invalid="ignore"):
        exact = cells.astype(np.float64)
    stored = exact.reshape(-1, channels)
    found: list[tuple[float, float, SinCosTable]] = []
    for formula in FORMULAS.values():
        if formula.widths(channels) is None or (formula.dimensions == 2 and copies > 1):
            continue
        for place in places(exact, formula, channels):
            for start in starts if formula.dimensions == 1 else (0,):
                table = SinCosTable(formula.name, formula.dimensions, start, place)
                positions = _positions(copies, Grid(height, width), start, _source(place))
                difference = float(np.max(np.abs(stored - formula.values(positions, channels))))
                furthest = max(float(positions[axis].max()) for axis in formula.axes)
                if not np.isnan(difference):
                    found.append((difference, tolerance(cells.dtype, furthest), table))
    if not found:
        return None
    found.sort(key=lambda entry: entry[0])
    (best, limit, table), *others = found
    gap, second = (others[0][0], others[0][2].formula) if others else (np.inf, None)
    if best > limit or gap < _MARGIN * limit:
        return None
    return Recognition(table, best, second, gap)


def _whole(*_: object) -> Iterator[None]:
    yield None


def _rescaled(
    cells: NDArray[np.float64], formula: Formula, channels: int
) -> Iterator[tuple[int, int, int]]:
    """Measure the distance between positions by the fastest sine and cosine of each axis."""
    frames, height, width, _ = cells.shape
    own = {"t": frames, "y": height, "x": width}
    if formula.dimensions == 1 and (frames, height) != (1, 1):
        return  # a flattened index has no coordinates that could have been rescaled
    lines = {"t": cells[:, 0, 0], "y": cells[0, :, 0], "x": cells[0, 0]}
    found, first = dict(own), 0
    for axis, share in zip(formula.axes, formula.widths(channels) or (), strict=True):
        axis = "x" if axis == "l" else axis
        second = first + (1 if formula.interleaved else share // 2)
        if own[axis] > 1 and second < channels:
            line = lines[axis]
            phases = np.arctan2(line[:, first], line[:, second])
            step = np.mod(np.diff(phases), 2 * np.pi).mean()
            found[axis] = round(float(step) * own[axis]) if np.isfinite(step) else 0
        first += share
    if found != own and min(found.values()) > 0:
        yield found["t"], found["y"], found["x"]


def _source(places: tuple[int, int, int] | None) -> tuple[int, Grid] | None:
    return None if places is None else (places[0], Grid(*places[1:]))


def tolerance(dtype: np.dtype[Any], furthest: float) -> float:
    """The tolerance between stored values and the formula: one rounding, and float32 phases."""
    from ml_dtypes import finfo

    # Nothing exceeds 1, below which neighbours are ε/2 apart and a rounding is off by ε/4 at most.
    return float(finfo(dtype).eps) / 2 + furthest * _ARITHMETIC


def regenerate(
    array: NDArray[Any],
    layout: Layout,
    kept: tuple[int, int],
    source: Grid,
    target: Grid,
    how: SinCos,
    frames: tuple[int, int] = (1, 1),
) -> NDArray[Any]:
    """Compute a table again for `target`; the rows before and after are kept bit for bit.

    `kept` counts those rows, `frames` the steps in time before and after the transfer. In absolute
    coordinates every position that was there before keeps its stored bits, too.
    """
    parts = layout.unfold(array, kept[0], source, kept[1], frames[0])
    channels = parts.grid.shape[-1]
    formula, start = FORMULAS[how.table.formula], how.table.start
    rescaled = how.mode is SinCosMode.RESCALED
    old_places = _source(how.table.places)
    old_places = (old_places or (frames[0], source)) if rescaled else None
    places = _positions(frames[1], target, start, old_places)
    shape = (frames[1], target.height, target.width, channels)
    cells = round_once(formula.values(places, channels), array.dtype).reshape(shape)
    same_places = formula.dimensions > 1 or source.height == 1  # flattened indexes move with w
    if how.mode is SinCosMode.ABSOLUTE and same_places and how.table.places is None:
        old = parts.grid[: frames[1], : target.height, : target.width]
        cells[: old.shape[0], : old.shape[1], : old.shape[2]] = old
    return layout.fold(Unfolded(parts.prefix, cells, parts.suffix), array.shape)


def _positions(
    frames: int, grid: Grid, start: int, source: tuple[int, Grid] | None = None
) -> Positions:
    """Number the rows along every axis; with `source`, in those frames' and that grid's places."""
    before, whole = source or (frames, grid)
    y = _along(grid.height, whole.height)
    x = _along(grid.width, whole.width)
    t = _along(frames, before)
    t, y, x = (axis.reshape(-1) for axis in np.meshgrid(t, y, x, indexing="ij"))
    # The flattened index, for formulas without a grid.
    line = (t * whole.height + y) * whole.width + x + start
    return {"t": t, "y": y, "x": x, "l": line}


def _along(target: int, source: int) -> NDArray[np.float64]:
    position = np.arange(target, dtype=np.float64)
    return position if source == target else (position + 0.5) * source / target - 0.5
