"""The tables of docs/conventions.md, from the data that the program uses.

`python -m docs_site.conventions` writes them into the page.
"""

from __future__ import annotations

from pathlib import Path

from resize_pos.core.conventions import CONVENTIONS, DEFAULT, RELATIVE_CONVENTIONS, OffsetResampling

ABSOLUTE = "| `--like` | kernel | antialias | coordinates | source |"
RELATIVE = (
    "| `--relative-like` | kernel | spacing of the offsets | beyond the last offset | source |"
)
PAGE = Path(__file__).parents[1] / "docs" / "conventions.md"


def absolute() -> str:
    """One line per convention for position tables."""
    return "\n".join(
        f"| `{name}`{' (default)' if name == DEFAULT.name else ''} "
        f"| {how.resampling.method.value} | {'yes' if how.resampling.antialias else 'no'} "
        f"| {how.resampling.coordinates.value} | {how.source} |"
        for name, how in CONVENTIONS.items()
    )


def relative() -> str:
    """One line per convention for relative tables."""
    return "\n".join(
        f"| `{name}` | {_kernel(how.resampling)} | {how.resampling.spacing.value} "
        f"| {'extrapolated' if how.resampling.extrapolate else 'the last value'} | {how.source} |"
        for name, how in RELATIVE_CONVENTIONS.items()
    )


def _kernel(how: OffsetResampling) -> str:
    parts = [how.method.value]
    parts += ["antialias"] if how.antialias else []
    parts += ["distances as an image"] if how.folded else []
    return ", ".join(parts)


def filled(text: str) -> str:
    """Put both tables into the text of the page."""
    for name, head, lines in (
        ("absolute", ABSOLUTE, absolute()),
        ("relative", RELATIVE, relative()),
    ):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        table = f"{head}\n|---|---|---|---|---|\n{lines}"
        text = f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
