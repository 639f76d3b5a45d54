"""Legacy streams and TorchScript archives: read safely, written as plain checkpoints."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from resize_pos.api import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.core.errors import ContainerError, ResizePosError, UsageError
from tests.planning.test_optimizer import adamw, train, trained
from tests.support.torch_files import PROTOCOLS, TinyViT, raw_records, state_dict

FROM, TO = "48x80", "96x64"
ROWS = 1 + 6 * 4


def save_legacy(path: Path, content: object, protocol: int = 2) -> Path:
    torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    return path


def contents() -> dict[str, Any]:
    tied = state_dict()
    tied["other"] = tied["pos_embed"][:, 1:]
    table = state_dict()
    table["pos_embed"] = table["pos_embed"].transpose(1, 2).contiguous().transpose(1, 2)
    return {
        "flat": state_dict(),
        "nested": {"model": state_dict(), "epoch": 3, "args": argparse.Namespace(lr=0.1)},
        "shared": tied,
        "non-contiguous": table,
        "parameters": {
            k: nn.Parameter(v) for k, v in state_dict().items() if v.is_floating_point()
        },
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, torch.Tensor):
        return type(one) is type(other) and torch.equal(one, other) and one.dtype == other.dtype
    return bool(one == other)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", contents())
def test_a_legacy_stream_becomes_a_zip_checkpoint(name: str, protocol: int, tmp_path: Path) -> None:
    content = contents()[name]
    source = save_legacy(tmp_path / "a.pth", content, protocol)
    before = source.read_bytes()
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", leave="^other$")
    assert source.read_bytes() == before
    safe = protocol == 2 and name != "nested"
    loaded = torch.load(tmp_path / "b.pth", weights_only=safe)
    old, new = (x["model"] if name == "nested" else x for x in (content, loaded))
    assert new.pop("pos_embed").shape == (1, ROWS, 8)
    old.pop("pos_embed")
    assert same(content, loaded)
    if safe:
        mapped = torch.load(tmp_path / "b.pth", mmap=True)
        assert mapped.pop("pos_embed").shape == (1, ROWS, 8) and same(content, mapped)
    assert all(crc or not data for crc, data in raw_records(tmp_path / "b.pth").values())


@pytest.mark.parametrize("choice", ["resize", "drop"])
def test_a_legacy_training_run_goes_on(choice: str, tmp_path: Path) -> None:
    source = save_legacy(tmp_path / "a.pth", trained(adamw)[1])
    resize_checkpoint(
        source, to="24x16", from_="12x20", output=tmp_path / "b.pth", optimizer=choice
    )
    loaded = torch.load(tmp_path / "b.pth")
    model = TinyViT(6, 4)
    model.load_state_dict(loaded["model"])
    optimizer = adamw(model)
    optimizer.load_state_dict(loaded["optimizer"])
    assert bool(optimizer.state.get(model.pos_embed)) == (choice == "resize")
    train(model, optimizer, (24, 16))


def test_inspect_names_the_format_whatever_the_suffix(tmp_path: Path) -> None:
    source = save_legacy(tmp_path / "wrong.safetensors", state_dict())
    found = inspect_checkpoint(source, from_=FROM)
    assert found.format == "torch checkpoint (legacy stream from before torch 1.6)"
    assert [t.name for t in found.located.tables] == ["pos_embed"]


def test_every_truncation_of_a_legacy_stream_is_refused(tmp_path: Path) -> None:
    blob = save_legacy(tmp_path / "a.pth", state_dict()).read_bytes()
    for length in range(0, len(blob), len(blob) // 60):
        (tmp_path / "b.pth").write_bytes(blob[:length])
        with pytest.raises(ResizePosError):
            open_container(tmp_path / "b.pth")


def test_a_pickle_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    import pickle

    (tmp_path / "a.pth").write_bytes(pickle.dumps({"pos_embed": list(range(100))}, 4))
    with pytest.raises(ContainerError, match="not one of torch's checkpoints"):
        open_container(tmp_path / "a.pth")


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_pickled_modules_with_source_code_are_refused_as_zip(tmp_path: Path) -> None:
    source = save_legacy(tmp_path / "a.pth", {"pos_embed": torch.zeros(1, 16, 8), "m": nn.ReLU()})
    with pytest.raises(ContainerError, match="source code of pickled modules"):
        resize_checkpoint(
            source, to_grid="6x4", from_grid="3x5", prefix=1, output=tmp_path / "b.pth"
        )
    assert not (tmp_path / "b.pth").exists()


class Clip(nn.Module):
    """The part of OpenAI's CLIP that matters here, resolution and all."""

    def __init__(self, side: int = 4) -> None:
        super().__init__()
        self.visual = nn.Module()
        self.visual.conv1 = nn.Conv2d(3, 8, 16, 16, bias=False)
        self.visual.class_embedding = nn.Parameter(torch.randn(8))
        self.visual.positional_embedding = nn.Parameter(torch.randn(1 + side * side, 8))
        self.visual.narrow = nn.Parameter(torch.randn(4).half())
        self.register_buffer("input_resolution", torch.tensor(16 * side))
        self.visual.scale = nn.Parameter(torch.randn(8))
        self.tied = self.visual.scale

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        rows = self.visual.conv1(image).flatten(2).transpose(1, 2)  # type: ignore[operator]
        return rows + self.visual.positional_embedding[1:] + self.tied  # type: ignore[index, no-any-return]


