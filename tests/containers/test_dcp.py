"""torch distributed checkpoints: written by torch, converted, and loaded by torch again."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import load as torch_load
from torch.distributed.checkpoint.state_dict_saver import save as torch_save

from resize_pos import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.dcp.checkpoint import DistributedCheckpoint
from resize_pos.containers.detect import open_container
from resize_pos.containers.io.link_or_copy import LINK_FROM
from resize_pos.core.errors import ContainerError
from tests.support.builders import vit
from tests.support.folder_builders import files

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns that no process group is there


def state(**options: Any) -> dict[str, Any]:
    tensors = {name: torch.from_numpy(array) for name, array in vit(**options).items()}
    tensors["half"] = torch.randn(3).bfloat16()
    return {"model": tensors, "step": 3, "notes": {"by": "hand"}}


def save(folder: Path, content: dict[str, Any]) -> Path:
    torch_save(content, checkpoint_id=folder, no_dist=True)
    return folder


def load(folder: Path, like: dict[str, Any]) -> dict[str, Any]:
    torch_load(like, checkpoint_id=folder, no_dist=True)
    return like


def raw(folder: Path) -> dict[tuple[str, Any], bytes]:
    """Cut the files into their entries."""
    metadata: Metadata = pickle.loads((folder / ".metadata").read_bytes())
    found = {}
    for index, place in metadata.storage_data.items():
        data = (folder / place.relative_path).read_bytes()
        found[index.fqn, index.offset] = data[place.offset : place.offset + place.length]
    return found


def test_torch_loads_the_new_checkpoint(tmp_path: Path) -> None:
    content = state()
    source = save(tmp_path / "ckpt", content)
    (source / "notes.json").write_text("{}")
    report = resize_checkpoint(source, to="96x128")
    assert report.output == tmp_path / "ckpt-96x128"
    like = state(height=6, width=8)
    like["model"] = {name: torch.zeros_like(tensor) for name, tensor in like["model"].items()}
    loaded = load(report.output, {**like, "step": 0, "notes": {"by": ""}})
    assert (loaded["step"], loaded["notes"]) == (3, {"by": "hand"})
    for name, tensor in loaded["model"].items():
        if name != "pos_embed":
            assert torch.equal(tensor, content["model"][name])
    expected = open_container(report.output).read("model.pos_embed")
    np.testing.assert_array_equal(loaded["model"]["pos_embed"].numpy(), expected)
    assert np.ptp(expected) > 0
    assert (report.output / "notes.json").read_text() == "{}"


def test_every_other_entry_is_the_same_bytes(tmp_path: Path) -> None:
    source = save(tmp_path / "ckpt", state())
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    before, after = raw(source), raw(report.output)
    assert before.keys() == after.keys()
    changed = {key[0] for key in before if before[key] != after[key]}
    assert changed == {"model.pos_embed"}


def in_two_files(folder: Path) -> Path:
    """Cut the table into two parts along its rows and put the second into a file of its own."""
    save(folder, state())
    metadata: Metadata = pickle.loads((folder / ".metadata").read_bytes())
    table = open_container(folder).read("model.pos_embed")
    entry = metadata.state_dict_metadata["model.pos_embed"]
    assert isinstance(entry, TensorStorageMetadata)
    (index,) = [i for i in metadata.storage_data if i.fqn == "model.pos_embed"]
    place = metadata.storage_data.pop(index)
    entry.chunks = []
    for number, (start, end) in enumerate([(0, 10), (10, 17)]):
        path = folder / f"__{number + 1}_0.distcp"
        torch.save(torch.from_numpy(table[:, start:end].copy()), path)
        offsets = torch.Size([0, start, 0])
        entry.chunks.append(ChunkStorageMetadata(offsets, torch.Size([1, end - start, 8])))
        new = type(place)(path.name, 0, path.stat().st_size)
        metadata.storage_data[MetadataIndex("model.pos_embed", offsets, number)] = new
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


def test_a_table_in_parts_becomes_one(tmp_path: Path) -> None:
    whole = resize_checkpoint(save(tmp_path / "whole", state()), to="96x128")
    source = in_two_files(tmp_path / "parts")
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    assert whole.output is not None
    one, two = open_container(whole.output), open_container(report.output)
    np.testing.assert_array_equal(one.read("model.pos_embed"), two.read("model.pos_embed"))
    target = torch.zeros(1, 49, 8)
    load(report.output, {"model": {"pos_embed": target}})
    np.testing.assert_array_equal(target.numpy(), one.read("model.pos_embed"))


def test_files_that_do_not_change_are_linked_or_copied(tmp_path: Path) -> None:
    source = in_two_files(tmp_path / "ckpt")
    with (source / "__0_0.distcp").open("ab") as file:
        file.write(bytes(LINK_FROM))
    linked = resize_checkpoint(source, to=96, output=tmp_path / "linked", link=True)
    copied = resize_checkpoint(source, to=96, output=tmp_path / "copied")
    assert (linked.copied.linked, copied.copied.linked) == (1, 0)
    assert (source / "__0_0.distcp").samefile(tmp_path / "linked" / "__0_0.distcp")
    assert files(tmp_path / "linked").keys() == files(tmp_path / "copied").keys()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_table_stays_in_its_type(dtype: torch.dtype, tmp_path: Path) -> None:
    content = state()
    content["model"]["pos_embed"] = content["model"]["pos_embed"].to(dtype)
    source = save(tmp_path / "ckpt", content)
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    target = torch.zeros(1, 49, 8, dtype=dtype)
    load(report.output, {"model": {"pos_embed": target}})
    assert torch.equal(target[:, :1], content["model"]["pos_embed"][:, :1])


def test_inspect_says_what_it_is(tmp_path: Path) -> None:
    inspection = inspect_checkpoint(save(tmp_path / "ckpt", state()))
    assert inspection.format == "torch distributed checkpoint in 1 files"
    assert [table.name for table in inspection.located.tables] == ["model.pos_embed"]


STATES = ["optim.state.pos_embed.exp_avg", "optimizer.state.0.exp_avg_sq"]


@pytest.mark.parametrize("name", STATES)
def test_optimizer_state_that_would_stay_behind_is_refused(name: str, tmp_path: Path) -> None:
    content = state()
    source = save(tmp_path / "ckpt", {**content, name: torch.zeros(1, 17, 8)})
    with pytest.raises(ContainerError, match=f"{name} looks like the optimizer's state"):
        resize_checkpoint(source, to=96)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt"]


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


CANARIES: dict[str, Callable[[str], Any]] = {
    "os.system": lambda mark: Call(os.system, f"touch {mark}"),
    "exec": lambda mark: Call(exec, f"open({mark!r}, 'w')"),
    "eval": lambda mark: Call(eval, f"open({mark!r}, 'w')"),
    "open": lambda mark: Call(open, mark, "w"),
    "getattr": lambda mark: Call(getattr, mark, "upper"),
    "torch.load": lambda mark: Call(torch.load, mark),
    "torch.ops": lambda mark: Call(torch.hub.load_state_dict_from_url, mark),
}


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_that_the_metadata_names_is_run(canary: str, inside: bool, tmp_path: Path) -> None:
    source = save(tmp_path / "ckpt", state())
    mark = tmp_path / "exploded"
    bomb = CANARIES[canary](str(mark))
    metadata: Any = pickle.loads((source / ".metadata").read_bytes())
    if inside:
        metadata.planner_data = bomb
    (source / ".metadata").write_bytes(pickle.dumps(metadata if inside else bomb))
    for look in (lambda: inspect_checkpoint(source), lambda: resize_checkpoint(source, to=96)):
        with pytest.raises(ContainerError, match="asks for") as caught:
            look()
        assert "no unsafe fallback" in (caught.value.hint or "")
    assert not mark.exists()


def test_a_table_s_own_pickle_is_not_run_either(tmp_path: Path) -> None:
    source = save(tmp_path / "ckpt", state())
    mark = tmp_path / "exploded"
    metadata: Any = pickle.loads((source / ".metadata").read_bytes())
    (index,) = [i for i in metadata.storage_data if i.fqn == "model.pos_embed"]
    torch.save(Call(os.system, f"touch {mark}"), source / "__1_0.distcp")
    size = (source / "__1_0.distcp").stat().st_size
    place = type(metadata.storage_data[index])("__1_0.distcp", 0, size)
    metadata.storage_data[index] = place
    (source / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ContainerError, match="cannot be read"):
        resize_checkpoint(source, to=96)
    assert not mark.exists()


def escape(metadata: Any) -> None:
    next(iter(metadata.storage_data.values())).relative_path = "../../etc/passwd"


def missing(metadata: Any) -> None:
    next(iter(metadata.storage_data.values())).relative_path = "__7_0.distcp"


def beyond(metadata: Any) -> None:
    next(iter(metadata.storage_data.values())).length = 10**9


def overlap(metadata: Any) -> None:
    list(metadata.storage_data.values())[1].offset = 0


def gap(metadata: Any) -> None:
    metadata.state_dict_metadata["model.pos_embed"].size = torch.Size([1, 18, 8])


def no_type(metadata: Any) -> None:
    metadata.state_dict_metadata["model.pos_embed"] = None


DAMAGE: list[tuple[Callable[[Any], None], str]] = [
    (escape, "leads out of the folder"),
    (missing, "is missing"),
    (beyond, "at bytes 0 to 1000000000"),
    (overlap, "overlap"),
    (gap, "do not make up"),
    (no_type, "is not what it should be"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_metadata_that_does_not_fit_is_refused(
    damage: Callable[[Any], None], words: str, tmp_path: Path
) -> None:
    source = save(tmp_path / "ckpt", state())
    metadata = pickle.loads((source / ".metadata").read_bytes())
    damage(metadata)
    (source / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ContainerError, match=f"ckpt: .*{words}"):
        DistributedCheckpoint.open(source)


@pytest.mark.parametrize("content", [b"", b"\x80\x04.", b"hello", pickle.dumps([1]), b"\x80\x04N."])
def test_metadata_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    source = save(tmp_path / "ckpt", state())
    (source / ".metadata").write_bytes(content)
    with pytest.raises(ContainerError, match=r"ckpt: \.metadata"):
        DistributedCheckpoint.open(source)


def test_sizes_that_were_saved_with_the_weights_are_named(tmp_path: Path) -> None:
    """torch saves every value of a nested dictionary as an entry of its own."""
    content = state() | {
        "hyper_parameters": {"img_size": 64, "lr": 0.1, "epochs": 64},
        "data": {"crop_size": [64, 64], "mean": 64},
    }
    source = save(tmp_path / "ckpt", content)
    report = resize_checkpoint(source, to="96x128")
    named = " ".join(map(str, report.config_advice))
    for name in ("hyper_parameters.img_size", "data.crop_size"):
        assert name in named
    assert "entry of a distributed checkpoint" in named
    assert "epochs" not in named
    assert report.output is not None
    assert (
        raw(report.output)["hyper_parameters.img_size", None]
        == (raw(source)["hyper_parameters.img_size", None])
    )
