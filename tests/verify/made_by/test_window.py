"""A table that shows a part of the source fails by name, whichever part it is."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known, known_tables
from benchmarks.ways.proper import SMOOTH
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.window import find_window

Cells = np.ndarray
TABLES = {table.name: table for table in known_tables()}
PHOTOS, LARGE = TABLES["vit_base_14x14"], TABLES["dinov2_vits_37x37"]


def cells_of(known: Known) -> Cells:
    return known.rows[known.prefix :].reshape(*known.grid, -1)


def verified(known: Known, made: Cells) -> TableVerification:
    step = step_for(known, (made.shape[0], made.shape[1]))
    rows = np.concatenate([known.rows[: known.prefix], made.reshape(-1, made.shape[-1])])
    return explain(step, known.rows, rows.astype(np.float32))


@pytest.mark.parametrize("known", [PHOTOS, LARGE], ids=lambda known: known.name)
@pytest.mark.parametrize(
    ("rows", "columns"), [((0.14, 0.86), (0.14, 0.86)), ((0, 0.79), (0, 1)), ((0, 1), (0.29, 1))]
)
def test_a_part_of_the_source_is_cropped(
    known: Known, rows: tuple[float, float], columns: tuple[float, float]
) -> None:
    cells = cells_of(known)
    (top, bottom), (left, right) = (
        (round(start * length), round(end * length))
        for (start, end), length in zip((rows, columns), known.grid, strict=True)
    )
    made = SMOOTH(cells[top:bottom, left:right], (21, 20))
    found = verified(known, made)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None and found.diagnosis.name == "cropped"
    window = find_window(cells.astype(np.float64), made.astype(np.float64))
    assert window is not None
    expected = (
        *(at / known.grid[0] for at in (top, bottom)),
        *(at / known.grid[1] for at in (left, right)),
    )
    assert np.allclose((*window.rows, *window.columns), expected, atol=0.02)


def test_a_source_with_a_border_around_it_is_zoomed_out() -> None:
    cells = cells_of(PHOTOS)
    found = verified(PHOTOS, SMOOTH(np.pad(cells, ((3, 3), (3, 3), (0, 0)), mode="edge"), (20, 27)))
    assert found.diagnosis is not None and found.diagnosis.name == "zoomed out"
    assert worst(found.checks) is Level.FAIL


def test_a_source_that_is_pushed_aside_is_shifted() -> None:
    cells = cells_of(LARGE)
    pushed = np.pad(cells, ((0, 0), (5, 0), (0, 0)), mode="edge")[:, :37]
    found = verified(LARGE, SMOOTH(pushed, (24, 20)))
    assert found.diagnosis is not None and found.diagnosis.name == "shifted"


@pytest.mark.parametrize("target", [(21, 20), (8, 9), (35, 31)])
def test_noise_shows_no_window(target: tuple[int, int]) -> None:
    made = SMOOTH(cells_of(PHOTOS), target)
    noise = np.random.default_rng(2).normal(size=made.shape) * made.std()
    assert find_window(cells_of(PHOTOS), made + 0.5 * noise) is None
