"""docs/design.md says where ten changes go: at most three files each, and all of them exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANGES = [
    "a container",
    "a method",
    "a measure",
    "a threshold",
    "a family",
    "a convention",
    "the page",
    "a command",
    "an option",
    "an optimizer",
]


def changes() -> dict[str, tuple[list[str], str]]:
    """Read the table: the files of each change, and what to do with them."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = text.split("### Ten changes and where they go", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    filled = [row for row in rows if len(row) == 3 and row[0] not in ("change", "---")]
    return {name: (re.findall(r"`([^`]+)`", files), how) for name, files, how in filled}


def test_the_table_has_ten_changes() -> None:
    assert list(changes()) == CHANGES


def test_every_change_touches_at_most_three_files_that_exist() -> None:
    for name, (files, how) in changes().items():
        made = re.findall(r"`([\w/]*NAME[\w/.]*)`", how)  # files that the change adds
        assert files, name
        assert len(files) + len(made) <= 3, name
        for file in files:
            assert (ROOT / "resize_pos" / file).is_file(), f"{name}: {file}"


def test_every_name_in_the_table_is_in_one_of_its_files() -> None:
    """`FORMATS`, `Method`, `_COMMANDS` …: what the reader is told to edit is there."""
    for name, (files, how) in changes().items():
        content = "".join((ROOT / "resize_pos" / file).read_text("utf-8") for file in files)
        for word in re.findall(r"`([A-Z_]{2,}|Method)`", how):
            assert word in content, f"{name}: {word}"


def test_every_path_in_the_document_exists() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    for path in re.findall(r"`([a-z_]+(?:/[a-z_]+)*/(?:[a-z_]+\.(?:py|toml|html))?)`", text):
        assert (ROOT / "resize_pos" / path).exists() or (ROOT / path).exists(), path
