"""docs/families.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from resize_pos.cli.families import command
from resize_pos.families.registry import known_families

PAGE = Path(__file__).parents[2] / "docs" / "families.md"


def test_the_page_is_current() -> None:
    printed = CliRunner().invoke(command, ["--markdown"])
    assert printed.exit_code == 0
    expected = PAGE.read_text(encoding="utf-8")
    assert printed.output == expected, "run: resize-pos families --markdown > docs/families.md"


def test_every_family_is_on_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [f.name for f in known_families() if f"| {f.name} |" not in page] == []