def save_script(path: Path, model: nn.Module) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated; its files are not
        traced = torch.jit.trace(model, torch.zeros(1, 3, 64, 64))  # type: ignore[no-untyped-call]
        torch.jit.save(traced, str(path))
    return path


def test_a_torchscript_archive_becomes_a_plain_checkpoint(tmp_path: Path) -> None:
    model = Clip()
    source = save_script(tmp_path / "clip.pt", model)
    found = inspect_checkpoint(source)
    assert found.format == "TorchScript archive"
    assert "input_resolution" in found.tensors
    resize_checkpoint(source, to=96, from_=64, output=tmp_path / "b.pt")
    loaded = torch.load(tmp_path / "b.pt", weights_only=True)
    mapped = torch.load(tmp_path / "b.pt", weights_only=True, mmap=True)
    assert set(loaded) == set(model.state_dict())
    for name, value in model.state_dict().items():
        if name == "visual.positional_embedding":
            assert loaded[name].shape == (37, 8)
        elif name == "input_resolution":  # it is one number, so that this model must be square
            assert int(loaded[name]) == 96
        else:
            assert torch.equal(loaded[name], value) and loaded[name].dtype == value.dtype
        assert torch.equal(mapped[name], loaded[name])
    assert loaded["tied"].data_ptr() == loaded["visual.scale"].data_ptr()
    Clip(6).load_state_dict(loaded)
    assert not [n for n in raw_records(tmp_path / "b.pt") if "code" in n or "constants" in n]


def test_a_torchscript_archive_becomes_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = Clip()
    source = save_script(tmp_path / "clip.pt", model)
    resize_checkpoint(source, to=96, from_=64, output=tmp_path / "b.safetensors")
    loaded = load_file(tmp_path / "b.safetensors")
    assert loaded["visual.positional_embedding"].shape == (37, 8)
    assert torch.equal(loaded["visual.conv1.weight"], model.state_dict()["visual.conv1.weight"])
    assert set(loaded) == set(model.state_dict()) - {"visual.scale"}  # tied


def test_a_torchscript_archive_becomes_a_checkpoint_without_a_new_size(tmp_path: Path) -> None:
    model = Clip()
    source = save_script(tmp_path / "clip.pt", model)
    with pytest.raises(UsageError, match="no target is given"):
        resize_checkpoint(source)
    report = resize_checkpoint(source, output=tmp_path / "b.pth")
    assert report.status == "converted"
    assert any("plain state dict" in note.text for note in report.notes)
    loaded = torch.load(tmp_path / "b.pth", weights_only=True)
    assert loaded.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded[name], tensor)


def test_a_few_bytes_can_be_looked_at_in_every_format(tmp_path: Path) -> None:
    from tests.support.torch_files import save

    content = contents()["non-contiguous"]
    paths = [save(tmp_path / "a.pth", content), save_legacy(tmp_path / "b.pth", content)]
    for path in paths:
        container = open_container(path)
        for name in ("pos_embed", "cls_token"):
            whole = container.read(name).tobytes()
            assert container.peek(name, 8, 12) == whole[8:20]
            assert container.peek(name, len(whole) - 4, 12) == whole[-4:]
    script = open_container(save_script(tmp_path / "clip.pt", Clip()))
    name = "visual.class_embedding"
    assert script.peek(name, 4, 8) == script.read(name).tobytes()[4:12]
