"""A page as one HTML file that needs nothing else: style, pictures and charts are inside.

Names, paths and evidence come from files that nobody has checked; the template escapes all of
them, and the page forbids itself scripts and the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from resize_pos.core.printable import printable
from resize_pos.report.figures import Figure
from resize_pos.report.page import Page


def page_html(page: Page, figures: Mapping[str, tuple[Figure, ...]]) -> str:
    """Write a page; `figures` are those of each section, by the name of the table shown."""
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        loader=DictLoader({"page.html": _read("page.html")}),
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    environment.filters["percent"] = _percent
    safe: Any = Markup  # for our own style sheet and charts, and for nothing else
    style = safe(_read("page.css"))
    drawn = {
        name: [(figure, [safe(chart) for chart in figure.charts]) for figure in several]
        for name, several in figures.items()
    }
    template = environment.get_template("page.html")
    return template.render(page=page, figures=drawn, style=style)


def _read(name: str) -> str:
    return resources.files("resize_pos.report").joinpath(name).read_text(encoding="utf-8")


def _number(value: float) -> str:
    """Four digits are all that anybody reads; the page carries the whole number beside them."""
    return f"{value:.4g}".replace("-", "−")


def _percent(value: float) -> str:
    return f"{value:.2%}" if value < 0.1 else f"{value:.1%}"
