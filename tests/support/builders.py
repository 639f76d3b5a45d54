"""Small checkpoints, written byte by byte so that no library under test is trusted with it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.tensors import DTYPES, TensorInfo

_NAMES = {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.numpy}

Tensors = Mapping[str, NDArray[Any]]


def smooth(height: int, width: int, channels: int, seed: int = 0) -> NDArray[np.float32]:
    """Make a grid that varies slowly in both directions, as learned tables do."""
    rng = np.random.default_rng(seed)
    rows = np.linspace(0, 1, height)[:, None, None]
    columns = np.linspace(0, 1, width)[None, :, None]
    phase, tall, wide = rng.uniform(0, 6, channels), *rng.uniform(-4, 4, (2, channels))
    values: NDArray[np.float64] = np.sin(phase + tall * rows + wide * columns)
    return values.astype(np.float32)


def flat(
    height: int, width: int, channels: int = 8, prefix: int = 1, seed: int = 0
) -> NDArray[np.float32]:
    """Make a `1 (p h w) d` table with random prefix rows."""
    rng = np.random.default_rng(seed + 1)
    rows = smooth(height, width, channels, seed).reshape(1, -1, channels)
    extra = rng.normal(size=(1, prefix, channels)).astype(np.float32)
    return np.concatenate([extra, rows], axis=1)


def vit(
    height: int = 4, width: int = 4, *, patch: int = 16, prefix: int = 1, channels: int = 8
) -> dict[str, NDArray[Any]]:
    """Make the tensors of a one-block timm ViT that matter, and a few that must not be touched."""
    rng = np.random.default_rng(7)
    return {
        "cls_token": rng.normal(size=(1, 1, channels)).astype(np.float32),
        "pos_embed": flat(height, width, channels, prefix),
        "patch_embed.proj.weight": rng.normal(size=(channels, 3, patch, patch)).astype(np.float32),
        "blocks.0.attn.qkv.weight": rng.normal(size=(24, channels)).astype(np.float32),
        "norm.bias": np.zeros(channels, np.float16),
        "head.bias": np.arange(5, dtype=np.int64),
    }


def write_safetensors(
    path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None
) -> Path:
    """Write a file with the tensors in the given order."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    offset = 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def raw_tensors(path: Path) -> tuple[dict[str, tuple[dict[str, Any], bytes]], dict[str, str]]:
    """Read every entry's header and bytes without any library."""
    blob = path.read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = blob[8 + length :]
    found = {}
    for name, entry in header.items():
        start, end = entry.pop("data_offsets")
        found[name] = (entry, data[start:end])
    return found, metadata


def infos(tensors: Tensors) -> dict[str, TensorInfo]:
    """Describe arrays as a header would."""
    return {
        name: TensorInfo(name, array.shape, _NAMES[array.dtype.name])
        for name, array in tensors.items()
    }
