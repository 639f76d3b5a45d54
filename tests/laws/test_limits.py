"""Every limit of the verdict is drawn with its distribution, or the page says why not."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.verdict.plot import DRAWN, LAYERS, MEASURES, NOT_DRAWN, OFFSETS
from benchmarks.verdict.rest import REST
from resize_pos.quality import verdict

DOCS = Path(__file__).parents[2] / "docs"
PLOTS = {
    "verdict.svg": MEASURES,
    "verdict_rest.svg": REST,
    "verdict_relative.svg": OFFSETS,
    "verdict_layers.svg": LAYERS,
}


def limits() -> set[str]:
    """Return the numbers, pairs and tables of numbers that the module defines."""
    source = Path(verdict.__file__).read_text(encoding="utf-8")
    return set(re.findall(r"^([A-Z][A-Z_]+)(?:: [^=]+)? = ", source, re.MULTILINE))


def test_every_limit_has_a_plot_or_a_reason() -> None:
    assert set(DRAWN) | set(NOT_DRAWN) == limits()
    assert not set(DRAWN) & set(NOT_DRAWN)


def test_the_plots_on_the_page_show_each_block() -> None:
    page = (DOCS / "artifacts.md").read_text(encoding="utf-8")
    titles = []
    for name, blocks in PLOTS.items():
        assert f"]({name})" in page
        drawn = re.findall(r'font-weight="bold">([^<]+)<', (DOCS / name).read_text("utf-8"))
        assert drawn == list(blocks), name
        titles += drawn
    for limit, start in DRAWN.items():
        assert any(title.startswith(start) for title in titles), limit


def test_the_page_states_why_a_constant_is_not_drawn() -> None:
    page = (DOCS / "artifacts.md").read_text(encoding="utf-8")
    for name, reason in NOT_DRAWN.items():
        assert f"- `{name}`: {reason}\n" in page, name
