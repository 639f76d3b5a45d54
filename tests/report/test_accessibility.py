"""Every kind of page is checked with axe-core, at two widths and in both themes.

RESIZE_POS_AXE is the path of axe.min.js; `.ci/run` downloads it (it has 550 kB, and another licence
than this project, so it is not a part of the sources).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from resize_pos.cli.app import main
from tests.support import chromium
from tests.support.report_cases import GRIDS, write_case

AXE = Path(os.environ.get("RESIZE_POS_AXE", "axe.min.js"))

pytestmark = [
    pytest.mark.skipif(chromium.FOUND is None, reason="there is no chromium on the PATH"),
    pytest.mark.skipif(not AXE.is_file(), reason="RESIZE_POS_AXE names no axe.min.js"),
]
PAGES = ("single", "batch", "compare", "verify")


def commands(name: str, grids: list[str]) -> dict[str, list[str]]:
    """Return the command that writes each page; `verify` reads what `single` wrote."""
    return {
        "single": [name, *grids, "-o", "out.safetensors"],
        "batch": ["batch", "zoo", *grids[-2:], "-o", "new", "-j", "1"],
        "compare": ["compare", name, *grids],
        "verify": ["verify", "out.safetensors", "--against", name],
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        source = write_case("plain", folder)
        Path("zoo").mkdir()
        write_case("sam", Path("zoo"))
        Path("zoo/broken.safetensors").write_bytes(b"<html>")
        for page, words in commands(source.name, list(GRIDS["plain"])).items():
            with pytest.raises(SystemExit) as caught:
                main([*words, "--report", f"{page}.html"])
            assert caught.value.code in (None, 0, 1), page  # the batch has a broken file
    return {page: folder / f"{page}.html" for page in PAGES}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing(
    page: str, width: int, dark: bool, pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.show(pages[page], width=width, dark=dark)
    browser.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    found = browser.call(
        "Runtime.evaluate",
        expression="axe.run().then(r => r.violations.map(v => "
        "`${v.id}: ${v.nodes.map(n => n.html).join(' | ').slice(0, 300)}`))",
        awaitPromise=True,
        returnByValue=True,
    )
    assert found["result"].get("value") == []
