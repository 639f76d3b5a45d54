"""What no honest resize takes from a table is noticed, however near an honest one it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import uniform_filter

from benchmarks.verdict.count import step_for, targets
from benchmarks.verdict.tables import Known, known_tables, trained
from benchmarks.ways import proper, unseen
from benchmarks.ways.damage import honest
from benchmarks.ways.damage_more import honest_results, plant
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.measures import proper as kernels
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.lost import HonestRows, find_lost
from resize_pos.verify.made_by.parts import Finding

Cells = np.ndarray
TABLES = {table.name: table for table in known_tables()}
TARGET = (17, 21)


def few_directions(cells: Cells) -> Cells:
    """Leave the strongest directions, which have most of the variation."""
    rows = cells.reshape(-1, cells.shape[-1])
    mean = rows.mean(0)
    left, values, right = np.linalg.svd(rows - mean, full_matrices=False)
    made: Cells = ((left[:, :5] * values[:5]) @ right[:5] + mean).reshape(cells.shape)
    return made


def some_cells_short(cells: Cells) -> Cells:
    made = cells.copy()
    made[3, 4:9] *= 0.2
    return made


LOST: dict[str, Callable[[Cells], Cells]] = {
    "directions lost": few_directions,
    "mirror image": lambda c: (c + c[:, ::-1]) / 2,
    "bent": lambda c: np.sign(c) * np.abs(c) ** 0.7,
    "cells scaled": some_cells_short,
    "blurred": lambda c: uniform_filter(c, (3, 3, 1), mode="nearest"),
}


def verified(known: Known, target: tuple[int, int], cells: Cells) -> TableVerification:
    rows = np.concatenate([known.rows[: known.prefix], cells.reshape(-1, cells.shape[-1])])
    return explain(step_for(known, target), known.rows, rows.astype(np.float32))


def resized(known: Known, target: tuple[int, int], like: str = "timm") -> Cells:
    made = honest(known.rows, known.prefix, known.grid, target, like)
    return made[known.prefix :].reshape(*target, -1).astype(np.float64)


@pytest.mark.parametrize("like", ["timm", "dinov2"])
@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_fails_by_name(name: str, like: str) -> None:
    known, target = TABLES["clothes"], (7, 6) if name == "blurred" else TARGET
    found = verified(known, target, LOST[name](resized(known, target, like)))
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name in (name, "patched"), found.diagnosis


def lost(known: Known, target: tuple[int, int], table: Cells) -> Finding | None:
    source = known.rows[known.prefix :].astype(np.float64).reshape(1, *known.grid, -1)
    cells = target[0] * target[1]
    results = [resized(known, target, like).reshape(cells, -1) for like in CONVENTIONS]
    smoothest = kernels.resized(source, Grid(*target), kernels.SMOOTHEST).reshape(cells, -1)
    honest = HonestRows(results, smoothest, np.linalg.norm(source, axis=-1).reshape(-1))
    return find_lost(table.reshape(cells, -1).astype(np.float64), honest, Grid(*target))


@pytest.mark.parametrize("target", [(18, 11), (6, 7), (3, 4), (2, 2)])
@pytest.mark.parametrize("name", ["clothes", "digits_6x5", "mnist_find_9x14", "symmetric"])
def test_no_honest_kernel_loses_it(name: str, target: tuple[int, int]) -> None:
    known = TABLES["clothes" if name == "symmetric" else name]
    source = known.rows[known.prefix :].reshape(*known.grid, -1)
    if name == "symmetric":
        source = (source + source[:, ::-1]) / np.float32(2)
        rows = np.concatenate([known.rows[: known.prefix], source.reshape(-1, source.shape[-1])])
        known = replace(known, rows=rows)
    for how, kernel in {**proper.LIBRARIES, **proper.OTHERS, **unseen.HONEST}.items():
        assert lost(known, target, kernel(source, target)) is None, how


def test_training_loses_nothing() -> None:
    for key, table in trained().items():
        name, grid, _ = key.split(" ", 2)
        height, width = grid.split("x")
        known = TABLES[name]
        assert lost(known, (int(height), int(width)), table[known.prefix :]) is None, key


def test_channels_of_a_few_cells_are_not_called_exchanged() -> None:
    """Among many channels on six cells, some resemble another one by chance."""
    known = TABLES["clothes"]
    rng = np.random.default_rng(3)
    mixing = np.linalg.qr(rng.normal(size=(1536, known.rows.shape[1])))[0]
    wide = replace(known, rows=(known.rows @ mixing.T).astype(np.float32))
    source = wide.rows[wide.prefix :].reshape(*wide.grid, -1)
    for how, kernel in {**proper.OTHERS, **unseen.HONEST}.items():
        found = verified(wide, (2, 3), kernel(source, (2, 3)))
        assert found.diagnosis is None, (how, found.diagnosis)


def test_one_factor_is_damage_unless_it_restores_the_norms() -> None:
    known, target = TABLES["clothes"], (7, 10)
    cells = resized(known, target)
    found = verified(known, target, 1.06 * cells)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert "multiplied by 1.06" in found.diagnosis.detail
    assert worst(verified(known, target, 0.997 * cells).checks) is Level.OK
    before = np.linalg.norm(known.rows[known.prefix :], axis=-1)
    after = np.linalg.norm(cells, axis=-1)
    for factor in (
        before.mean() / after.mean(),
        np.sqrt((before**2).mean() / (after**2).mean()),
    ):
        assert factor > 1.02
        restored = verified(known, target, factor * cells)
        assert worst(restored.checks) is Level.OK
        assert "norms restored by one factor" in restored.checks[0].detail


@pytest.mark.parametrize(
    ("how", "words"), [("blurred", "It is blurred"), ("noise_twice", "It is noisy")]
)
def test_blur_and_noise_are_told_apart(how: str, words: str) -> None:
    known = TABLES["vit_base_14x14"]
    made = plant(how, known.rows, known.prefix, known.grid, (24, 18))
    assert made is not None
    found = explain(step_for(known, (24, 18)), known.rows, made)
    assert worst(found.checks) is Level.FAIL
    assert words in found.checks[0].detail


@pytest.mark.parametrize("target", [(8, 7), (15, 12)])
def test_short_prefix_rows_may_be_trained_beside_long_cells(target: tuple[int, int]) -> None:
    """A step of training moves every value alike: 0.5 % of the cells, and 40 % of these rows."""
    known = TABLES["other_count_12x9"]
    after = trained()[f"other_count_12x9 {target[0]}x{target[1]} 150 steps at 0.0003"]
    found = explain(step_for(known, target), known.rows, after)
    assert found.measures["prefix_change"] > 0.35
    assert worst(found.checks) is Level.OK
    lost = after.copy()
    lost[: known.prefix] = 0
    assert worst(explain(step_for(known, target), known.rows, lost).checks) is Level.FAIL


@pytest.mark.parametrize("name", ["other_count_9x15", "other_depth_6x20", "syn_additive_5x13"])
def test_a_wide_blur_fails_by_name(name: str) -> None:
    known = TABLES[name]
    for target in targets(known.grid)[:2]:
        fair = honest_results(known.rows, known.prefix, known.grid, target)
        made = plant("blurred", known.rows, known.prefix, known.grid, target, fair)
        assert made is not None
        found = explain(step_for(known, target), known.rows, made)
        assert worst(found.checks) is Level.FAIL
        assert found.diagnosis is not None and found.diagnosis.name == "blurred"


def test_eight_bits_that_overflow_fail_by_name() -> None:
    known, target = TABLES["digits_6x5_seed2"], (4, 3)
    fair = honest_results(known.rows, known.prefix, known.grid, target)
    made = plant("wrapped_eight_bits", known.rows, known.prefix, known.grid, target, fair)
    assert made is not None
    found = explain(step_for(known, target), known.rows, made)
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None and found.diagnosis.name == "wrapped"
