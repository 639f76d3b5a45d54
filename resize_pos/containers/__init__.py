"""One module per file format, behind the `Container` protocol of `base.py`."""

from __future__ import annotations

from pathlib import Path

from resize_pos.containers import magic
from resize_pos.containers.base import Container
from resize_pos.containers.safetensors import SafetensorsFile

__all__ = ["Container", "open_container", "writes_folder"]


def open_container(path: Path) -> Container:
    """Open a checkpoint by what it is, whatever it is called; only its header is read."""
    if path.is_dir():
        from resize_pos.containers.dcp import DistributedCheckpoint, is_distributed

        if is_distributed(path):
            return DistributedCheckpoint.open(path)
        from resize_pos.containers.model_folder import ModelFolder

        return ModelFolder.open(path, open_container)
    if path.name.endswith(".json"):
        from resize_pos.containers.sharded import ShardedCheckpoint, is_index

        if is_index(path):
            return ShardedCheckpoint.open(path, open_container)
    start = _start(path)
    if magic.is_zip(start):
        if not magic.is_torch_zip(start):
            from resize_pos.containers.npz import NpzFile, is_npz

            if is_npz(path):
                return NpzFile.open(path)
        from resize_pos.containers.torch_zip import Archive, TorchZip
        from resize_pos.containers.torchscript import TorchScript, is_torchscript

        archive = Archive.open(path)
        return TorchScript.of(archive) if is_torchscript(archive) else TorchZip.of(archive)
    if magic.is_pickle(start):
        from resize_pos.containers.torch_legacy import TorchLegacy

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
            return file.read(magic.LENGTH)
    except OSError:
        return b""  # whoever opens it next says what is wrong
