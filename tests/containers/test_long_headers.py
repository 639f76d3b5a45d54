"""A long safetensors header is checked as strictly as a short one, although it takes shortcuts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from resize_pos.containers.safetensors import header as headers
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.core.errors import ContainerError
from resize_pos.core.tensors import TensorInfo


def entries(count: int) -> dict[str, Any]:
    """Describe tensors of two shapes, one after the other."""
    found: dict[str, Any] = {}
    at = 0
    for number in range(count):
        shape = [2, 3] if number % 2 else [5]
        size = 4 * (6 if number % 2 else 5)
        offsets = [at, at + size]
        found[f"blocks.{number}.w"] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        at += size
    return found


def written(path: Path, text: str, data: int) -> Path:
    encoded = text.encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(data))
    return path


def size_of(found: dict[str, Any]) -> int:
    return max(int(entry["data_offsets"][1]) for entry in found.values())


@pytest.fixture(params=[0, 1 << 30], ids=["long", "short"])
def shortcuts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_LONG", request.param)


FOUND = entries(8)
TEXT = json.dumps(FOUND, separators=(",", ":"))
GOOD = {
    "usual": TEXT,
    "spaced": json.dumps(FOUND, indent=1),
    "backwards": json.dumps(dict(reversed(FOUND.items()))),
    "with metadata": json.dumps({"__metadata__": {"a": "b", "c": '{"d":-0}'}, **FOUND}),
    "with a minus": TEXT.replace("blocks.3", "blocks-03"),
    "with a colon": TEXT.replace("blocks.3", ":blocks"),
    "with a field more": TEXT.replace('"shape":[5]', '"shape":[5],"note":{"a":1}'),
}
BAD = {
    "a key twice": TEXT.replace("blocks.7", "blocks.5"),
    "a key twice, spaced": TEXT.replace('"blocks.7.w":', '"blocks.5.w" :'),
    "a field twice": TEXT.replace('"shape":[5]', '"shape":[5],"shape":[5]', 1),
    "a field twice and one missing": TEXT.replace('"shape":[5]', '"dtype":"F32"', 1),
    "true as a size": TEXT.replace("[2,3]", "[true,6]"),
    "a float as a size": TEXT.replace("[2,3]", "[2.0,3]", 1).replace("[5]", "[5.0]"),
    "a float that equals one": '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    '"b":{"dtype":"F32","shape":[1.0],"data_offsets":[4,8]}}',
    "true that equals one": '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    '"b":{"dtype":"F32","shape":[true],"data_offsets":[4,8]}}',
    "an object that equals no size": '{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
    '"b":{"dtype":"F32","shape":{},"data_offsets":[4,8]}}',
    "a text that equals no size": '{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
    '"b":{"dtype":"F32","shape":"","data_offsets":[4,8]}}',
    "minus nothing": TEXT.replace("[0,", "[-0,"),
    "a negative offset": TEXT.replace("[0,20]", "[-20,0]"),
    "very many digits": TEXT.replace("[5]", f"[{'9' * 30}]", 1),
    "an offset with very many digits": TEXT.replace("[0,20]", f"[{10**30},{10**30 + 20}]"),
    "digits in another field": TEXT.replace('"shape":[5]', f'"x":{"9" * 30},"shape":[5]', 1),
    "digits that int() refuses": TEXT.replace("[0,20]", f"[0,{'9' * 5000}]"),
    "an overlap": TEXT.replace("[20,44]", "[0,24]"),
    "a gap": TEXT.replace("[20,44]", "[24,48]"),
    "a wrong size": TEXT.replace("[20,44]", "[20,40]"),
    "another dtype": TEXT.replace("F32", "F16", 1),
    "a list as dtype": TEXT.replace('"F32"', '["F32"]', 1),
    "a list as entry": TEXT.replace(json.dumps(FOUND["blocks.0.w"], separators=(",", ":")), "[]"),
    "numbers in the metadata": TEXT.replace("{", '{"__metadata__":{"a":1},', 1),
}


@pytest.mark.usefixtures("shortcuts")
@pytest.mark.parametrize("kind", GOOD)
def test_every_way_of_writing_a_header_is_read(kind: str, tmp_path: Path) -> None:
    opened = SafetensorsFile.open(written(tmp_path / "a.safetensors", GOOD[kind], size_of(FOUND)))
    start = 8 + len(GOOD[kind].encode())
    document = {n: e for n, e in json.loads(GOOD[kind]).items() if n != "__metadata__"}
    assert dict(opened.tensors) == {
        name: TensorInfo(name, tuple(entry["shape"]), "F32") for name, entry in document.items()
    }
    for name, entry in document.items():
        begin, end = entry["data_offsets"]
        assert opened.span(name) == (start + begin, start + end)


@pytest.mark.usefixtures("shortcuts")
@pytest.mark.parametrize("kind", BAD)
def test_every_mistake_is_refused(kind: str, tmp_path: Path) -> None:
    assert BAD[kind] != TEXT
    path = written(
        tmp_path / "a.safetensors", BAD[kind], size_of(FOUND) if len(BAD[kind]) > 300 else 8
    )
    with pytest.raises(ContainerError):
        SafetensorsFile.open(path)
