"""The tensors that no step changes: the source's, byte for byte, or trained on from there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resize_pos.containers.base import Container
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.checks import Check, Level

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Untouched:
    """The tensors that should equal the source's: how many were compared, and which differ."""

    tensors: int
    bytes: int
    differing: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()  # another shape or dtype
    trained: tuple[str, ...] = ()  # the user says that they were trained on
    notes: tuple[Check, ...] = ()  # differences that are explained

    @property
    def checks(self) -> tuple[Check, ...]:
        """Return the checks for these tensors."""
        differ = "not the source's bytes (damaged, or trained on: pass --trained)"
        if self.trained:
            differ = "whole numbers that are not the source's; training does not change them"
        kinds = (
            (self.missing, "missing from the output"),
            (self.added, "not in the source"),
            (self.retyped, "stored with another shape or dtype"),
            (self.differing, differ),
        )
        found = [
            Check("bytes", Level.FAIL, f"{some_names(names)}: {words}")
            for names, words in kinds
            if names
        ]
        if self.trained:
            words = (
                f"{len(self.trained)} other tensors were trained on; their values are not judged"
            )
            found.append(Check("trained", Level.OK, words))
        if found:
            return (*found, *self.notes)
        same = "tensors are the source's, byte for byte"
        words = f"the other {same}" if self.notes else f"{self.tensors} other {same}"
        return (Check("bytes", Level.OK, words), *self.notes)


def compare_untouched(output: Container, source: Container, changed: set[str]) -> Untouched:
    """Compare every tensor that no step changes, byte for byte, one at a time."""
    mine, theirs = source.tensors, output.tensors
    retyped, differing = [], []
    count = total = 0
    for name, info in mine.items():
        if name in changed or name not in theirs:
            continue
        if (info.shape, info.dtype) != (theirs[name].shape, theirs[name].dtype):
            if not _same_rule(source, output, name):
                retyped.append(name)
            continue
        count += 1
        total += info.nbytes
        if not _same_bytes(source, output, name):
            differing.append(name)
    return Untouched(
        count,
        total,
        tuple(differing),
        tuple(name for name in mine if name not in theirs),
        tuple(name for name in theirs if name not in mine),
        tuple(retyped),
    )


def _same_rule(source: Container, output: Container, name: str) -> bool:
    """Return whether both tensors follow one rule at their own sizes, as a mask of ones does."""
    rule = source.rule_of(name)
    return rule is not None and rule == output.rule_of(name)


def _same_bytes(source: Container, output: Container, name: str) -> bool:
    first, second = source.read(name), output.read(name)
    left, right = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (first, second))
    return bool(np.array_equal(left, right))


def some_names(names: Sequence[str]) -> str:
    """List a few names, and count the rest."""
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown
