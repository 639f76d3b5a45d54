"""One module per file format, behind the `Container` protocol of `base.py`."""

from __future__ import annotations

from pathlib import Path

from resize_pos.containers.base import Container
from resize_pos.containers.safetensors import SafetensorsFile

__all__ = ["Container", "open_container"]


def open_container(path: Path) -> Container:
    """Open a checkpoint by what it is; only its header is read."""
    return SafetensorsFile.open(path)
