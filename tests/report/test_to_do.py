"""What is left to do stands at the top of a page, and the code there runs as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file

from resize_pos import resize_checkpoint
from resize_pos.cli.app import main
from resize_pos.report.to_do import tasks
from tests.support.builders import vit, write_safetensors
from tests.support.folder_builders import save_hf


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(code, "snippet", "exec"), names)
    return names


def test_the_code_for_timm_loads_the_output_and_groups_its_parameters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = timm.create_model("vit_tiny_patch16_224")
    save_file(dict(source.state_dict()), tmp_path / "m.safetensors")
    report = resize_checkpoint(tmp_path / "m.safetensors", to="96x160", from_=224)
    load, groups = tasks(report)
    names = run(load.code.replace("MODEL", "vit_tiny_patch16_224"), {})
    model = names["model"]
    assert model.pos_embed.shape == (1, 61, 192)
    assert torch.equal(model.head.weight, source.head.weight)
    run(groups.code, names)
    (table, *others) = (group["params"] for group in names["groups"])
    assert [id(p) for p in table] == [id(model.pos_embed)]
    assert sum(map(len, others)) == len(list(model.parameters())) - 1


def test_the_code_for_a_folder_of_transformers_loads_it(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64
    )
    processor = transformers.ViTImageProcessor(size={"height": 224, "width": 224})
    save_hf(transformers.ViTModel(config), processor, tmp_path / "m")
    report = resize_checkpoint(tmp_path / "m", to=384)
    (load, *_) = tasks(report)
    model = run(load.code, {})["model"]
    assert model.config.image_size == 384


def test_it_stands_before_the_plan_in_both_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = 'a"b\n```.safetensors'
    write_safetensors(tmp_path / name, vit())
    reports = ["--report", "page.html", "--report", "page.md"]
    with pytest.raises(SystemExit) as caught:
        main([name, "--to", "96x128", "-q", *reports])
    assert caught.value.code == 0
    html, markdown = Path("page.html").read_text(), Path("page.md").read_text()
    for text in (html, markdown):
        assert text.index("Still to do") < text.index("What was done")
    (code,) = re.findall(r"^model = timm.*$", markdown, re.M)
    assert json.dumps('a"b\n```-96x128.safetensors') in code
    assert "import timm\nmodel = timm.create_model(" in html


def test_nothing_is_left_to_do_after_a_dry_run(vit_file: Path) -> None:
    assert tasks(resize_checkpoint(vit_file, to="96x128", dry_run=True)) == ()


def test_a_comparison_is_written_in_every_format(
    vit_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [tmp_path / f"c{suffix}" for suffix in (".json", ".html", ".md")]
    words = [word for path in paths for word in ("--report", str(path))]
    with pytest.raises(SystemExit) as caught:
        main(["compare", str(vit_file), "--to", "96x128", *words])
    assert caught.value.code in (0, None)
    document = json.loads(paths[0].read_text())
    assert document["schema"] == "resize-pos/compare/1"
    for path in paths[1:]:
        text = path.read_text(encoding="utf-8")
        assert "pos_embed" in text and "4×4 → 6×8" in text
        assert text.count("differs") >= 1
        for label in document["labels"]:
            assert label in text.replace("\\_", "_")
