"""A table that training overwrote passes; noise of the same size does not, nor hidden damage."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import fewer_channels, made, step_for
from benchmarks.verdict.tables import Known, known_tables, tuned
from resize_pos.core.geometry import Grid
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.training import Movement, movement

Table = NDArray[np.float32]
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
# Real tables that training moved 0.8 and 1.8 times as far as their positions differ.
OVERWRITTEN: dict[str, tuple[str, Shape]] = {
    "dinov2_vits_37x37 9x11 hf, then 60 steps of AdamW at 0.001: table": (
        "dinov2_vits_37x37",
        (9, 11),
    ),
    "opera_year_4x4 6x5 hf, then 100 steps of AdamW at 0.001: table": ("opera_year_4x4", (6, 5)),
}


@cache
def moved_by(key: str) -> Table:
    return tuned()[key].rows


def judged(key: str, how: str, change: Table) -> TableVerification:
    """Make a table in one way, change it, and verify it."""
    known, target = source(key)
    return explain(step_for(known, target), known.rows, made(known, target, how)[1] + change)


def source(key: str) -> tuple[Known, Shape]:
    name, target = OVERWRITTEN[key]
    return fewer_channels(TABLES[name]), target


@pytest.mark.parametrize("key", OVERWRITTEN)
def test_a_table_that_training_overwrote_passes_and_says_so(key: str) -> None:
    found = judged(key, "hf", moved_by(key))
    assert worst(found.checks) is Level.OK, found.checks
    assert "an honest resize that training moved" in found.checks[0].detail


def noises(shape: tuple[int, ...], target: Shape) -> dict[str, NDArray[np.float64]]:
    random = np.random.default_rng(5)
    cells = random.normal(size=(*target, shape[1]))
    for axis in (0, 1):
        cells = cells + np.roll(cells, 1, axis)
    return {
        "normal": random.normal(size=shape),
        "even": random.uniform(-1, 1, shape),
        "Laplace": random.laplace(size=shape),
        "signs": random.choice([-1.0, 1.0], shape),
        "smooth": cells.reshape(shape),
        "one vector": np.broadcast_to(random.uniform(-1, 1, shape[1]), shape),
    }


@pytest.mark.parametrize("kind", ["normal", "even", "Laplace", "signs", "smooth", "one vector"])
@pytest.mark.parametrize("key", OVERWRITTEN)
def test_noise_of_the_same_size_does_not_pass(key: str, kind: str) -> None:
    change = moved_by(key)
    noise = noises(change.shape, source(key)[1])[kind]
    scaled = (noise * np.sqrt((change**2).mean() / (noise**2).mean())).astype(np.float32)
    found = judged(key, "hf", scaled)
    assert worst(found.checks) is not Level.OK, found.checks


@pytest.mark.parametrize(
    "how",
    [
        "one_d",
        "transposed",
        "rotated_180",
        "last_quarter_random",
        "reinitialised",
        "channels_reversed",
    ],
)
@pytest.mark.parametrize("key", OVERWRITTEN)
def test_damage_is_found_below_as_much_training(key: str, how: str) -> None:
    found = judged(key, how, moved_by(key))
    assert worst(found.checks) is Level.FAIL, found.checks


def test_what_training_does_is_told_by_its_figures() -> None:
    assert Movement(48, 0.8, 0.0, 2.4, 0.2, 0.7, 0.1, 1.0).is_training
    assert Movement(48, 4.0, 0.0, 2.4, 0.2, 0.7, 0.1, 1.0).is_training
    for other in (
        Movement(48, 6.0, 0.0, 2.4, 0.2, 0.7, 0.1, 1.0),  # nothing is left of the positions
        Movement(48, 4.5, -0.1, 2.4, 0.2, 0.7, 0.1, 0.55),  # half of them
        Movement(48, 0.8, -0.4, 2.4, 0.2, 0.7, 0.1, 0.68),  # positions were taken away
        Movement(48, 0.8, 0.6, 2.4, 0.2, 0.7, 0.1, 1.48),  # they were scaled
        Movement(48, 0.8, 0.0, 3.1, 0.2, 0.7, 0.1, 1.0),  # the tails of noise
        Movement(48, 0.8, 0.0, 2.4, 1.5, 0.7, 0.1, 1.0),  # only some channels or cells
        Movement(48, 0.8, 0.0, 2.4, 0.2, 1.0, 0.1, 1.0),  # as many directions as noise
        Movement(48, 0.8, 0.0, 2.4, 0.2, 0.7, 0.8, 1.0),  # all cells alike
        Movement(12, 0.8, 0.0, 2.4, 0.2, 0.7, 0.1, 1.0),  # too few cells to tell
    ):
        assert not other.is_training


def test_the_figures_of_plain_noise_are_those_of_noise() -> None:
    random = np.random.default_rng(1)
    grid = np.cumsum(np.cumsum(random.normal(size=(1, 9, 7, 96)), axis=1), axis=2)
    honest = grid[0, 1:, 1:].reshape(48, 96)  # any table: only the change is looked at
    target = Grid(8, 6)
    same = movement(grid, honest, target)
    assert same is not None
    change = 50 * random.normal(size=honest.shape)
    found = movement(grid, honest + change, target)
    assert found is not None
    assert found.tails == pytest.approx(3.0, abs=0.2)
    assert found.directions == pytest.approx(1.0, abs=0.05)
    assert found.moved > same.moved


@pytest.mark.parametrize("how", ["sines added", "a deviation added to all", "a constant added"])
@pytest.mark.parametrize(
    ("name", "target"), [("pulse_mean_18x18", (27, 25)), ("pulse_spread_9x9", (14, 13))]
)
def test_what_is_added_to_all_cells_is_no_training(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    found = explain(step_for(known, target), known.rows, made(known, target, how)[1])
    assert worst(found.checks) is Level.FAIL, found.checks


@pytest.mark.parametrize("smooth", [1, 2, 3])
def test_smooth_noise_fills_the_directions_of_noise_that_is_as_smooth(smooth: int) -> None:
    random = np.random.default_rng(3)
    grid = np.cumsum(np.cumsum(random.normal(size=(1, 9, 7, 96)), axis=1), axis=2)
    noise = random.normal(size=(14 + smooth, 11 + smooth, 96))
    for _ in range(smooth):
        noise = noise[1:, 1:] + noise[:-1, 1:] + noise[1:, :-1] + noise[:-1, :-1]
    found = movement(grid, 50 * noise.reshape(14 * 11, 96), Grid(14, 11))
    assert found is not None
    assert 0.88 < found.directions < 1.1


def test_few_cells_and_a_table_without_positions_tell_nothing() -> None:
    random = np.random.default_rng(2)
    few = random.normal(size=(1, 1, 3, 16))
    assert movement(few, random.normal(size=(30, 16)), Grid(5, 6)) is None
    constant = np.ones((1, 5, 4, 16))
    assert movement(constant, random.normal(size=(30, 16)), Grid(5, 6)) is None


def test_sgd_moves_some_cells_far_and_strengthens_positions() -> None:
    # What 60 steps at 0.01 left of a grid of 8×12 cells; Adam has none of these figures.
    by_sgd = Movement(64, 0.13, 0.0, 8.93, 1.36, 0.23, 0.01, 1.07, 0.18, 0.46)
    assert by_sgd.is_light_training
    others = (
        replace(by_sgd, tails=40.0),
        replace(by_sgd, left=1.0),
        replace(by_sgd, own=0.6),
        replace(by_sgd, directions=0.9),
    )
    assert not any(other.is_light_training for other in others)
