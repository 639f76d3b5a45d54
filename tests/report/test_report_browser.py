"""The pages in a real browser: no complaint on the console, every picture there, every width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from resize_pos.cli.app import main
from tests.support import chromium
from tests.support.builders import vit, write_safetensors
from tests.support.report_cases import GRIDS, write_case

pytestmark = pytest.mark.skipif(chromium.FOUND is None, reason="there is no chromium on the PATH")

CASES = ("plain", "sam", "hostile", "long")
WIDTHS = (1100, 390)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a report of each case."""
    folder = tmp_path_factory.mktemp("pages")
    for case in CASES:
        source = write_case(case, folder)
        target = folder / f"{case}-out.safetensors"
        page = folder / f"{case}.html"
        with pytest.raises(SystemExit) as caught:
            main([str(source), *GRIDS[case], "-o", str(target), "-q", "--report", str(page)])
        assert caught.value.code == 0
    return {case: folder / f"{case}.html" for case in CASES}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """One browser for all pages."""
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", CASES)
def test_a_page_is_drawn_without_complaint(
    case: str, width: int, pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.errors.clear()
    browser.show(pages[case], width=width)
    images = browser.evaluate(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth, i.clientHeight])"
    )
    assert len(images) == 10
    assert all(done and natural > 0 and min(shown) > 20 for done, natural, *shown in images)
    charts = browser.evaluate(
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)"
    )
    assert charts and min(charts) > 100
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.errors == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_a_batch_cuts_nothing_off(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: chromium.Browser
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zoo").mkdir()
    name = "vit_base_patch16_224.augreg_in21k_ft_in1k.safetensors"
    write_safetensors(Path("zoo", name), vit())
    Path("zoo/broken.safetensors").write_bytes(b"<html>")
    words = ["batch", "zoo", "--to", "96x128", "-o", "out", "-j", "1", "-q"]
    with pytest.raises(SystemExit):
        main([*words, "--report", "zoo.html"])
    browser.errors.clear()
    browser.show(tmp_path / "zoo.html", width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    inside = browser.evaluate(
        "[...document.querySelectorAll('td')].filter(c => c.textContent.trim() && "
        "c.getClientRects().length).map(c => c.getBoundingClientRect().right)"
    )
    assert inside and max(inside) <= width
    reasons = browser.evaluate("[...document.querySelectorAll('td.why')].map(c => c.innerText)")
    assert any("web page" in reason for reason in reasons)
    assert browser.errors == []


@pytest.mark.parametrize("command", ["compare", "verify", "resize"])
def test_on_a_phone_no_column_is_cut_off(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: chromium.Browser
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_case("plain", tmp_path).name
    lines = {
        "resize": [source, *GRIDS["plain"], "-o", "new.safetensors"],
        "compare": ["compare", source, *GRIDS["plain"]],
        "verify": ["verify", "new.safetensors", "--against", source],
    }
    for name in ("resize", command):
        with pytest.raises(SystemExit) as caught:
            main([*lines[name], "--force", "--report", f"{name}.html"])
        assert caught.value.code == 0
    browser.show(tmp_path / f"{command}.html", width=390)
    ends = browser.evaluate(
        "[...document.querySelectorAll('th, td')].filter(c => c.textContent.trim() && "
        "c.checkVisibility()).map(c => c.getBoundingClientRect().right)"
    )
    assert ends and max(ends) <= 390


def test_both_themes_are_legible(pages: dict[str, Path], browser: chromium.Browser) -> None:
    colours = {}
    for dark in (False, True):
        browser.show(pages["plain"], dark=dark)
        colours[dark] = browser.evaluate(
            "(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))"
        )
    brightness = {
        dark: [sum(map(int, colour[4:-1].split(","))) / 3 for colour in pair]
        for dark, pair in colours.items()
    }
    assert brightness[False][0] - brightness[False][1] > 150
    assert brightness[True][1] - brightness[True][0] > 150


def test_in_print_a_heading_stays_with_its_figure_and_every_measure_is_open(
    pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.show(pages["plain"], width=718)
    browser.call("Emulation.setEmulatedMedia", media="print")
    kept = browser.evaluate(
        "[...document.querySelectorAll('.figures > div')].map(d => getComputedStyle(d).breakInside)"
    )
    followed = browser.evaluate(
        "[...document.querySelectorAll('h2, h3, h2 + p, section > p')].map("
        "h => getComputedStyle(h).breakAfter)"
    )
    rows = browser.evaluate(
        "[...document.querySelectorAll('.measures tbody tr')].map(r => r.checkVisibility())"
    )
    browser.call("Emulation.setEmulatedMedia", media="")
    assert kept and set(kept) == {"avoid"}
    assert followed and set(followed) == {"avoid"}
    assert rows and all(rows)


def test_the_page_of_a_comparison_has_its_distances_in_a_table(tmp_path: Path) -> None:
    source = write_case("plain", tmp_path)
    for name in ("page.html", "page.md"):
        with pytest.raises(SystemExit) as caught:
            main(["compare", str(source), *GRIDS["plain"], "--report", str(tmp_path / name)])
        assert caught.value.code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    (table,) = re.findall(r'<table class="apart">.*?</table>', page, re.S)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    assert len(rows) >= 5
    for number, row in enumerate(rows[1:], 1):  # a triangle: every two versions once
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
        assert [bool(cell) for cell in cells] == [i < number for i in range(len(rows) - 1)]
        assert all(re.fullmatch(r"\d+\.\d\d%", cell) for cell in cells[:number])
    lines = (tmp_path / "page.md").read_text(encoding="utf-8").split("### How far apart")[1]
    widths = {line.count("|") for line in lines.splitlines() if line.startswith("| ")}
    assert len(widths) == 2  # the distances, and the provenance below
    assert " differs " not in page
