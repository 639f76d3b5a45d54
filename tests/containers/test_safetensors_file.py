"""Safetensors files: what is refused and how, what is read, and that the rest is untouched."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from resize_pos.containers.base import Container
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.tensors import DTYPES, TensorInfo

Array = NDArray[Any]
deserialize: Any = safetensors.deserialize


def packed(header: object, data: bytes = b"", pad: int = 0) -> bytes:
    """Build a file from a header given as bytes, as text or as an object."""
    text = header if isinstance(header, str | bytes) else json.dumps(header)
    encoded = (text.encode() if isinstance(text, str) else text) + b" " * pad
    return len(encoded).to_bytes(8, "little") + encoded + data


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def one(**fields: object) -> bytes:
    """Build a file of one tensor `w` of eight bytes, with some of its fields replaced."""
    return packed({"w": entry() | fields}, bytes(8))


def consecutive(tensors: Sequence[tuple[str, str, list[int]]]) -> bytes:
    """Build a file of tensors (name, dtype, shape), one after the other."""
    header, position = {}, 0
    for name, dtype, shape in tensors:
        size = TensorInfo(name, tuple(shape), dtype).nbytes
        header[name] = entry(dtype, shape, [position, position + size])
        position += size
    return packed(header, bytes(i % 251 for i in range(position)))


def nested(levels: int) -> bytes:
    deep = "[" * levels + "]" * levels
    return packed(json.dumps({"w": entry() | {"x": "DEEP"}}).replace('"DEEP"', deep), bytes(8))


HUGE = 2**62
W = '"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'

# file → words of the error; the reference implementation refuses every one of these too
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "one byte": (b"\x00", "the file has 1 bytes"),
    "seven bytes": (bytes(7), "the file has 7 bytes"),
    "no header": (bytes(8), "starts with nothing"),
    "huge length": (
        HUGE.to_bytes(8, "little") + b"{}" + bytes(110),
        f"the header claims {HUGE} bytes but the file has 120",
    ),
    "length one too long": (packed("{}")[:-1], "the header claims 2 bytes but the file has 9"),
    "negative length": (b"\xff" * 8 + b"{}", f"the header claims {2**64 - 1} bytes"),
    "not utf-8": (packed(b'{"\xff":1}'), "not UTF-8 at byte 10"),
    "an array": (packed("[]"), "starts with byte 0x5b, not with '{'"),
    "a number": (packed("1"), "starts with byte 0x31"),
    "brace only": (packed("{"), "not JSON: .* at character 1 of 1"),
    "trailing text": (packed("{}x"), "not JSON: Extra data"),
    "trailing nul": (packed("{}\0"), "not JSON: Extra data"),
    "trailing comma": (packed("{" + W + ",}", bytes(8)), "not JSON"),
    "raw control character": (packed('{"a\nb":1}'), "not JSON: Invalid control character"),
    "half a surrogate pair": (packed("{" + W.replace("w", r"\ud800") + "}", bytes(8)), "Unicode"),
    "too deep for anyone": (packed('{"w":' + "[" * 100_000), "nested too deeply"),
    "too deep": (nested(200), "'x' is nested too deeply"),
    "NaN": (one(x=math.nan), "'NaN' where JSON has a finite number"),
    "float overflow": (packed("{" + W[:-1] + ',"x":1e999}}', bytes(8)), "'1e999'"),
    "giant integer": (one(shape=[10**30]), "a number with 31 digits"),
    "integer beyond int()": (
        packed('{"w":{"shape":[' + "9" * 5000 + "]}}"),
        "a number with 5000 digits",
    ),
    "metadata twice": (packed('{"__metadata__":{},"__metadata__":{}}'), "'__metadata__' twice"),
    "field twice": (packed("{" + W[:-1] + ',"dtype":"F32"}}', bytes(8)), "'dtype' twice"),
    "metadata a list": (packed({"__metadata__": []}), r"__metadata__ is \[\]"),
    "metadata a string": (packed({"__metadata__": "x"}), "__metadata__ is 'x'"),
    "metadata value a number": (packed({"__metadata__": {"a": 1}}), "'a' is 1, not a string"),
    "metadata value null": (packed({"__metadata__": {"a": None}}), "'a' is None, not a string"),
    "metadata value nested": (packed({"__metadata__": {"a": {}}}), "'a' is {}, not a string"),
    "entry null": (packed({"w": None}), "'w': the entry is None"),
    "entry a string": (packed({"w": "F32"}), "'w': the entry is 'F32'"),
    "no dtype": (packed({"w": {"shape": [0], "data_offsets": [0, 0]}}), "'w': .* no dtype"),
    "no shape": (packed({"w": {"dtype": "F32", "data_offsets": [0, 0]}}), "'w': .* no shape"),
    "no offsets": (packed({"w": {"dtype": "F32", "shape": [0]}}), "'w': .* no data_offsets"),
    "dtype unknown": (one(dtype="F128"), "'w': dtype 'F128' is not known"),
    "dtype lower case": (one(dtype="f32"), "dtype 'f32' is not known"),
    "dtype a number": (one(dtype=32), "dtype 32 is not known"),
    "dtype a list": (one(dtype=["F32"]), r"dtype \['F32'\] is not known"),
    "shape null": (one(shape=None), "shape None is not a list"),
    "shape a number": (one(shape=2), "shape 2 is not a list"),
    "shape negative": (one(shape=[-2]), r"shape \[-2\] is not"),
    "shape twice negative": (one(shape=[-1, -2]), r"shape \[-1, -2\] is not"),
    "shape minus zero": (packed("{" + W.replace("[2]", "[-0,2]") + "}", bytes(8)), "shape"),
    "shape a float": (one(shape=[2.0]), r"shape \[2.0\] is not"),
    "shape a truth": (one(shape=[True, 2]), r"shape \[True, 2\] is not"),
    "shape a string": (one(shape=["2"]), r"shape \['2'\] is not"),
    "shape nested": (one(shape=[[2]]), r"shape \[\[2\]\] is not"),
    "shape overflowing": (one(shape=[HUGE, HUGE]), "larger than any memory"),
    "shape overflowing to zero": (one(shape=[2**32, 2**32]), "larger than any memory"),
    "shape overflowing, then zero": (one(shape=[2**63, 2**63, 0]), "larger than any memory"),
    "offsets one": (one(data_offsets=[8]), r"data_offsets \[8\] are not"),
    "offsets three": (one(data_offsets=[0, 4, 8]), r"data_offsets \[0, 4, 8\] are not"),
    "offsets backwards": (one(data_offsets=[8, 0]), r"data_offsets \[8, 0\] are not"),
    "offsets negative": (one(data_offsets=[-8, 0]), r"data_offsets \[-8, 0\] are not"),
    "offsets truths": (one(data_offsets=[False, 8]), r"data_offsets \[False, 8\] are not"),
    "offsets floats": (one(data_offsets=[0.0, 8.0]), r"data_offsets \[0.0, 8.0\] are not"),
    "offsets an object": (one(data_offsets={"0": 8}), "data_offsets {'0': 8} are not"),
    "too few bytes": (one(shape=[3]), r"F32 \[3\] takes 12 bytes but .* \[0, 8\] hold 8"),
    "too many bytes": (one(shape=[1]), r"F32 \[1\] takes 4 bytes but .* \[0, 8\] hold 8"),
    "half a byte": (one(dtype="F4", shape=[15]), r"F4 \[15\] ends inside a byte"),
    "three quarters of a byte": (one(dtype="F6_E2M3", shape=[9]), "ends inside a byte"),
    "data truncated": (one()[:-1], "describes 8 bytes of data but the file holds 7"),
    "data appended": (one() + b"x", "describes 8 bytes of data but the file holds 9"),
    "data without tensors": (packed("{}", b"x"), "describes 0 bytes .* holds 1"),
    "hole at the start": (packed({"w": entry(offsets=(4, 12))}, bytes(12)), "bytes 0 to 4 of the"),
    "hole between": (
        packed({"v": entry(), "w": entry(offsets=(12, 20))}, bytes(20)),
        "bytes 8 to 12 of the data, before 'w', belong to no tensor",
    ),
    "overlap": (
        packed({"v": entry(), "w": entry(offsets=(4, 12))}, bytes(12)),
        "'w' at bytes 4 to 12 of the data overlaps 'v', which ends at 8",
    ),
    "the same bytes twice": (packed({"v": entry(), "w": entry()}, bytes(8)), "'w' .* overlaps 'v'"),
    "empty tensor inside another": (
        packed({"v": entry(), "w": entry(shape=[0], offsets=(4, 4))}, bytes(8)),
        "'w' at bytes 4 to 4 of the data overlaps 'v'",
    ),
}

# The reference implementation lets these pass; the format does not, or nothing could use them.
STRICTER: dict[str, tuple[bytes, str]] = {
    "tensor twice": (packed("{" + W + "," + W + "}", bytes(8)), "the key 'w' twice"),
    "metadata key twice": (packed('{"__metadata__":{"a":"1","a":"2"}}'), "the key 'a' twice"),
    "leading space": (packed(" {}"), "starts with byte 0x20"),
    "entry as a list": (packed({"w": ["F32", [2], [0, 8]]}, bytes(8)), "the entry is"),
    "dtype as an object": (one(dtype={"F32": None}), "dtype {'F32': None} is not known"),
    "too many numbers to multiply": (
        packed({"w": entry(shape=[0, HUGE, HUGE], offsets=(0, 0))}),
        "larger than any memory",
    ),
    "an integer in an unknown field": (one(x=10**30), "a number with 31 digits"),
}

FOREIGN: dict[str, tuple[bytes, str]] = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-LFS pointer"),
    "zip": (b"PK\x03\x04" + bytes(100), "zip archive"),
    "pickle": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(100), "pickle"),
    "pickle 4": (b"\x80\x04\x95" + bytes(700), "pickle"),
    "html": (b"<!DOCTYPE html><html>", "web page"),
    "json": (b'{"architectures": ["ViTModel"]}', "JSON text"),
    "gguf": (b"GGUF\x03\x00\x00\x00" + bytes(100), "GGUF"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    "npy": (b"\x93NUMPY\x01\x00v\x00" + bytes(100), "numpy array"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(100), "gzip"),
}

VALID: dict[str, bytes] = {
    "no tensors": packed("{}"),
    "no tensors, padded": packed("{}", pad=6),
    "no tensors, metadata": packed({"__metadata__": {"format": "pt"}}),
    "metadata null": packed({"__metadata__": None, "w": entry()}, bytes(8)),
    "metadata empty": packed({"__metadata__": {}, "w": entry()}, bytes(8)),
    "metadata last": packed({"w": entry(), "__metadata__": {"ä": "ö"}}, bytes(8)),
    "unaligned header": packed({"w": entry()}, bytes(range(8)), pad=3),
    "unknown fields": one(note={"a": [1, 2.5, None]}, z="z"),
    "nested fields": nested(60),
    "not the order of the data": packed(
        {"a": entry(offsets=(8, 16)), "b": entry(offsets=(0, 8))}, bytes(range(16))
    ),
    "escaped name": packed(r'{"\u00e4\ud83d\ude00' + W[2:] + "}", bytes(8)),
    "name of a field": packed({"dtype": entry(), "": entry(offsets=(8, 16))}, bytes(16)),
    "scalars": packed({"w": entry(shape=[], offsets=(0, 4))}, bytes(4)),
    "empty tensors": packed(
        {
            "a": entry(shape=[0, 3], offsets=(8, 8)),
            "b": entry(),
            "c": entry(shape=[0], offsets=(0, 0)),
            "d": entry(shape=[3, 0], offsets=(8, 8)),
        },
        bytes(8),
    ),
    "packed dtypes": packed(
        {"a": entry("F4", [2, 3], [0, 3]), "b": entry("F6_E3M2", [4], [3, 6])}, bytes(6)
    ),
    "every dtype": consecutive([(name, name, [8]) for name, d in DTYPES.items() if not d.foreign]),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "vit.safetensors"


def opened(path: Path, content: bytes) -> SafetensorsFile:
    path.write_bytes(content)
    return SafetensorsFile.open(path)


def reference(content: bytes) -> dict[str, tuple[str, list[int], bytes]] | None:
    """What the safetensors package makes of it; None: it refuses."""
    try:
        found = deserialize(content)
    except safetensors.SafetensorError:
        return None
    return {name: (it["dtype"], list(it["shape"]), bytes(it["data"])) for name, it in found}


def raw(content: bytes) -> tuple[dict[str, Any], int, dict[str, bytes]]:
    """Parse a file by hand: its header, where the data starts, the bytes of each tensor."""
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    spans = {k: v["data_offsets"] for k, v in header.items() if k != "__metadata__"}
    return header, start, {k: content[start + a : start + b] for k, (a, b) in spans.items()}


def rewrite(
    source: Path, changes: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Write a copy, and hold everything that was not asked for against the source."""
    stage = source.with_name("stage")
    stage.unlink(missing_ok=True)
    before, before_status = source.read_bytes(), source.stat()
    container = SafetensorsFile.open(source)
    copied = container.write(stage, changes, metadata or {})
    after = stage.read_bytes()

    assert source.read_bytes() == before
    assert source.stat().st_mtime_ns == before_status.st_mtime_ns
    old, _, old_bytes = raw(before)
    new, start, new_bytes = raw(after)
    tensors = [key for key in old if key != "__metadata__"]
    assert [key for key in new if key != "__metadata__"] == tensors
    assert start % 8 == 0
    assert (8 + len(after[8:start].rstrip(b" "))) <= start <= len(after)
    for name in tensors:
        assert [*new[name]] == [*old[name]]  # the same fields in the same order
        kept = {k: v for k, v in old[name].items() if k not in ("shape", "data_offsets")}
        assert kept.items() <= new[name].items()
        if name not in changes:
            assert new_bytes[name] == old_bytes[name]
            assert new[name]["shape"] == old[name]["shape"]
    order = sorted(tensors, key=lambda name: old[name]["data_offsets"])
    assert b"".join(new_bytes[name] for name in order) == after[start:]
    untouched = [name for name in tensors if name not in changes]
    assert (copied.tensors, copied.bytes) == (
        len(untouched),
        sum(len(old_bytes[name]) for name in untouched),
    )
    found = reference(after)
    assert found is not None
    for name, array in changes.items():
        assert found[name][1:] == (list(array.shape), new_bytes[name])
        assert new_bytes[name] == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert list(SafetensorsFile.open(stage).tensors) == tensors
    shapes = {name: array.shape for name, array in changes.items()}
    assert 0 <= container.output_bytes(shapes) - len(after) <= 8192
    return after


