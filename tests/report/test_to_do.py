"""What is left to do stands at the top of a page, and the code there runs as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file

from resize_pos import resize_checkpoint
from resize_pos.cli.app import main
from resize_pos.report.to_do import loading_task, still_to_change, tasks
from tests.support.builders import vit, write_safetensors
from tests.support.folder_builders import save_hf


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(code, "snippet", "exec"), names)
    return names


def trained(names: dict[str, Any], size: tuple[int, int]) -> None:
    """Take one step with the groups, and see that the table moves."""
    optimizer = torch.optim.AdamW(names["groups"])
    others, (table,) = (group["params"] for group in names["groups"])
    assert len(others) + 1 == len(list(names["model"].parameters()))
    before = table.detach().clone()
    output = names["model"](torch.randn(2, 3, *size, generator=torch.manual_seed(0)))
    tensor = output if isinstance(output, torch.Tensor) else output[0]
    tensor[..., 0].square().mean().backward()
    optimizer.step()
    assert not torch.equal(table, before)


def test_the_code_for_timm_loads_the_output_and_groups_its_parameters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = timm.create_model("vit_tiny_patch16_224", num_classes=7)
    save_file(dict(source.state_dict()), tmp_path / "m.safetensors")
    report = resize_checkpoint(tmp_path / "m.safetensors", to="96x160", from_=224)
    (load,) = tasks(report)
    assert '"vit_tiny_patch16_224", img_size=(96, 160), num_classes=7' in load.code
    names = run(load.code, {})
    model = names["model"]
    assert model.pos_embed.shape == (1, 61, 192)
    assert torch.equal(model.head.weight, source.head.weight)
    assert names["groups"][1]["params"] == [model.pos_embed]
    trained(names, (96, 160))


@pytest.mark.parametrize("head", [False, True])
def test_the_code_for_a_folder_of_transformers_loads_it(head: bool, tmp_path: Path) -> None:
    """A model that was saved with its head is loaded with it."""
    config = transformers.ViTConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64
    )
    processor = transformers.ViTImageProcessor(size={"height": 224, "width": 224})
    kind = transformers.ViTForImageClassification if head else transformers.ViTModel
    save_hf(kind(config), processor, tmp_path / "m")
    report = resize_checkpoint(tmp_path / "m", to=384)
    (load,) = tasks(report)
    names = run(load.code, {})
    assert type(names["model"]) is kind
    assert ("AutoModel.from_pretrained(" in load.code) is not head
    assert names["model"].config.image_size == 384
    trained(names, (384, 384))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", "wrapped.pth"])
def test_the_code_for_a_bare_file_of_transformers_loads_it(suffix: str, tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64
    )
    source = transformers.ViTModel(config)
    source.save_pretrained(tmp_path / "named")
    path = tmp_path / f"m{suffix}"
    if suffix == ".safetensors":
        save_file(dict(source.state_dict()), path)
    else:
        state = source.state_dict()
        torch.save({"net": state, "epoch": 3} if "wrapped" in suffix else state, path)
    report = resize_checkpoint(path, to="96x160", from_=224)
    *_, load = tasks(report)
    names = run(load.code.replace("MODEL", str(tmp_path / "named")), {})
    table = names["model"].embeddings.position_embeddings
    assert table.shape == (1, 61, 32)
    loaded = names["model"].state_dict()
    for name, value in source.state_dict().items():
        assert "position_embeddings" in name or torch.equal(value, loaded[name]), name


def test_the_code_for_a_bare_text_model_states_its_length(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=1,
        intermediate_size=64,
        vocab_size=50,
        max_position_embeddings=24,
    )
    source = transformers.BertModel(config)
    source.save_pretrained(tmp_path / "named")
    save_file(dict(source.state_dict()), tmp_path / "bert.safetensors")
    report = resize_checkpoint(
        tmp_path / "bert.safetensors", to_length=40, length_method="linear", prefix=0
    )
    *_, load = tasks(report)
    assert "max_position_embeddings=40" in load.code
    names = run(load.code.replace("MODEL", str(tmp_path / "named")), {})
    assert names["model"].embeddings.position_embeddings.weight.shape == (40, 32)
    assert names["model"].config.max_position_embeddings == 40


def test_the_code_for_timm_states_another_window(tmp_path: Path) -> None:
    torch.manual_seed(0)
    name, small = "swin_tiny_patch4_window7_224", {"embed_dim": 24, "depths": (1, 1, 1, 1)}
    source = timm.create_model(name, **small)
    save_file(dict(source.state_dict()), tmp_path / "m.safetensors")
    report = resize_checkpoint(tmp_path / "m.safetensors", to=(256, 384), from_=224, to_window=8)
    assert still_to_change(report) == ()
    (load,) = tasks(report)
    assert "img_size=(256, 384), window_size=8" in load.code
    arguments = ", ".join(f"{key}={value}" for key, value in small.items())
    model = run(load.code.replace('"MODEL"', f'"{name}", {arguments}'), {})["model"]
    table = model.layers[0].blocks[0].attn.relative_position_bias_table
    assert table.shape[0] == 15 * 15
    assert torch.equal(model.head.fc.weight, source.head.fc.weight)


def test_the_code_for_timm_states_another_patch_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = timm.create_model("vit_tiny_patch16_224", num_classes=7)
    save_file(dict(source.state_dict()), tmp_path / "m.safetensors")
    report = resize_checkpoint(tmp_path / "m.safetensors", to="96x160", from_=224, to_patch=8)
    assert still_to_change(report) == ()
    (load,) = tasks(report)
    model = run(load.code.replace('"MODEL"', '"vit_tiny_patch16_224", num_classes=7'), {})["model"]
    assert model.patch_embed.proj.weight.shape == (192, 3, 8, 8)
    assert model.pos_embed.shape == (1, 1 + 12 * 20, 192)


def test_a_folder_of_timm_is_loaded_by_timm(tmp_path: Path) -> None:
    torch.manual_seed(0)
    arguments = {"img_size": 224, "embed_dim": 32, "depth": 1, "num_heads": 2}
    source = timm.create_model("vit_tiny_patch16_224", **arguments)
    timm.models.save_for_hf(source, tmp_path / "m", model_args=arguments)
    report = resize_checkpoint(tmp_path / "m", to="96x160")
    (load,) = tasks(report)
    model = run(load.code, {})["model"]
    assert model.pos_embed.shape == (1, 61, 32)
    assert torch.equal(model.head.weight, source.head.weight)


def test_where_no_library_reads_the_output_no_code_is_given(tmp_path: Path) -> None:
    tensors = vit()
    torch.save({"a": _tensors(tensors), "b": _tensors(tensors)}, tmp_path / "two.pth")
    report = resize_checkpoint(tmp_path / "two.pth", to="96x128")
    assert loading_task(report) is None
    assert still_to_change(report) == report.config_advice != ()


def _tensors(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


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
    assert json.dumps('a"b\n```-96x128.safetensors') in markdown
    assert "import timm, resize_pos\nmodel = timm.create_model(" in html


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
        assert "How far apart" in text
        for label in document["labels"]:
            assert label in text.replace("\\_", "_")
