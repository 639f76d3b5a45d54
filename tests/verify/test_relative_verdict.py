"""The verdict on relative tables: honest and trained ones pass, broken ones fail."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.verdict.named import is_named
from benchmarks.verdict.offsets import ABOUT, DAMAGE, STORED, damaged, honest, step_for, versions
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import explain

GRID, TARGET = (5, 6), (8, 10)


@pytest.fixture(scope="module")
def tables() -> dict[str, np.ndarray]:
    with np.load(STORED) as stored:
        return {name: stored[name] for name in stored.files}


def level(before: np.ndarray, after: np.ndarray) -> Level:
    found = explain(step_for(before, GRID, TARGET), before, np.ascontiguousarray(after))
    return worst(found.checks)


def test_every_honest_resize_of_a_trained_table_is_ok(tables: dict[str, np.ndarray]) -> None:
    before = tables["digits_5x6 0"]
    for group, how, after in versions(before, GRID, TARGET):
        if (
            "damage" not in group and how != "bicubic, then bilinear"
        ):  # two methods, one after another
            assert level(before, after) is Level.OK, how


def test_a_recognised_convention_that_multiplies_norms_is_a_note(
    tables: dict[str, np.ndarray],
) -> None:
    before = tables["digits_5x6 0"]
    after = honest(before, GRID, TARGET, "eva")  # its extrapolation multiplies the norms here
    found = explain(step_for(before, GRID, TARGET), before, after)
    norms = next(check for check in found.checks if check.name == "norms")
    assert norms.level is Level.OK
    assert "norms grow by" in norms.detail
    assert found.checks[0].detail.startswith("made by eva")
    scaled = explain(step_for(before, GRID, TARGET), before, 8 * after)
    assert worst(scaled.checks) is Level.FAIL


def test_a_symmetric_table_is_not_called_shuffled(tables: dict[str, np.ndarray]) -> None:
    before = tables["mobile_sam 1.blocks.0"]
    step = step_for(before, (7, 7), (10, 12))
    after = honest(before, (7, 7), (10, 12), "swin")
    rounded = after.astype(np.float16).astype(np.float32) * np.float32(1.002)
    found = explain(step, before, rounded)
    assert worst(found.checks) is Level.OK, [c.detail for c in found.checks]


def test_training_after_the_resize_is_no_warning(tables: dict[str, np.ndarray]) -> None:
    for block in (0, 1):
        after = tables[f"digits_5x6 {block} 8x10 trained"]
        before = tables[f"digits_5x6 {block}"]
        assert not np.allclose(after, honest(before, GRID, TARGET, "swin"), atol=1e-3)
        assert level(before, after) is Level.OK


@pytest.mark.parametrize("how", DAMAGE)
def test_every_damage_fails_and_is_named(tables: dict[str, np.ndarray], how: str) -> None:
    before = tables["digits_5x6 0"]
    after = np.ascontiguousarray(damaged(how, before, GRID, TARGET))
    found = explain(step_for(before, GRID, TARGET), before, after)
    assert worst(found.checks) is Level.FAIL
    assert is_named(found), [check.detail for check in found.checks]


def test_every_table_states_where_it_comes_from() -> None:
    for name, about in json.loads(ABOUT.read_text(encoding="utf-8")).items():
        assert about["origin"], name


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("weaker", "scaled"),
        ("mixed with its mirror image", "mirror image"),
        ("roots", "bent"),
        ("a slope added", "slope added"),
    ],
)
def test_an_operation_on_a_relative_table_fails_by_its_name(
    tables: dict[str, np.ndarray], how: str, name: str
) -> None:
    before = tables["digits_5x6 0"]
    after = honest(before, GRID, TARGET, "swin")
    cells = after.reshape(2 * TARGET[0] - 1, 2 * TARGET[1] - 1, -1).astype(np.float64)
    mean, deviation = cells.mean((0, 1)), cells.std((0, 1))
    varying = cells - mean
    slope = np.linspace(-1, 1, cells.shape[1])[None, :, None] * np.arange(1, cells.shape[-1] + 1)
    changed = {
        "weaker": 0.75 * varying,
        "mixed with its mirror image": 0.75 * varying + 0.25 * varying[:, ::-1],
        "roots": np.sign(varying) * np.sqrt(np.abs(varying) * deviation),
        "a slope added": varying + 0.15 * deviation * slope,
    }[how]
    table = (mean + changed).reshape(after.shape).astype(np.float32)
    found = explain(step_for(before, GRID, TARGET), before, table)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None and found.diagnosis.name == name, found.diagnosis