def counting(*shape: int, dtype: Any = np.float32) -> Array:
    return (np.arange(math.prod(shape)) % 97).reshape(shape).astype(dtype)


def save(path: Path, tensors: Mapping[str, Array], metadata: dict[str, str] | None = None) -> None:
    safetensors.numpy.save_file(dict(tensors), path, metadata)


# Refusals


@pytest.mark.parametrize(
    ("content", "words"), (MALFORMED | STRICTER).values(), ids=MALFORMED | STRICTER
)
def test_a_malformed_file_is_refused_by_name(content: bytes, words: str, file: Path) -> None:
    with pytest.raises(ContainerError, match=words) as caught:
        opened(file, content)
    assert caught.value.message.startswith("vit.safetensors: ")
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize("content", [it for it, _ in MALFORMED.values()], ids=MALFORMED)
def test_the_reference_refuses_what_we_refuse(content: bytes) -> None:
    assert reference(content) is None


@pytest.mark.parametrize("content", [it for it, _ in STRICTER.values()], ids=STRICTER)
def test_only_the_listed_cases_are_stricter_than_the_reference(content: bytes) -> None:
    assert reference(content) is not None


@pytest.mark.parametrize(("content", "words"), FOREIGN.values(), ids=FOREIGN)
def test_another_format_is_named(content: bytes, words: str, file: Path) -> None:
    with pytest.raises(ContainerError, match=rf"vit\.safetensors: this is .*{words}"):
        opened(file, content)


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x3C])
def test_a_length_that_looks_like_a_magic_number_is_no_other_format(
    length: int, file: Path
) -> None:
    content = length.to_bytes(8, "little") + b"{}".ljust(length)
    assert not opened(file, content).tensors
    with pytest.raises(ContainerError, match=f"claims {length} bytes but the file has 20"):
        opened(file, content[:20])


