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


# pix2tex is the one whose source rows are a third as wide as the new cells.
@pytest.mark.parametrize("target", [(14, 14), (20, 31)])
@pytest.mark.parametrize("by", KERNELS)
@pytest.mark.parametrize("end", ["repeated", "zero", "from the other end"])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", ["fashion_plain_11x8", "pix2tex_12x42"])
def test_a_source_read_one_row_beside_is_named(
    name: str, early: bool, end: str, by: str, target: tuple[int, int]
) -> None:
    known = TABLES[name]
    rows = cells_of(known).reshape(-1, known.rows.shape[1])
    near, far = (rows[:1], rows[-1:]) if early else (rows[-1:], rows[:1])
    other = {"repeated": near, "zero": 0 * near, "from the other end": far}[end]
    moved = np.concatenate([other, rows[:-1]] if early else [rows[1:], other])
    made = whole(known, resized(moved.reshape(*known.grid, -1), target, by))
    found = explain(step_for(known, target), known.rows, made)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name in ("off by one", "prefix")
    if known.prefix == 0:  # a prefix row may look like the one that is repeated
        assert found.diagnosis.detail.endswith("too early" if early else "too late")


@pytest.mark.parametrize("by", KERNELS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_prefix_rows_in_the_grid_are_counted(count: int, by: str) -> None:
    known, target = TABLES["other_mnist_7x7_registers"], (6, 11)
    assert known.prefix > 4
    first = known.rows[known.prefix - count :][: known.grid[0] * known.grid[1]]
    made = whole(known, resized(first.reshape(*known.grid, -1), target, by))
    found = explain(step_for(known, target), known.rows, made)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None and found.diagnosis.name == "prefix"
    rows = "one prefix row was" if count == 1 else f"{count} prefix rows were"
    assert found.diagnosis.detail == f"{rows} taken for cells of the grid"


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


@pytest.mark.parametrize("by", ["PIL lanczos", "torch area", "TensorFlow bicubic"])
@pytest.mark.parametrize(
    ("name", "target"), [("other_depth_7x12", (4, 7)), ("other_place_16x10", (24, 14))]
)
def test_a_short_mean_that_was_removed_is_named(
    name: str, target: tuple[int, int], by: str
) -> None:
    """Its length is a tenth of how much positions differ, less than kernels differ there."""
    known = TABLES[name]
    cells = resized(cells_of(known), target, by)
    found = explain(step_for(known, target), known.rows, whole(known, cells - cells.mean((0, 1))))
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None and found.diagnosis.name == "mean removed"
