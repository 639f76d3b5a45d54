"""Damage is damage after a little training, too; so is nothing that training does by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict import count, tables
from benchmarks.verdict.count import made, step_for, trained_cases
from benchmarks.verdict.tables import Tuned, known_tables, store_tuned, tuned
from benchmarks.verdict.tuned import RUNS, Run
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain

Table = NDArray[np.float32]
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
SMOOTH, ROUGH = "dinov2_vits_37x37", "vit_base_14x14"


def verified(name: str, target: Shape, how: str, moved: float) -> TableVerification:
    """Make a table in one way, move every value a little, and judge it."""
    known = TABLES[name]
    table = made(known, target, how)[1]
    noise = np.random.default_rng(2).normal(size=table.shape).astype(np.float32)
    scale = float(np.sqrt(np.mean(table[known.prefix :] ** 2)))
    return explain(step_for(known, target), known.rows, table + np.float32(moved * scale) * noise)


@pytest.mark.parametrize("moved", [0.01, 0.04])
@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("off_by_one", "shifted"),
        ("rolled_left", "shifted"),
        ("rolled_flat", "shifted"),
        ("prefix_row_too_many", "shifted"),
        ("pairs of cells exchanged", "shuffled"),
        ("pairs of rows exchanged", "shuffled"),
        ("last_tenth_zero", "patched"),
        ("one cell 40 times as long", "patched"),
    ],
)
def test_small_damage_of_a_smooth_table_fails_by_name_after_training(
    how: str, name: str, moved: float
) -> None:
    for target in ((22, 20), (56, 52)):
        found = verified(SMOOTH, target, how, moved)
        assert worst(found.checks) is Level.FAIL, (target, found.checks)
        assert found.diagnosis is not None
        assert found.diagnosis.name == name


@pytest.mark.parametrize("moved", [0.01, 0.1])
@pytest.mark.parametrize("how", ["timm", "torch area", "asymmetric bilinear", "FITPACK spline"])
@pytest.mark.parametrize(
    ("name", "target"), [(SMOOTH, (40, 31)), (ROUGH, (21, 20)), (ROUGH, (8, 9))]
)
def test_an_honest_resize_has_its_cells_in_place_after_training(
    name: str, target: Shape, how: str, moved: float
) -> None:
    found = verified(name, target, how, moved)
    of_grid = [check for check in found.checks if check.name != "prefix"]
    assert found.diagnosis is None
    assert "place" in [check.name for check in of_grid]
    assert all(check.level is Level.OK for check in of_grid if check.name == "place")


def test_real_networks_that_were_fine_tuned_pass_and_damaged_ones_fail() -> None:
    found = [case for case in trained_cases(list(TABLES.values())) if ", then " in case.how]
    listed = {(name, run.target, run.how) for name, runs in RUNS.items() for run in runs}
    assert {(case.table, case.target, case.how) for case in found} == listed
    wrong = [
        (case.table, case.target, case.how, case.level, case.words)
        for case in found
        if case.level != ("ok" if case.group == "trained" else "fail")
    ]
    assert not wrong


@pytest.mark.parametrize("name", [SMOOTH, ROUGH])
@pytest.mark.parametrize("how", ["sharpened", "rows and columns added"])
def test_changes_that_keep_every_cell_in_place_fail_by_name(name: str, how: str) -> None:
    for target in ((56, 52), (22, 20)) if name == SMOOTH else ((21, 20),):
        found = verified(name, target, how, 0.0)
        assert worst(found.checks) is Level.FAIL
        assert found.diagnosis is not None
        assert found.diagnosis.name == how


def test_a_source_that_is_a_sum_of_rows_and_columns_stays_one() -> None:
    known, random = TABLES[ROUGH], np.random.default_rng(0)
    down, across = (np.cumsum(random.normal(size=(14, 192)), axis=0) for _ in range(2))
    cells = (down[:, None] + across[None]).reshape(196, 192).astype(np.float32)
    axial = replace(known, rows=np.concatenate([known.rows[:1], cells]))
    for how in ("timm", "mean of bicubic and bilinear"):
        table = made(axial, (21, 20), how)[1]
        found = explain(step_for(axial, (21, 20)), axial.rows, table)
        assert found.diagnosis is None
        assert worst(found.checks) is Level.OK, found.checks


def test_a_run_says_what_was_trained() -> None:
    run = Run((3, 5), "timm", "adamw", 1e-3, 30, 0.05, alone=True)
    assert run.how == "timm, then 30 steps of AdamW at 0.001, decay 0.05: table"


def test_tuned_tables_are_stored_in_six_bits_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TUNED", tmp_path / "tuned.npz")
    monkeypatch.setattr(tables, "TUNED_ABOUT", tmp_path / "tuned.json")
    assert tuned() == {}
    rows = np.random.default_rng(0).normal(size=(15, 8)).astype(np.float32) * np.arange(8)
    honest = Tuned("own", "timm", 2.0, 1.0, "here", rows.astype(np.float32))
    wrong = Tuned("damage", "one_d", 2.0, 1.0, "here", rows.astype(np.float32))
    store_tuned({"a 3x5 x": honest, "a 3x5 y": wrong})
    found = tuned()
    assert found["a 3x5 x"].is_honest
    assert not found["a 3x5 y"].is_honest
    most = np.abs(rows).max(axis=0)
    assert np.all(np.abs(found["a 3x5 x"].rows - rows) <= most / 31 * 0.51 + 1e-12)
    assert np.allclose(found["a 3x5 y"].rows, rows, rtol=2**-6, atol=1e-6)
    store_tuned(found)  # storing what was read changes nothing
    assert np.array_equal(tuned()["a 3x5 x"].rows, found["a 3x5 x"].rows)
    listed = json.loads((tmp_path / "tuned.json").read_text(encoding="utf-8"))
    assert listed["a 3x5 x"]["origin"] == "here"


def test_a_way_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        count.made(TABLES[ROUGH], (8, 9), "no such way")
