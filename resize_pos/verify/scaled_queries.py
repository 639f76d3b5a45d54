"""Recognise weights that differ from the source only by `--attention-scale`."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from resize_pos.containers.base import Container
from resize_pos.core.errors import TableError
from resize_pos.core.operations import ScaleQueries
from resize_pos.planning.plan import Plan
from resize_pos.planning.rules.attention import scale_steps
from resize_pos.quality.checks import Check, Level
from resize_pos.transforms.execute import transform


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
            if np.array_equal(expected, output.read(step.name)):
                found[step.name] = step.operation.factor
    if not found:
        return frozenset(), ()
    factors = ", ".join(dict.fromkeys(f"{factor:.4f}" for factor in found.values()))
    words = f"--attention-scale: {len(found)} tensors are the source's, queries × {factors}"
    level = Level.OK if len(found) == len(steps) else Level.FAIL
    if level is Level.FAIL:
        words += f", but {len(steps) - len(found)} others of the same attention are not"
    return frozenset(found), (Check("attention", level, words),)
