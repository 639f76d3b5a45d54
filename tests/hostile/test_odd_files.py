"""Odd and oversized input is an error with its file and cause, in little memory."""

from __future__ import annotations

import json
import os
import signal
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from resize_pos.cli.app import main
from resize_pos.cli.signals import Interrupted
from resize_pos.containers.detect import open_container
from resize_pos.containers.zip.headers import Header, closing
from resize_pos.core.errors import ResizePosError
from resize_pos.verify.images import _open
from tests.support.builders import vit, write_safetensors

GRIDS = ["--from-grid", "3x5", "--to-grid", "4x7"]
LONG = "9" * 5000  # Python refuses to convert more than 4300 digits


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def index_of_itself() -> list[str]:
    """Write an index that names itself as the shard of a tensor."""
    name = "model.safetensors.index.json"
    Path(name).write_text(json.dumps({"metadata": {}, "weight_map": {"pos_embed": name}}))
    return [name]


def far_record() -> list[str]:
    """Write an archive whose record begins at byte 2⁶⁴ − 1."""
    header = Header(b"archive/data.pkl", version=45, stored=2, size=2)
    extra = struct.pack("<HHQQQ", 1, 24, 2, 2, 2**64 - 1)
    data = header.local(b"") + b"N."
    entry = header.central(2**64 - 1, extra)
    Path("far.pth").write_bytes(data + entry + closing(1, len(entry), len(data)))
    return ["far.pth"]


def many_axes() -> list[str]:
    """Write an array of 65 axes, one more than numpy reads."""
    shape = ", ".join(["1"] * 65)
    return npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape},), }}", bytes(4))


def long_shape() -> list[str]:
    """Write an array whose shape is a number of 5000 digits."""
    return npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({LONG},), }}", bytes(4))


def npy(header: str, data: bytes) -> list[str]:
    text = header.encode().ljust(64) + b"\n"
    body = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + data
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("pos_embed.npy", body)
    return ["a.npz"]


def npz_bomb() -> list[str]:
    """Write 256 MB of zeros as a table, packed to a thousandth."""
    side = 8192
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, 15, {side * 546}), }}"
    with (
        zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("pos_embed.npy", "w") as member,
    ):
        member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 128) + text.encode().ljust(128))
        for _ in range(546):
            member.write(bytes(15 * side * 4))
    return ["bomb.npz"]


def long_number_in_config() -> list[str]:
    """Write a folder whose config states an image size of 5000 digits."""
    Path("model").mkdir()
    write_safetensors(Path("model/model.safetensors"), vit(3, 5))
    Path("model/config.json").write_text(f'{{"model_type": "vit", "image_size": {LONG}}}')
    return ["./model"]


def long_number_in_pickle() -> list[str]:
    """Write a legacy stream that begins with a number of 5000 digits."""
    Path("long.pth").write_bytes(b"I" + LONG.encode() + b"\n.")
    return ["long.pth"]


def long_size() -> list[str]:
    """Ask for an image of 5000 digits."""
    write_safetensors(Path("vit.safetensors"), vit(3, 5))
    return ["vit.safetensors", "--patch", LONG]


def manifest(text: str, name: str) -> Callable[[], list[str]]:
    def write() -> list[str]:
        write_safetensors(Path("vit.safetensors"), vit(3, 5))
        Path(name).write_text(text)
        return ["batch", "--manifest", name, "-o", "out"]

    return write


