"""The written reports: self-contained, escaped, of bounded size, and equal to the JSON."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from resize_pos.cli.app import main
from resize_pos.report.colours import VIRIDIS
from resize_pos.report.fine_tuning import PUBLISHED
from tests.support.builders import smooth, write_safetensors
from tests.support.report_cases import FILES, GRIDS, HOSTILE, Parsed, write_case

LIMIT = 1_000_000
Reports = dict[str, Any]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Reports]:
    """Resize a case and read its three reports."""
    monkeypatch.chdir(tmp_path)

    def call(case: str, *words: str) -> Reports:
        write_case(case, tmp_path)
        wanted = [word for name in ("r.html", "r.md", "r.json") for word in ("--report", name)]
        with pytest.raises(SystemExit) as caught:
            grids = [] if "--to-grid" in words else GRIDS[case]
            main([f"{case}.safetensors", *grids, "-o", "out.safetensors", *wanted, *words])
        assert caught.value.code in (0, 3)
        texts = {name: Path(f"r.{name}").read_text(encoding="utf-8") for name in ("html", "md")}
        return {**texts, "json": json.loads(Path("r.json").read_text(encoding="utf-8"))}

    return call


@pytest.mark.parametrize("case", FILES)
def test_a_page_needs_nothing_but_itself(case: str, report: Any) -> None:
    text = report(case)["html"]
    page = Parsed(text)
    assert text.startswith("<!doctype html>")
    assert not page.all("script") and not page.all("link") and not page.all("iframe")
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.all("img"))
    assert {link["href"] for link in page.all("a")} <= {entry.link for entry in PUBLISHED}
    (style,) = (words for element, words in page.texts if element == "style")
    assert "url(" not in style and "@import" not in style
    assert "prefers-color-scheme: dark" in style
    handlers = [name for _, attributes in page.elements for name in attributes if name[:2] == "on"]
    assert not handlers
    (policy,) = (meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("case", FILES)
def test_a_page_stays_small(case: str, report: Any) -> None:
    assert len(report(case)["html"].encode()) < LIMIT


def pictures(page: Parsed) -> list[Image.Image]:
    found = []
    for attributes in page.all("img"):
        image: Image.Image = Image.open(
            io.BytesIO(base64.b64decode(attributes["src"].partition(",")[2]))
        )
        image.load()
        assert image.size == (int(attributes["width"]), int(attributes["height"]))
        assert len(attributes["alt"]) > 20
        found.append(image)
    return found


def test_a_table_is_drawn_before_and_after(report: Any) -> None:
    page = Parsed(report("plain")["html"])
    sizes = [image.size for image in pictures(page)]
    assert sizes == [(10, 7), (12, 9)] * 5  # four cells' similarity, and the norms
    assert [image["alt"].split(",")[0] for image in page.all("img")] == ["before", "after"] * 5
    charts = page.all("svg")
    assert len(charts) == 2
    assert all(chart["role"] == "img" and chart["aria-label"] for chart in charts)
    kinds = [element["class"] for element in page.all("path") if "line" in element["class"]]
    assert kinds == ["line before", "line after"] * 2


def test_the_marked_cell_is_the_brightest(report: Any) -> None:
    page = Parsed(report("plain")["html"])
    similarity = [image.convert("RGB") for image in pictures(page)[:8]]
    markers = [element["style"] for element in page.all("i")]
    assert len(markers) == 8
    for image, style in zip(similarity, markers, strict=True):
        top, left = (float(re.search(rf"{side}:([\d.]+)%", style)[1]) for side in ("top", "left"))  # type: ignore[index]
        pixels = np.asarray(image)
        row, column = round(top / 100 * image.height), round(left / 100 * image.width)
        assert tuple(pixels[row, column]) == VIRIDIS[-1]


def test_sequences_are_drawn_as_curves(report: Any) -> None:
    page = Parsed(report("sam")["html"])
    assert [image.size for image in pictures(page)] == [(16, 12), (24, 16)] * 5
    assert len(page.all("svg")) == 2 + 2 * (
        3 + 3
    )  # the grid's; two axes, each 3 cosines and 3 more


def test_alike_tables_are_told_once(report: Any) -> None:
    found = report("sam")
    names = [table["name"] for table in found["json"]["tables"] if table["action"] == "resize"]
    assert len(names) == 61
    assert found["html"].count("blocks.7.attn.rel_pos_h") <= 2  # in the plan's list, and its words
    assert "and 29 alike" in found["html"]
    for kind in ("html", "md"):
        assert found[kind].count("Every measure") == 3


@pytest.mark.parametrize("case", FILES)
def test_the_numbers_of_a_page_are_those_of_the_json(case: str, report: Any) -> None:
    found = report(case)
    rows = re.findall(
        r'<code>(\w+)</code></th><td class="right"><data value="([^"]+)">', found["html"]
    )
    assert len(rows) > 30
    by_number = {
        (name, value)
        for table in found["json"]["tables"]
        for name, value in table["measures"].items()
    }
    assert {(name, float(value)) for name, value in rows} <= by_number
    distances = re.findall(
        r'<data value="([^"]+)">[^<]+%</data></td><td class="bars">', found["html"]
    )
    known = {peer["distance"] for t in found["json"]["tables"] for peer in t["conventions"]}
    assert distances and set(map(float, distances)) <= known


def test_a_page_says_what_the_json_says(report: Any) -> None:
    found = report("plain")
    document = found["json"]
    words = " ".join(text for _, text in Parsed(found["html"]).texts)
    expected = [
        document["verdict"],
        document["sha256"],
        document["source"],
        document["output"],
        *(check["detail"] for check in document["checks"]),
        document["fine_tune"]["parameters"][0],
        *(advice["key"] for advice in document["config_advice"]),
        "7×10 → 9×12",
        "resize-pos plain.safetensors --from-grid 7x10 --to-grid 9x12",
        "structural checks on the weights alone",
    ]
    for text in expected:
        assert text in words, text
    assert words.index(document["verdict"]) < words.index("What was done")


def test_a_name_is_never_markup_in_html(report: Any) -> None:
    page = Parsed(report("hostile")["html"])
    assert not page.all("script")
    shown = HOSTILE.replace("\x1b", "\\x1b")
    assert any(shown + "pos_embed" in words for _, words in page.texts)


def test_a_name_is_never_markup_in_markdown(report: Any) -> None:
    text = report("hostile")["md"]
    assert "alert(1)" in text and "\x1b" not in text
    unfenced = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.M | re.S)
    outside_code = re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", unfenced)
    assert r"\<script\>" in outside_code
    assert set(re.findall(r"(?<!\\)<(/?\w+)", outside_code)) <= {
        "details",
        "/details",
        "summary",
        "/summary",
    }


def test_a_warning_and_a_limit_are_said_first(report: Any) -> None:
    text = report("untrained", "--max", "norm_change=0.0001")["html"]
    page = Parsed(text)
    words = [text for element, text in page.texts if element in ("p", "li")]
    assert words[0] == "fail"
    assert "above --max" in words[2]
    assert "untrained" in words[3]


def test_a_text_gets_no_advice_for_images_and_no_claim_without_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tensors = {
        "embeddings.position_embeddings.weight": smooth(1, 64, 16)[0],
        "embeddings.word_embeddings.weight": np.ones((9, 16), np.float32),
        "embeddings.token_type_embeddings.weight": np.ones((2, 16), np.float32),
    }
    write_safetensors(Path("text.safetensors"), tensors)
    words = ["text.safetensors", "--to", "96", "--length-method", "linear", "--report", "r.html"]
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    text = Path("r.html").read_text(encoding="utf-8")
    assert "nothing in it that the weights alone could judge" in text
    assert "Evaluate at the new length first" in text
    assert "ImageNet" not in text and "as dpt" not in text
    assert not Parsed(text).all("img") and len(Parsed(text).all("svg")) == 6


CASES_WITHOUT_NUMBERS = {
    "planned": (["-n"], "A plan: nothing has been written or measured yet."),
    "unchanged": (["--from-grid", "7x10", "--to-grid", "7x10"], "Nothing to do"),
}


@pytest.mark.parametrize("case", CASES_WITHOUT_NUMBERS)
def test_without_a_result_there_is_still_a_page(case: str, report: Any) -> None:
    words, expected = CASES_WITHOUT_NUMBERS[case]
    found = report("plain", *words)
    assert found["json"]["status"] == case
    page = Parsed(found["html"])
    assert not page.all("img") and not page.all("svg")
    assert expected in found["html"] and expected in found["md"]
    assert "pos_embed" in found["html"]
    assert "structural checks" not in found["html"] + found["md"]


def table_widths(text: str) -> list[list[int]]:
    """Count the cells of every row of every table, as GitHub would."""
    tables: list[list[int]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append(len(re.findall(r"(?<!\\)\|", line)) - 1)
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


@pytest.mark.parametrize("case", FILES)
def test_markdown_tables_are_well_formed(case: str, report: Any) -> None:
    text = report(case)["md"]
    tables = table_widths(text)
    assert len(tables) >= 5
    for widths in tables:
        assert len(set(widths)) == 1 and len(widths) >= 3
    assert re.search(r"^\| -{3}", text, flags=re.M)
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>")


def test_markdown_leads_with_the_verdict(report: Any) -> None:
    lines = report("plain")["md"].splitlines()
    assert lines[0].startswith("## ✅ ok: plain.safetensors")
    assert any(line.startswith("- ✅ norms") for line in lines[:10])


def test_the_formats_may_be_spelled_otherwise_and_a_folder_is_refused(
    report: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report("plain", "--report", "r.HTM", "--report", "r.markdown")
    assert Path("r.HTM").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Path("r.markdown").read_text(encoding="utf-8").startswith("## ")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(
            ["plain.safetensors", *GRIDS["plain"], "-o", "x.safetensors", "--report", "folder.html"]
        )
    assert caught.value.code == 1
    assert "is a folder" in capfd.readouterr().err
    assert not Path("x.safetensors").exists()
