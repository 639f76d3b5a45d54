"""`fit_checkpoint` reads the size from a model; `resize_state_dict` may give a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import resize_pos
from resize_pos.containers.safetensors.file import SafetensorsFile
from tests.support.builders import vit, write_safetensors


class Vit(torch.nn.Module):
    """The tensors of the small checkpoint, for any grid."""

    def __init__(self, rows: int, classes: int = 5) -> None:
        super().__init__()
        self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, 8))
        self.pos_embed = torch.nn.Parameter(torch.zeros(1, 1 + rows, 8))
        self.patch_embed = torch.nn.Module()
        self.patch_embed.proj = torch.nn.Conv2d(3, 8, 16, 16, bias=False)
        self.blocks = torch.nn.ModuleList([torch.nn.Module()])
        attention = torch.nn.Module()
        attention.qkv = torch.nn.Linear(8, 24, bias=False)
        self.blocks[0].attn = attention
        self.norm = torch.nn.Module()
        self.norm.register_buffer("bias", torch.zeros(8, dtype=torch.float16))
        self.head = torch.nn.Module()
        self.head.register_buffer("bias", torch.zeros(classes, dtype=torch.int64))


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A table of 4×6 patches."""
    return write_safetensors(tmp_path / "wide.safetensors", vit(4, 6))


def test_the_size_is_read_from_the_shapes(vit_file: Path) -> None:
    model = Vit(36)
    state, report = resize_pos.fit_checkpoint(vit_file, model)
    model.load_state_dict(state, strict=True)
    made = resize_pos.resize_checkpoint(vit_file, to=96).output
    assert made is not None
    stored = SafetensorsFile.open(made)
    for name, tensor in state.items():
        np.testing.assert_array_equal(tensor.numpy(), stored.read(name))
    assert report.verdict == "ok"
    assert report.output is None
    assert resize_pos.param_groups(model, report, lr=1e-3)[1]["params"] == [model.pos_embed]


def test_a_rectangle_is_read_from_an_attribute(wide: Path) -> None:
    """60 rows may be 6×10, 10×6 or 5×12; the model's patch embedding knows."""
    model = Vit(60)
    with pytest.raises(resize_pos.ResizePosError) as caught:
        resize_pos.fit_checkpoint(wide, model, from_="64x96")
    assert caught.value.hint == "state the output's geometry with to=SIZE or to_grid=HxW."
    setattr(model.patch_embed, "img_size", (96, 160))  # noqa: B010
    state, report = resize_pos.fit_checkpoint(wide, model, from_="64x96")
    (step,) = report.plan.changes
    assert str(step.target) == "6×10"
    model.load_state_dict(state)
    del model.patch_embed.img_size
    again, _ = resize_pos.fit_checkpoint(wide, model, from_="64x96", to=(96, 160))
    assert torch.equal(again["pos_embed"], state["pos_embed"])


def test_a_training_checkpoint_is_unwrapped(tmp_path: Path) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in vit().items()}
    path = tmp_path / "train.pth"
    torch.save({"model": {f"module.{k}": v for k, v in tensors.items()}, "epoch": 3}, path)
    model = Vit(24)
    setattr(model.patch_embed, "img_size", (64, 96))  # noqa: B010
    state, report = resize_pos.fit_checkpoint(path, model)
    model.load_state_dict(state, strict=True)
    assert report.fine_tune.parameters == ("pos_embed",)


def test_two_copies_of_a_model_need_a_choice(tmp_path: Path) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in vit().items()}
    average = {name: tensor * 2 for name, tensor in tensors.items()}
    path = tmp_path / "train.pth"
    torch.save({"model": tensors, "model_ema": average}, path)
    with pytest.raises(resize_pos.ResizePosError, match="holds the model 2 times") as caught:
        resize_pos.fit_checkpoint(path, Vit(36))
    assert caught.value.hint == "choose one: key='model'."
    chosen, _ = resize_pos.fit_checkpoint(path, Vit(36), key="model_ema")
    assert torch.equal(chosen["cls_token"], average["cls_token"])
    with pytest.raises(resize_pos.ResizePosError, match="below key='optimizer'"):
        resize_pos.fit_checkpoint(path, Vit(36), key="optimizer")


def test_a_head_for_other_classes_is_refused_or_left_out(vit_file: Path) -> None:
    model = Vit(36, classes=7)
    with pytest.raises(resize_pos.ResizePosError, match=r"head\.bias is \[5\]") as caught:
        resize_pos.fit_checkpoint(vit_file, model)
    assert "ignore_mismatched_sizes=True" in str(caught.value.hint)
    state, report = resize_pos.fit_checkpoint(vit_file, model, ignore_mismatched_sizes=True)
    assert "head.bias" not in state
    assert [entry.name for entry in report.left_out] == ["head.bias"]
    model.load_state_dict(state, strict=False)


