"""What a terminal gets: lines that fit, no colour where none is wanted, names that do nothing."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from resize_pos.cli.terminal import aligned, say, tell
from resize_pos.core.printable import human_size, printable
from tests.support.report_cases import FILES, GRIDS, write_case

ROOT = Path(__file__).parents[2]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(folder: Path, *words: str, columns: int = 80, **environment: str) -> str:
    """Run the command line on a pseudo-terminal of that width, and give what it would show."""
    parent, child = pty.openpty()
    kept = {
        k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "resize_pos", *words],
        cwd=folder,
        env={**kept, "COLUMNS": str(columns), "TERM": "xterm-256color", **environment},
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(parent)
    assert process.wait() in (0, 3), shown.decode()
    return shown.decode().replace("\r\n", "\n")


# words after the command, by case; every one has to fit 80 columns
SHOWN: dict[str, list[str]] = {
    "a result": ["plain.safetensors", *GRIDS["plain"]],
    "a plan": ["plain.safetensors", *GRIDS["plain"], "-n"],
    "measures": ["plain.safetensors", *GRIDS["plain"], "-v"],
    "many tables": ["sam.safetensors", *GRIDS["sam"], "-v"],
    "a warning": ["untrained.safetensors", *GRIDS["untrained"]],
    "five tables": ["five.safetensors", *GRIDS["five"]],
    "an inspection": ["inspect", "sam.safetensors", "--health", "--show"],
    "an unsettled table": ["inspect", "plain.safetensors"],
    "a drawing": ["inspect", "plain.safetensors", "--from-grid", "7x10", "--show"],
    "conventions": ["compare", "plain.safetensors", *GRIDS["plain"]],
    "families": ["families"],
}
# A family's pattern and code stay copyable.
UNBREAKABLE = re.compile(r"^  …|^(model|groups) = .{0,112}$")


@pytest.mark.parametrize("case", SHOWN)
def test_every_line_fits_80_columns(case: str, tmp_path: Path) -> None:
    for name in FILES:
        write_case(name, tmp_path)
    text = on_terminal(tmp_path, *SHOWN[case])
    assert ESCAPES.search(text)
    for line in ESCAPES.sub("", text).splitlines():
        assert len(line) <= 80 or UNBREAKABLE.match(line), line


NARROW = ["a result", "a plan", "a warning", "an inspection", "an unsettled table"]
PATHS = re.compile(r"^(wrote|would write) |^\w+\.safetensors: ")  # a path stays whole


@pytest.mark.parametrize("case", NARROW)
def test_sentences_fit_a_narrow_terminal(case: str, tmp_path: Path) -> None:
    for name in FILES:
        write_case(name, tmp_path)
    (tmp_path / "plain-grid9x12.safetensors").touch()  # the plan says that it exists
    words = [*SHOWN[case], "-f"] if case == "a result" else SHOWN[case]
    text = on_terminal(tmp_path, *words, COLUMNS="50")
    for line in ESCAPES.sub("", text).splitlines():
        whole = UNBREAKABLE.match(line) or PATHS.match(line) or " " not in line.strip()
        assert len(line) <= 50 or whole, line


def test_the_colours_say_nothing_that_the_words_do_not(tmp_path: Path) -> None:
    write_case("untrained", tmp_path)
    words = ["untrained.safetensors", *GRIDS["untrained"], "-f"]
    coloured, plain = on_terminal(tmp_path, *words), on_terminal(tmp_path, *words, NO_COLOR="1")
    assert ESCAPES.sub("", coloured) == plain
    assert plain.startswith("verdict: warn\n  warn: ")


def test_alike_tables_take_one_line(tmp_path: Path) -> None:
    write_case("sam", tmp_path)
    text = on_terminal(tmp_path, "sam.safetensors", *GRIDS["sam"], NO_COLOR="1")
    assert text.startswith("verdict: ok (61 tables pass every check; norms change by ")
    assert re.search(r"^  blocks\.1\.attn\.rel_pos_h and 29 alike  12×1 → 16×1 ", text, re.M)
    assert "kept: blocks.0.attn.rel_pos_h and 1 alike" in text.replace("\n    ", " ")
    assert len(text.splitlines()) < 12


def test_a_drawing_has_letters_where_there_is_no_colour(tmp_path: Path) -> None:
    write_case("plain", tmp_path)
    words = ["inspect", "plain.safetensors", "--from-grid", "7x10", "--show"]
    coloured, plain = on_terminal(tmp_path, *words), on_terminal(tmp_path, *words, NO_COLOR="1")
    exact = on_terminal(tmp_path, *words, COLORTERM="truecolor")
    assert "▀" in coloured and "38;5;" in coloured and "38;2;" not in coloured
    assert "38;2;" in exact
    assert "▀" not in plain and not ESCAPES.search(plain)
    drawn = [line for line in plain.splitlines() if set(line) <= set(" .:-=+*#%@[]") and line]
    assert len(drawn) == 7  # rows of the grid; three maps of 10 cells, two letters each
    assert max(map(len, drawn)) == 2 + 3 * 20 + 2 * 3
    row, column = 4 - 1, 6 - 1  # the middle one of 7×10
    at = 2 + 2 * column
    assert drawn[row][at : at + 2] == "[]"  # the cell itself
    assert drawn[row][at + 2 : at + 4] in ("@@", "%%", "##")  # its neighbour is similar
    assert "row 4 col 6" in plain and "◆" in coloured


def test_a_wide_drawing_is_averaged_until_it_fits(tmp_path: Path) -> None:
    from tests.support.builders import vit, write_safetensors
    from tests.support.report_cases import learned

    tensors = vit(8, 128, channels=32) | {"pos_embed": learned(8, 128)}
    write_safetensors(tmp_path / "wide.safetensors", tensors)
    words = ["inspect", "wide.safetensors", "--from-grid", "8x128", "--show"]
    for text in (on_terminal(tmp_path, *words), on_terminal(tmp_path, *words, NO_COLOR="1")):
        assert max(map(len, ESCAPES.sub("", text).splitlines())) <= 80


def test_a_name_cannot_move_the_cursor(tmp_path: Path) -> None:
    write_case("hostile", tmp_path)
    for words in (["inspect"], ["compare", *GRIDS["hostile"]], ["resize", *GRIDS["hostile"], "-v"]):
        text = on_terminal(tmp_path, words[0], "hostile.safetensors", *words[1:], NO_COLOR="1")
        assert "\x1b" not in text
        assert r"\x1b[31m" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pos_embed", "pos_embed"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\rb\nc", r"a\rb\nc"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("名前", "名前"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_prose_is_broken_and_a_lead_is_not(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    tell("one two three four five six seven eight nine", indent=2, hang=4, lead=["note: "])
    say("x" * 60)
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["  note: one two three four five six", "      seven eight nine", "x" * 60]


def test_columns_are_aligned() -> None:
    rows = [("a", "1.5", "x"), ("long", "10", "")]
    assert aligned(rows, right=frozenset({1})) == ["a     1.5  x", "long   10"]
    assert aligned([]) == []


@pytest.mark.parametrize(
    ("count", "words"),
    [(999, "999 bytes"), (504_232, "504.2 kB"), (3.4e6, "3.4 MB"), (2e9, "2.0 GB")],
)
def test_sizes_are_for_people(count: float, words: str) -> None:
    assert human_size(int(count)) == words


PLAIN_RUNS = {
    "inspect": ["inspect", "plain.safetensors"],
    "a plan": ["plain.safetensors", *GRIDS["plain"], "-n"],
    "a run": ["plain.safetensors", *GRIDS["plain"]],
    "verify": [
        "verify",
        "out.safetensors",
        "--against",
        "plain.safetensors",
        "--from-grid",
        "7x10",
    ],
}


@pytest.mark.parametrize("case", PLAIN_RUNS)
def test_plain_text_does_not_pay_for_rich_or_jinja(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.laws.test_imports import loaded_after

    monkeypatch.chdir(tmp_path)
    write_case("plain", tmp_path)
    if case == "verify":
        loaded_after(*PLAIN_RUNS["a run"], "-o", "out.safetensors")
    names = loaded_after(*PLAIN_RUNS[case])
    assert not names & {"rich", "jinja2", "markupsafe"}
