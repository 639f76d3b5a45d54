"""Prefix rows that were trained: they moved as the tokens did that they are added to.

A class token and its row of the table are added, so both get the same gradient. Whatever the
optimizer makes of it, it moves both alike. Damage to a table moves its row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.containers.base import Container
from resize_pos.core.tensors import DTYPES
from resize_pos.families.tables import Step
from resize_pos.quality.checks import Check, Level
from resize_pos.quality.measures.table import unfold

_ALIKE = 0.9  # cosine of both movements; with one rate for both, optimizers have 0.99 and more
_LENGTHS = (0.5, 2.0)  # how long the movement of a row may be, relative to its token's
_FEWEST = 16  # channels; on fewer, movements may be alike by chance
_WORDS = "prefix or suffix rows moved as the tokens did that they are added to: they were trained"


def accept_trained_prefix(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Accept prefix rows that were found to have moved with their tokens."""
    accepted = Check("prefix", Level.OK, _WORDS)
    return tuple(
        accepted if check.name == "prefix" and check.level is not Level.OK else check
        for check in checks
    )


def moved_with_tokens(
    step: Step,
    tables: tuple[NDArray[Any], NDArray[Any]],
    source: Container,
    output: Container,
) -> bool:
    """Whether each prefix and suffix row that moved did so as some token of the model did.

    `tables`: before and after. A token is told by its shape: as many channels, and no more rows.
    """
    if not step.table.prefix + step.table.suffix:
        return False
    old, new = (
        np.concatenate([parts.prefix, parts.suffix], axis=1).astype(np.float64)
        for parts in unfold(step, *tables)
    )
    if old.shape != new.shape or old.shape[0] != 1 or old.shape[-1] < _FEWEST:
        return False
    moved = [row for row in (new - old)[0] if row.any()]
    if not moved:
        return False
    tokens = _movements(step.table.name, old.shape[1], old.shape[2], source, output)
    return all(any(_alike(row, token) for token in tokens) for row in moved)


def _movements(
    table: str, rows: int, width: int, source: Container, output: Container
) -> list[NDArray[np.float64]]:
    """Return how every tensor moved that may be a token, row by row."""
    found: list[NDArray[np.float64]] = []
    for name, info in source.tensors.items():
        other = output.tensors.get(name)
        alike = other is not None and other.shape == info.shape
        token = info.shape[-1:] == (width,) and info.elements <= rows * width and name != table
        if alike and token and DTYPES[info.dtype].floating:
            before, after = (
                held.read(name).astype(np.float64).reshape(-1, width) for held in (source, output)
            )
            found += list(after - before)
    return found


def _alike(row: NDArray[np.float64], token: NDArray[np.float64]) -> bool:
    length, other = float(np.linalg.norm(row)), float(np.linalg.norm(token))
    least, most = (factor * other for factor in _LENGTHS)
    return least <= length <= most and float(row @ token) >= _ALIKE * length * other
