"""A little training after an honest resize is no damage, wherever it goes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known, known_tables
from benchmarks.ways.damage import honest
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain

Table = np.ndarray
TABLES = {table.name: table for table in known_tables()}
FORMULAS, PHOTOS = TABLES["pix2tex_12x42"], TABLES["vit_base_14x14"]


def resized(known: Known, target: tuple[int, int]) -> Table:
    return honest(known.rows, known.prefix, known.grid, target, "timm").astype(np.float32)


def verified(known: Known, target: tuple[int, int], made: Table) -> TableVerification:
    return explain(step_for(known, target), known.rows, made.astype(np.float32))


def deviation(known: Known, made: Table) -> float:
    return float(made[known.prefix :].std(axis=0).mean())


@pytest.mark.parametrize("target", [(18, 59), (14, 34), (30, 92)])
@pytest.mark.parametrize("amount", [0.03, 0.1, 0.2])
def test_noise_on_cells_that_are_alike_moves_none_of_them(
    target: tuple[int, int], amount: float
) -> None:
    # The columns of a table for formulas are so alike that noise decides which is the nearest.
    made = resized(FORMULAS, target)
    noise = np.random.default_rng(3).normal(size=made.shape) * deviation(FORMULAS, made)
    found = verified(FORMULAS, target, made + amount * noise)
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize("target", [(18, 59), (14, 34)])
def test_cells_that_were_moved_fail_even_if_they_are_alike(target: tuple[int, int]) -> None:
    made = resized(FORMULAS, target)
    cells = made[FORMULAS.prefix :].reshape(*target, -1)
    cells[:] = np.roll(cells, target[1] // 4, axis=1) + 0.1 * np.random.default_rng(4).normal(
        size=cells.shape
    ) * deviation(FORMULAS, made)
    assert worst(verified(FORMULAS, target, made).checks) is Level.FAIL


@pytest.mark.parametrize("target", [(21, 20), (8, 9), (35, 31)])
def test_training_may_move_a_mean_that_is_almost_zero(target: tuple[int, int]) -> None:
    made = resized(PHOTOS, target)
    shift = np.random.default_rng(5).normal(size=made.shape[1]) * deviation(PHOTOS, made)
    made[PHOTOS.prefix :] += 0.1 * shift
    found = verified(PHOTOS, target, made)
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize(
    ("factor", "name"), [(0.0, "mean removed"), (3.0, "mean changed"), (-1.0, "mean changed")]
)
def test_a_mean_that_is_multiplied_fails_by_name(factor: float, name: str) -> None:
    made = resized(PHOTOS, (21, 20))
    cells = made[PHOTOS.prefix :]
    cells += (factor - 1) * cells.mean(axis=0)
    found = verified(PHOTOS, (21, 20), made)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None and found.diagnosis.name == name


@pytest.mark.parametrize("target", [(18, 59), (14, 34)])
def test_cells_that_eight_bits_round_to_zero_are_not_lost(target: tuple[int, int]) -> None:
    made = resized(FORMULAS, target)
    steps = np.abs(made).max(axis=0) / 127
    rounded = np.round(made / steps) * steps
    assert (~rounded[FORMULAS.prefix :].any(axis=1)).sum() > 10
    found = verified(FORMULAS, target, rounded)
    assert worst([c for c in found.checks if c.name != "prefix"]) is Level.OK, found.checks
    rounded[FORMULAS.prefix + 5 :: 9] = 0
    assert worst(verified(FORMULAS, target, rounded).checks) is Level.FAIL


def test_one_cell_that_a_kernel_makes_otherwise_is_not_patched() -> None:
    made = resized(PHOTOS, (21, 20))
    made += 0.08 * np.random.default_rng(6).normal(size=made.shape) * deviation(PHOTOS, made)
    made[PHOTOS.prefix + 200] *= 1.7
    found = verified(PHOTOS, (21, 20), made)
    assert worst(found.checks) is Level.OK, found.checks
    made[PHOTOS.prefix + 200 : PHOTOS.prefix + 220] *= 2.5
    assert worst(verified(PHOTOS, (21, 20), made).checks) is Level.FAIL