def test_a_model_of_the_same_size_gets_the_checkpoint_as_it_is(vit_file: Path) -> None:
    state, report = resize_pos.fit_checkpoint(vit_file, Vit(16))
    assert report.status == "unchanged"
    np.testing.assert_array_equal(state["pos_embed"].numpy(), vit()["pos_embed"])


def test_another_model_is_refused_with_both_names(vit_file: Path) -> None:
    with pytest.raises(resize_pos.ResizePosError, match="no tensor has a name that the model has"):
        resize_pos.fit_checkpoint(vit_file, torch.nn.ModuleDict({"body": torch.nn.Linear(2, 2)}))


def test_every_dtype_arrives_bit_for_bit(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {k: torch.from_numpy(v) for k, v in vit().items()}
    tensors["pos_embed"] = tensors["pos_embed"].bfloat16()
    tensors["cls_token"] = tensors["cls_token"].to(torch.float8_e4m3fn)
    path = tmp_path / "mixed.safetensors"
    save_file(tensors, path)
    state, _ = resize_pos.fit_checkpoint(path, Vit(36))
    made = resize_pos.resize_checkpoint(path, to=96).output
    assert made is not None
    for name, tensor in load_file(made).items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_timm_models_tell_their_size(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    def build(size: tuple[int, int]) -> Any:
        return timm.create_model(
            "vit_tiny_patch16_224", img_size=size, embed_dim=48, depth=1, num_heads=4, num_classes=5
        )

    path = tmp_path / "vit.safetensors"
    save_file(build((64, 64)).state_dict(), path)
    model = build((96, 160))
    state, report = resize_pos.fit_checkpoint(path, model)
    model.load_state_dict(state, strict=True)
    assert str(report.plan.to_size) == "96x160"


def test_transformers_models_tell_their_size(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    def build(size: Any) -> Any:
        return ViTModel(
            ViTConfig(
                image_size=size,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
            )
        )

    build((64, 96)).save_pretrained(tmp_path / "vit")
    model = build((96, 160))
    state, report = resize_pos.fit_checkpoint(tmp_path / "vit", model)
    model.load_state_dict(state, strict=True)
    (step,) = report.plan.changes
    assert (str(step.table.grid), str(step.target)) == ("4×6", "6×10")


def test_swin_s_window_follows_the_model(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    def build(size: int, window: int) -> Any:
        return timm.create_model(
            "swin_tiny_patch4_window7_224",
            img_size=size,
            window_size=window,
            embed_dim=16,
            depths=(1, 1),
            num_heads=(2, 2),
            num_classes=3,
        )

    path = tmp_path / "swin.safetensors"
    save_file(build(56, 7).state_dict(), path)
    model = build(96, 12)
    state, _ = resize_pos.fit_checkpoint(path, model)
    model.load_state_dict(state, strict=True)


def test_a_longer_text_needs_a_method(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    def build(length: int) -> Any:
        return BertModel(
            BertConfig(
                vocab_size=20,
                max_position_embeddings=length,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
            )
        )

    build(24).save_pretrained(tmp_path / "bert")
    model = build(40)
    with pytest.raises(resize_pos.ResizePosError, match="would grow from 24 to 40"):
        resize_pos.fit_checkpoint(tmp_path / "bert", model)
    state, _ = resize_pos.fit_checkpoint(tmp_path / "bert", model, length_method="linear")
    assert state["embeddings.position_embeddings.weight"].shape == (40, 16)


def test_a_state_dict_comes_with_a_verdict_on_request() -> None:
    tensors = {name: torch.from_numpy(array) for name, array in vit(4, 6).items()}
    plain = resize_pos.resize_state_dict(tensors, to="96x160", from_="64x96")
    state, report = resize_pos.resize_state_dict(
        tensors, to="96x160", from_="64x96", with_report=True
    )
    assert all(torch.equal(state[name], plain[name]) for name in plain)
    assert report.verdict == "ok"
    assert report.tables[0].measures["norm_ratio"] == pytest.approx(1, abs=0.1)
    shuffled = dict(tensors)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0)) + 1
    shuffled["pos_embed"] = torch.cat(
        [tensors["pos_embed"][:, :1], tensors["pos_embed"][:, order]], dim=1
    )
    _, bad = resize_pos.resize_state_dict(shuffled, to="96x160", from_="64x96", with_report=True)
    assert bad.checks != report.checks


def test_an_inspection_prints_as_the_command_does(wide: Path) -> None:
    text = str(resize_pos.inspect_checkpoint(wide, from_="64x96"))
    first, second, third, *_ = text.splitlines()
    assert first.startswith("wide.safetensors: safetensors, 6 tensors, ")
    assert second == "pos_embed  F32 [1, 25, 8]"
    assert third == "  4×6, 1 prefix row, 64x96 px at patch 16"
