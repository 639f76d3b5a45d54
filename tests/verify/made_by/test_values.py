"""Values that look odd are damage only where an honest result has others."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known
from benchmarks.ways import unseen_later
from benchmarks.ways.proper import SMOOTH
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain

Cells = np.ndarray
GRID, TARGET = (12, 20), (18, 28)
ROUGH = np.random.default_rng(5).normal(size=(9, 16, 48))


def sines(height: int, width: int, channels: int = 64) -> Cells:
    frequencies = 10000.0 ** -(np.arange(channels // 4) / (channels // 4))
    down, across = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    angles = [axis[..., None] * frequencies for axis in (across, down)]
    parts = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
    return np.concatenate(parts, -1).astype(np.float32)


def smooth(height: int, width: int) -> Cells:
    """Stretch a few random cells."""
    return SMOOTH(ROUGH[: max(1, height // 3), : width // 3].astype(np.float32), (height, width))


def verified(source: Cells, made: Cells) -> TableVerification:
    grid = (source.shape[0], source.shape[1])
    known = Known("", source.reshape(-1, source.shape[-1]), 0, grid, True, False, "")
    step = step_for(known, (made.shape[0], made.shape[1]))
    return explain(step, known.rows, made.reshape(-1, made.shape[-1]).astype(np.float32))


@pytest.mark.parametrize("target", [TARGET, (7, 11)])
@pytest.mark.parametrize(
    "how", ["quadratic B-spline kernel", "PCHIP", "stored as e4m3", "dithered by 1 %"]
)
def test_sines_near_their_largest_value_are_not_clipped(how: str, target: tuple[int, int]) -> None:
    source = sines(*GRID)
    found = verified(source, unseen_later.HONEST[how](source, target))
    assert worst(found.checks) is Level.OK, found.checks


def test_sines_that_are_clipped_fail_by_name() -> None:
    source = sines(*GRID)
    found = verified(source, SMOOTH(source, TARGET).clip(-0.7, 0.7))
    assert found.diagnosis is not None and found.diagnosis.name == "clipped"


def test_sines_whose_fast_channels_are_lost_fail() -> None:
    source = sines(*GRID)
    made = SMOOTH(source, TARGET)
    made[..., :4] = made[..., 16:20] = 0
    assert worst(verified(source, made).checks) is Level.FAIL


@pytest.mark.parametrize("how", ["Akima", "quadratic B-spline kernel", "mean kept"])
def test_two_rows_made_of_one_are_alike_and_not_flattened(how: str) -> None:
    source = smooth(1, 30)
    found = verified(source, unseen_later.HONEST[how](source, (2, 44)))
    assert worst(found.checks) is Level.OK, found.checks


def test_rows_that_became_alike_fail_by_name() -> None:
    source = smooth(12, 20)
    made = np.broadcast_to(SMOOTH(source, TARGET).mean(0, keepdims=True), (*TARGET, 48))
    found = verified(source, np.array(made))
    assert found.diagnosis is not None and found.diagnosis.name == "flattened"


def test_a_source_without_negative_values_has_lost_no_signs() -> None:
    source = np.maximum(smooth(12, 20), 0)
    found = verified(source, unseen_later.HONEST["quadratic B-spline kernel"](source, TARGET))
    assert worst(found.checks) is Level.OK, found.checks


def test_a_table_without_its_signs_fails_by_name() -> None:
    source = smooth(12, 20)
    found = verified(source, np.abs(SMOOTH(source, TARGET)))
    assert found.diagnosis is not None and found.diagnosis.name == "absolute"


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_dropped_values_fail_by_name(share: float) -> None:
    source = smooth(12, 20)
    made = SMOOTH(source, TARGET)
    made[np.random.default_rng(1).random(made.shape) < share] = 0
    found = verified(source, made)
    assert found.diagnosis is not None and found.diagnosis.name == "dropped"
    assert worst(found.checks) is Level.FAIL


def picked(source: Cells, target: tuple[int, int], rounding: float) -> Cells:
    """Take the nearest source cell; `rounding` says where the border between two lies."""
    lines = []
    for count, length in zip(source.shape, target, strict=False):
        centre = np.clip((np.arange(length) + 0.5) * count / length - 0.5, 0, count - 1)
        lines.append(np.clip(np.floor(centre + rounding), 0, count - 1).astype(int))
    made: Cells = source[lines[0]][:, lines[1]]
    return made


@pytest.mark.parametrize("target", [(18, 28), (24, 40), (8, 13)])
@pytest.mark.parametrize("rounding", [0.3, 0.4999, 0.7])
def test_nearest_is_recognised_however_it_rounds(target: tuple[int, int], rounding: float) -> None:
    source = smooth(12, 20)
    found = verified(source, picked(source, target, rounding))
    assert worst(found.checks) is Level.OK, found.checks


def test_cells_of_the_source_in_another_order_are_not_nearest() -> None:
    source = smooth(12, 20)
    made = picked(source, (24, 40), 0.5)
    made[[1, 2]] = made[[2, 1]]  # both are around the centres of these rows
    made[:, [5, 6]] = made[:, [6, 5]]
    found = verified(source, made)
    assert not any("nearest, with" in check.detail for check in found.checks)


def test_the_middle_of_the_source_is_not_nearest() -> None:
    """From 6×5 to 4×3 cells it consists of lines around the centres."""
    source = smooth(12, 20)[3:9, 4:9]
    found = verified(source, source[1:5, 1:4])
    assert worst(found.checks) is Level.FAIL
