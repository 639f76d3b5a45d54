"""Sizes that a checkpoint states beside its tensors: named, and changed with --edit-sizes."""

from __future__ import annotations

import argparse
import copy
import json
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from resize_pos import resize_checkpoint
from resize_pos.cli.app import _run
from resize_pos.configs.inside import SizesInside
from resize_pos.configs.values import ConfigEdit
from resize_pos.containers.torch.settings import _SHARED
from resize_pos.core.errors import OutputError
from resize_pos.core.geometry import Size
from resize_pos.report.json import report_document
from resize_pos.report.report import Report

HIGH, WIDE = 48, 64  # a literal (48, 64) would be one shared object in all of a function
TWO = "the file states one number, and two are needed"
ASK = "--edit-sizes changes it"


def weights(height: int = 3, width: int = 4) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    rows, columns = torch.linspace(0, 1, height), torch.linspace(0, 1, width)
    waves = torch.randn(2, 32, generator=made)
    grid = torch.sin(rows[:, None, None] * waves[0] + columns[None, :, None] * waves[1])
    return {
        "cls_token": torch.zeros(1, 1, 32),
        "pos_embed": torch.cat([torch.zeros(1, 1, 32), grid.reshape(1, -1, 32)], 1),
        "patch_embed.proj.weight": torch.randn(32, 3, 16, 16, generator=made),
        "patch_embed.proj.bias": torch.zeros(32),
    }


def settings() -> dict[str, Any]:
    """What Lightning, argparse and DeepSpeed save; every pair is an object of its own."""
    return {
        "epoch": 3,
        "hyper_parameters": {"image_size": (HIGH, WIDE), "depth": 48, "name": "vit"},
        "args": argparse.Namespace(img_size=[48, 64], lr=0.1, input_size=224, patch=[48, 64]),
        "param_shapes": [{"pos_embed": torch.Size([1, 13, 32]), "cls_token": torch.Size([1, 1])}],
        "pretrained_cfg": {"input_size": (3, 48, 64)},
    }


def saved(path: Path, extras: Mapping[str, Any], **how: Any) -> Path:
    torch.save({"state_dict": weights(), **extras}, path, **how)
    return path


def edited(source: Path, to: str = "96x272", **options: Any) -> Report:
    return resize_checkpoint(source, to=to, edit_sizes=True, **options)


def inside(report: Report) -> dict[str, str]:
    return {a.key: a.reason for a in report.config_advice if a.library == "inside"}


