"""Places are known exactly where a known kernel explains a table exactly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import made, step_for
from benchmarks.verdict.tables import Known, known_tables
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.places import find_places

Wide = NDArray[np.float64]
TABLES = {table.name: table for table in known_tables()}
SMALL = [("opera_v0_4x4", (6, 5)), ("pulse_spread_5x5", (8, 7)), ("digits_3x4", (4, 6))]


def linear(cells: Wide, places: tuple[Wide, Wide]) -> Wide:
    """Read the cells at these rows and columns, linear between neighbours."""
    for axis, at in enumerate(places):
        inside = np.clip(at, 0, cells.shape[axis] - 1)
        low = np.minimum(np.floor(inside), cells.shape[axis] - 2).astype(int)
        share = (inside - low).reshape([-1 if n == axis else 1 for n in range(3)])
        cells = (1 - share) * cells.take(low, axis) + share * cells.take(low + 1, axis)
    return cells


def centres(known: Known, target: tuple[int, int], part: float, off: float) -> tuple[Wide, Wide]:
    """Give the places of the cells of the middle part of a source, moved by so many lines."""
    rows, columns = (
        (old - 1) / 2 + part * ((np.arange(new) + 0.5) * old / new - old / 2) + off
        for old, new in zip(known.grid, target, strict=True)
    )
    return rows, columns


def verified(known: Known, target: tuple[int, int], made: Wide) -> TableVerification:
    rows = np.concatenate([known.rows[: known.prefix], made.reshape(-1, made.shape[-1])])
    return explain(step_for(known, target), known.rows, rows.astype(np.float32))


def cells_of(known: Known) -> Wide:
    return known.rows[known.prefix :].reshape(*known.grid, -1).astype(np.float64)


@pytest.mark.parametrize(("name", "target"), SMALL)
@pytest.mark.parametrize(
    ("part", "off", "word"),
    [(0.8, 0.0, "cropped"), (1.2, 0.0, "zoomed out"), (1.0, 0.4, "shifted")],
)
def test_less_than_half_a_cell_is_seen(
    name: str, target: tuple[int, int], part: float, off: float, word: str
) -> None:
    known = TABLES[name]
    found = verified(known, target, linear(cells_of(known), centres(known, target, part, off)))
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None
    assert found.diagnosis.name == word


@pytest.mark.parametrize(("name", "target"), SMALL)
def test_the_part_that_is_shown_is_measured(name: str, target: tuple[int, int]) -> None:
    known = TABLES[name]
    table = linear(cells_of(known), centres(known, target, 0.8, 0.0))
    window = find_places(cells_of(known), table)
    assert window is not None
    assert np.allclose((*window.rows, *window.columns), (0.1, 0.9, 0.1, 0.9), atol=1e-3)


@pytest.mark.parametrize(("name", "target"), SMALL)
def test_rules_of_coordinates_are_no_other_places(name: str, target: tuple[int, int]) -> None:
    known = TABLES[name]
    for how in (*CONVENTIONS, "torch area", "PIL bilinear"):
        table = made(known, target, how)[1][known.prefix :].reshape(*target, -1)
        assert find_places(cells_of(known), table.astype(np.float64)) is None, how


def test_an_added_tenth_is_a_rule() -> None:
    # DINOv2's hub code adds 0.1 to the target before it divides.
    known, target = TABLES["pulse_spread_5x5"], (8, 7)
    rows, columns = (
        np.asarray((np.arange(new) + 0.5) * old / (new + 0.1) - 0.5, np.float64)
        for old, new in zip(known.grid, target, strict=True)
    )
    assert find_places(cells_of(known), linear(cells_of(known), (rows, columns))) is None