def test_a_truncated_file_says_so_at_any_length(file: Path) -> None:
    save(file, {"w": counting(3, 4), "v": counting(2)}, {"format": "pt"})
    content = file.read_bytes()
    for length in range(len(content)):
        with pytest.raises(ContainerError) as caught:
            opened(file, content[:length])
        assert caught.value.hint, length


def test_a_header_beyond_the_limit_is_refused(file: Path) -> None:
    with file.open("wb") as handle:
        handle.write((100_000_001).to_bytes(8, "little") + b"{}")
        handle.truncate(200_000_000)
    with pytest.raises(ContainerError, match="claims 100000001 bytes; the format allows 100000000"):
        SafetensorsFile.open(file)


def test_a_missing_file_is_looked_for_in_a_stated_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ContainerError) as caught:
        SafetensorsFile.open(Path("gone.safetensors"))
    assert caught.value.hint == f"Looked for {tmp_path / 'gone.safetensors'}"


def test_missing_files_folders_and_pipes_are_container_errors(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match=r"gone\.safetensors: no such file"):
        SafetensorsFile.open(tmp_path / "gone.safetensors")
    with pytest.raises(ContainerError, match="is a folder"):
        SafetensorsFile.open(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ContainerError, match="pipe: is not a regular file"):
        SafetensorsFile.open(tmp_path / "pipe")
    with pytest.raises(ContainerError, match="cannot be read"):
        SafetensorsFile.open(tmp_path / ("x" * 300))


