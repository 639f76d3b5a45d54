"""Find the recipe that made a table: a length method, its sin-cos formula, a way to resample it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import PEERS
from resize_pos.core.operations import (
    Fill,
    Lengthen,
    LengthMethod,
    Operation,
    Resample,
    ResampleMixing,
    ResampleTiled,
    SinCos,
    SinCosMode,
)
from resize_pos.families.tables import Step
from resize_pos.transforms.execute import transform

_PLAIN = (
    Lengthen(LengthMethod.TILE),
    *(Lengthen(LengthMethod.KEEP, fill) for fill in Fill),
    Lengthen(LengthMethod.LINEAR),
    Lengthen(LengthMethod.CUBIC),
    Lengthen(LengthMethod.NEAREST),
)
_CLOSE = 1e-5  # of the largest value: what other libraries compute in float32


def find_recipe(step: Step, before: NDArray[Any], after: NDArray[Any]) -> tuple[Operation, float]:
    """Return the recipe whose result is nearest to a table, and how far the table is from it."""
    scale = float(np.max(np.abs(before.astype(np.float64)))) or 1.0
    found: list[tuple[float, Operation]] = []
    for candidate in _candidates(step, before, after):
        expected = transform(replace(step, operation=candidate), before).astype(np.float64)
        distance = float(np.max(np.abs(after.astype(np.float64) - expected))) / scale
        found.append((distance, candidate))
        if distance == 0:
            break
    nearest, operation = min(found, key=lambda entry: entry[0])
    return operation, nearest


def is_close(distance: float, dtype: np.dtype[Any]) -> bool:
    """Whether a distance is rounding, in float32 or in the stored dtype."""
    from ml_dtypes import finfo

    return distance <= max(_CLOSE, 2 * float(finfo(dtype).eps))


def _candidates(
    step: Step, before: NDArray[Any], after: NDArray[Any]
) -> Iterator[Lengthen | SinCos | Resample | ResampleMixing | ResampleTiled]:
    if isinstance(step.operation, Resample | ResampleMixing | ResampleTiled):
        own = step.operation.resampling
        for resampling in dict.fromkeys([own, *(peer.resampling for peer in PEERS)]):
            yield replace(step.operation, resampling=resampling)
        return
    if isinstance(step.operation, SinCos):
        for mode in (SinCosMode.RESCALED, SinCosMode.ABSOLUTE):
            if mode is SinCosMode.ABSOLUTE or step.operation.table.dimensions > 1:
                yield SinCos(step.operation.table, mode)
        return
    if step.target.cells < step.table.length:
        yield Lengthen(LengthMethod.KEEP)
    yield from _PLAIN
    # The first stretched row is exactly at an old position, so it is equal, too.
    equal = _equal_rows(step, before, after)
    most = min(step.table.length - 2, step.target.cells - 1)
    for first in sorted({min(max(equal - 1, 0), most), min(equal, most)}):
        if first >= 0:
            yield Lengthen(LengthMethod.STRETCH, first=first)


def _equal_rows(step: Step, before: NDArray[Any], after: NDArray[Any]) -> int:
    """Count the unchanged positions at the beginning."""
    table = step.table
    old = table.layout.unfold(before, table.prefix, table.grid, table.suffix).grid[:, 0]
    new = table.layout.unfold(after, table.prefix, step.target, table.suffix).grid[:, 0]
    both = min(old.shape[1], new.shape[1])
    same = np.all(old[:, :both] == new[:, :both], axis=(0, 2))
    return int(both if same.all() else np.argmin(same))
