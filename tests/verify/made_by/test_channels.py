"""A method is recognised by some channels, and holds only if all channels follow it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import made, step_for
from benchmarks.verdict.tables import known_tables
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.measures.sampling import spread
from resize_pos.verify.against_source import TableVerification, explain

Table = NDArray[np.float32]
KNOWN = {table.name: table for table in known_tables()}["other_masked_14x18"]  # 128 channels
TARGET = (21, 25)
# No sample of 24 or 48 channels has these.
UNSEEN = np.setdiff1d(np.arange(KNOWN.rows.shape[1]), spread(KNOWN.rows.shape[1], 48))


def verified(how: str, channels: NDArray[np.intp], kind: str) -> TableVerification:
    table: Table = made(KNOWN, TARGET, how)[1].copy()
    cells = table[KNOWN.prefix :]
    changed = {
        "negated": -cells[:, channels],
        "zero": np.zeros_like(cells[:, channels]),
        "mirrored": cells.reshape(*TARGET, -1)[:, ::-1][..., channels].reshape(len(cells), -1),
        "doubled": 2 * cells[:, channels],
    }
    cells[:, channels] = changed[kind]
    return explain(step_for(KNOWN, TARGET), KNOWN.rows, table)


@pytest.mark.parametrize("kind", ["negated", "zero", "mirrored", "doubled"])
@pytest.mark.parametrize("count", [1, 12, len(UNSEEN)])
@pytest.mark.parametrize(
    "how",
    ["timm", "dpt", "PIL lanczos", "two hops bicubic", "torch area"],
)
def test_channels_outside_of_every_sample_are_found(how: str, count: int, kind: str) -> None:
    found = verified(how, UNSEEN[:count], kind)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.made_by is None
    assert f"{count} of 128 channels differ" in found.checks[0].detail
    assert f"({UNSEEN[0]}" in found.checks[0].detail


@pytest.mark.parametrize("count", [1, 12])
def test_channels_are_found_where_norms_were_restored(count: int) -> None:
    found = verified("bicubic, norm restored", UNSEEN[:count], "negated")  # norms stay as they were
    assert worst(found.checks) is Level.FAIL, found.checks
    assert f"norms restored, but {count} of 128 channels differ" in found.checks[0].detail


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("weak", [1.0, 1e-3, 1e-6])
def test_rounding_does_not_make_a_weak_channel_strange(dtype: type, weak: float) -> None:
    rows = KNOWN.rows.copy()
    rows[:, UNSEEN[:4]] *= weak
    source = rows.astype(dtype).astype(np.float32)
    known = replace(KNOWN, rows=source)
    table: NDArray[Any] = made(known, TARGET, "timm")[1].astype(dtype)
    found = explain(step_for(known, TARGET), source, table)
    assert worst(found.checks) is Level.OK, found.checks
