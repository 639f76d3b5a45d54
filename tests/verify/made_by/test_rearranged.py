"""Rearranged tables are named whatever kernel resized them, and honest ones are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known, known_tables
from benchmarks.ways import proper
from resize_pos.core.geometry import Grid
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.measures.table import unfold
from resize_pos.verify.against_source import explain
from resize_pos.verify.made_by.pair import make_pair
from resize_pos.verify.made_by.rearranged import find_turned, find_unpermuted

Wide = NDArray[np.float64]
TABLES = {table.name: table for table in known_tables()}
NAMES = ("fashion_plain_11x8", "vit_base_14x14", "pulse_mean_9x9")
KERNELS = ("torch area", "PIL lanczos", "scipy zoom cubic")
TURNED: dict[str, tuple[Callable[[Wide], Wide], str]] = {
    "mirrored": (lambda c: c[:, ::-1], "mirrored horizontally"),
    "upside down": (lambda c: c[::-1], "mirrored vertically"),
    "turned": (lambda c: c[::-1, ::-1], "turned by 180°"),
    "transposed": (lambda c: c.swapaxes(0, 1), "transposed"),
}


def resized(cells: NDArray[np.floating], target: tuple[int, int], by: str) -> Wide:
    return np.asarray(proper.OTHERS[by](np.ascontiguousarray(cells, np.float32), target))


def cells_of(known: Known) -> NDArray[np.float32]:
    return known.rows[known.prefix :].reshape(*known.grid, -1)


def whole(known: Known, cells: NDArray[np.floating]) -> NDArray[np.float32]:
    rows = cells.reshape(-1, known.rows.shape[1])
    return np.concatenate([known.rows[: known.prefix], rows]).astype(np.float32)


@pytest.mark.parametrize("by", KERNELS)
@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_turned_is_named(name: str, how: str, by: str) -> None:
    known, target = TABLES[name], (21, 20)
    change, words = TURNED[how]
    made = whole(known, resized(change(cells_of(known).astype(np.float64)), target, by))
    found = explain(step_for(known, target), known.rows, made)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert words in found.diagnosis.detail


@pytest.mark.parametrize("by", KERNELS)
@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", NAMES)
def test_a_forgotten_permute_is_named(name: str, before: bool, after: bool, by: str) -> None:
    known, target = TABLES[name], (13, 10)
    channels = known.rows.shape[1]
    cells = cells_of(known)
    if before:
        cells = cells.reshape(channels, -1).T.reshape(cells.shape)
    rows = resized(cells, target, by).reshape(-1, channels)
    if after:
        rows = np.ascontiguousarray(rows.T).reshape(-1, channels)
    found = explain(step_for(known, target), known.rows, whole(known, rows))
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name == "permute forgotten"
    when = " and ".join(word for word, was in (("before", before), ("after", after)) if was)
    assert found.diagnosis.detail.endswith(f"channels × rows {when} the resize")


@pytest.mark.parametrize("target", [(13, 10), (5, 7), (20, 9)])
@pytest.mark.parametrize("by", proper.OTHERS)
@pytest.mark.parametrize("name", NAMES)
def test_an_honest_table_is_neither(name: str, by: str, target: tuple[int, int]) -> None:
    known, step = TABLES[name], step_for(TABLES[name], target)
    made = whole(known, resized(cells_of(known), target, by))
    old, new = unfold(step, known.rows, made)
    pair = make_pair(old, new, Grid(*known.grid), Grid(*target))
    assert find_turned(pair) is None
    assert find_unpermuted(pair) is None


@pytest.mark.parametrize("by", ["PIL lanczos", "torch area"])
@pytest.mark.parametrize("factor", [0.0, 3.0])
@pytest.mark.parametrize("name", ["vit_base_14x14", "fashion_14x10", "digits_5x4"])
def test_a_mean_that_no_kernel_gives_is_damage(name: str, factor: float, by: str) -> None:
    known, target = TABLES[name], (21, 20)
    cells = resized(cells_of(known), target, by)
    mean = cells_of(known).mean(axis=(0, 1))
    found = explain(step_for(known, target), known.rows, whole(known, cells + (factor - 1) * mean))
    assert worst(found.checks) is Level.FAIL, found.checks
