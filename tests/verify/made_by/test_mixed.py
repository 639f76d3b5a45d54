"""Channels that were mixed, cells of one length, and positions that were set off are damage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import made, step_for
from benchmarks.verdict.tables import Known, known_tables
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.mixed import find_mixed

Wide = NDArray[np.float64]
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
PULSE, ROWS = "pulse_mean_18x18", "pix2tex_12x42"


def cells_of(known: Known, target: Shape, how: str = "timm") -> Wide:
    return made(known, target, how)[1][known.prefix :].astype(np.float64)


def verified(known: Known, target: Shape, cells: Wide) -> TableVerification:
    rows = np.concatenate([known.rows[: known.prefix], cells.astype(np.float32)])
    return explain(step_for(known, target), known.rows, rows)


def turned(channels: int, angle: float) -> Wide:
    """A matrix that mixes every channel with all others, a little."""
    random = np.random.default_rng(4).normal(size=(channels, channels))
    skew = (random - random.T) / np.sqrt(2 * channels)
    one = np.eye(channels)
    return np.linalg.solve(one + angle * skew, one - angle * skew)


@pytest.mark.parametrize("like", ["timm", "hf", "torchvision"])
@pytest.mark.parametrize(
    ("name", "target"), [(PULSE, (27, 25)), (PULSE, (11, 10)), (ROWS, (7, 23))]
)
def test_channels_that_were_turned_a_little_fail_by_name(
    name: str, target: Shape, like: str
) -> None:
    known = TABLES[name]
    cells = cells_of(known, target, like)
    mean = cells.mean(axis=0)
    mixed = mean + (cells - mean) @ turned(cells.shape[1], 0.15)
    found = verified(known, target, mixed)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name == "channels mixed", found.diagnosis


def test_a_factor_for_each_channel_and_another_table_are_no_mixture() -> None:
    known, target = TABLES[PULSE], (27, 25)
    cells = cells_of(known, target)
    lengths = np.ones(18 * 18)
    factors = np.random.default_rng(5).uniform(0.8, 1.2, cells.shape[1])
    assert find_mixed(cells * factors, [cells], lengths) is None
    other = cells_of(TABLES["pulse_spread_18x18"], target)
    assert find_mixed(other, [cells], lengths) is None
    assert find_mixed(cells @ turned(cells.shape[1], 0.15), [cells], lengths) is not None


def test_with_fewer_cells_than_channels_a_mixture_says_nothing() -> None:
    random = np.random.default_rng(6)
    cells, other = random.normal(size=(2, 30, 32))
    assert find_mixed(cells + 0.5 * other, [cells], np.ones(25)) is None


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_few_channels_are_no_sums_of_others(channels: int) -> None:
    """As many rows as channels explain everything; a relative table has few heads."""
    random = np.random.default_rng(7)
    honest = np.cumsum(random.normal(size=(13 * 11, channels)), axis=0)
    other = honest + 0.1 * np.cumsum(random.normal(size=honest.shape), axis=0)
    assert find_mixed(other, [honest], np.ones(9 * 7)) is None


@pytest.mark.parametrize("target", [(27, 25), (11, 10)])
def test_cells_of_one_length_fail_by_name(target: Shape) -> None:
    known = TABLES[PULSE]
    cells = cells_of(known, target)
    norms = np.linalg.norm(cells, axis=1, keepdims=True)
    found = verified(known, target, cells / norms * norms.mean())
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name == "normalised"


def test_cells_may_have_one_length_if_those_of_the_source_have() -> None:
    known, target = TABLES[PULSE], (27, 25)
    unit = known.rows / np.linalg.norm(known.rows, axis=1, keepdims=True)
    even = replace(known, rows=unit.astype(np.float32))
    cells = cells_of(even, target)
    restored = cells / np.linalg.norm(cells, axis=1, keepdims=True)
    assert worst(verified(even, target, restored).checks) is Level.OK


@pytest.mark.parametrize(
    ("name", "target"),
    [("opera_v1_4x4", (2, 2)), ("opera_year_4x4", (3, 2)), ("pulse_spread_9x9", (5, 4))],
)
def test_positions_that_were_set_off_fail_and_restored_ones_pass(name: str, target: Shape) -> None:
    """Norms do not show it: a large common vector hides how much positions differ."""
    known = TABLES[name]
    found = verified(known, target, cells_of(known, target, "sharpened"))
    assert worst(found.checks) is Level.FAIL, found.checks
    restored = verified(known, target, cells_of(known, target, "mean and deviation kept"))
    assert worst(restored.checks) is Level.OK, restored.checks


def test_lines_beside_upper_left_corners_are_read_from_other_places() -> None:
    known, target = TABLES["pulse_spread_5x5"], (3, 3)
    found = verified(known, target, cells_of(known, target, "places divided by the wrong size"))
    assert worst(found.checks) is Level.FAIL, found.checks
    honest = verified(known, target, cells_of(known, target, "asymmetric bilinear"))
    assert worst(honest.checks) is Level.OK, honest.checks
