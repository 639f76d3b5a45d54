"""Names of tensors and files that attack whoever reads them: in every command and every format."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from resize_pos.cli.app import main
from resize_pos.core.printable import printable, printable_line, quoted, safe_json
from tests.support.builders import vit, write_safetensors

# A line break with a workflow command, an escape sequence, text that runs backwards, HTML,
# Markdown, the older form of a workflow command, a line separator.
ATTACK = (
    "\n::warning file=a::b\x1b[31m\x9b1m\u202egnp.\u2028\r::add-mask::c"
    "<img src=x onerror=alert(1)><script>alert(2)</script>[m](http:||e.x)"
    "`|$x$@everyone ##[error]d\x07\u200b\ufeff"
)
TENSOR = f"::error::{ATTACK}.pos_embed"
FILE = f"::error::e{ATTACK}".replace("/", "|")[:180]
UNREADABLE = "\udce9\udcff.safetensors"  # bytes that are not UTF-8

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint whose file, tensors and config all attack."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    tensors: dict[str, Any] = {
        f"{TENSOR.removesuffix('pos_embed')}{k}": v for k, v in vit().items()
    }
    Path("in").mkdir()
    write_safetensors(Path("in", f"{FILE}.safetensors"), tensors)
    Path("in", UNREADABLE).write_bytes(b"<html>")
    return tmp_path


def require_harmless(text: str, *, commands: bool = False) -> None:
    """Refuse what a terminal, a log or a workflow runner would act on."""
    text.encode()  # no lone surrogate
    hidden = {c for c in text if c != "\n" and unicodedata.category(c) in HIDDEN}
    assert not hidden, sorted(map(ascii, hidden))
    assert "##[" not in text
    for line in text.split("\n"):
        if line.lstrip().startswith("::"):
            assert commands, line
            assert re.match(
                r"::(notice|warning|error) (file=[^,:]*,)?title=resize-pos[^:]*::", line
            )


class Tags(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def require_harmless_html(text: str, *, scripts: int = 0) -> None:
    require_harmless(text)
    tags = Tags(text).found
    assert [tag for tag, _ in tags].count("script") == scripts
    for tag, attributes in tags:
        assert not any(name.startswith("on") for name in attributes)
        assert tag != "img" or str(attributes["src"]).startswith("data:image/png;base64,")
        assert (
            tag != "a"
            or not re.match("[a-z]+:", str(attributes["href"]))
            or str(attributes["href"]).startswith("https://github.com/")
        )
    policy = [a["content"] for _, a in tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policy) == 1 and str(policy[0]).startswith("default-src 'none'")


def require_harmless_markdown(text: str) -> None:
    require_harmless(text)
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    for tag, attributes in Tags(page).found:
        assert tag not in ("img", "script"), page
        assert tag != "a" or str(attributes["href"]).startswith("https://github.com/"), page


CHECKPOINT = f"in/{FILE}.safetensors"
PATTERN = r"[\s\S]*pos_embed"
LAYOUT = ["--pattern", PATTERN, "--axes", "1 (p h w s) d", "--prefix", "1", "--patch", "16"]
KNOWN = [*LAYOUT, "--from-grid", "4x4"]
SIZES = [*KNOWN, "--to", "96x160"]
GITHUB = ["--format", "github"]
REPORTS = [word for suffix in ("html", "md", "json") for word in ("--report", f"out.{suffix}")]

COMMANDS: dict[str, list[str]] = {
    "resize": ["resize", CHECKPOINT, *SIZES, "-v", "-o", "a.safetensors", *REPORTS],
    "resize, quiet": ["resize", CHECKPOINT, *SIZES, "-q"],
    "resize, json": ["resize", CHECKPOINT, *SIZES, "--json"],
    "resize, github": ["resize", CHECKPOINT, *SIZES, *GITHUB],
    "a plan": ["resize", CHECKPOINT, *SIZES, "-n", "-v"],
    "an error": ["resize", CHECKPOINT, *KNOWN, "--to", "97"],
    "an error, github": [
        "resize",
        CHECKPOINT,
        *KNOWN,
        "--patch",
        "16",
        "--to",
        "9",
        "--format",
        "github",
    ],
    "unreadable": ["resize", f"in/{UNREADABLE}", *SIZES],
    "missing": ["resize", f"./{FILE}", *SIZES],
    "inspect": ["inspect", CHECKPOINT, *KNOWN, "-v", "--health", "--show"],
    "inspect, json": ["inspect", CHECKPOINT, *KNOWN, "--health", "--json"],
    "compare": ["compare", CHECKPOINT, *SIZES],
    "compare, json": ["compare", CHECKPOINT, *SIZES, "--json"],
    "batch": ["batch", "in", *SIZES, "-o", f"o{ATTACK}".replace("/", "|"), "-j", "1", *REPORTS],
    "batch, quiet": ["batch", "in", *SIZES, "-o", "o", "-j", "1", "-q"],
    "batch, json": ["batch", "in", *SIZES, "-o", "o", "-j", "1", "--json"],
    "batch, github": ["batch", "in", *SIZES, "-o", "o", "-j", "1", *GITHUB],
    "batch, dry run": ["batch", "in", *SIZES, "-o", "o", "-n"],
    "batch, nothing found": ["batch", f"{FILE}*", *SIZES, "-o", "o"],
    "verify size": ["verify", CHECKPOINT, *KNOWN, "--size", "64"],
    "verify size, json": ["verify", CHECKPOINT, *KNOWN, "--size", "64", "--json"],
    "verify size, github": [
        "verify",
        CHECKPOINT,
        *KNOWN,
        "--patch",
        "16",
        "--size",
        "64",
        "--format",
        "github",
    ],
    "an unknown option": ["resize", CHECKPOINT, f"--x{ATTACK}"],
    "an unknown command": [f"x{ATTACK}".replace(".", "").replace("/", "")],
    "too many arguments": ["resize", CHECKPOINT, f"{FILE}"],
    "an unknown choice": ["resize", CHECKPOINT, "--like", ATTACK],
    "a malformed size": ["resize", CHECKPOINT, "--to", ATTACK],
    "an unknown report": ["resize", CHECKPOINT, *SIZES, "--report", f"x{ATTACK}".replace("/", "")],
}


def outputs(folder: Path) -> Iterator[tuple[str, str]]:
    for name in ("out.html", "out.md", "out.json", "summary.md"):
        if (folder / name).exists():
            yield name, (folder / name).read_text(encoding="utf-8")
    for root, _, names in os.walk(folder / "out-jobs"):
        for name in names:
            yield name, Path(root, name).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", COMMANDS)
def test_a_name_does_nothing(case: str, zoo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(COMMANDS[case])
    printed = capfd.readouterr()
    assert printed.out or printed.err
    assert "bug in resize-pos" not in printed.err
    require_harmless(printed.out, commands="github" in case)
    require_harmless(printed.err)
    if "--json" in COMMANDS[case]:
        for line in printed.out.splitlines() if case.startswith("batch") else [printed.out]:
            json.loads(line)
    written = dict(outputs(zoo))
    assert bool(written) == ("--report" in COMMANDS[case] and "unknown" not in case) or (
        "github" in case and "error" not in case
    )
    for name, text in written.items():
        if name.endswith(".html"):
            require_harmless_html(text, scripts=int("batch" in case and name == "out.html"))
        elif name.endswith(".md"):
            require_harmless_markdown(text)
        else:
            require_harmless(text)
            json.loads(text)


def test_a_verification_is_harmless_in_every_format(
    zoo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = f"{FILE}.2.safetensors"
    with pytest.raises(SystemExit):
        main(["resize", CHECKPOINT, *SIZES, "-o", f"./{target}"])
    words = ["verify", f"./{target}", "--against", CHECKPOINT, *KNOWN, "--to-grid", "6x10"]
    for more in (["-v", *REPORTS], ["--json"], ["--format", "github"]):
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([*words, *more])
        assert caught.value.code == 0
        printed = capfd.readouterr()
        require_harmless(printed.out, commands="github" in more)
        require_harmless(printed.err)
    written = dict(outputs(zoo))
    require_harmless_html(written["out.html"])
    require_harmless_markdown(written["out.md"])
    require_harmless_markdown(written["summary.md"])
    assert TENSOR in [table["name"] for table in json.loads(written["out.json"])["tables"]]


def test_the_progress_shows_no_markup_of_a_name(
    zoo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from resize_pos.cli.progress_bars import TerminalProgress
    from resize_pos.core.request import Request
    from resize_pos.run.batch.run import Batch
    from resize_pos.run.batch.work import Task
    from resize_pos.run.job import Job

    task = Task(1, Job(Path(f"[red]x{ATTACK}"), Request.make(to=96), Path("out")), bytes=10)
    progress = TerminalProgress()
    with progress.shown():
        progress.begin(Batch(Path("out"), (), (task,)))
        progress.started(task)
        descriptions = [line.description for line in progress._bars.tasks]
    require_harmless("\n".join(descriptions))
    capfd.readouterr()


def test_json_keeps_the_name_exactly() -> None:
    document = {"name": TENSOR, "file": UNREADABLE}
    text = safe_json(json.dumps(document, ensure_ascii=False))
    require_harmless(text)
    assert json.loads(text) == document


@pytest.mark.parametrize("line", ["::error::x", "  ::error::x", "\t::stop-commands::x"])
def test_a_line_is_never_a_command(line: str) -> None:
    assert not printable_line(line).lstrip().startswith("::")
    assert printable_line("a::b") == "a::b"


def test_ordinary_names_are_left_alone() -> None:
    for name in ("vit-b_16.pth", "blocks.0::x", "模型.pt", "naïve #1 [a].bin"):
        assert printable(name) == name == printable_line(name)


def test_a_value_that_cannot_be_written_is_described() -> None:
    assert quoted(10**5000) == "a value of type int that is too large to show"
    assert len(quoted("x" * 500)) == 80
