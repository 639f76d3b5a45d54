"""Reports of `verify`: the damage is said first, drawn, and named; numbers equal the JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos.cli.app import main
from tests.support.builders import write_safetensors
from tests.support.report_cases import CHANNELS, GRIDS, Parsed, tower, write_case


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Resize a checkpoint, perhaps damage the result, verify it and read the reports."""
    monkeypatch.chdir(tmp_path)

    def call(*flags: str, damaged: bool) -> dict[str, Any]:
        write_case("plain", tmp_path)
        with pytest.raises(SystemExit):
            main(["plain.safetensors", *GRIDS["plain"], *flags, "-o", "out.safetensors", "-q"])
        if damaged:
            tensors = tower("", 7, 10)
            rows = tensors["pos_embed"][0, 1:]
            at = np.linspace(0, len(rows) - 1, 9 * 12)
            low = np.minimum(at.astype(int), len(rows) - 2)
            part = (at - low)[:, None]
            one_d = rows[low] * (1 - part) + rows[low + 1] * part
            whole = np.concatenate([tensors["pos_embed"][0, :1], one_d])[None]
            tensors["pos_embed"] = whole.astype(np.float32)
            write_safetensors(tmp_path / "out.safetensors", tensors)
        words = ["verify", "out.safetensors", "--against", "plain.safetensors", *GRIDS["plain"]]
        wanted = [word for name in ("v.html", "v.md", "v.json") for word in ("--report", name)]
        with pytest.raises(SystemExit) as caught:
            main([*words, *wanted])
        texts = {name: Path(f"v.{name}").read_text(encoding="utf-8") for name in ("html", "md")}
        document = json.loads(Path("v.json").read_text(encoding="utf-8"))
        return {**texts, "json": document, "code": caught.value.code}

    return call


def test_a_sound_output_has_a_page_that_names_its_maker(verified: Any) -> None:
    found = verified(damaged=False)
    assert found["code"] == 0 and found["json"]["verdict"] == "ok"
    words = " ".join(text for _, text in Parsed(found["html"]).texts)
    assert "made by timm = dinov2-reg = open_clip: bicubic, antialias" in words
    assert "5 other tensors are the source's, byte for byte" in words
    assert "(this one)" in words


def test_the_page_says_which_kernel_made_a_table_by_no_convention(verified: Any) -> None:
    found = verified("--restore-norms", damaged=False)
    (table,) = found["json"]["tables"]
    assert found["json"]["verdict"] == "ok" and table["made_by"] is None
    said = next(check["detail"] for check in table["checks"] if check["name"] == "origin")
    assert said == "made by bicubic, antialias, norms restored"
    cells = [text for element, text in Parsed(found["html"]).texts if element == "td"]
    assert said in cells


def test_damage_is_said_first_and_drawn(verified: Any) -> None:
    found = verified(damaged=True)
    assert found["code"] == 3
    page = Parsed(found["html"])
    paragraphs = [text for element, text in page.texts if element in ("p", "li")]
    assert paragraphs[0] == "fail"
    assert "It is 1-D: resampled as one sequence of 70 rows" in " ".join(paragraphs[:6])
    assert len(page.all("img")) == 10 and len(page.all("svg")) == 2
    assert found["md"].startswith("## ❌ fail: out.safetensors, compared with plain.safetensors")


def test_the_numbers_are_those_of_the_json(verified: Any) -> None:
    found = verified(damaged=True)
    (table,) = found["json"]["tables"]
    rows = re.findall(
        r'<code>(\w+)</code></th><td class="right"><data value="([^"]+)">', found["html"]
    )
    assert {name: float(value) for name, value in rows} == table["measures"]
    distances = re.findall(
        r'<data value="([^"]+)">[^<]+%</data></td><td class="bars">', found["html"]
    )
    assert [float(value) for value in distances] == [match["error"] for match in table["matches"]]


def test_a_wrong_shape_has_no_pictures_but_a_page(verified: Any, tmp_path: Path) -> None:
    verified(damaged=False)
    tensors = tower("", 7, 10)
    tensors["pos_embed"] = np.ones((1, 9 * 12, CHANNELS), np.float32)
    write_safetensors(tmp_path / "out.safetensors", tensors)
    words = ["verify", "out.safetensors", "--against", "plain.safetensors", *GRIDS["plain"]]
    with pytest.raises(SystemExit) as caught:
        main([*words, "--prefix", "1", "--report", "v.html"])
    text = Path("v.html").read_text(encoding="utf-8")
    assert caught.value.code == 3
    assert "the prefix rows are gone" in text
    assert not Parsed(text).all("img")
