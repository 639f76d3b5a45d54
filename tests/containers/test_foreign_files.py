"""A file that is no checkpoint is called by its name, with what to do."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import pytest

from resize_pos.containers.detect import open_container
from resize_pos.core.errors import ContainerError


def keras_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", "x")
    return buffer.getvalue()


# name → the file's beginning, what it is called, and a part of the hint. The first bytes are those
# that the programs write which make such files.
FILES: dict[str, tuple[bytes, str, str]] = {
    "photo.safetensors": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "a JPEG image", "weights"),
    "figure.bin": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a PNG image", "weights"),
    "flax_model.msgpack": (b"\x81\xa6params\x83\xa7encoder", "a msgpack file (Flax)", "flax"),
    "two_keys.msgpack": (b"\x82\xaatext_model\x84\xa4name", "a msgpack file (Flax)", "flax"),
    "large.msgpack": (b"\xde\x00\x20\xa6params\x83", "a msgpack file (Flax)", "flax"),
    "tf_model.h5": (b"\x89HDF\r\n\x1a\n\x00\x00\x00\x00", "an HDF5 file (Keras)", "Keras"),
    "model.ckpt.index": (b"\x00\x00\x08\x03\x00\x00", "a TensorFlow checkpoint", "load_checkpoint"),
    "m.data-00000-of-00001": (b"\x1b\x9f\x00\x31", "a TensorFlow checkpoint", "load_checkpoint"),
    "saved_model.pb": (b"\x08\x01\x12\xff\xff\x03\x0a", "a TensorFlow model", "TensorFlow"),
    "model.gguf": (b"GGUF\x03\x00\x00\x00", "a GGUF file", "original checkpoint"),
    "model.tflite": (b"\x1c\x00\x00\x00TFL3\x14\x00", "a TensorFlow Lite model", "export"),
    "page.safetensors": (b"<!doctype html><html>", "a web page", "login page"),
    "pointer.safetensors": (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS", "lfs pull"),
    "config.json": (b'{"image_size": 224}', "JSON text", "weights"),
    "notes.safetensors": (b"trained on Tuesday\n", "a text file", "weights"),
    "weights.tar": (b"vit.pth".ljust(257, b"\0") + b"ustar\x0000", "a tar archive", "Unpack"),
    "weights.gz": (b"\x1f\x8b\x08\x08", "a gzip archive", "Unpack"),
    "plain.pkl": (pickle.dumps({"a": 1}, protocol=4)[:1] + b"\x04K\x01.", "a pickle", "torch.save"),
    "array.npy": (b"\x93NUMPY\x01\x00v\x00", "a numpy array", "savez"),
    "model.keras": (keras_zip(), "no data.pkl", "Keras"),
}


@pytest.mark.parametrize("name", FILES)
def test_it_is_called_by_its_name(name: str, tmp_path: Path) -> None:
    start, what, hint = FILES[name]
    path = tmp_path / name
    whole = name.endswith((".keras", "notes.safetensors"))
    path.write_bytes(start if whole else start + bytes(64))
    with pytest.raises(ContainerError) as caught:
        open_container(path)
    assert caught.value.message.startswith(f"{name}: ")
    assert what in caught.value.message
    assert caught.value.hint is not None and hint in caught.value.hint


def test_a_file_that_nobody_knows_is_shown_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    path.write_bytes(bytes(range(200, 240)) * 4)
    with pytest.raises(ContainerError, match="begins with c8 c9 ca cb cc cd ce cf") as caught:
        open_container(path)
    assert "claims" not in caught.value.message


def test_a_truncated_checkpoint_is_not_taken_for_another_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    path.write_bytes((4096).to_bytes(8, "little") + b'{"a":')
    with pytest.raises(ContainerError, match="claims 4096 bytes"):
        open_container(path)
