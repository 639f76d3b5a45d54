"""A measure that cannot be taken is missing from the report; it never ends a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos import resize_checkpoint
from resize_pos.quality.checks import Level
from resize_pos.quality.measures import place
from resize_pos.report.json import report_document
from resize_pos.report.report import Report
from tests.support.builders import flat, vit, write_safetensors


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for part in value.values() for n in numbers(part)]
    if isinstance(value, list):
        return [n for part in value for n in numbers(part)]
    return [value] if isinstance(value, float) else []


def convert(tmp_path: Path, table: Any, **options: Any) -> Report:
    source = write_safetensors(tmp_path / "source.safetensors", {**vit(4, 6), "pos_embed": table})
    report = resize_checkpoint(
        source, output=tmp_path / "new.safetensors", reports=[tmp_path / "new.html"], **options
    )
    document = report_document(report)
    json.dumps(document, allow_nan=False)
    assert all(map(math.isfinite, numbers(document)))
    assert "nan" not in (tmp_path / "new.html").read_text(encoding="utf-8").lower().split()
    return report


@pytest.mark.parametrize(
    ("grid", "to"),
    [((1, 6), "2x3"), ((6, 1), "3x2"), ((1, 6), "1x9"), ((2, 3), "1x6"), ((5, 1), "2x7")],
)
def test_grids_of_one_row_are_measured(grid: tuple[int, int], to: str, tmp_path: Path) -> None:
    stated = f"{grid[0]}x{grid[1]}"
    report = convert(tmp_path, flat(*grid), from_grid=stated, to_grid=to)
    (table,) = report.tables
    assert "norm_ratio" in table.measures
    assert not [check for check in report.checks if check.name == "measures"]


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(1e25, "f4"), (1e30, "f4"), (1e38, "f4"), (1e300, "f8"), (1e-38, "f4"), (1e-200, "f8")],
)
def test_measures_do_not_depend_on_the_scale(largest: float, dtype: str, tmp_path: Path) -> None:
    table = flat(4, 6).astype("f8")
    for name in ("plain", "scaled"):
        (tmp_path / name).mkdir()
    options = {"from_": "64x96", "to": "96x64", "method": "bilinear"}
    plain = convert(tmp_path / "plain", table.astype(dtype), **options)
    scaled = (table / np.abs(table).max() * largest).astype(dtype)
    report = convert(tmp_path / "scaled", scaled, **options)
    expected, measures = plain.tables[0].measures, report.tables[0].measures
    assert set(expected) == set(measures)
    cell = 1 / 24  # rounding decides between two nearest cells that are equally far
    for name, value in expected.items():
        allowed = cell if name.startswith("misplaced") else 1e-4
        assert measures[name] == pytest.approx(value, rel=1e-3, abs=allowed), name
    assert [c.level for c in plain.checks] == [c.level for c in report.checks]


def test_a_failing_measure_is_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("a shape nobody thought of")

    monkeypatch.setattr(place, "structure", fail)
    report = convert(tmp_path, flat(4, 6), from_="64x96", to="96x64")
    assert report.output is not None and report.output.exists()
    (check,) = report.checks
    assert (check.name, check.level) == ("measures", Level.WARN)
    assert "a shape nobody thought of" in check.detail
    assert report.exit_code() == 0 and report.exit_code(strict=True) == 3
