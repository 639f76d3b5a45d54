"""Torch zip checkpoints: spliced, loadable by every way torch has, untouched records identical."""

from __future__ import annotations

import argparse
import io
import pickle
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from resize_pos.api import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.containers.torch.new_checkpoint import NOTE
from resize_pos.containers.torch.zip_checkpoint import TorchZip
from resize_pos.core.errors import ContainerError, ResizePosError, TableError
from tests.support.torch_files import PROTOCOLS, data_offsets, raw_records, save, state_dict

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.quantize_per_tensor", "ignore:TypedStorage is deprecated"
)

FROM, TO = "48x80", "96x64"  # pixels: 3×5 and 6×4 patches of 16
ROWS = 1 + 6 * 4


class Custom:
    """A class that no loader of ours may need."""

    def __init__(self) -> None:
        self.note = "kept"


def flat() -> Any:
    return state_dict()


def plain_dict() -> Any:
    return dict(state_dict())


def parameters() -> Any:
    return {name: nn.Parameter(t) if t.is_floating_point() else t for name, t in flat().items()}


def parameter_with_attributes() -> Any:
    content = flat()
    content["pos_embed"] = nn.Parameter(content["pos_embed"])
    content["pos_embed"].tag = "an attribute"
    return content


def nested() -> Any:
    return {"model": state_dict(), "epoch": 7, "scores": [1.5, None, True], "big": 2**70}


def every_copy() -> Any:
    return {
        "state_dict": state_dict(prefix="module."),
        "state_dict_ema": state_dict(prefix="module._orig_mod."),
        "teacher": {"backbone": state_dict()},
        "history": [state_dict(), {"deeper": [state_dict()]}],
    }


def arbitrary_objects() -> Any:
    return {
        "model": state_dict(),
        "args": argparse.Namespace(lr=1e-3, names=["a"], nested=argparse.Namespace(x=1)),
        "custom": Custom(),
        "numpy": np.float64(3.25),
        "array": np.arange(6).reshape(2, 3),
        "default": defaultdict(list, a=[1]),
        "set": {1, 2},
        "bytes": b"x" * 70_000,
        "text": "ü" * 3,
        1: "an integer key",
        (1, 2): "a tuple key",
        None: "no key",
    }


def non_contiguous() -> Any:
    content = flat()
    content["pos_embed"] = content["pos_embed"].transpose(1, 2).contiguous().transpose(1, 2)
    assert not content["pos_embed"].is_contiguous()
    return content


def view_with_offset() -> Any:
    content = flat()
    rows = torch.cat([torch.zeros(1, 2, 8), content["pos_embed"], torch.zeros(1, 3, 8)], 1)
    content["pos_embed"] = rows[:, 2:-3]
    return content


def with_other_layouts() -> Any:
    content = flat()
    content["sparse"] = torch.eye(3).to_sparse()
    content["quantised"] = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    content["complex"] = torch.ones(2, dtype=torch.complex128)
    content["conjugated"] = torch.ones(2, dtype=torch.complex64).conj()
    content["expanded"] = torch.ones(1).expand(1000)
    content["empty"] = torch.ones(0, 3)
    content["scalar"] = torch.tensor(1.5)
    content["flags"] = torch.tensor([True, False])
    content["fp8"] = torch.ones(3).to(torch.float8_e4m3fn)
    content["u16"] = torch.ones(3, dtype=torch.uint16)
    return content


Builder = Callable[[], Any]
CONTENTS: dict[str, Builder] = {
    function.__name__: function
    for function in (
        flat,
        plain_dict,
        parameters,
        parameter_with_attributes,
        nested,
        every_copy,
        arbitrary_objects,
        non_contiguous,
        view_with_offset,
        with_other_layouts,
    )
}
WEIGHTS_ONLY = {"flat", "plain_dict", "parameters", "nested", "every_copy", "non_contiguous"}
WEIGHTS_ONLY |= {"view_with_offset"}


def leaves(content: Any, name: str = "") -> dict[str, Any]:
    """Flatten a loaded checkpoint."""
    if isinstance(content, dict):
        pairs = list(content.items())
    elif isinstance(content, list):
        pairs = list(enumerate(content))
    elif isinstance(content, argparse.Namespace | Custom):
        pairs = list(vars(content).items())
    else:
        return {name: content}
    return {k: v for key, value in pairs for k, v in leaves(value, f"{name}.{key}").items()}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        same = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return same and one.is_quantized == other.is_quantized and _equal_values(one, other)
    return bool(np.all(one == other))


