"""From one file format to another: the same tensors, nothing lost without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from resize_pos.api import resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.core.errors import ContainerError
from resize_pos.report.json import report_document
from tests.containers.test_torch_legacy import save_legacy
from tests.planning.test_optimizer import adamw, trained
from tests.support.builders import raw_tensors, vit, write_safetensors
from tests.support.torch_files import TinyViT, raw_records, save, state_dict

FROM, TO = "48x80", "96x64"
ROWS = 1 + 6 * 4
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    *(torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64),
]


def every_dtype() -> dict[str, torch.Tensor]:
    content: dict[str, torch.Tensor] = dict(state_dict())
    for number, dtype in enumerate(DTYPES):
        content[f"t{number}"] = torch.arange(number + 1).to(dtype)
    content |= {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
    content["strided"] = torch.arange(12.0).reshape(3, 4).t()
    return content


def bits(tensor: torch.Tensor) -> bytes:
    return (
        bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
    )


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
def test_safetensors_becomes_a_checkpoint_that_weights_only_accepts(
    suffix: str, tmp_path: Path
) -> None:
    content = {k: v.contiguous() for k, v in every_dtype().items()}
    save_file(content, tmp_path / "a.safetensors", {"format": "pt", "note": "kept"})
    target = tmp_path / f"b{suffix}"
    resize_checkpoint(tmp_path / "a.safetensors", to=TO, from_=FROM, output=target)
    for loaded in (torch.load(target, weights_only=True), torch.load(target, mmap=True)):
        assert set(loaded) == set(content)
        assert loaded["pos_embed"].shape == (1, ROWS, 8)
        for name in content.keys() - {"pos_embed"}:
            assert loaded[name].dtype == content[name].dtype
            assert loaded[name].shape == content[name].shape
            assert bits(loaded[name]) == bits(content[name])
    assert open_container(target).metadata["note"] == "kept"
    assert list(open_container(target).tensors) == list(
        open_container(tmp_path / "a.safetensors").tensors
    )


@pytest.mark.parametrize("write", [save, save_legacy])
def test_a_flat_checkpoint_becomes_safetensors(write: Any, tmp_path: Path) -> None:
    content = every_dtype()
    source = write(tmp_path / "a.pth", content)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.safetensors")
    loaded = load_file(tmp_path / "b.safetensors")
    assert set(loaded) == set(content)
    assert loaded["pos_embed"].shape == (1, ROWS, 8)
    for name in content.keys() - {"pos_embed"}:
        assert loaded[name].dtype == content[name].dtype
        assert bits(loaded[name]) == bits(content[name])
    entries, metadata = raw_tensors(tmp_path / "b.safetensors")
    assert list(entries) == list(content)
    assert metadata["format"] == "pt" and "resize_pos" in metadata


def test_there_and_back_again_keeps_every_byte(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "a.safetensors", vit(3, 5))
    resize_checkpoint(source, to=FROM, from_=FROM, output=tmp_path / "b.pth")
    resize_checkpoint(tmp_path / "b.pth", to=FROM, from_=FROM, output=tmp_path / "c.safetensors")
    assert raw_tensors(source)[0] == raw_tensors(tmp_path / "c.safetensors")[0]


def test_extras_are_listed_and_refused_unless_dropped(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", {**trained(adamw)[1], "args": {"lr": 1.0}})
    target = tmp_path / "b.safetensors"
    with pytest.raises(ContainerError, match=r"cannot: epoch, args\.lr, optimizer") as refused:
        resize_checkpoint(source, to="24x16", from_="12x20", output=target)
    assert "drop_extras=True" in str(refused.value.hint) and not target.exists()
    report = resize_checkpoint(source, to="24x16", from_="12x20", output=target, drop_extras=True)
    model = TinyViT(6, 4)
    model.load_state_dict(load_file(target))  # the names of the model, without its wrapper
    document = report_document(report)["conversion"]
    assert document == {
        "format": "safetensors",
        "dropped": ["epoch", "args.lr", "optimizer"],
        "aliases": {},
        "wrapper": "model",
    }


def test_a_lone_wrapper_is_taken_off_without_a_word(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", {"state_dict": state_dict()})
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.safetensors")
    assert list(raw_tensors(tmp_path / "b.safetensors")[0]) == list(state_dict())


def test_several_models_keep_their_full_names(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", {"model": state_dict(), "ema": state_dict(prefix="module.")})
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.safetensors")
    names = list(raw_tensors(tmp_path / "b.safetensors")[0])
    assert names == [f"model.{n}" for n in state_dict()] + [f"ema.module.{n}" for n in state_dict()]


def test_a_flat_dict_whose_keys_share_a_prefix_keeps_it(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", state_dict(prefix="model."))
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.safetensors")
    assert list(raw_tensors(tmp_path / "b.safetensors")[0]) == list(state_dict(prefix="model."))


def test_tied_tensors_are_stored_once_and_listed(tmp_path: Path) -> None:
    content = state_dict()
    content["head.weight"] = content["blocks.0.attn.qkv.weight"]
    content["a_view"] = content["blocks.0.attn.qkv.weight"][1:]  # not the same: a tensor of its own
    source = save(tmp_path / "a.pth", content)
    report = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.safetensors")
    assert report.conversion is not None
    assert report.conversion.aliases == {"head.weight": "blocks.0.attn.qkv.weight"}
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert set(file.keys()) == set(content) - {"head.weight"}
        assert file.metadata()["head.weight"] == "blocks.0.attn.qkv.weight"
        assert torch.equal(file.get_tensor("a_view"), content["a_view"])


def test_a_pickled_module_gives_its_state_dict(tmp_path: Path) -> None:
    model = nn.Sequential(TinyViT(3, 5))
    source = save(tmp_path / "a.pth", model)
    resize_checkpoint(
        source, to="24x16", from_="12x20", output=tmp_path / "b.safetensors", drop_extras=True
    )
    nn.Sequential(TinyViT(6, 4)).load_state_dict(load_file(tmp_path / "b.safetensors"))


def test_what_the_format_does_not_have_is_refused(tmp_path: Path) -> None:
    content = {**state_dict(), "wide": torch.ones(2, dtype=torch.complex128)}
    source = save(tmp_path / "a.pth", content)
    with pytest.raises(ContainerError, match="wide is C128"):
        resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.safetensors")


def test_without_a_new_suffix_nothing_is_converted(tmp_path: Path) -> None:
    source = save(tmp_path / "lies.safetensors", {"model": state_dict(), "epoch": 1})
    report = resize_checkpoint(source, to=TO, from_=FROM)
    assert report.output is not None and report.conversion is None
    assert "lies/data.pkl" in raw_records(report.output)


def test_the_command_line_says_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from resize_pos.cli.app import _run

    source = str(save(tmp_path / "a.pth", {"model": state_dict(), "epoch": 1}))
    words = [source, "--to", TO, "--from", FROM, "-o", str(tmp_path / "b.safetensors")]
    assert _run(words, debug=False) == 1
    assert "hint: Pass --drop-extras" in capsys.readouterr().err
    assert _run([*words, "--drop-extras", "--json"], debug=False) == 0
    assert json.loads(capsys.readouterr().out)["conversion"]["dropped"] == ["epoch"]
    assert _run([*words, "--drop-extras", "-f"], debug=False) == 0
    assert "left out: epoch" in capsys.readouterr().out


def test_reading_needs_no_suffix(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "weights.pth", vit(3, 5))
    assert open_container(source).format == "safetensors"
    assert np.array_equal(open_container(source).read("pos_embed"), vit(3, 5)["pos_embed"])


def test_npz_becomes_safetensors_and_nothing_becomes_npz(tmp_path: Path) -> None:
    arrays = {f"params/{name}": array for name, array in vit(3, 5).items()}
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    table = "params/pos_embed"
    resize_checkpoint(tmp_path / "a.npz", to=TO, from_=FROM, output=tmp_path / "b.safetensors")
    loaded = load_file(tmp_path / "b.safetensors")
    assert set(loaded) == set(arrays) and loaded[table].shape == (1, ROWS, 8)
    assert all(bits(loaded[n]) == arrays[n].tobytes() for n in arrays if n != table)
    for source, target in (("b.safetensors", "c.npz"), ("a.npz", "c.pth")):
        with pytest.raises(ContainerError, match="is not converted to"):
            resize_checkpoint(tmp_path / source, to="64x112", output=tmp_path / target)
    np.savez(tmp_path / "d.npz", odd=np.array([{}], object), **arrays)  # type: ignore[arg-type]
    with pytest.raises(ContainerError, match="cannot: odd"):
        resize_checkpoint(tmp_path / "d.npz", to=TO, from_=FROM, output=tmp_path / "e.safetensors")
