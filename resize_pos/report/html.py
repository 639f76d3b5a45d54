"""Self-contained HTML pages: style, pictures and charts are embedded.

Names, paths and evidence come from untrusted files. The templates escape all of them, and each page
has a content security policy that forbids the network and any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from resize_pos.core.printable import printable
from resize_pos.quality.checks import NEUTRAL
from resize_pos.report.figures import Figure
from resize_pos.report.page import Page

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

# The only files that a page may include. All are part of this package.
_TEMPLATES = ("head.html", "page.html", "batch.html")
_PARTS = ("page.css", "batch.js")


def page_html(page: Page, figures: Mapping[str, tuple[Figure, ...]]) -> str:
    """Write a page; `figures` are those of each section, by the name of the table shown."""
    environment = _environment()
    drawn = {
        name: [(figure, [_trusted(chart) for chart in figure.charts]) for figure in several]
        for name, several in figures.items()
    }
    template = environment.get_template("page.html")
    return template.render(page=page, figures=drawn, style=_trusted(_read("page.css")))


def batch_html(**values: Any) -> str:
    """Write the page of a batch. Its style and its script are allowed by their hashes."""
    style, script = _read("page.css"), _read("batch.js")
    template = _environment().get_template("batch.html")
    return template.render(
        style=_trusted(style),
        script=_trusted(script),
        style_hash=_trusted(_hash(f"\n{style}")),
        script_hash=_trusted(_hash(f"\n{script}")),
        **values,
    )


def _environment() -> SandboxedEnvironment:
    """Make the environment of all templates: sandboxed, and unable to load any other file."""
    from jinja2 import DictLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        autoescape=True,
        loader=DictLoader({name: _read(name) for name in _TEMPLATES}),
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["neutral"] = NEUTRAL
    environment.globals["newline"] = _trusted("\n")  # other control characters are shown as text
    environment.filters["number"] = _number
    environment.filters["percent"] = _percent
    return environment


def _trusted(text: str) -> Any:
    """Mark text of our own (style, script, charts) as markup; never text from a file."""
    from markupsafe import Markup

    return Markup(text)


def _hash(text: str) -> str:
    """Return the hash of an inline style or script for a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _read(name: str) -> str:
    if name not in (*_TEMPLATES, *_PARTS):
        raise ValueError(f"{name} is not a part of a page")
    return resources.files("resize_pos.report").joinpath(name).read_text(encoding="utf-8")


def _number(value: float) -> str:
    """Write four digits; the page also contains the full number."""
    return f"{value:.4g}".replace("-", "−")


def _percent(value: float) -> str:
    return f"{value:.2%}" if value < 0.1 else f"{value:.1%}"
