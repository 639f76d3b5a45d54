"""Geometry from the weights: right and sure on smooth tables, silent on all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.planning.geometry.grid_solver import Hypothesis, Reading, RowCount, readings, settle
from resize_pos.planning.geometry.smoothness import (
    Score,
    is_confident,
    judge_readings,
    looks_untrained,
)
from tests.support.builders import flat, smooth

Rows = NDArray[np.float64]
FLAT = Layout.parse("1 (p h w s) d")
GRIDS = [(16, 64), (12, 42), (8, 32), (24, 6), (7, 7), (14, 14), (5, 9)]
NONE, ONE, FIVE = RowCount(0, "none"), RowCount(1, "cls"), RowCount(5, "cls + registers")


def sincos(height: int, width: int, seed: int) -> Rows:
    """Make MAE's fixed table."""
    omega = 1 / 10000 ** (np.arange(16) / 16)
    y, x = (axis.reshape(-1, 1) * omega for axis in np.mgrid[:height, :width])
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


def learned(height: int, width: int, seed: int) -> Rows:
    """Make noise that is correlated over three cells, with a tenth of white noise on top."""
    rng = np.random.default_rng(seed)
    grid = rng.normal(size=(height, width, 64))
    for axis, length in enumerate((height, width)):
        place = np.arange(length)
        blur = np.exp(-0.5 * ((place[:, None] - place) / 3) ** 2)
        blur /= np.sqrt((blur**2).sum(axis=1, keepdims=True))
        grid = np.moveaxis(np.tensordot(blur, grid, (1, axis)), 0, axis)
    noise: Rows = grid + 0.3 * rng.normal(size=grid.shape)
    return noise.reshape(height * width, 64)


def waves(height: int, width: int, seed: int) -> Rows:
    return smooth(height, width, 32, seed).reshape(height * width, 32).astype(np.float64)