def test_messages_stay_short_and_printable_whatever_the_file_holds(file: Path) -> None:
    with pytest.raises(ContainerError) as caught:
        opened(file, packed({"\x1b[31m" + "n" * 10_000: entry(dtype="d" * 10_000)}, bytes(8)))
    assert len(caught.value.message) < 400
    assert caught.value.message.isprintable()


# Reading


@pytest.mark.parametrize("content", VALID.values(), ids=VALID)
def test_a_valid_file_opens_as_the_reference_opens_it(content: bytes, file: Path) -> None:
    container: Container = opened(file, content)
    expected = reference(content)
    assert expected is not None
    assert {
        name: (info.dtype, list(info.shape), info.nbytes)
        for name, info in container.tensors.items()
    } == {name: (dtype, shape, len(data)) for name, (dtype, shape, data) in expected.items()}
    header = raw(content)[0]
    assert list(container.tensors) == [key for key in header if key != "__metadata__"]
    assert container.metadata == (header.get("__metadata__") or {})
    assert container.path == file
    assert container.format == "safetensors"


@pytest.mark.parametrize("content", VALID.values(), ids=VALID)
def test_a_tensor_is_read_bit_for_bit(content: bytes, file: Path) -> None:
    container = opened(file, content)
    for name, (dtype, shape, data) in (reference(content) or {}).items():
        if DTYPES[dtype].numpy is None:
            with pytest.raises(TableError, match=rf"vit\.safetensors: {name}: dtype {dtype}"):
                container.read(name)
        else:
            array = container.read(name)
            assert (list(array.shape), array.tobytes()) == (shape, data)
            assert array.dtype.name == DTYPES[dtype].numpy