def without_weights(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(path, weights_only=False)
    table = loaded.pop("state_dict")["pos_embed"]
    assert table.shape[1] > 13
    return loaded


HOW: Mapping[str, Mapping[str, Any]] = {
    "zip": {},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
    "legacy": {"_use_new_zipfile_serialization": False},
}


@pytest.mark.parametrize("how", HOW)
def test_plain_values_are_changed_and_nothing_else(tmp_path: Path, how: str) -> None:
    source = saved(tmp_path / "last.ckpt", settings(), **HOW[how])
    before = source.read_bytes()
    report = edited(source)
    assert report.output is not None and source.read_bytes() == before
    expected = settings()
    expected["hyper_parameters"]["image_size"] = (96, 272)  # 272 takes an opcode of another length
    expected["args"].img_size = [96, 272]
    expected["param_shapes"][0]["pos_embed"] = torch.Size([1, 103, 32])
    expected["pretrained_cfg"]["input_size"] = (3, 96, 272)
    loaded = without_weights(report.output)
    assert loaded == expected
    assert type(loaded["hyper_parameters"]["image_size"]) is tuple
    assert type(loaded["param_shapes"][0]["pos_embed"]) is torch.Size
    assert inside(report) == {}
    assert {edit.key: (edit.before, edit.after) for edit in report.config_edits} == {
        "hyper_parameters.image_size": ([48, 64], [96, 272]),
        "args.img_size": ([48, 64], [96, 272]),
        "param_shapes.0.pos_embed": ([1, 13, 32], [1, 103, 32]),
        "pretrained_cfg.input_size": ([3, 48, 64], [3, 96, 272]),
    }


def test_without_the_option_they_are_named_with_it(tmp_path: Path) -> None:
    source = saved(tmp_path / "last.ckpt", settings())
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None and without_weights(report.output) == settings()
    assert report.config_edits == ()
    assert set(inside(report).values()) == {ASK} and len(inside(report)) == 4


def opcodes(pickle: bytes) -> list[tuple[str, object]]:
    return [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(pickle)]


@pytest.mark.parametrize("how", ["zip", "protocol 4"])
def test_every_other_byte_is_that_of_a_run_without_the_option(tmp_path: Path, how: str) -> None:
    source = saved(tmp_path / "last.ckpt", settings(), **HOW[how])
    plain = resize_checkpoint(source, to="96x128", output=tmp_path / "plain.ckpt").output
    with_sizes = edited(source, "96x128", output=tmp_path / "edited.ckpt").output
    assert plain is not None and with_sizes is not None
    with zipfile.ZipFile(plain) as one, zipfile.ZipFile(with_sizes) as other:
        names = [info.filename.partition("/")[2] for info in one.infolist()]
        assert names == [info.filename.partition("/")[2] for info in other.infolist()]
        pickles = []
        for a, b in zip(one.infolist(), other.infolist(), strict=True):
            if a.filename.endswith("data.pkl"):
                pickles.append((opcodes(one.read(a)), opcodes(other.read(b))))
            elif not a.filename.endswith("resize_pos.json"):  # padded, so that the data stays
                assert one.read(a) == other.read(b)
    [(first, second)] = pickles
    changed = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    numbers = [(a[1], b[1]) for a, b in changed if a[0] != "FRAME"]
    assert sorted(numbers) == sorted([(48, 96), (64, 128)] * 3 + [(13, 49)])


def test_the_output_still_loads_with_weights_only(tmp_path: Path) -> None:
    extras = {"hyper_parameters": {"img_size": [48, 64], "window": 300}}
    report = edited(saved(tmp_path / "last.ckpt", extras))
    assert report.output is not None
    loaded = torch.load(report.output, weights_only=True)
    assert loaded["hyper_parameters"] == {"img_size": [96, 272], "window": 300}


@pytest.mark.parametrize("how", HOW)
def test_a_value_that_several_places_share_is_left(tmp_path: Path, how: str) -> None:
    pair, listed = (HIGH, WIDE), [48, 64]
    extras: dict[str, Any] = {
        "a": {"img_size": pair, "kernel": pair},
        "b": {"image_size": listed, "anything": [listed]},
        "c": {"img_size": [48, 64]},
    }
    unchanged = copy.deepcopy(extras)
    report = edited(saved(tmp_path / "last.ckpt", extras, **HOW[how]))
    assert report.output is not None
    assert inside(report) == {"a.img_size": _SHARED, "b.image_size": _SHARED}
    unchanged["c"]["img_size"] = [96, 272]
    assert without_weights(report.output) == unchanged


def test_a_shared_pair_is_named_under_each_of_its_names(tmp_path: Path) -> None:
    pair = (HIGH, WIDE)
    source = saved(tmp_path / "x.ckpt", {"a": {"img_size": pair}, "b": {"img_size": pair}})
    assert inside(edited(source)) == {"a.img_size": _SHARED, "b.img_size": _SHARED}


def test_a_dict_under_two_names_is_one_dict_after_it_too(tmp_path: Path) -> None:
    config = {"img_size": [48, 64]}
    report = edited(saved(tmp_path / "x.ckpt", {"a": config, "b": {"config": config}}))
    assert report.output is not None
    loaded = without_weights(report.output)
    assert loaded["a"] is loaded["b"]["config"] and loaded["a"] == {"img_size": [96, 272]}


def test_keys_that_read_alike_are_left(tmp_path: Path) -> None:
    extras = {"a": {"b": {"img_size": [48, 64]}}, "a.b": {"img_size": [48, 64]}}
    report = edited(saved(tmp_path / "x.ckpt", extras))
    assert "same name" in inside(report)["a.b.img_size"] and report.config_edits == ()
    assert report.output is not None and without_weights(report.output) == extras


def test_one_number_is_changed_only_into_one_number(tmp_path: Path) -> None:
    source = tmp_path / "square.ckpt"
    extras = {"hyper_parameters": {"img_size": 48, "image_size": [48], "crop_size": 50}}
    torch.save({"state_dict": weights(3, 3), **extras}, source)
    report = edited(source, "96", from_="48")
    reason = f"it is not exactly the old size, {Size(48, 48)}"
    assert inside(report) == {"hyper_parameters.crop_size": reason}
    assert report.output is not None
    assert torch.load(report.output)["hyper_parameters"] == {
        "img_size": 96,
        "image_size": [96],
        "crop_size": 50,
    }
    oblong = edited(source, "96x128", from_="48")
    assert oblong.output is not None and oblong.config_edits == ()
    assert set(inside(oblong).values()) == {TWO}
    assert torch.load(oblong.output)["hyper_parameters"] == extras["hyper_parameters"]


def test_a_dry_run_shows_the_same(tmp_path: Path) -> None:
    pair = (HIGH, WIDE)
    source = saved(tmp_path / "x.ckpt", {**settings(), "a": {"img_size": pair, "b": pair}})
    planned, done = edited(source, dry_run=True), edited(source)
    assert planned.config_edits == done.config_edits != ()
    assert inside(planned) == inside(done) == {"a.img_size": _SHARED}


def test_terminal_and_json_state_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = (HIGH, WIDE)
    source = saved(tmp_path / "x.ckpt", {**settings(), "a": {"img_size": pair, "b": pair}})
    assert _run([str(source), "--to", "96x128", "--edit-sizes", "-n"], debug=True) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "the checkpoint: args.img_size [48, 64] → [96, 128]" in words
    assert f"a.img_size [48, 64] → [96, 128] ({_SHARED})" in words
    document = report_document(edited(source, "96x128"))
    entry = {"file": "the checkpoint", "key": "args.img_size", "from": [48, 64], "to": [96, 128]}
    assert entry in document["config_edits"]
    assert _SHARED in [advice["reason"] for advice in document["config_advice"]]


def test_sizes_inside_do_not_hide_the_code_that_loads_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(tmp_path / "x.ckpt", settings())
    assert _run([str(source), "--to", "96x128"], debug=True) == 0
    shown = capsys.readouterr().out
    assert "timm.create_model(" in shown and "still to change" in shown


CONFIG = '{ "architecture":"vit", "pretrained_cfg": {"input_size": [3, 48,64], "mean": 0.50} }'


def test_in_a_file_of_a_folder_they_are_named_and_stay(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = saved(folder / "pytorch_model.bin", {"hyper_parameters": {"image_size": [48, 64]}})
    (folder / "config.json").write_text('{"image_size": [48, 64], "patch_size": 16}')
    before = path.read_bytes()
    report = resize_checkpoint(folder, to="96x272", output=tmp_path / "out", edit_sizes=True)
    reason = "it is stored in pytorch_model.bin, which is part of a folder"
    assert inside(report) == {"hyper_parameters.image_size": reason}
    loaded = torch.load(tmp_path / "out" / "pytorch_model.bin", weights_only=True)
    assert loaded["hyper_parameters"] == {"image_size": [48, 64]}
    assert path.read_bytes() == before


def test_metadata_of_safetensors(tmp_path: Path) -> None:
    source = tmp_path / "x.safetensors"
    metadata = {
        "format": "pt",
        "img_size": "[48, 64]",
        "config": CONFIG,
        "image_size": "(48, 64)",
        "note": "img_size 48",
    }
    tensors = weights()
    save_file(tensors, source, metadata)
    report = edited(source, "96x128")
    with safe_open(report.output, "pt") as file:
        written = dict(file.metadata())
        assert json.loads(written.pop("resize_pos"))["to"] == "96x128"
        for name in set(tensors) - {"pos_embed"}:
            assert torch.equal(file.get_tensor(name), tensors[name])
    assert written == {
        **metadata,
        "img_size": "[96, 128]",
        "config": CONFIG.replace("48,64", "96,128"),
    }
    assert inside(report) == {"image_size": "it is text in a form that is not edited"}
    # The safetensors library writes metadata in any order.
    keys = {edit.key for edit in report.config_edits}
    assert keys == {"img_size", "config.pretrained_cfg.input_size"}


def test_one_number_in_metadata(tmp_path: Path) -> None:
    source = tmp_path / "x.safetensors"
    save_file(weights(3, 3), source, {"img_size": "48", "depth": "48"})
    report = edited(source, "96", from_="48")
    with safe_open(report.output, "pt") as file:
        assert (file.metadata()["img_size"], file.metadata()["depth"]) == ("96", "48")
    assert set(inside(edited(source, "96x128", from_="48")).values()) == {TWO}


def test_metadata_that_is_no_config_is_left_alone(tmp_path: Path) -> None:
    deep = '{"a":' * 9 + '{"img_size": [48, 64]}' + "}" * 9
    metadata = {
        "deep": deep,
        "endless": '{"img_size":' * 100_000,
        "img_size": "0" * 5000,
        "image_size": "large",
        "list": '[{"img_size": [48, 64]}]',
        "many": json.dumps({str(i): {"img_size": [48, 64]} for i in range(150)}),
    }
    source = tmp_path / "x.safetensors"
    save_file(weights(), source, metadata)
    report = edited(source, "96x128")
    with safe_open(report.output, "pt") as file:
        written = dict(file.metadata())
    assert {key: written[key] for key in metadata if key != "many"} == {
        key: text for key, text in metadata.items() if key != "many"
    }
    assert len(report.config_edits) == written["many"].count("[96, 128]") == 100
    assert written["many"].count("[48, 64]") == 50


def test_an_output_with_another_value_is_refused() -> None:
    plan = SizesInside((ConfigEdit("the checkpoint", ("a.img_size",), 48, 96),))
    plan.require_written({"a.img_size": 96})
    with pytest.raises(OutputError, match=r"states 48 as a\.img_size, not 96"):
        plan.require_written({"a.img_size": 48})
