"""Say what became of prefix and suffix rows that no resize touches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.families.tables import Step
from resize_pos.quality.checks import Check, Level
from resize_pos.quality.measures.sampling import Wide
from resize_pos.quality.measures.table import unfold

_SAME = 1e-3  # of the length of a row: so near are two rows that are the same
_MOST_LISTED = 4  # kinds of changes


def describe_prefix(
    checks: tuple[Check, ...], step: Step, tables: tuple[NDArray[Any], NDArray[Any]]
) -> tuple[Check, ...]:
    """Add to a failed check of prefix rows which of them changed, and to what, where that shows."""
    if not any(check.name == "prefix" and check.level is Level.FAIL for check in checks):
        return checks
    old, new = unfold(step, *tables)
    before, after = (
        np.concatenate([parts.prefix, parts.suffix], axis=1)[0].astype(np.float64)
        for parts in (old, new)
    )
    cells = old.grid[0].reshape(-1, before.shape[1]).astype(np.float64)
    if before.shape != after.shape:
        return checks
    found: dict[str, list[int]] = {}
    for number, row in enumerate(after):
        if not _same(row, before[number]):
            found.setdefault(_what(row, number, before, cells), []).append(number)
    listed = [_in_words(rows, what, len(after)) for what, rows in found.items()]
    words = "; ".join(listed[:_MOST_LISTED]) + ("; …" if len(listed) > _MOST_LISTED else "")
    return tuple(
        replace(check, detail=f"{check.detail} ({words})") if check.name == "prefix" else check
        for check in checks
    )


def _in_words(rows: list[int], what: str, count: int) -> str:
    """Say what some rows are, counted from 0, suffix rows after the others."""
    if len(rows) == 1:
        return f"row {rows[0]} is {what}"
    if len(rows) == count:
        return f"all {count} rows are {what}"
    return f"rows {', '.join(map(str, rows))} are {what}"


def _what(row: Wide, number: int, before: Wide, cells: Wide) -> str:
    if not row.any():
        return "all zero"
    for other, old in enumerate(before):
        if _same(row, old):
            return f"the source's row {other}"
    near = int(np.sqrt(((cells - row) ** 2).sum(axis=1)).argmin())
    if _same(row, cells[near]):
        return f"the source's grid cell {near}"
    old = before[number]
    factor = float(row @ old) / (float(old @ old) or 1.0)
    if _same(row, factor * old):
        return f"multiplied by {factor:.3g}"
    return "unlike any row of the source"


def _same(row: Wide, other: Wide) -> bool:
    return float(np.linalg.norm(row - other)) <= _SAME * float(np.linalg.norm(other))
