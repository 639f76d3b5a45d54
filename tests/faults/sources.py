"""The checkpoints that the conversions of this package read; written by torch and numpy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.builders import flat, vit, write_safetensors
from tests.support.zoo import CONTAINERS, write_distributed

_LINKED = 1 << 20  # from this size on a file that does not change is hard-linked


def _tensors(d: int = 8, bulk: int = 1 << 18) -> dict[str, Any]:
    noise = np.random.default_rng(3).normal(size=(bulk // 64, 16)).astype(np.float32)
    return {"blocks.0.mlp.weight": noise, **vit(3, 5, channels=d)}


def _one(container: str, name: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        CONTAINERS[container].write(folder / name, _tensors())

    return build


def _sharded(folder: Path) -> None:
    """Shards of which one is so large that it is linked."""
    CONTAINERS["sharded"].write(folder / "model", _tensors(bulk=_LINKED + 4096))


def _model(folder: Path) -> None:
    d, stem = 8, "vit.embeddings."
    noise = np.random.default_rng(3)
    arrays = {
        f"{stem}cls_token": noise.normal(size=(1, 1, d)).astype(np.float32),
        f"{stem}position_embeddings": flat(3, 5, d),
        f"{stem}patch_embeddings.projection.weight": np.ones((d, 3, 16, 16), np.float32),
        "vit.layernorm.bias": np.zeros(d, np.float32),
    }
    (folder / "model" / "extra").mkdir(parents=True)
    config = {"model_type": "vit", "image_size": [48, 80], "patch_size": 16}
    (folder / "model" / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "model" / "README.md").write_text("# a model\n", encoding="utf-8")
    (folder / "model" / "extra" / "notes.txt").write_text("kept\n", encoding="utf-8")
    write_safetensors(folder / "model" / "model.safetensors", arrays)


def _distributed(folder: Path) -> None:
    write_distributed(folder / "model", vit(3, 5))


def _zoo(folder: Path) -> None:
    for name in ("a", "b"):
        write_safetensors(folder / f"{name}.safetensors", _tensors())
    CONTAINERS["torch"].write(folder / "c.pth", _tensors())


_BUILDERS: Mapping[str, Callable[[Path], None]] = {
    "safetensors": _one("safetensors", "vit.safetensors"),
    "zip": _one("torch", "vit.pth"),
    "legacy": _one("legacy", "vit.pt"),
    "npz": _one("npz", "vit.npz"),
    "reformat": _one("torch", "vit.pth"),
    "shards": _sharded,
    "linked": _sharded,
    "folder": _model,
    "dcp": _distributed,
    "batch": _zoo,
    "report": _one("safetensors", "vit.safetensors"),
}


def build(name: str, folder: Path) -> Path:
    """Write the sources of a conversion into `folder`/pristine, where the driver expects them."""
    pristine = folder / "pristine"
    pristine.mkdir(parents=True)
    _BUILDERS[name](pristine)
    return folder
