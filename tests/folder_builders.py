"""Model folders as the real libraries save them: small models with random weights."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from resize_pos.containers import open_container
from resize_pos.errors import ContainerError

V: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def reads_torch(tmp_path: Path) -> bool:
    """Tell whether torch zip files can be opened yet."""
    path = tmp_path / "probe.bin"
    torch.save({"w": torch.zeros(2)}, path)
    try:
        open_container(path)
    except ContainerError:
        return False
    finally:
        path.unlink()
    return True


def files(folder: Path) -> dict[str, bytes]:
    """Read a folder, subfolders included, byte by byte."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def vit_model(image_size: int = 64) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(image_size=image_size, patch_size=16, num_labels=3, **V)
    )


def save_hf(model: Any, processor: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    if processor is not None:
        processor.save_pretrained(folder)
    (folder / "README.md").write_text("# a model\n", encoding="utf-8")
    (folder / "extra").mkdir()
    (folder / "extra" / "notes.txt").write_text("kept\n", encoding="utf-8")
    return folder


def smooth_positions(model: torch.nn.Module) -> None:
    """Give every position parameter a slowly varying content, as training does."""
    for name, parameter in model.named_parameters():
        if "pos" in name and "embed" in name:
            rows = torch.linspace(0, 1, parameter.numel()).reshape(parameter.shape)
            parameter.data = torch.sin(3 * rows) + 0.1