ODD: dict[str, tuple[Callable[[], list[str]], str]] = {
    "an index that names itself": (index_of_itself, "model.safetensors.index.json"),
    "a record beyond 2⁶³": (far_record, "far.pth"),
    "65 axes": (many_axes, "at most 64"),
    "a shape of 5000 digits": (long_shape, "a.npz"),
    "an array that unpacks to a thousand times its size": (npz_bomb, "would unpack to"),
    "a config with 5000 digits": (long_number_in_config, "config.json"),
    "a pickle with 5000 digits": (long_number_in_pickle, "long.pth"),
    "a size of 5000 digits": (long_size, "--patch"),
    "TOML with 5000 digits": (
        manifest(f'[[job]]\nsource = "vit.safetensors"\nprefix = {LONG}\n', "jobs.toml"),
        "jobs.toml",
    ),
    "JSON lines with 5000 digits": (
        manifest(f'{{"source": "vit.safetensors", "prefix": {LONG}}}\n', "jobs.jsonl"),
        "jobs.jsonl",
    ),
    "CSV with 5000 digits": (
        manifest(f"source,prefix\nvit.safetensors,{LONG}\n", "jobs.csv"),
        "jobs.csv",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_input_is_refused(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, expected = ODD[name]
    words = make()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    tracemalloc.start()
    try:
        with pytest.raises(SystemExit) as end:
            main([*words, *GRIDS])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = capfd.readouterr().err
    assert end.value.code in (1, 2)
    assert expected in said
    assert "this is a bug" not in said and "Traceback" not in said
    assert max(map(len, said.splitlines())) < 2000  # the digits are not repeated
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    assert peak < 64 * 2**20 + 40 * max(map(len, before.values()))


def picture(width: int, height: int) -> bytes:
    """Return a PNG that claims this many pixels and has one line of them."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(width + 1)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(60_000, 50_000), (20_000, 9_000)])
def test_a_picture_that_claims_too_many_pixels_is_refused(size: tuple[int, int]) -> None:
    Path("bomb.png").write_bytes(picture(*size))
    tracemalloc.start()
    try:
        with pytest.raises(ResizePosError, match=r"bomb\.png: not an image that can be read"):
            _open(Path("bomb.png"), 3)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_the_tests_pictures_are_readable_when_small() -> None:
    Path("one.png").write_bytes(picture(7, 1))
    assert _open(Path("one.png"), 3).size == (7, 1)


def test_a_folder_that_cannot_be_listed_is_named_and_the_others_are_converted(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in ("zoo/a", "zoo/closed"):
        Path(folder).mkdir(parents=True)
        write_safetensors(Path(folder) / "vit.safetensors", vit(3, 5))
    list_folder = os.scandir

    def refusing(path: str | os.PathLike[str]) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SystemExit):
        main(["batch", "zoo", "-o", "out", "-j", "1", *GRIDS])
    said = "".join(capfd.readouterr())
    assert "closed: cannot be read: Permission denied" in " ".join(said.split())
    assert "this is a bug" not in said
    assert Path("out/a/vit.safetensors").is_file()


def test_an_array_of_zeros_that_is_not_packed_is_no_bomb() -> None:
    """The limit is on what is packed; a plain table of zeros only gets a warning."""
    tensors = vit(3, 5)
    tensors["pos_embed"] = np.zeros_like(tensors["pos_embed"])
    np.savez("zeros.npz", allow_pickle=False, **tensors)
    with pytest.raises(SystemExit) as end:
        main(["zeros.npz", *GRIDS])
    assert end.value.code == 0


def test_as_many_axes_as_numpy_has_are_read() -> None:
    shape = ", ".join(["1"] * 64)
    npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape},), }}", bytes(4))
    assert open_container(Path("a.npz")).tensors["pos_embed"].shape == (1,) * 64


def test_a_record_array_is_left_alone_and_a_list_elsewhere_is_refused() -> None:
    npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4))
    assert not open_container(Path("a.npz")).tensors
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': [1], }", bytes(4))
    with pytest.raises(ResizePosError, match=r"its shape '\[1\]"):
        open_container(Path("a.npz"))


def test_a_wrong_length_is_stated_in_bytes() -> None:
    entries = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [3, 5], "data_offsets": [8, 64]},
    }
    header = json.dumps(entries).encode()
    Path("a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(ResizePosError, match=r"takes 60 bytes but data_offsets \[8, 64\] hold 56"):
        open_container(Path("a.safetensors"))


@pytest.mark.parametrize("odd", [["vit"], {"a": 1}, 3, None])
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"image_size": [48, 80], "patch_size": 16}, ["--to", "64x112"]),
        ({"patch_size": 16}, ["--to", "64x112", "--from", "48x80"]),
        ({"vision_config": {"patch_size": 16}}, ["--to", "64x112", "--from", "48x80"]),
    ],
)
def test_a_model_type_that_is_no_text_names_no_model(
    odd: object,
    config: dict[str, object],
    words: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("model").mkdir()
    write_safetensors(Path("model/model.safetensors"), vit(3, 5))
    inside = {
        name: {**part, "model_type": odd} for name, part in config.items() if isinstance(part, dict)
    }
    document = {**config, **inside, "model_type": odd}
    Path("model/config.json").write_text(json.dumps(document))
    for command in (["./model"], ["verify", "./model", "model-64x112"]):
        with pytest.raises(SystemExit) as end:
            main([*command, *(words if command == ["./model"] else [])])
        said = "".join(capfd.readouterr())
        assert end.value.code in (0, 1, 2, 3)
        assert "this is a bug" not in said and "Traceback" not in said


@pytest.mark.parametrize("command", [["inspect"], ["-n"], []], ids=" ".join)
def test_signalling_nans_are_no_warnings_of_numpy(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Some bit patterns that are no numbers make numpy warn when they are cast."""
    tensors = vit(3, 5)
    bits = tensors["pos_embed"].copy().view(np.uint32)
    bits[0, 4:9, 1] = 0x7F800001
    tensors["pos_embed"] = bits.view(np.float32)
    write_safetensors(Path("vit.safetensors"), tensors)
    with pytest.raises(SystemExit) as end:
        main([*command, "vit.safetensors", *(GRIDS if command != ["inspect"] else [])])
    said = "".join(capfd.readouterr())
    assert end.value.code in (0, 1, 3)
    assert "RuntimeWarning" not in said and "this is a bug" not in said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_at_the_very_end_is_no_traceback(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    number = getattr(signal, name)

    def run(words: list[str], debug: bool) -> int:
        del words, debug
        raise Interrupted(number)

    monkeypatch.setattr("resize_pos.cli.app._run", run)
    with pytest.raises(SystemExit) as end:
        main(["vit.safetensors"])
    assert end.value.code == 128 + number
    assert "error: interrupted; " in capfd.readouterr().err