def _equal_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_sparse:
        return torch.equal(one.to_dense(), other.to_dense())
    if one.dtype in (torch.float8_e4m3fn, torch.uint16):
        return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
    return torch.equal(one, other)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CONTENTS)
def test_only_the_tables_change(name: str, protocol: int, tmp_path: Path) -> None:
    content = CONTENTS[name]()
    source = save(tmp_path / "a.pth", content, protocol)
    before = source.read_bytes()
    report = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    assert source.read_bytes() == before
    loaded = torch.load(tmp_path / "b.pth", weights_only=False)
    old, new = leaves(content), leaves(loaded)
    assert list(old) == list(new)
    resized = [key for key in old if not equal(old[key], new[key])]
    assert resized and all(key.endswith("pos_embed") for key in resized)
    assert len(resized) == len(report.plan.changes)
    single = resize_checkpoint(
        save(tmp_path / "c.pth", flat()), to=TO, from_=FROM, output=tmp_path / "d.pth"
    )
    assert single.output is not None
    expected = torch.load(single.output)["pos_embed"]
    assert expected.shape == (1, ROWS, 8)
    for key in resized:
        assert type(new[key]) is type(old[key])
        assert new[key].is_contiguous()
        assert torch.equal(new[key], expected)


@pytest.mark.parametrize("name", sorted(WEIGHTS_ONLY))
def test_the_output_loads_with_weights_only_and_mapped(name: str, tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", CONTENTS[name]())
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    plain = leaves(torch.load(tmp_path / "b.pth", weights_only=True))
    mapped = leaves(torch.load(tmp_path / "b.pth", weights_only=True, mmap=True))
    assert list(plain) == list(mapped)
    assert all(equal(plain[key], mapped[key]) for key in plain)
    meta = leaves(torch.load(tmp_path / "b.pth", map_location="meta", weights_only=True))
    assert {k: v.shape for k, v in plain.items() if isinstance(v, torch.Tensor)} == {
        k: v.shape for k, v in meta.items() if isinstance(v, torch.Tensor)
    }


def test_offsets_can_still_be_calculated(tmp_path: Path) -> None:
    from torch.utils.serialization import config

    source = save(tmp_path / "a.pth", nested())
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    expected = leaves(torch.load(tmp_path / "b.pth"))
    with config.patch(  # type: ignore[attr-defined]
        "load.calculate_storage_offsets", True
    ):
        found = leaves(torch.load(tmp_path / "b.pth", mmap=True))
    assert all(equal(expected[key], found[key]) for key in expected)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CONTENTS)
def test_untouched_records_are_identical_in_order_and_aligned(
    name: str, protocol: int, tmp_path: Path
) -> None:
    source = save(tmp_path / "a.pth", CONTENTS[name](), protocol)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    before, after = raw_records(source), raw_records(tmp_path / "b.pth")
    # The name of the archive's folder is kept, though the file is called differently.
    assert [n for n in after if n in before] == [n for n in before if n in after]
    assert set(after) - set(before) == {f"a/{NOTE}"}
    changed = {n for n in before if before[n] != after[n]}
    pickles = {n for n in changed if n.endswith("data.pkl")}
    tables = len([n for n in open_container(source).tensors if n.endswith("pos_embed")])
    assert len(pickles) == 1 and len(changed - pickles) == tables
    assert all(n.startswith("a/data/") for n in changed - pickles)
    assert all(offset % 64 == 0 for offset in data_offsets(tmp_path / "b.pth").values())


