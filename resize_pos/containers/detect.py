"""Which format a file or folder has, by its content: names and suffixes prove nothing."""

from __future__ import annotations

from pathlib import Path

from resize_pos.containers.base import Container
from resize_pos.containers.safetensors.file import SafetensorsFile

_LOOKED_AT = 512  # bytes at the start of a file

_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def is_zip(start: bytes) -> bool:
    """Tell an archive that has at least one record."""
    return start[:4] == b"PK\x03\x04"


def is_torch_zip(start: bytes) -> bool:
    """Tell an archive that begins as torch.save has it; that others begin otherwise is not said."""
    name_length = int.from_bytes(start[26:28], "little")
    return is_zip(start) and start[30 : 30 + name_length].endswith(b"/data.pkl")


def is_pickle(start: bytes) -> bool:
    """Tell a pickle as torch wrote it before 1.6: it begins with a long number, framed or not.

    A safetensors file whose header has just the right length begins alike, but for the brace.
    """
    return start[:2] in _PICKLES and start[2:3] in (b"\x8a", b"\x95") and start[8:9] != b"{"


def open_container(path: Path) -> Container:
    """Open a checkpoint by what it is, whatever it is called; only its header is read."""
    if path.is_dir():
        from resize_pos.containers.dcp.checkpoint import DistributedCheckpoint, is_distributed

        if is_distributed(path):
            return DistributedCheckpoint.open(path)
        from resize_pos.containers.model_folder import ModelFolder

        return ModelFolder.open(path, open_container)
    if path.name.endswith(".json"):
        from resize_pos.containers.sharded import ShardedCheckpoint, is_index

        if is_index(path):
            return ShardedCheckpoint.open(path, open_container)
    start = _start(path)
    if is_zip(start):
        if not is_torch_zip(start):
            from resize_pos.containers.npz.file import NpzFile, is_npz

            if is_npz(path):
                return NpzFile.open(path)
        from resize_pos.containers.torch.torchscript import TorchScript, is_torchscript
        from resize_pos.containers.torch.zip_checkpoint import Archive, TorchZip

        archive = Archive.open(path)
        return TorchScript.of(archive) if is_torchscript(archive) else TorchZip.of(archive)
    if is_pickle(start):
        from resize_pos.containers.torch.legacy_stream import TorchLegacy

        return TorchLegacy.open(path)
    return SafetensorsFile.open(path)


def writes_folder(container: Container) -> bool:
    """Tell whether its copy is a folder, not a file."""
    return container.path.is_dir() or container.path.name.endswith(".json")


def _start(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe would block
            return b""
        with path.open("rb") as file:
            return file.read(_LOOKED_AT)
    except OSError:
        return b""  # whoever opens it next says what is wrong