MAKERS: dict[str, Callable[[int, int, int], Rows]] = {
    "sin-cos": sincos,
    "learned": learned,
    "waves": waves,
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_smooth_table_tells_its_grid(maker: str, grid: tuple[int, int]) -> None:
    rows = MAKERS[maker](*grid, 3)
    options = readings(len(rows), [(NONE, NONE)])
    opinion = judge_readings(rows[None], FLAT, options)
    assert opinion.choice is not None, opinion.words
    assert (opinion.choice.grid.height, opinion.choice.grid.width) == grid
    assert "scores" in opinion.words


@pytest.mark.parametrize("grid", [(16, 64), (12, 42), (14, 14)], ids=str)
def test_it_tells_the_prefix_too(grid: tuple[int, int]) -> None:
    table = flat(*grid, channels=48, prefix=1)
    options = readings(table.shape[1], [(NONE, NONE), (ONE, NONE), (FIVE, NONE)])
    opinion = judge_readings(table, FLAT, options)
    assert opinion.choice is not None, opinion.words
    assert opinion.choice.prefix is ONE


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_noise_tells_nothing_and_is_called_untrained(grid: tuple[int, int], seed: int) -> None:
    rows = np.random.default_rng(seed).normal(0, 0.02, (grid[0] * grid[1], 64))
    opinion = judge_readings(rows[None], FLAT, readings(len(rows), [(NONE, NONE)]))
    assert opinion.choice is None
    assert "untrained" in opinion.words


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_constant_table_is_called_untrained(value: float) -> None:
    assert "untrained" in looks_untrained(np.full((48, 8), value))


def test_a_shuffled_table_is_not_chosen_for() -> None:
    rows = np.random.default_rng(1).permutation(learned(12, 42, 0))
    opinion = judge_readings(rows[None], FLAT, readings(len(rows), [(NONE, NONE)]))
    assert opinion.choice is None


def test_a_text_table_is_not_taken_for_a_grid() -> None:
    rows = learned(1, 512, 0)
    opinion = judge_readings(rows[None], FLAT, readings(len(rows), [(NONE, NONE)]))
    assert opinion.choice is None


def test_values_are_not_looked_at_while_a_square_or_a_statement_settles_it() -> None:
    def never(_: object) -> object:
        raise AssertionError("the values were looked at")

    square = settle("t", 197, [ONE], [NONE], [], None, judge=never)  # type: ignore[arg-type]
    assert str(square.grid) == "14×14"
    stated = [Hypothesis(square.grid, "a config")]
    assert settle("t", 197, [NONE, ONE], [NONE], stated, None, judge=never).prefix == 1  # type: ignore[arg-type]


def test_readings_that_compete_are_settled_by_the_values_or_refused_with_the_scores() -> None:
    table = flat(12, 42, channels=48, prefix=1)

    def judge(options: object) -> object:
        return judge_readings(table, FLAT, options)  # type: ignore[arg-type]

    found = settle("t", 505, [ONE], [NONE], [], None, judge=judge)  # type: ignore[arg-type]
    assert str(found.grid) == "12×42"
    assert any("vary smoothly over 12×42" in line for line in found.evidence)
    noise = np.random.default_rng(0).normal(size=table.shape)

    def unsure(options: object) -> object:
        return judge_readings(noise, FLAT, options)  # type: ignore[arg-type]

    with pytest.raises(GeometryError) as caught:
        settle("t", 505, [ONE], [NONE], [], None, judge=unsure)  # type: ignore[arg-type]
    assert "untrained" in caught.value.message
    assert "--from-grid" in str(caught.value.hint)


def test_a_stated_grid_with_two_places_for_it_is_settled_by_the_values() -> None:
    """128 rows may be 2 + 9×14 or 1 + 9×14 + 1; a shift by one row cuts other columns."""
    two = RowCount(2, "two rows")
    for before, after in ((2, 0), (1, 1)):
        table = np.concatenate(
            [flat(9, 14, channels=48, prefix=before), np.ones((1, after, 48), np.float32)], axis=1
        )

        def judge(options: object, table: NDArray[Any] = table) -> object:
            return judge_readings(table, FLAT, options)  # type: ignore[arg-type]

        stated = [Hypothesis(Grid(9, 14), "--from-grid 9x14", binding=True)]
        found = settle("t", 128, [ONE, two], [NONE, ONE], stated, None, judge=judge)  # type: ignore[arg-type]
        assert (found.prefix, found.suffix) == (before, after)
        assert any("scores" in line for line in found.evidence)
        with pytest.raises(GeometryError, match="can be read as"):
            settle("t", 128, [ONE, two], [NONE, ONE], stated, None)


def test_a_prefix_that_nothing_speaks_for_is_a_hint_and_no_answer() -> None:
    table = flat(7, 11, channels=48, prefix=3)

    def judge(options: object) -> object:
        return judge_readings(table, FLAT, options)  # type: ignore[arg-type]

    with pytest.raises(GeometryError, match=r"smoothly over 7×11: 80 = 3 \+ 7×11 scores") as caught:
        settle("t", 80, [NONE, ONE], [NONE], [], None, judge=judge)  # type: ignore[arg-type]
    assert "--prefix 3 --from SIZE" in str(caught.value.hint)  # the patch is not known either
    flagged = [RowCount(1, "--prefix 1")]
    with pytest.raises(GeometryError) as caught:
        settle("t", 80, flagged, [NONE], [], None, judge=judge)  # type: ignore[arg-type]
    assert "--prefix 3" not in str(caught.value.hint)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_the_answer_does_not_depend_on_the_scale(scale: float) -> None:
    table = flat(6, 10, channels=48, prefix=1).astype(np.float64)
    options = readings(61, [(ONE, NONE)])
    choice = judge_readings(table, FLAT, options).choice
    assert choice is not None and str(choice.grid) == "6×10"
    assert judge_readings(table * scale, FLAT, options).choice == choice


def test_a_rival_of_another_width_with_nearly_the_same_score_leaves_doubt() -> None:
    best, rival = Reading(NONE, Grid(6, 10), NONE), Reading(NONE, Grid(5, 12), NONE)
    assert is_confident([Score(best, 20.0, 0.5), Score(rival, 10.0, 0.5)])
    assert not is_confident([Score(best, 20.0, 0.5), Score(rival, 19.0, 0.5)])
    assert is_confident([Score(best, 20.0, 0.5), Score(rival, -1.0, 0.5)])


def test_a_volume_is_read_between_its_other_rows() -> None:
    """3×6×10 cells, two rows before them and one after."""
    slices = np.concatenate([smooth(6, 10, 48, seed) for seed in (1, 2, 3)]).reshape(1, -1, 48)
    ends = np.random.default_rng(5).normal(size=(1, 3, 48)).astype(np.float32)
    table = np.concatenate([ends[:, :2], slices, ends[:, 2:]], axis=1)
    two = RowCount(2, "two rows")
    grids = ((3, Grid(6, 10)), (6, Grid(3, 10)), (2, Grid(9, 10)), (3, Grid(10, 6)))
    options = [Reading(two, grid, ONE, frames) for frames, grid in grids]
    choice = judge_readings(table, FLAT, options).choice
    assert choice == options[0]
