"""Pickles that would run code, explode or lie: carried over or refused, never executed."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resize_pos.api import resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.containers.pickle.edit import encode_int, encode_ints, encode_str
from resize_pos.containers.pickle.walk import walk
from resize_pos.core.errors import ContainerError, ResizePosError
from tests.support.torch_files import PROTOCOLS, raw_records, save, state_dict

FROM, TO = "48x80", "96x64"
SLOW = pytest.mark.slow


class Bomb:
    """Runs code in whoever loads it."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], Any]:
        return self.call


def canary(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "canary"
    return path, f"__import__('pathlib').Path({str(path)!r}).touch()"


BOMBS: dict[str, Callable[[Path, str], object]] = {
    "os.system": lambda path, _: Bomb(os.system, f"touch {path}"),
    "builtins.exec": lambda _, code: Bomb(exec, code),
    "builtins.eval": lambda _, code: Bomb(eval, code),
    "subprocess": lambda path, _: Bomb(subprocess.check_call, ["touch", str(path)]),
    "nested": lambda _, code: [{"deep": (Bomb(exec, code), {1: Bomb(eval, code)})}],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_carried_over_and_never_goes_off(
    name: str, protocol: int, tmp_path: Path
) -> None:
    path, code = canary(tmp_path)
    content = {"model": state_dict(), "bomb": BOMBS[name](path, code)}
    source = save(tmp_path / "a.pth", content, protocol)
    assert len(open_container(source).tensors) == len(state_dict())
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    assert not path.exists()
    old, new = (raw_records(tmp_path / f)["a/data.pkl"][1] for f in ("a.pth", "b.pth"))
    assert abs(len(old) - len(new)) < 8  # the bomb is still there, byte for byte
    with pytest.raises(ContainerError, match="bomb"):
        resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "c.safetensors")
    resize_checkpoint(
        source, to=TO, from_=FROM, output=tmp_path / "c.safetensors", drop_extras=True
    )
    assert not path.exists()
    torch.load(tmp_path / "b.pth", weights_only=False)
    assert path.exists()  # it was a real one


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_bomb_in_a_legacy_stream_never_goes_off(protocol: int, tmp_path: Path) -> None:
    path, code = canary(tmp_path)
    content = {"model": state_dict(), "bomb": Bomb(exec, code)}
    source = tmp_path / "a.pth"
    torch.save(content, source, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    assert not path.exists()


def archive(path: Path, data: bytes, storages: int = 1, size: int = 512) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", data)
        for key in range(storages):
            file.writestr(f"x/data/{key}", bytes(size))
        file.writestr("x/version", b"3\n")
    return path


def tensor(key: bytes = b"X\1\0\0\x000", count: int = 128, offset: int = 0) -> bytes:
    storage = b"(" + encode_str("storage") + b"ctorch\nFloatStorage\n" + key
    storage += encode_str("cpu") + encode_int(count) + b"tQ"
    numbers = encode_int(offset) + encode_ints((1, 16, 8)) + encode_ints((128, 8, 1))
    body = storage + numbers + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + body + b"R"


def one(value: bytes) -> bytes:
    return b"\x80\x02}" + encode_str("pos_embed") + value + b"s."


SYSTEM = b"cposix\nsystem\n" + encode_str("touch canary") + b"\x85R"
PERSISTENT: dict[str, bytes] = {
    "an id that is a call": one(SYSTEM + b"Q"),
    "an id of another kind": one(b"(" + encode_str("module") + SYSTEM + b"K\1K\1K\1tQ"),
    "a key that is a call": one(tensor(key=SYSTEM)),
    "a text id": b"\x80\x02}" + encode_str("pos_embed") + b"Pstorage\ns.",
    "a callable from the memo": one(b"cposix\nsystem\nq\0" + b"h\0" + encode_str("x") + b"\x85R"),
    "a class in place of a number": one(tensor().replace(encode_int(128) + b"tQ", SYSTEM + b"tQ")),
}


@pytest.mark.parametrize("name", PERSISTENT)
def test_tricks_with_persistent_ids_run_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = archive(tmp_path / "a.pth", PERSISTENT[name])
    with pytest.raises(ResizePosError):
        open_container(source)
        resize_checkpoint(source, to_grid="6x4", from_grid="3x5", prefix=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pth"]


LIES: dict[str, tuple[bytes, str]] = {
    "no storage": (one(tensor(key=encode_str("7"))), "storage '7' of pos_embed is not in"),
    "storage escapes": (one(tensor(key=encode_str("../../x"))), "is not in"),
    "short storage": (one(tensor(count=4096)), "has 512 bytes, not 16384"),
    "beyond the storage": (one(tensor(offset=1)), "reaches beyond its storage"),
    "unknown opcode": (b"\x80\x02\xff.", "not a readable pickle after PROTO at byte 0"),
    "extension registry": (b"\x80\x02\x82\x01.", "opcode EXT1 at byte 2 is not understood"),
    "out of band": (b"\x80\x05\x97.", "opcode NEXT_BUFFER at byte 2 is not understood"),
    "protocol 9": (b"\x80\x09N.", "says protocol 9"),
    "empty stack": (b"\x80\x02.", "not a readable pickle|needs more on the stack"),
    "underflow": (b"\x80\x02\x86.", "opcode TUPLE2 at byte 2 needs more"),
    "no mark": (b"\x80\x02t.", "opcode TUPLE at byte 2 needs more"),
    "a mark for a value": (b"\x80\x02(R.", "meets a mark"),
    "unput memo": (b"\x80\x02h\x05.", "fetches entry 5"),
    "no STOP": (b"\x80\x02N", "not a readable pickle after NONE at byte 2"),
    "odd items": (b"\x80\x02}(Nu.", "key without a value"),
    "item of a number": (b"\x80\x02K\1NNs.", "no dict"),
    "append to a number": (b"\x80\x02K\1Na.", "no list"),
    "state of a number": (b"\x80\x02K\1Nb.", "no object"),
    "object of nothing": (b"\x80\x02(o.", "opcode OBJ at byte 3 names no class"),
    "memo beyond 32 bits": (b"\x80\x02Np4294967296\n.", "a number that no pickle needs"),
    "class of numbers": (b"\x80\x04K\1K\1\x93.", "names no class"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_pickle_that_is_not_understood_is_refused_with_opcode_and_offset(
    name: str, tmp_path: Path
) -> None:
    data, words = LIES[name]
    with pytest.raises(ContainerError, match=words) as refused:
        open_container(archive(tmp_path / "a.pth", data))
    assert refused.value.message.startswith("a.pth: ")


def test_objects_of_the_oldest_protocol_are_read(tmp_path: Path) -> None:
    """`OBJ` has its class after the mark; here it is beside the table, and stays unknown."""
    thing = b"(" + b"cargparse\nNamespace\n" + b"o"
    data = b"\x80\x02}(" + encode_str("args") + thing + encode_str("pos_embed") + tensor() + b"u."
    found = open_container(archive(tmp_path / "a.pth", data))
    assert list(found.tensors) == ["pos_embed"]


def test_a_billion_laughs_are_a_few_opcodes() -> None:
    """Every level holds the one below ten times: 10^200 leaves in two thousand opcodes."""
    data = b"\x80\x02]q\0"
    for level in range(200):
        data += b"(" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"tq"
        data += bytes([level + 1])
    walked = walk(data + b".")
    assert walked.end == len(data) + 1


@pytest.mark.parametrize("levels", [300, 100_000])
def test_depth_is_bounded(levels: int, tmp_path: Path) -> None:
    inner = tensor() if levels == 300 else b"N"
    data = b"\x80\x02" + b"}" * levels + inner
    data = b"\x80\x02" + (b"}" + encode_str("a")) * levels + inner + b"s" * levels + b"."
    source = archive(tmp_path / "a.pth", data)
    if levels == 300:
        assert len(open_container(source).tensors) == 1
    else:
        with pytest.raises(ContainerError, match="levels deep"):
            open_container(source)


def test_shared_containers_are_named_once(tmp_path: Path) -> None:
    data = (
        b"\x80\x02}q\0(" + encode_str("model") + b"}q\1" + encode_str("pos_embed") + tensor() + b"s"
    )
    data += b"".join(encode_str(f"alias{i}") + b"h\1" for i in range(100)) + b"u."
    container = open_container(archive(tmp_path / "a.pth", data))
    assert list(container.tensors) == ["model.pos_embed"]


def test_a_structure_that_holds_itself_ends(tmp_path: Path) -> None:
    data = (
        b"\x80\x02}q\0(" + encode_str("self") + b"h\0" + encode_str("pos_embed") + tensor() + b"u."
    )
    assert list(open_container(archive(tmp_path / "a.pth", data)).tensors) == ["pos_embed"]


def test_keys_that_read_alike_are_told_apart(tmp_path: Path) -> None:
    content = {
        1: torch.zeros(2),
        "1": torch.ones(3),
        "a": {"b": torch.ones(1)},
        "a.b": torch.ones(4),
    }
    container = open_container(save(tmp_path / "a.pth", content))
    assert [str(t) for t in container.tensors.values()] == [
        "1 F32 [2]",
        "1~2 F32 [3]",
        "a.b F32 [1]",
        "a.b~2 F32 [4]",
    ]
    assert container.read("1~2").tolist() == [1.0] * 3


def test_giant_numbers_are_no_sizes(tmp_path: Path) -> None:
    giant = b"\x8b" + struct.pack("<i", 5000) + b"\x7f" * 5000
    data = b"\x80\x02}(" + giant + encode_str("x") + encode_str("pos_embed")
    data += tensor().replace(encode_int(16), giant) + b"u."
    assert not open_container(archive(tmp_path / "a.pth", data)).tensors


def test_a_set_again_key_has_its_last_value(tmp_path: Path) -> None:
    data = b"\x80\x02}(" + encode_str("a") + tensor() + encode_str("a") + b"Nu."
    assert not open_container(archive(tmp_path / "a.pth", data)).tensors


def _seeds() -> list[bytes]:
    seeds = []
    for protocol in (2, 5):
        for zipped in (True, False):
            buffer = io.BytesIO()
            content = {
                "model": {"pos_embed": torch.zeros(1, 5, 2), "cls_token": torch.zeros(1, 1, 2)}
            }
            torch.save(
                {**content, "n": np.float32(1)},
                buffer,
                pickle_protocol=protocol,
                _use_new_zipfile_serialization=zipped,
            )
            seeds.append(buffer.getvalue())
    return seeds


SEEDS = _seeds()


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=0, max_size=4)), max_size=6),
)
def test_damaged_files_open_or_are_refused(
    tmp_path: Path, seed: bytes, edits: list[tuple[float, bytes]]
) -> None:
    blob = bytearray(seed)
    for place, new in edits:
        at = int(place * (len(blob) - 1))
        blob[at : at + len(new)] = new
    path = tmp_path / "x.pth"
    path.write_bytes(blob)
    try:
        container = open_container(path)
        for name in container.tensors:
            container.read(name)
    except ResizePosError:
        pass


@settings(deadline=None, max_examples=300)
@given(
    seed=st.sampled_from([pickle.dumps({"a": [1, (2, "x")], "b": {1.5}}, p) for p in PROTOCOLS]),
    edits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3)), max_size=4),
)
def test_any_bytes_walk_or_are_refused(seed: bytes, edits: list[tuple[float, bytes]]) -> None:
    blob = bytearray(seed)
    for place, new in edits:
        at = int(place * (len(blob) - 1))
        blob[at : at + len(new)] = new
    try:
        walked = walk(bytes(blob))
    except ContainerError:
        return
    assert 0 < walked.end <= len(blob)


