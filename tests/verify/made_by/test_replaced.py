"""What stands in a table instead of the source is said in words that are true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known, known_tables
from benchmarks.ways import proper
from benchmarks.ways.damage import honest
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain

Table = NDArray[np.float64]
TABLES = {table.name: table for table in known_tables()}
NAMES = ("fashion_plain_11x8", "vit_base_14x14", "pix2tex_12x42")
TARGET = (10, 17)


def sincos(height: int, width: int, channels: int) -> Table:
    """Make a table of sines and cosines of the column, then of the row."""
    places = np.meshgrid(np.arange(width), np.arange(height))
    slowness = 10000.0 ** (np.arange(channels // 4) / (channels // 4))
    angles = [place.reshape(-1, 1) / slowness for place in places]
    return np.concatenate([wave(a) for a in angles for wave in (np.sin, np.cos)], axis=1)


def verified(known: Known, cells: Table, target: tuple[int, int] = TARGET) -> TableVerification:
    made = np.concatenate([known.rows[: known.prefix], cells]).astype(np.float32)
    return explain(step_for(known, target), known.rows, made)


def sound(known: Known, target: tuple[int, int] = TARGET) -> Table:
    made = honest(known.rows, known.prefix, known.grid, target, "hf")
    return made[known.prefix :].astype(np.float64)


INSTEAD: dict[str, Callable[[Table], Table]] = {
    "all zero": lambda cells: 0 * cells,
    "constant": lambda cells: 0 * cells + cells[3],
    "re-initialised": lambda cells: np.random.default_rng(4).normal(0, 0.02, cells.shape),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", INSTEAD)
def test_what_stands_there_instead_is_named(how: str, name: str) -> None:
    found = verified(TABLES[name], INSTEAD[how](sound(TABLES[name])))
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None and found.diagnosis.name == how


@pytest.mark.parametrize("how", ["all zero", "constant"])
def test_a_few_cells_are_enough_to_see_that_nothing_is_left(how: str) -> None:
    known, target = TABLES["fashion_plain_11x8"], (3, 5)
    found = verified(known, INSTEAD[how](sound(known, target)), target)
    assert found.diagnosis is not None and found.diagnosis.name == how


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_table_in_place_of_a_learned_one_is_named(name: str) -> None:
    known = TABLES[name]
    channels = known.rows.shape[1] // 4 * 4
    narrow = replace(known, rows=known.rows[:, :channels])
    found = verified(narrow, sincos(*TARGET, channels))
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.detail == "a fixed sin-cos table, nothing of the source is left"


@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize("name", NAMES)
def test_exchanged_cells_are_not_called_random(name: str, count: int) -> None:
    cells = sound(TABLES[name])
    longest = np.argsort(-np.linalg.norm(cells, axis=1))  # some cells were never trained
    chosen = longest[: 4 * count : 4]
    cells[chosen] = cells[np.roll(chosen, 1)]
    found = verified(TABLES[name], cells)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert f"{count} of 170 cells are the honest cells of other places" in found.diagnosis.detail


@pytest.mark.parametrize("name", NAMES)
def test_random_cells_are_called_random(name: str) -> None:
    cells = sound(TABLES[name])
    cells[::9] = np.random.default_rng(2).normal(0, cells.std(), cells[::9].shape)
    found = verified(TABLES[name], cells)
    assert found.diagnosis is not None
    assert "are random numbers, the rest is honest" in found.diagnosis.detail


@pytest.mark.parametrize("name", NAMES)
def test_channels_that_were_not_resized_are_not_called_random(name: str) -> None:
    known, cells = TABLES[name], sound(TABLES[name])
    half = cells.shape[1] // 2
    old = known.rows[known.prefix :]
    cells[:, half:] = old[np.arange(len(cells)) % len(old)][:, half:]
    found = verified(known, cells)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert "channels are not the source's" in found.diagnosis.detail


@pytest.mark.parametrize("name", ["vit_base_14x14", "dinov2_vits_37x37"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_blur_along_one_axis_is_a_warning(axis: int, name: str) -> None:
    known = TABLES[name]
    grid = known.rows[known.prefix :].reshape(*known.grid, -1).astype(np.float64)
    sigma = [0.0, 0.0, 0.0]
    sigma[axis] = known.grid[axis] / 12
    blurred = gaussian_filter(grid, sigma, mode="nearest").reshape(-1, grid.shape[2])
    rows = np.concatenate([known.rows[: known.prefix], blurred])
    made = honest(rows, known.prefix, known.grid, TARGET, "hf")[known.prefix :]
    assert worst(verified(known, made.astype(np.float64)).checks) is not Level.OK


@pytest.mark.parametrize("by", proper.OTHERS)
def test_a_resize_of_nearly_fixed_sines_replaced_nothing(by: str) -> None:
    """This source was trained from sines, and some of its resizes have cells of equal length."""
    known, target = TABLES["other_count_12x9"], (7, 5)
    grid = known.rows[known.prefix :].reshape(*known.grid, -1)
    cells = np.asarray(proper.OTHERS[by](grid, target), np.float64).reshape(35, -1)
    assert worst(verified(known, cells, target).checks) is Level.OK