def test_values_agree_with_torch(file: Path) -> None:
    tensors = {
        "f32": torch.randn(3, 5),
        "bf16": torch.randn(3, 5).bfloat16(),
        "f16": torch.randn(3, 5).half(),
        "e4m3": torch.randn(3, 5).to(torch.float8_e4m3fn),
        "e5m2": torch.randn(3, 5).to(torch.float8_e5m2),
        "i64": torch.arange(7),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
    }
    safetensors.torch.save_file(tensors, file)
    container = SafetensorsFile.open(file)
    for name, tensor in tensors.items():
        expected = tensor.double().numpy()
        assert np.array_equal(container.read(name).astype(np.float64), expected), name


def test_an_array_that_was_read_may_be_written_to(file: Path) -> None:
    save(file, {"w": counting(3, 4)})
    array = SafetensorsFile.open(file).read("w")
    array += 1
    assert np.array_equal(SafetensorsFile.open(file).read("w"), counting(3, 4))


def test_an_unknown_tensor_is_a_table_error(file: Path, tmp_path: Path) -> None:
    save(file, {"w": counting(3, 4)})
    container = SafetensorsFile.open(file)
    with pytest.raises(TableError, match=r"vit\.safetensors: has no tensor 'v'"):
        container.read("v")
    with pytest.raises(TableError, match="has no tensor 'v'"):
        container.write(tmp_path / "stage", {"v": counting(3)}, {})
    with pytest.raises(TableError, match="has no tensor 'v'"):
        container.output_bytes({"v": (3,)})
    assert not (tmp_path / "stage").exists()


def test_more_axes_than_an_array_can_have_are_a_table_error(file: Path) -> None:
    container = opened(file, packed({"w": entry(shape=[1] * 100, offsets=[0, 4])}, bytes(4)))
    with pytest.raises(TableError, match=r"vit\.safetensors: w: "):
        container.read("w")