def test_the_pickle_differs_in_the_numbers_of_the_table_only(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", flat())
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    old = raw_records(source)["a/data.pkl"][1]
    new = raw_records(tmp_path / "b.pth")["a/data.pkl"][1]
    # 16 rows of 8 become 25: sizes, the outer stride and the storage, each in one opcode
    assert len(old) == len(new)
    differing = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert differing == [(128, 200), (16, 25), (128, 200)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wider_numbers_get_wider_opcodes(protocol: int, tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", nested(), protocol)
    resize_checkpoint(source, to="1600x1024", from_=FROM, output=tmp_path / "b.pth")
    table = torch.load(tmp_path / "b.pth", weights_only=False)["model"]["pos_embed"]
    assert table.shape == (1, 1 + 100 * 64, 8)
    # The pure Python unpickler is strict about frames.
    record = raw_records(tmp_path / "b.pth")["a/data.pkl"][1]

    class Strict(pickle._Unpickler):
        def persistent_load(self, _: Any) -> Any:
            return None

        def find_class(self, module: str, name: str) -> Any:
            return (
                (lambda *_: None)
                if name.startswith("_rebuild")
                else super().find_class(module, name)
            )

    assert Strict(io.BytesIO(record)).load()["big"] == 2**70


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_table_that_shares_its_storage_gets_one_of_its_own(protocol: int, tmp_path: Path) -> None:
    both = torch.randn(2, 16, 8)
    content = flat()
    content["pos_embed"] = both[:1]
    content["other"] = both
    source = save(tmp_path / "a.pth", {"model": content, "last": both[1:]}, protocol)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", leave="^last$")
    loaded = torch.load(tmp_path / "b.pth", weights_only=False)
    assert loaded["model"]["pos_embed"].shape == (1, ROWS, 8)
    assert loaded["model"]["pos_embed"].untyped_storage().nbytes() == ROWS * 8 * 4
    assert torch.equal(loaded["model"]["other"], both)
    assert torch.equal(loaded["last"], both[1:])
    shared = loaded["last"].untyped_storage().data_ptr()
    assert loaded["model"]["other"].untyped_storage().data_ptr() == shared
    if protocol == 2:
        mapped = torch.load(tmp_path / "b.pth", mmap=True)
        assert torch.equal(mapped["model"]["pos_embed"], loaded["model"]["pos_embed"])
        torch.load(tmp_path / "b.pth", map_location="meta")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tied_tables_stay_tied(protocol: int, tmp_path: Path) -> None:
    content = {"model": flat()}
    content["ema"] = OrderedDict((k, v.detach()) for k, v in content["model"].items())
    source = save(tmp_path / "a.pth", content, protocol)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    loaded = torch.load(tmp_path / "b.pth", weights_only=False)
    one, other = loaded["model"]["pos_embed"], loaded["ema"]["pos_embed"]
    assert one.shape == (1, ROWS, 8) and one.data_ptr() == other.data_ptr()
    assert len(raw_records(source)) + 1 == len(raw_records(tmp_path / "b.pth"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("first", ["pos_embed", "elsewhere"])
def test_one_tensor_under_two_names_is_split_when_only_one_is_a_table(
    first: str, protocol: int, tmp_path: Path
) -> None:
    content = flat()
    table = nn.Parameter(content.pop("pos_embed"))
    both = {"elsewhere": table, "pos_embed": table}
    content |= {first: table} | both
    content.move_to_end("elsewhere", last=first == "pos_embed")
    source = save(tmp_path / "a.pth", content, protocol)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", leave="elsewhere")
    loaded = torch.load(tmp_path / "b.pth", weights_only=protocol < 3)
    assert list(loaded) == list(content)
    assert loaded["pos_embed"].shape == (1, ROWS, 8)
    assert isinstance(loaded["elsewhere"], nn.Parameter)
    assert torch.equal(loaded["elsewhere"], table)


def _tensor(key: bytes, size: bytes, stride: bytes) -> bytes:
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" + key + b"X\3\0\0\0cpuK\x80tQ"
    rest = b"K\0" + size + stride + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"R"


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("names", [("pos_embed", "unrelated"), ("unrelated", "pos_embed")])
def test_numbers_that_another_tensor_reads_too_change_for_the_table_alone(
    names: tuple[str, str], protocol: int, tmp_path: Path
) -> None:
    """No torch shares these tuples today; any memo is legal, so it must be right anyway."""
    size, stride = b"K\1K\x10K\x08\x87", b"K\x80K\x08K\1\x87"
    puts = (b"q\0", b"q\1") if protocol == 2 else (b"\x94", b"\x94")
    first = _tensor(b"0", size + puts[0], stride + puts[1])
    keys = [b"X\x09\0\0\0" + name.encode() for name in names]
    body = b"}(" + keys[0] + first + keys[1] + _tensor(b"1", b"h\0", b"h\1") + b"u."
    frame = b"" if protocol == 2 else b"\x95" + len(body).to_bytes(8, "little")
    path = tmp_path / "c.pth"
    values = np.random.default_rng(0).normal(size=(2, 128)).astype(np.float32)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("c/data.pkl", b"\x80" + bytes([protocol]) + frame + body)
        for key, row in enumerate(values):
            archive.writestr(f"c/data/{key}", row.tobytes())
        archive.writestr("c/version", b"3\n")
    expected = torch.load(path, weights_only=protocol == 2)
    assert {t.shape for t in expected.values()} == {(1, 16, 8)}
    known: Any = {"from_grid": "3x5", "prefix": 1, "leave": "unrelated"}
    resize_checkpoint(path, to_grid="6x4", output=tmp_path / "d.pth", **known)
    loaded = torch.load(tmp_path / "d.pth", weights_only=protocol == 2)
    assert list(loaded) == list(names)
    assert loaded["pos_embed"].shape == (1, ROWS, 8) and loaded["pos_embed"].is_contiguous()
    assert torch.equal(loaded["unrelated"], expected["unrelated"])


def test_the_conversion_is_recorded_and_read_back(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", nested())
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    assert "resize_pos" in open_container(tmp_path / "b.pth").metadata
    again = resize_checkpoint(tmp_path / "b.pth", to="64x112", output=tmp_path / "c.pth")
    assert again.plan.steps[0].table.grid.height == 6  # 6×4, though 24 cells say nothing of it
    names = list(raw_records(tmp_path / "c.pth"))
    assert names.count(f"a/{NOTE}") == 1


def test_inspect_says_what_it_is_and_lists_every_copy(tmp_path: Path) -> None:
    source = save(tmp_path / "wrong.safetensors", every_copy(), 4)
    found = inspect_checkpoint(source, from_=FROM)
    assert found.format == "torch checkpoint (zip, pickle protocol 4)"
    assert [table.name for table in found.located.tables] == [
        "state_dict.module.pos_embed",
        "state_dict_ema.module._orig_mod.pos_embed",
        "teacher.backbone.pos_embed",
        "history.0.pos_embed",
        "history.1.deeper.0.pos_embed",
    ]


def test_every_dtype_is_listed_with_its_shape(tmp_path: Path) -> None:
    container = open_container(save(tmp_path / "a.pth", with_other_layouts()))
    shown = {n: (i.dtype, i.shape) for n, i in container.tensors.items()}
    assert shown["quantised"] == ("QI8", (4,))
    assert shown["complex"] == ("C128", (2,))
    assert shown["fp8"] == ("F8_E4M3", (3,))
    assert shown["u16"] == ("U16", (3,))
    assert shown["flags"] == ("BOOL", (2,))
    assert shown["expanded"] == ("F32", (1000,))
    assert not [name for name in shown if name.startswith("sparse")]
    assert container.read("expanded").tolist() == [1.0] * 1000
    assert container.read("scalar").shape == ()
    with pytest.raises(TableError, match="conjugated"):
        container.read("conjugated")
    with pytest.raises(TableError, match="QI8"):
        container.read("quantised")


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn]
)
def test_a_table_keeps_its_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    content = flat()
    content["pos_embed"] = content["pos_embed"].to(dtype)
    source = save(tmp_path / "a.pth", content)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    loaded = torch.load(tmp_path / "b.pth")["pos_embed"]
    assert loaded.dtype == dtype and loaded.shape == (1, ROWS, 8)
    mapped = torch.load(tmp_path / "b.pth", mmap=True)["pos_embed"]
    assert torch.equal(mapped.float(), loaded.float())


def test_a_quantised_table_is_refused(tmp_path: Path) -> None:
    content = flat()
    content["pos_embed"] = torch.quantize_per_tensor(content["pos_embed"], 0.1, 0, torch.qint8)
    with pytest.raises(TableError, match="QI8"):
        resize_checkpoint(save(tmp_path / "a.pth", content), to=TO, from_=FROM)


def test_a_pickled_module_is_refused_with_the_way_out(tmp_path: Path) -> None:
    from tests.support.torch_files import TinyViT

    source = save(tmp_path / "a.pth", TinyViT())
    names = list(open_container(source).tensors)
    assert names == list(TinyViT().state_dict())
    with pytest.raises(ContainerError, match=r"pickled tests\..*\.TinyViT") as refused:
        resize_checkpoint(source, to="24x16", from_="12x20", output=tmp_path / "b.pth")
    assert "state_dict" in str(refused.value.hint)
    assert not (tmp_path / "b.pth").exists()


def test_python_2_checkpoints_are_read(tmp_path: Path) -> None:
    """Python 2 wrote byte strings, and an OrderedDict as the list of its pairs."""
    data = (
        b"\x80\x02ccollections\nOrderedDict\nq\x00]q\x01]q\x02(U\x09pos_embedq\x03"
        b"ctorch._utils\n_rebuild_tensor\nq\x04((U\x07storageq\x05ctorch\nFloatStorage\nq\x06"
        b"U\x010q\x07U\x03cpuq\x08K\x80tQK\x00K\x01K\x10K\x08\x87K\x80K\x08K\x01\x87tRea\x85R."
    )
    path = tmp_path / "old.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("old/data.pkl", data)
        archive.writestr("old/data/0", np.arange(128, dtype=np.float32).tobytes())
        archive.writestr("old/version", b"3\n")
    container = open_container(path)
    assert [str(info) for info in container.tensors.values()] == ["pos_embed F32 [1, 16, 8]"]
    resize_checkpoint(path, to_grid="6x4", from_grid="3x5", prefix=1, output=tmp_path / "b.pth")
    assert torch.load(tmp_path / "b.pth", weights_only=False)["pos_embed"].shape == (1, ROWS, 8)


def test_a_run_without_changes_copies_the_file(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", nested())
    resize_checkpoint(source, to=FROM, from_=FROM, output=tmp_path / "b.pth")
    assert (tmp_path / "b.pth").read_bytes() == source.read_bytes()


def test_a_checkpoint_without_entries_opens(tmp_path: Path) -> None:
    assert isinstance(open_container(save(tmp_path / "a.pth", {})), TorchZip)


def _rezip(
    source: Path, target: Path, change: Callable[[zipfile.ZipFile], None], **how: Any
) -> Path:
    with zipfile.ZipFile(target, "w", **how) as archive:
        for name, (_, data) in raw_records(source).items():
            archive.writestr(name, data)
        change(archive)
    return target


DAMAGE: dict[str, tuple[Callable[[zipfile.ZipFile], None], dict[str, Any], str]] = {
    "compressed": (lambda _: None, {"compression": zipfile.ZIP_DEFLATED}, "compressed"),
    "escaping": (lambda z: z.writestr("a/../x", b""), {}, "leads out of"),
    "absolute": (lambda z: z.writestr("/x", b""), {}, "leads out of"),
    "stray": (lambda z: z.writestr("b/x", b""), {}, "not in the folder"),
    "two pickles": (lambda z: z.writestr("b/data.pkl", b"N."), {}, "two pickles"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_archives_that_are_not_torch_made_are_refused(name: str, tmp_path: Path) -> None:
    change, how, words = DAMAGE[name]
    path = _rezip(save(tmp_path / "a.pth", flat()), tmp_path / "c.pth", change, **how)
    with pytest.raises(ContainerError, match=words):
        open_container(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_names_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", flat())
    path = _rezip(source, tmp_path / "c.pth", lambda z: z.writestr("a/data/0", b""))
    with pytest.raises(ContainerError, match="twice"):
        open_container(path)


def test_big_endian_files_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", flat())
    blob = source.read_bytes().replace(b"little", b"big\0\0\0")
    (tmp_path / "b.pth").write_bytes(blob)
    with pytest.raises(ContainerError, match="byte order"):
        open_container(tmp_path / "b.pth")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    blob = save(tmp_path / "a.pth", {"pos_embed": torch.zeros(1, 16, 8)}).read_bytes()
    path = tmp_path / "b.pth"
    for length in range(0, len(blob), len(blob) // 60):
        path.write_bytes(blob[:length])
        with pytest.raises(ResizePosError):
            open_container(path)


def test_a_look_at_a_checkpoint_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    from tests.laws.test_imports import HEAVY, loaded_after

    source = str(save(tmp_path / "a.pth", nested()))
    assert not loaded_after("inspect", source, "--from", FROM) & (HEAVY | {"numpy"})
    done = loaded_after(source, "--from", FROM, "--to", TO, "-o", str(tmp_path / "b.pth"))
    assert not done & HEAVY


def test_a_real_training_run_goes_on_in_a_timm_model(tmp_path: Path) -> None:
    import timm

    def build(size: tuple[int, int]) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = timm.create_model(
            "vit_tiny_patch16_224", img_size=size, depth=1, num_classes=3, embed_dim=48
        )
        parallel = nn.DataParallel(model)
        return parallel, torch.optim.AdamW(parallel.parameters(), lr=1e-4)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, size: tuple[int, int]) -> None:
        optimizer.zero_grad()
        model(torch.randn(1, 3, *size)).square().mean().backward()
        optimizer.step()

    model, optimizer = build((48, 80))
    step(model, optimizer, (48, 80))
    content = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}
    source = save(tmp_path / "a.ckpt", content)
    resize_checkpoint(source, to="96x64", from_="48x80", output=tmp_path / "b.ckpt")
    for mapped in (False, True):
        loaded = torch.load(tmp_path / "b.ckpt", weights_only=True, mmap=mapped)
        larger, restarted = build((96, 64))
        larger.load_state_dict(loaded["state_dict"], strict=True)
        restarted.load_state_dict(loaded["optimizer"])
        step(larger, restarted, (96, 64))
