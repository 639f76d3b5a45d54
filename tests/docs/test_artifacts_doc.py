"""docs/artifacts.md says what every measure is, and carries the experiment's tables."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from benchmarks.picture_operations import OTHER_SCENES
from benchmarks.picture_scenes import SCENES
from benchmarks.pictures import SHOWN, rows, scene_of
from benchmarks.quality import BEGIN, END, Row, report, spearman, write_into
from benchmarks.ways.damage import DAMAGE
from resize_pos.quality import verdict
from resize_pos.quality.measures.catalogue import MEASURES

TEXT = (Path(__file__).parents[2] / "docs" / "artifacts.md").read_text(encoding="utf-8")


def test_every_measure_has_its_formula() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert described - {"distance_NAME"} == set(MEASURES)


def test_the_thresholds_are_those_of_the_code() -> None:
    pairs = (*verdict.NORM_MARGIN, *verdict.GAIN)
    for low, high in pairs:
        assert f"{low:.2f} – {high:.2f}" in TEXT
    for name in ("unlikeness", "misplaced", "foreign_cells", "foreign_channels", "mean_shift"):
        low, high = getattr(verdict, name.upper())
        assert f"| `{name}` | {low:.2f} | {high:.2f} |" in TEXT
    assert f"Below {verdict.FEWEST_CELLS} cells" in TEXT
    assert f"fewer than {verdict.SMALL} cells" in TEXT
    for name, (low, high) in verdict.SMALL_LIMITS.items():
        assert re.search(rf"`{name}`[^`]*{low:.2f}\s+\([^`]*{high:.2f}\)", TEXT), name


def test_the_thresholds_of_relative_tables_are_those_of_the_code() -> None:
    low, high = verdict.OFFSETS_UNLIKE
    assert f"ok up to {low:.2f}, a warning up to {high:.2f}" in TEXT
    low, high = verdict.OFFSET_ZERO_UNLIKE
    assert f"at offset zero alone up to {low:.2f} and {high:.2f}" in TEXT


def test_the_tables_of_the_experiment_are_there() -> None:
    inside = TEXT.split(BEGIN)[1].split(END)[0]
    for how in DAMAGE:
        assert f"*{how.replace('_', ' ')}*" in inside
    assert "Rank correlation" in inside


def test_rank_correlation_shares_ties() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert abs(spearman([1, 1, 2, 2], [1, 2, 1, 2])) < 1e-12
    assert spearman([1, 1, 1], [1, 2, 3]) == 0


def test_a_report_is_written_between_the_marks(tmp_path: Path) -> None:
    measures = {"displacement": 0.1, "norm_ratio": 1.0, "norm_change": 0.0}
    found = [
        Row("m", (3, 4), "timm", True, 0.9, 0.95, "ok", "timm", measures),
        Row("m", (3, 4), "one_d", False, 0.2, 0.5, "fail", None, measures),
    ]
    path = tmp_path / "doc.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_into(path, report(found))
    text = path.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| *one d* | 20.0 | 50.0 | fail | 0.10 | 1.00 | nan |" in text
    assert "| over 10 | 0 | 0 | 1 |" in text


def test_every_measure_has_a_picture_of_a_fine_and_a_broken_case() -> None:
    folder = Path(__file__).parents[2] / "docs" / "artifacts"
    assert sorted([*SHOWN, *SCENES, *OTHER_SCENES]) == sorted(MEASURES)
    assert {path.stem for path in folder.iterdir()} == set(MEASURES)
    for measure, image, line in rows():
        assert line in TEXT
        fine, broken = (float(each) for each in line.split("|")[4:6])
        assert abs(fine - broken) > 0.04 * max(1, abs(fine)), measure  # the measure sees it
        assert (folder / f"{measure}.png").read_bytes() == image, measure


def test_both_sides_of_a_picture_differ() -> None:
    for measure in MEASURES:
        pair, _ = scene_of(measure)
        fine, broken = pair.fine.drawn, pair.broken.drawn
        assert fine.shape != broken.shape or not np.allclose(fine, broken), measure