def _sparse_checkpoint(path: Path, size: int) -> None:
    """Write a checkpoint whose last storage is a hole of `size` bytes."""
    tensors = state_dict()
    tensors["blocks.huge"] = torch.zeros(1)
    torch.save(tensors, path)
    blob = path.read_bytes()
    records = raw_records(path)
    pickled = records["big/data.pkl"][1]
    huge = pickled.index(b"blocks.huge")
    tail = pickled[huge:].replace(b"K\x01tq", b"J" + struct.pack("<i", size // 4) + b"tq", 1)
    tail = tail.replace(b"QK\x00K\x01\x85", b"QK\x00J" + struct.pack("<i", size // 4) + b"\x85", 1)
    del blob
    entries = []
    with path.open("wb") as file:
        for name, (_, data) in records.items():
            if name.endswith("data.pkl"):
                data = pickled[:huge] + tail
            is_huge = name == f"big/data/{len(tensors) - 1}"
            length = size if is_huge else len(data)
            start = file.tell()
            padding = -(start + 30 + len(name) + 4) % 64
            extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
            header = (b"PK\3\4", 0, 0x800, 0, 0, 0, 0, length, length, len(name), len(extra))
            file.write(struct.pack("<4s5H3L2H", *header) + name.encode() + extra)
            if is_huge:
                file.seek(size, os.SEEK_CUR)
            else:
                file.write(data)
            entries.append((name, length, start))
        at = file.tell()
        for name, length, start in entries:
            fields = (b"PK\1\2", 0, 0, 0x800, 0, 0, 0, 0, length, length, len(name))
            file.write(struct.pack("<4s6H3L5H2L", *fields, 0, 0, 0, 0, 0, start) + name.encode())
        closing = (b"PK\5\6", 0, 0, len(entries), len(entries), file.tell() - at, at, 0)
        file.write(struct.pack("<4s4H2LH", *closing))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [300_000_000, pytest.param(2_000_000_000, marks=SLOW)])
@pytest.mark.parametrize("target", ["out.pth", "out.safetensors"])
def test_memory_does_not_grow_with_the_file(target: str, size: int, tmp_path: Path) -> None:
    source = tmp_path / "big.pth"
    _sparse_checkpoint(source, size)
    assert open_container(source).tensors["blocks.huge"].nbytes == size
    script = (
        "import re, sys\n"
        "from resize_pos.api import Request\n"
        "from resize_pos.run.job import Job, run\n"
        "from pathlib import Path\n"
        f"request = Request.make(to={TO!r}, from_={FROM!r})\n"
        "run(Job(Path(sys.argv[1]), request, Path(sys.argv[2])))\n"
        "status = Path('/proc/self/status').read_text()\n"  # getrusage would count the parent's
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(tmp_path / target)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 150_000, done.stdout  # kB
    written = open_container(tmp_path / target)
    assert written.tensors["blocks.huge"].nbytes == size
    assert written.tensors["pos_embed"].shape == (1, 25, 8)
    if target == "out.pth":
        assert torch.load(tmp_path / target, mmap=True)["blocks.huge"].shape == (size // 4,)
    (tmp_path / target).unlink()
