"""The report over all jobs: one document in three forms, and links to each job's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from resize_pos.cli.app import main
from tests.support.builders import vit, write_safetensors

NASTY = "b|<b>&'\"%.safetensors"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Convert three checkpoints, one of them broken and one with a name full of traps."""
    monkeypatch.chdir(tmp_path)
    Path("zoo/sub").mkdir(parents=True)
    write_safetensors(Path("zoo/a.safetensors"), vit())
    write_safetensors(Path("zoo/sub", NASTY), vit(channels=16))
    Path("zoo/broken.safetensors").write_bytes(b"<html>")

    def call(*words: str) -> int:
        with pytest.raises(SystemExit) as caught:
            main(["batch", "zoo", "--to", "96x128", "-o", "out", "-j", "1", *words])
        assert isinstance(caught.value.code, int)
        return caught.value.code

    return call


class Page(HTMLParser):
    """Rows, cells, links and what a page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)
        self.loads += [known[name] or "" for name in ("src", "data") if name in known]
        if tag == "link":
            self.loads.append(str(known.get("href")))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "a":
            self.links.append(known["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data.strip()


def test_the_document_holds_every_job_in_order(run: Callable[..., int]) -> None:
    assert run("--report", "zoo.json") == 1
    document: dict[str, Any] = json.loads(Path("zoo.json").read_text(encoding="utf-8"))
    assert document["schema"] == "resize-pos/batch/1"
    assert [job["status"] for job in document["jobs"]] == ["resized", "failed", "resized"]
    assert [job["job"]["number"] for job in document["jobs"]] == [1, 2, 3]
    assert document["counts"]["resized"] == 2
    assert document["counts"]["failed"] == document["exit_code"] == 1
    assert len(document["jobs"][0]["sha256"]) == 64


def test_the_markdown_is_one_row_for_each_job(run: Callable[..., int]) -> None:
    run("--report", "zoo.md")
    lines = Path("zoo.md").read_text(encoding="utf-8").splitlines()
    assert "2 done, 1 failed." in lines
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)
    assert "4×4 → 6×8" in rows[0]
    assert "a web page" in rows[1]


def test_the_page_is_whole_and_loads_nothing(run: Callable[..., int]) -> None:
    run("--report", "zoo.html")
    text = Path("zoo.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert "://" not in text
    head, *rows = page.rows
    assert [row[2] for row in rows] == ["resized", "failed", "resized"]
    assert rows[2][1] == f"zoo/sub/{NASTY}"
    assert "a web page" in rows[1][5]
    assert head[1] == "checkpoint"
    assert len(page.links) == 2
    for link in page.links:
        own = Path(unquote(link))
        assert own.is_file(), link
        assert own.parts[0] == "zoo-jobs"


def test_links_survive_a_second_run(run: Callable[..., int]) -> None:
    run("--report", "zoo.html")
    first = Page(Path("zoo.html").read_text(encoding="utf-8"))
    run("--report", "zoo.html")
    again = Page(Path("zoo.html").read_text(encoding="utf-8"))
    assert [row[2] for row in again.rows[1:]] == ["current", "failed", "current"]
    assert [row[4] for row in again.rows] == [row[4] for row in first.rows]
    assert again.links == first.links


def test_a_page_from_another_folder_still_leads_to_the_reports(run: Callable[..., int]) -> None:
    Path("reports").mkdir()
    run("--report", "reports/zoo.html")
    page = Page(Path("reports/zoo.html").read_text(encoding="utf-8"))
    assert page.links
    assert all(Path("reports", unquote(link)).is_file() for link in page.links)