def test_a_file_that_changed_since_it_was_opened_is_refused(file: Path, tmp_path: Path) -> None:
    save(file, {"w": counting(3, 4)})
    container = SafetensorsFile.open(file)
    save(file, {"w": counting(3, 5)})
    with pytest.raises(ContainerError, match="changed since it was opened"):
        container.read("w")
    with pytest.raises(ContainerError, match="changed since it was opened"):
        container.write(tmp_path / "stage", {}, {})
    assert not (tmp_path / "stage").exists()
    file.unlink()
    with pytest.raises(ContainerError, match="cannot be read"):
        container.read("w")


def test_opening_imports_no_array_library(file: Path) -> None:
    save(file, {"w": counting(3, 4)})
    script = (
        "import sys, resize_pos; before = set(sys.modules)\n"
        "from pathlib import Path\n"
        "from resize_pos.containers.safetensors.file import SafetensorsFile\n"
        "SafetensorsFile.open(Path(sys.argv[1])).output_bytes({'w': (7, 4)})\n"
        "print(*sorted({'numpy', 'torch', 'safetensors'} & (set(sys.modules) - before)))"
    )
    command = [sys.executable, "-c", script, str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


# Writing


@pytest.mark.parametrize("content", VALID.values(), ids=VALID)
@pytest.mark.parametrize("metadata", [{}, {"resize_pos": "1"}])
def test_untouched_bytes_are_identical(
    content: bytes, metadata: dict[str, str], file: Path
) -> None:
    file.write_bytes(content)
    rewrite(file, {}, metadata)


@pytest.mark.parametrize("names", [("a",), ("m",), ("z",), ("a", "m"), ("a", "m", "z"), ("n", "z")])
@pytest.mark.parametrize("rows", [0, 1, 4, 7, 5000])
def test_a_change_anywhere_leaves_the_rest_identical(
    names: tuple[str, ...], rows: int, file: Path
) -> None:
    save(file, {name: counting(4, 6) + ord(name) for name in "abmnyz"}, {"format": "pt"})
    rewrite(file, {name: counting(rows, 6) for name in names}, {"resize_pos": "1"})


@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float16", "complex64", "int64", "int8", "uint16", "bool"),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
        *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
    ],
)
def test_every_array_type_can_be_replaced(dtype: Any, file: Path) -> None:
    stored = next(it for it in DTYPES.values() if it.numpy == np.dtype(dtype).name)
    size = 6 * stored.bits // 8
    header = {"w": entry(stored.name, [2, 3], [0, size]), "v": entry(offsets=[size, size + 8])}
    file.write_bytes(packed(header, bytes(range(size + 8))))
    rewrite(file, {"w": counting(5, 3, dtype=dtype)})
    rewrite(file, {"w": counting(0, 3, dtype=dtype)})
    rewrite(file, {"w": np.array(1, dtype=dtype)})


def test_other_memory_layouts_and_byte_orders_are_stored_alike(file: Path) -> None:
    save(file, {"w": counting(2, 3), "v": counting(5)})
    plain = rewrite(file, {"w": counting(4, 6)})
    assert rewrite(file, {"w": np.asfortranarray(counting(4, 6))}) == plain
    assert rewrite(file, {"w": counting(4, 6).astype(">f4")}) == plain
    assert (
        rewrite(file, {"w": counting(8, 12).repeat(2, 0)[::4, ::2] * 0 + counting(4, 6)}) == plain
    )


def test_the_output_loads_in_numpy_and_torch(file: Path) -> None:
    save(file, {"pos_embed": counting(1, 7, 4), "head": counting(3, 4)}, {"format": "pt"})
    rewrite(file, {"pos_embed": counting(1, 16, 4)}, {"note": "ä"})
    stage = file.with_name("stage")
    loaded = safetensors.torch.load_file(stage)
    assert loaded["pos_embed"].shape == (1, 16, 4)
    assert np.array_equal(loaded["head"].numpy(), counting(3, 4))
    with safetensors.safe_open(stage, framework="np") as handle:
        assert np.array_equal(handle.get_tensor("pos_embed"), counting(1, 16, 4))
        assert handle.metadata() == {"format": "pt", "note": "ä"}


