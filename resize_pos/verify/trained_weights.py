"""What may differ from the source if the user says that a checkpoint was trained on."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from enum import Enum

import numpy as np

from resize_pos.containers.base import Container
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.quality.checks import Check, Level
from resize_pos.verify.untouched import Untouched, some_names

# Of the length of the source's weight. An unrelated weight differs by more than 1.
_UNRELATED = 0.95
_BLOCK = 1 << 22  # numbers that are compared at once


class _Found(Enum):
    TRAINED = "trained"
    BROKEN = "broken"
    UNRELATED = "unrelated"


def is_recast(before: TensorInfo, after: TensorInfo) -> bool:
    """Whether both are floating-point numbers of one shape, perhaps of another precision."""
    floating = DTYPES[before.dtype].floating and DTYPES[after.dtype].floating
    return floating and before.shape == after.shape


def explain_trained(
    untouched: Untouched, output: Container, source: Container, tables: Collection[str]
) -> Untouched:
    """Accept what training does to the tensors that are no resized table, and say what it does not.

    Whole numbers stay as they are, but for counters, which are single numbers. A head may be new.
    The state of an optimizer belongs to the training, so it is not compared.
    """
    untouched = _without_states(untouched, output, source)
    mine, theirs = source.tensors, output.tensors
    recast = [name for name in untouched.retyped if is_recast(mine[name], theirs[name])]
    other = [*untouched.differing, *recast]
    fixed = [name for name in other if not DTYPES[mine[name].dtype].floating]
    fixed = [name for name in fixed if mine[name].elements > 1]
    trained = {name: _compare(name, output, source) for name in other if name not in fixed}

    def those(kind: _Found) -> list[str]:
        return [name for name, found in trained.items() if found is kind]

    left = "nothing of the source's is left (re-initialised, or another model's)"
    kinds = (
        (Level.FAIL, those(_Found.BROKEN), "NaN or infinite values"),
        (Level.WARN, those(_Found.UNRELATED), left),
        (Level.WARN, [n for n in untouched.missing if n not in tables], "missing from the output"),
        (Level.WARN, untouched.added, "not in the source"),
        (
            Level.WARN,
            [n for n in untouched.retyped if n not in recast],
            "stored with another shape or dtype (a new head, or damaged)",
        ),
    )
    notes = [
        Check("trained", level, f"{some_names(names)}: {words}")
        for level, names, words in kinds
        if names
    ]
    return replace(
        untouched,
        trained=tuple(trained),
        differing=tuple(fixed),
        missing=tuple(name for name in untouched.missing if name in tables),
        added=(),
        retyped=(),
        notes=(*untouched.notes, *notes),
    )


def _without_states(untouched: Untouched, output: Container, source: Container) -> Untouched:
    """Leave out the state of optimizers."""
    entries = tuple(f"{state.state}." for held in (output, source) for state in held.optimizers)

    def weights(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if not name.startswith(entries))

    return replace(
        untouched,
        differing=weights(untouched.differing),
        missing=weights(untouched.missing),
        added=weights(untouched.added),
        retyped=weights(untouched.retyped),
    )


def _compare(name: str, output: Container, source: Container) -> _Found:
    """Say what became of a tensor: how long the difference is, compared with the source's."""
    before, after = (held.read(name).reshape(-1) for held in (source, output))
    length = difference = 0.0
    for start in range(0, len(before), _BLOCK):
        old, new = (a[start : start + _BLOCK].astype(np.float64) for a in (before, after))
        if not np.isfinite(old).all():
            continue  # a mask, as of text
        if not np.isfinite(new).all():
            return _Found.BROKEN
        length += float(old @ old)
        difference += float((new - old) @ (new - old))
    # Training may leave nothing of a bias or a class token.
    one_row = sum(side > 1 for side in source.info(name).shape) < 2
    if one_row or math.sqrt(difference) <= _UNRELATED * math.sqrt(length):
        return _Found.TRAINED
    return _Found.UNRELATED if length else _Found.TRAINED
