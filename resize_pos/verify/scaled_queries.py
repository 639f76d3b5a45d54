"""Recognise weights that differ from the source only by `--attention-scale`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.containers.base import Container
from resize_pos.core.errors import TableError
from resize_pos.core.operations import ScaleQueries
from resize_pos.planning.plan import Plan
from resize_pos.planning.rules.attention import scale_steps
from resize_pos.quality.checks import Check, Level
from resize_pos.transforms.execute import transform

# Two steps in the last place: other code may multiply in another order, or in two resizes.
_ROUNDING = {"float64": 1e-14, "float32": 5e-7, "float16": 2e-3, "bfloat16": 1.6e-2}
_SMALL = 1e-4  # of the largest value: below it, half precision has coarser steps


def find_scaled(
    output: Container, source: Container, plan: Plan, differing: Collection[str]
) -> tuple[frozenset[str], tuple[Check, ...]]:
    """Return the differing tensors that are the source's with scaled queries, and a check."""
    if not differing:
        return frozenset(), ()
    try:
        steps = scale_steps(plan.steps, source.tensors)
    except TableError:
        return frozenset(), ()
    found: dict[str, float] = {}
    for step in steps:
        if step.name in differing and isinstance(step.operation, ScaleQueries):
            expected = transform(step, source.read(step.name))
            if _is_scaled(source.read(step.name), expected, output.read(step.name)):
                found[step.name] = step.operation.factor
    if not found:
        return frozenset(), ()
    factors = ", ".join(dict.fromkeys(f"{factor:.4f}" for factor in found.values()))
    words = f"--attention-scale: {len(found)} tensors are the source's, queries × {factors}"
    level = Level.OK if len(found) == len(steps) else Level.FAIL
    if level is Level.FAIL:
        words += f", but {len(steps) - len(found)} of {len(steps)} of the same attention are not"
    return frozenset(found), (Check("attention", level, words),)


def _is_scaled(before: NDArray[Any], expected: NDArray[Any], after: NDArray[Any]) -> bool:
    """Whether the queries were scaled, up to rounding in another order, and nothing else."""
    kept = expected == before
    if not np.array_equal(after[kept], before[kept]):
        return False
    wide, made = expected.astype(np.float64), after.astype(np.float64)
    most = _ROUNDING.get(expected.dtype.name, 0.0)
    sizes = np.abs(wide)
    return bool(np.all(np.abs(made - wide) <= most * np.maximum(sizes, _SMALL * sizes.max())))