def test_another_dtype_is_refused(file: Path, tmp_path: Path) -> None:
    save(file, {"w": counting(2, 3)})
    container = SafetensorsFile.open(file)
    with pytest.raises(TableError, match="w: stored as F32, but its replacement is float64"):
        container.write(tmp_path / "stage", {"w": counting(2, 3, dtype=np.float64)}, {})
    packed_container = opened(file, one(dtype="F4", shape=[16]))
    with pytest.raises(TableError, match="w: dtype F4"):
        packed_container.write(tmp_path / "stage", {"w": counting(16, dtype=np.uint8)}, {})
    assert not (tmp_path / "stage").exists()


def test_nothing_changed_gives_the_same_file(file: Path) -> None:
    save(file, {"ä": counting(2, 3), 'q"\\\x7f\x01': counting(5, dtype=np.int8)}, {"format": "pt"})
    assert rewrite(file, {}) == file.read_bytes()


def test_the_same_input_gives_the_same_bytes(file: Path) -> None:
    save(file, {name: counting(4, 6) for name in "abc"}, {"format": "pt", "b": "2", "a": "1"})
    changes = {"b": counting(9, 6)}
    assert rewrite(file, changes, {"z": "1"}) == rewrite(file, changes, {"z": "1"})


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        (None, {}, None),
        (None, {"k": "v"}, {"format": "pt", "k": "v"}),
        (None, {"format": "np"}, {"format": "np"}),
        ({}, {}, {}),
        ({}, {"k": "v"}, {"format": "pt", "k": "v"}),
        ({"x": "1"}, {}, {"x": "1"}),
        ({"x": "1"}, {"k": "v"}, {"x": "1", "format": "pt", "k": "v"}),
        ({"format": "mlx"}, {"k": "v"}, {"format": "mlx", "k": "v"}),
        (
            {"z": "1", "k": "old", "format": "tf", "a": "2"},
            {"n": "3", "k": "new"},
            {"z": "1", "k": "new", "format": "tf", "a": "2", "n": "3"},
        ),
    ],
)
def test_metadata_keeps_its_order_and_always_names_a_format(
    before: dict[str, str] | None,
    added: dict[str, str],
    after: dict[str, str] | None,
    file: Path,
) -> None:
    header = {"w": entry()} | ({} if before is None else {"__metadata__": before})
    file.write_bytes(packed(header, bytes(8)))
    found = raw(rewrite(file, {"w": counting(3)}, added))[0]
    assert json.dumps(found.get("__metadata__")) == json.dumps(after)
    if before is not None:
        assert list(found) == ["w", "__metadata__"]  # it stays where it was
    elif after is not None:
        assert list(found) == ["__metadata__", "w"]


def test_metadata_that_is_not_text_is_escaped(file: Path) -> None:
    save(file, {"w": counting(3)})
    after = rewrite(file, {}, {"source": "caf\udce9.safetensors"})
    assert raw(after)[0]["__metadata__"]["source"] == r"caf\udce9.safetensors"


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 10, 1000])
@pytest.mark.parametrize("pad", range(9))
@pytest.mark.parametrize(("stored", "dtype"), [("F32", np.float32), ("I8", np.int8)])
def test_the_bulk_keeps_its_place_within_a_page(
    rows: int, pad: int, stored: str, dtype: Any, file: Path
) -> None:
    content = consecutive(
        [
            ("first", "F32", [2000]),
            ("table", stored, [6]),
            ("bulk", "F32", [1500]),  # with its neighbour, the largest range
            ("more", "F32", [1500]),
        ]
    )
    header, start, _ = raw(content)
    file.write_bytes(packed(header, content[start:], pad))
    old, old_start, _ = raw(file.read_bytes())
    new, new_start, _ = raw(rewrite(file, {"table": counting(rows, dtype=dtype)}, {"k": "v"}))
    before = old_start + old["bulk"]["data_offsets"][0]
    after = new_start + new["bulk"]["data_offsets"][0]
    if (before - new["bulk"]["data_offsets"][0]) % 8 == 0:
        assert (after - before) % 4096 == 0
    else:
        assert new_start % 8 == 0  # both cannot be had: alignment wins


