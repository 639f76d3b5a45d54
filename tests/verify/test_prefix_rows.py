"""Changed prefix and suffix rows are counted and described."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import known_tables
from benchmarks.ways.damage import honest
from resize_pos.quality.checks import Check, Level
from resize_pos.verify.against_source import explain

Table = NDArray[np.float32]
KNOWN = next(table for table in known_tables() if table.name == "other_mnist_7x7_registers")
TARGET = (6, 11)
OTHER = np.random.default_rng(1).normal(size=KNOWN.rows.shape).astype(np.float32)
CHANGED: dict[str, tuple[Callable[[Table], Table], str]] = {
    "zero": (lambda rows: 0 * rows, "all 5 rows are all zero"),
    "one zero": (lambda rows: rows * (np.arange(5)[:, None] != 2), "row 2 is all zero"),
    "halved": (lambda rows: rows / np.float32(2), "all 5 rows are multiplied by 0.5"),
    "other": (lambda rows: OTHER[: len(rows)], "all 5 rows are unlike any row of the source"),
    "exchanged": (
        lambda rows: rows[[0, 3, 2, 1, 4]],
        "row 1 is the source's row 3; row 3 is the source's row 1",
    ),
    "a cell": (
        lambda rows: np.concatenate([rows[:3], KNOWN.rows[5 + 8 : 5 + 9], rows[4:]]),
        "row 3 is the source's grid cell 8",
    ),
    "two": (
        lambda rows: np.concatenate([OTHER[:2], rows[2:]]),
        "rows 0, 1 are unlike any row of the source",
    ),
}


def prefix_check(rows: Table) -> Check:
    made = honest(KNOWN.rows, KNOWN.prefix, KNOWN.grid, TARGET)
    made[: KNOWN.prefix] = rows
    found = explain(step_for(KNOWN, TARGET), KNOWN.rows, made)
    return next(check for check in found.checks if check.name == "prefix")


@pytest.mark.parametrize("how", CHANGED)
def test_what_became_of_prefix_rows_is_said(how: str) -> None:
    change, words = CHANGED[how]
    assert KNOWN.prefix == 5
    found = prefix_check(change(KNOWN.rows[:5]))
    assert found.level is Level.FAIL
    assert found.detail.endswith(f"; no resize touches them ({words})")


def test_rows_that_are_kept_need_no_words() -> None:
    found = prefix_check(KNOWN.rows[:5])
    assert found.level is Level.OK
    assert found.detail == "prefix and suffix rows are unchanged"
