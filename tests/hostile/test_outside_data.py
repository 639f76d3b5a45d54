"""Files that a checkpoint or a command names: data of ONNX models, pictures, manifests, formats.

Whatever they say, the answer is an error of ours, in little memory, and nothing is written.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from PIL import Image

from resize_pos.api import inspect_checkpoint, resize_checkpoint
from resize_pos.cli.app import main
from resize_pos.core.errors import ResizePosError
from resize_pos.verify.images import _open
from tests.support.builders import vit, write_safetensors
from tests.support.onnx_models import model, weights

TO = "56x32"  # pixels: 7×4 patches of 8
TABLE = weights()["pos_embed"].tobytes()


def external(folder: Path, **entries: str) -> Path:
    """Write a model whose table lies elsewhere, as `entries` say."""
    made = model()
    table = next(tensor for tensor in made.graph.initializer if tensor.name == "pos_embed")
    table.ClearField("raw_data")
    table.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        entry = table.external_data.add()
        entry.key, entry.value = key, value
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def link_out(folder: Path) -> None:
    (folder.parent / "secret").write_bytes(TABLE)
    (folder / "d").symlink_to(folder.parent / "secret")


def link_to_itself(folder: Path) -> None:
    (folder / "d").symlink_to(folder / "d")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "d")


def directory(folder: Path) -> None:
    (folder / "d").mkdir()


def data(folder: Path) -> None:
    (folder / "d").write_bytes(TABLE)


def nothing(folder: Path) -> None:
    """Make no data file."""


EXTERNAL: dict[str, tuple[Callable[[Path], None], dict[str, str]]] = {
    "up": (nothing, {"location": "../d"}),
    "up with backslashes": (nothing, {"location": "..\\d"}),
    "absolute": (nothing, {"location": "/etc/passwd"}),
    "nul": (nothing, {"location": "d\0e"}),
    "long": (nothing, {"location": "d" * 5000}),
    "missing": (nothing, {"location": "d"}),
    "no location": (nothing, {"offset": "0"}),
    "link out": (link_out, {"location": "d"}),
    "link to itself": (link_to_itself, {"location": "d"}),
    "pipe": (pipe, {"location": "d"}),
    "directory": (directory, {"location": "d"}),
    "the graph itself": (nothing, {"location": "m.onnx"}),
    "the graph's beginning": (
        nothing,
        {"location": "m.onnx", "offset": "0", "length": str(len(TABLE))},
    ),
    "beyond the end": (data, {"location": "d", "offset": "4096", "length": str(len(TABLE))}),
    "offset after the end": (data, {"location": "d", "offset": str(10**17)}),
    "negative offset": (data, {"location": "d", "offset": "-4"}),
    "signed offset": (data, {"location": "d", "offset": "+0"}),
    "other digits": (data, {"location": "d", "offset": "\u0663"}),
    "many digits": (data, {"location": "d", "offset": "9" * 5000}),
    "huge length": (data, {"location": "d", "length": str(10**17)}),
    "short length": (data, {"location": "d", "length": "8"}),
    "no number": (data, {"location": "d", "length": "all"}),
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_data_beside_a_graph_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    prepare, entries = EXTERNAL[name]
    prepare(folder)
    path = external(folder, **entries)
    before = sorted(folder.iterdir()), path.read_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(ResizePosError):
            resize_checkpoint(path, to=TO)
        assert tracemalloc.get_traced_memory()[1] < (64 << 20)
    finally:
        tracemalloc.stop()
    assert (sorted(folder.iterdir()), path.read_bytes()) == before


def test_the_same_data_told_truly_is_read(tmp_path: Path) -> None:
    data(tmp_path)
    path = external(tmp_path, location="d", offset="0", length=str(len(TABLE)))
    assert inspect_checkpoint(path).located.tables[0].name == "pos_embed"


def flat_picture() -> bytes:
    """Make 25 million white pixels in some 30 kB."""
    file = io.BytesIO()
    Image.new("L", (5000, 5000), 255).save(file, "PNG")
    return file.getvalue()


def cut_picture() -> bytes:
    file = io.BytesIO()
    Image.frombytes("L", (64, 48), random.Random(0).randbytes(64 * 48)).save(file, "PNG")
    return file.getvalue()[:900]


def claims_much() -> bytes:
    """Make a header of 60,000 × 60,000 pixels without any."""
    return b"BM" + struct.pack("<IIIIiiHHI", 54, 0, 54, 40, 60000, 60000, 1, 24, 0) + bytes(20)


PICTURES: dict[str, Callable[[], bytes]] = {
    "flat": flat_picture,
    "cut off": cut_picture,
    "claims much": claims_much,
    "empty": lambda: b"",
    "no picture": lambda: b"GIF89a" + bytes(40),
    "text": lambda: b"#!/bin/sh\ntouch canary\n",
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_that_is_none_or_too_large_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PICTURES[name]())
    with pytest.raises(ResizePosError, match=r"a\.png"):
        _open(path, 3)


def test_a_photograph_of_usual_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (2400, 1600), "white").save(path)
    assert _open(path, 3).size == (2400, 1600)


HUGE = 10**30
MANIFESTS = {
    "a.toml": '[[job]]\nsource = "a.toml"\nto = 224\n',
    "b.toml": f"[[job]]\nsource = 'vit.safetensors'\nto = {HUGE}\n",
    "c.toml": "[[job]]\nsource = 1979-05-27T07:32:00Z\nto = 224\n",
    "d.toml": "[[job]]\nsource = { a = { b = 1 } }\nto = inf\n",
    "e.toml": "a." * 5000 + "b = 1\n",
    "f.toml": "x = " + "[" * 5000 + "]" * 5000,
    "g.toml": "[job]\nsource = 'vit.safetensors'\n",
    "h.jsonl": json.dumps({"source": ["vit.safetensors"], "to": 224}) + "\n",
    "i.jsonl": "[" * 100_000 + "\n",
    "j.jsonl": '{"source": "vit.safetensors", "to": 1e999}\n',
    "k.jsonl": '{"source": "vit.safetensors", "to": true}\n',
    "l.jsonl": '{"source": "vit.safetensors", "to": 224, "to": 384}\n',
    "m.jsonl": '{"source": "\\ud800", "to": 224}\n',
    "n.csv": "source,to\n" + "x" * 200_000 + ",224\n",
    "o.csv": 'source,to\n"vit.safetensors,224\n',
    "p.csv": "source,source,to\na,b,224\n",
    "q.csv": "source,to\nvit.safetensors,-5\n",
    "r.csv": "source,to\nvit.safetensors\0,224\n",
    "s.toml": "[[job]]\nsource = 'https://127.0.0.1:1/\\n'\nto = 224\n",
    "t.toml": "[[job]]\nsource = 'vit.safetensors'\noutput = 'vit.safetensors'\nto = 224\n",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_odd_manifest_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("resize_pos.containers.remote.http_store.pause", lambda *_: None)
    source = write_safetensors(tmp_path / "vit.safetensors", vit(3, 5))
    content = source.read_bytes()
    Path(name).write_bytes(MANIFESTS[name].encode("utf-8", "surrogatepass"))
    with pytest.raises(SystemExit) as ended:
        main(["batch", "--manifest", name])
    output = "".join(capfd.readouterr())
    assert ended.value.code in (1, 2)
    assert "Traceback" not in output and "this is a bug" not in output
    assert source.read_bytes() == content
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".safetensors" and p != source]


FOREIGN = {
    "gguf": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63) + b"\xff" * 200,
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(99),
    "tar": b"a" * 257 + b"ustar" + bytes(300),
    "gzip": b"\x1f\x8b\x08" + bytes(99),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(40),
    "an empty archive": b"PK\x05\x06" + bytes(18),
    "tflite": b"\x1c\0\0\0TFL3" + bytes(50),
    "a protobuf that never ends": b"\x0a" + b"\xff" * 8 + b"\x7f",
    "elf": b"\x7fELF" + bytes(99),
    "zeros": bytes(100),
}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".onnx", ".npz", ".gguf"])
@pytest.mark.parametrize("name", FOREIGN)
def test_another_format_under_any_name_is_refused(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(ResizePosError, match="a" + suffix):
        resize_checkpoint(path, from_grid="3x5", to_grid="4x7")
    assert list(tmp_path.iterdir()) == [path]