def test_a_header_that_grew_beyond_the_limit_is_refused(file: Path, tmp_path: Path) -> None:
    save(file, {"w": counting(3)})
    container = SafetensorsFile.open(file)
    with pytest.raises(ContainerError, match="the format allows 100000000"):
        container.write(tmp_path / "stage", {}, {"k": "x" * 100_000_000})
    assert not (tmp_path / "stage").exists()


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444])
def test_permission_bits_are_those_of_the_source(mode: int, file: Path) -> None:
    save(file, {"w": counting(3)})
    file.chmod(mode)
    rewrite(file, {"w": counting(5)})
    assert stat.S_IMODE(file.with_name("stage").stat().st_mode) == mode


# Any file at all

counts = st.integers(0, 3)
scalars = st.none() | st.booleans() | st.integers(-3, 2**65) | st.floats() | st.text(max_size=3)
odd_values = scalars | st.lists(st.integers(-1, 9), max_size=3)


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """Draw a valid header whose keys are in any order, and the size of its data."""
    names = draw(st.lists(st.text(max_size=4), unique=True, max_size=5))
    header: dict[str, Any] = {}
    position = 0
    for name in names:
        dtype = draw(st.sampled_from([name for name, d in DTYPES.items() if not d.foreign]))
        shape = draw(st.lists(counts, max_size=3))
        if math.prod(shape) * DTYPES[dtype].bits % 8:
            shape = [*shape, 8]
        size = TensorInfo(name, tuple(shape), dtype).nbytes
        header[name] = entry(dtype, shape, [position, position + size])
        position += size
    if draw(st.booleans()):
        header["__metadata__"] = draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3)))
    keys = draw(st.permutations(list(header)))
    return {key: header[key] for key in keys}, position


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Draw a valid file, then spoil a field, the data or some bytes of it."""
    header, size = draw(files())
    for name in draw(st.lists(st.sampled_from(sorted(header) or ["w"]), max_size=2)):
        tensor = header.setdefault(name, entry())
        key = draw(st.sampled_from(["dtype", "shape", "data_offsets", "extra"]))
        kind = draw(st.sampled_from(["replace", "delete", "nudge"]))
        if kind == "nudge" and isinstance(tensor.get(key), list) and tensor[key]:
            tensor[key][draw(st.integers(0, len(tensor[key]) - 1))] += draw(st.integers(-9, 9))
        elif kind == "delete":
            tensor.pop(key, None)
        else:
            tensor[key] = draw(odd_values)
    content = bytearray(packed(json.dumps(header, ensure_ascii=draw(st.booleans())), bytes(size)))
    content.extend(bytes(draw(st.sampled_from([0, 0, 0, 1, 8]))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: len(content) - draw(st.sampled_from([0, 0, 0, 1, 4]))])


def deliberate(error: ContainerError) -> bool:
    """Tell whether an error is one of those in which we are stricter than the reference."""
    stricter = ("twice", "starts with byte", "larger than any memory", "digits")
    return any(words in error.message for words in stricter)


fuzzing = settings(
    deadline=None,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@fuzzing
@given(content=spoiled())
def test_a_spoiled_file_opens_as_the_reference_opens_it_or_is_refused(
    content: bytes, file: Path
) -> None:
    expected = reference(content)
    try:
        container = opened(file, content)
    except ContainerError as error:
        assert expected is None or deliberate(error)
    else:
        assert expected is not None
        assert {k: (v.dtype, list(v.shape)) for k, v in container.tensors.items()} == {
            name: (dtype, shape) for name, (dtype, shape, _) in expected.items()
        }


@fuzzing
@given(content=st.binary(max_size=64))
def test_random_bytes_are_refused_in_words(content: bytes, file: Path) -> None:
    try:
        opened(file, content)
    except ContainerError as error:
        assert reference(content) is None or deliberate(error)


@fuzzing
@given(drawn=files(), data=st.data())
def test_any_file_is_rewritten_with_the_rest_untouched(
    drawn: tuple[dict[str, Any], int], data: st.DataObject, file: Path
) -> None:
    header, size = drawn
    body = np.random.default_rng(size).bytes(size)
    file.write_bytes(packed(header, body, data.draw(st.integers(0, 9))))
    possible = [
        name
        for name in header
        if name != "__metadata__" and DTYPES[header[name]["dtype"]].numpy is not None
    ]
    chosen = data.draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    container = SafetensorsFile.open(file)
    shape = tuple(data.draw(st.lists(counts, max_size=3)))
    changes = {name: counting(*shape, dtype=container.read(name).dtype) for name in chosen}
    rewrite(file, changes, data.draw(st.sampled_from([{}, {"k": "v"}])))
