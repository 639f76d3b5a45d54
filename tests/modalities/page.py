"""The table in docs/modalities.md: `python -m tests.modalities.page` writes it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.modalities.models import MODELS, Model

PAGE = Path(__file__).parents[2] / "docs" / "modalities.md"
HEAD = "| model | kind | built by | commands |\n|---|---|---|---|\n"


def row(model: Model) -> str:
    """Write the row of one model."""
    source, *targets = model.sizes
    commands = "<br>".join(f"`{shlex.join(model.flags(source, target))}`" for target in targets)
    return f"| {model.name} | {model.kind} | {model.made_by} | {commands} |"


def main() -> None:
    """Write the page's table anew."""
    text = PAGE.read_text(encoding="utf-8")
    start, end = text.index(HEAD), text.rindex("|\n") + 2
    rows = "\n".join(row(model) for model in MODELS)
    PAGE.write_text(text[:start] + HEAD + rows + "\n" + text[end:], encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
