"""Optimizer state in a training checkpoint follows its table: resized with it, or removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from resize_pos.containers.base import Container
from resize_pos.core.errors import TableError
from resize_pos.families.tables import Action, Step
from resize_pos.planning.plan import Plan
from resize_pos.planning.rules.optimizer import optimizer_steps
from resize_pos.quality.checks import Check, Level
from resize_pos.transforms.execute import transform
from resize_pos.verify.untouched import Untouched


def explain_states(
    untouched: Untouched, output: Container, source: Container, plan: Plan
) -> Untouched:
    """Take what belongs to tables that change out of the tensors that should be equal.

    State of the right shape with other values is left to the comparison: it was trained on.
    """
    if not source.optimizers:
        return untouched
    try:
        planned = optimizer_steps(plan.steps, source.tensors, source.optimizers, plan.request)
    except TableError:  # nothing says which state belongs to which table
        return untouched
    states = [step for step in planned if step.state is not None]
    resized = {step.name for step in states if _is_resized(step, output, source)}
    removed = set(_removed(states, output, source))
    if not resized and not removed:
        return untouched
    words = "resized with its table" if resized else "removed with the old size of its table"
    note = Check("optimizer", Level.OK, f"optimizer state was {words}")
    return replace(
        untouched,
        retyped=tuple(name for name in untouched.retyped if name not in resized),
        missing=tuple(name for name in untouched.missing if name not in removed),
        notes=(*untouched.notes, note),
    )


def _is_resized(step: Step, output: Container, source: Container) -> bool:
    info = output.tensors.get(step.name)
    if step.action is Action.DROP or info is None:
        return False
    if (info.shape, info.dtype) != (step.target_shape, step.tensor.dtype):
        return False
    return bool(np.array_equal(transform(step, source.read(step.name)), output.read(step.name)))


def _removed(states: list[Step], output: Container, source: Container) -> Iterator[str]:
    """Give the tensors of every entry of which nothing is left."""
    for entry in {step.state.entry for step in states if step.state is not None}:
        names = [name for name in source.tensors if name.startswith(f"{entry}.")]
        if not any(name in output.tensors for name in names):
            yield from names
