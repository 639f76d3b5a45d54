"""Which honest method made this table? Recompute it by every convention and every proper kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Unfolded
from resize_pos.core.conventions import CONVENTIONS, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.families.tables import Step
from resize_pos.quality.measures.sampling import Wide, ratio, resample, size
from resize_pos.transforms.execute import transform
from resize_pos.verify.made_by.channels import in_words, strange_channels
from resize_pos.verify.made_by.diagnosis import Diagnosis
from resize_pos.verify.made_by.pair import Pair
from resize_pos.verify.made_by.proper import recognise
from resize_pos.verify.made_by.turned import flat, resamplings

# Rounding errors of the libraries: they compute a float32 table in float32, and some compute half
# precision in the stored dtype.
_TOLERANCE = {"float64": 5e-5, "float32": 5e-5, "float16": 3e-3, "bfloat16": 1.5e-2}
_COARSE = 0.1  # eight bits


@dataclass(frozen=True, slots=True)
class ConventionMatch:
    """How near a table is to what a convention makes of the source."""

    names: tuple[str, ...]  # libraries with this convention; empty if it is no library's default
    resampling: Resampling
    error: float  # relative L2 distance
    exact: bool  # the error is within rounding

    def __str__(self) -> str:
        whose = f"{' = '.join(self.names)}: " if self.names else ""
        return f"{whose}{self.resampling}"


def match_conventions(pair: Pair, dtype: np.dtype[Any]) -> tuple[ConventionMatch, ...]:
    """Recompute the grid under every convention; nearest first."""
    tolerance = _TOLERANCE.get(dtype.name, _COARSE)
    found = []
    for resampling in resamplings():
        names = tuple(c.name for c in CONVENTIONS.values() if c.resampling == resampling)
        error = distance(pair.cells_after, honest_rows(pair, resampling))
        found.append(ConventionMatch(names, resampling, error, error <= tolerance))
    return tuple(sorted(found, key=lambda match: match.error))


def matched_frames(
    step: Step, before: NDArray[Any], after: NDArray[Any]
) -> tuple[ConventionMatch, ...]:
    """Recompute a table with another number of frames under every convention; nearest first."""
    tolerance = _TOLERANCE.get(after.dtype.name, _COARSE)
    found = []
    for resampling in resamplings():
        names = tuple(c.name for c in CONVENTIONS.values() if c.resampling == resampling)
        made = transform(replace(step, operation=Resample(resampling)), before)
        error = distance(after.astype(np.float64), made.astype(np.float64))
        found.append(ConventionMatch(names, resampling, error, error <= tolerance))
    return tuple(sorted(found, key=lambda match: match.error))


def recognise_proper(pair: Pair, dtype: np.dtype[Any]) -> tuple[str | None, Diagnosis | None]:
    """Name the honest method that made a table, if no library uses it for positions.

    The second result says which channels do not follow it.
    """
    tolerance = _TOLERANCE.get(dtype.name, _COARSE)
    rows = pair.cells_after
    method = recognise(pair.cells_before, rows, pair.target, tolerance, pair.norms)
    if method is None or pair.copies > 1:
        return None if method is None else method.name, None
    strange = method.strange_channels(pair.many_grid, pair.many_after, tolerance)
    return method.name, _changed(strange, pair.many_after.shape[1])


def find_changed_channels(
    old: Unfolded, new: Unfolded, target: Grid, match: ConventionMatch, dtype: np.dtype[Any]
) -> Diagnosis | None:
    """Say which channels do not follow the convention that a sample of them follows."""
    tolerance = _TOLERANCE.get(dtype.name, _COARSE)
    strange = strange_channels(old, new, target, match.resampling, tolerance)
    return _changed(strange, old.grid.shape[-1])


def _changed(strange: NDArray[np.intp], channels: int) -> Diagnosis | None:
    if not len(strange):
        return None
    return Diagnosis("changed", in_words(strange, channels), 0.0, certain=True)


def distance(rows: Wide, predicted: Wide) -> float:
    """Return how far rows are from what was predicted, relative to their size."""
    return ratio(size(rows - predicted), size(rows), 1.0)


def honest_rows(pair: Pair, resampling: Resampling) -> Wide:
    """Return the rows that a way to resample makes of the source."""
    return flat(resample(pair.cells_before, pair.target, resampling))
