"""What the README says about speed is what was measured, three times, and every bar was reached."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.claims import RESULTS, claims
from benchmarks.plot import log_log

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENT = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_readme_has_the_worst_of_all_runs() -> None:
    lines = list(claims(DOCUMENT))
    assert len(lines) == 8
    assert [line for line in lines if line not in README] == []


def test_every_bar_was_reached_in_three_runs() -> None:
    text = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert DOCUMENT["machine"] in text
    bars = [line for line in text.splitlines() if re.match(r"\|[^|]+\| [≤≥] ", line)]
    assert len(bars) == 13
    for bar in bars:
        assert bar.count("✓") == len(DOCUMENT["runs"]) == 3, bar


def test_the_plot_is_shown_and_can_be_drawn() -> None:
    plot = RESULTS.with_suffix(".svg")
    assert f"({plot.relative_to(ROOT).as_posix()})" in README
    lines = ElementTree.parse(plot).getroot().findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) >= 3


def test_names_of_lines_that_end_together_do_not_overlap() -> None:
    together = {"cp": [(10.0, 1.0), (100.0, 2.0)], "ours": [(10.0, 2.0), (100.0, 2.1)]}
    drawn = ElementTree.fromstring(log_log(together, "MB", "s"))
    texts = drawn.findall("{http://www.w3.org/2000/svg}text")
    cp, ours = (float(t.attrib["y"]) for name in together for t in texts if t.text == name)
    assert cp - ours >= 12
