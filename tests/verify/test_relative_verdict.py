"""The verdict on relative tables: honest and trained ones pass, broken ones fail."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.verdict_offsets import ABOUT, DAMAGE, STORED, damaged, honest, step_for, versions
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
        if how == "eva":  # its extrapolation multiplies the norms here
            assert level(before, after) is Level.WARN
        elif group != "damage":
            assert level(before, after) is Level.OK, how


def test_training_after_the_resize_is_no_warning(tables: dict[str, np.ndarray]) -> None:
    for block in (0, 1):
        after = tables[f"digits_5x6 {block} 8x10 trained"]
        before = tables[f"digits_5x6 {block}"]
        assert not np.allclose(after, honest(before, GRID, TARGET, "swin"), atol=1e-3)
        assert level(before, after) is Level.OK


@pytest.mark.parametrize("how", DAMAGE)
def test_no_damage_is_ok(tables: dict[str, np.ndarray], how: str) -> None:
    before = tables["digits_5x6 0"]
    assert level(before, damaged(how, before, GRID, TARGET)) is not Level.OK


def test_every_table_states_where_it_comes_from() -> None:
    for name, about in json.loads(ABOUT.read_text(encoding="utf-8")).items():
        assert about["origin"], name
