"""Measures against their definitions, on tables whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.conventions import CONVENTIONS, Method, Resampling
from resize_pos.geometry import Grid
from resize_pos.measures import measure_grid, prefix_change
from resize_pos.transforms.absolute import resize_grid
from resize_pos.verdict import Level, judge, worst
from tests.builders import smooth

BICUBIC = CONVENTIONS["timm"].resampling


def measured(
    source: NDArray[np.float64], target: Grid, resampling: Resampling = BICUBIC, scale: float = 1.0
) -> dict[str, float]:
    resized = resize_grid(source, target, resampling) * scale
    return dict(measure_grid(source, resized, resampling))


@pytest.fixture
def table() -> NDArray[np.float64]:
    return smooth(9, 14, 32)[None].astype(np.float64)


@pytest.mark.parametrize("scale", [0.5, 0.8, 1.3])
def test_norm_ratios_follow_a_scaled_table(table: NDArray[np.float64], scale: float) -> None:
    plain, scaled = measured(table, Grid(12, 20)), measured(table, Grid(12, 20), scale=scale)
    for name in ("norm_ratio", "norm_ratio_p1", "norm_ratio_p99", "norm_ratio_edge"):
        assert scaled[name] == pytest.approx(plain[name] * scale)


def test_a_smooth_table_comes_back_from_a_round_trip(table: NDArray[np.float64]) -> None:
    assert measured(table, Grid(18, 30))["round_trip"] < 0.02
    rough = np.random.default_rng(0).normal(size=table.shape)
    assert measured(rough, Grid(5, 7))["round_trip"] > 0.5


def test_only_bicubic_overshoots(table: NDArray[np.float64]) -> None:
    step = np.zeros((1, 6, 9, 3))
    step[:, :, 4:] = 1
    assert measured(step, Grid(11, 17))["overshoot"] > 0.05
    for method in (Method.BILINEAR, Method.NEAREST):
        assert measured(step, Grid(11, 17), Resampling(method, antialias=False))["overshoot"] == 0


@pytest.mark.parametrize("target", [Grid(18, 28), Grid(13, 21), Grid(6, 9)])
def test_neighbours_are_compared_at_equal_distance(
    table: NDArray[np.float64], target: Grid
) -> None:
    found = measured(table, target)
    assert abs(found["neighbour_deficit"]) < 0.05
    assert found["neighbour_cosine_source"] - found["neighbour_cosine"] == pytest.approx(
        found["neighbour_deficit"]
    )


def test_shuffled_cells_lose_their_neighbours(table: NDArray[np.float64]) -> None:
    resized = resize_grid(table, Grid(12, 20), BICUBIC)
    cells = resized.reshape(1, -1, 32)
    shuffled = np.random.default_rng(0).permutation(cells, axis=1).reshape(resized.shape)
    measures = measure_grid(table, shuffled, BICUBIC)
    assert measures["neighbour_deficit"] > 0.5
    assert worst(judge(measures)) is Level.WARN


def test_a_single_row_has_neighbours_in_one_direction_only() -> None:
    row = smooth(1, 16, 8)[None].astype(np.float64)
    assert abs(measured(row, Grid(1, 24))["neighbour_deficit"]) < 0.05
    single = smooth(1, 1, 8)[None].astype(np.float64)
    assert "neighbour_deficit" not in measured(single, Grid(1, 1))


def test_an_all_zero_table_is_measured_without_dividing_by_zero() -> None:
    found = measured(np.zeros((1, 3, 5, 4)), Grid(6, 4))
    assert found["norm_ratio"] == 1
    assert found["round_trip"] == 0


def test_prefix_change_is_relative() -> None:
    rows = np.ones((1, 2, 4), np.float32)
    assert prefix_change(rows, rows) == 0
    assert prefix_change(rows, rows * 1.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("measures", "level"),
    [
        ({}, Level.OK),
        ({"norm_ratio": 0.95}, Level.OK),
        ({"norm_ratio": 0.80}, Level.WARN),
        ({"norm_ratio": 0.50}, Level.FAIL),
        ({"norm_ratio": 2.0}, Level.FAIL),
        ({"norm_ratio": 1.0, "neighbour_deficit": 0.3}, Level.WARN),
        ({"prefix_change": 0.01}, Level.WARN),
        ({"prefix_change": 0.5}, Level.FAIL),
    ],
)
def test_the_verdict_is_the_worst_check(measures: dict[str, float], level: Level) -> None:
    assert worst(judge(measures)) is level


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.parametrize("target", [Grid(12, 20), Grid(18, 28), Grid(7, 11)])
def test_every_honest_convention_is_ok_on_a_smooth_table(
    name: str, target: Grid, table: NDArray[np.float64]
) -> None:
    checks = judge(measured(table, target, CONVENTIONS[name].resampling))
    assert worst(checks) is Level.OK, checks
