"""Checkpoints to measure on: ViT-B, ViT-L and a 5 GB ViT with random weights, in every format."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 2**24  # bytes of random data, written again and again


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a plain ViT at 224 px, patch 16."""

    name: str
    width: int
    depth: int


VIT_B = Shape("vit_b", 768, 12)
VIT_L = Shape("vit_l", 1024, 24)
VIT_5GB = Shape("vit_5gb", 2048, 25)


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name every tensor of a timm ViT, in timm's order."""
    width = shape.width
    yield "cls_token", (1, 1, width)
    yield "pos_embed", (1, 197, width)
    yield "patch_embed.proj.weight", (width, 3, 16, 16)
    yield "patch_embed.proj.bias", (width,)
    for block in range(shape.depth):
        stem = f"blocks.{block}"
        for norm in ("norm1", "norm2"):
            yield f"{stem}.{norm}.weight", (width,)
            yield f"{stem}.{norm}.bias", (width,)
        for name, rows, columns in (
            ("attn.qkv", 3 * width, width),
            ("attn.proj", width, width),
            ("mlp.fc1", 4 * width, width),
            ("mlp.fc2", width, 4 * width),
        ):
            yield f"{stem}.{name}.weight", (rows, columns)
            yield f"{stem}.{name}.bias", (rows,)
    yield "norm.weight", (width,)
    yield "norm.bias", (width,)
    yield "head.weight", (1000, width)
    yield "head.bias", (1000,)


def safetensors_header(shape: Shape) -> tuple[bytes, int]:
    """Return the header of the checkpoint in fp32, and how many bytes of data follow it."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dims in sorted(tensors(shape)):
        end = offset + 4 * math.prod(dims)
        header[name] = {"dtype": "F32", "shape": list(dims), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, offset


def write_safetensors(path: Path, shape: Shape) -> Path:
    """Write the checkpoint in fp32 without ever holding it in memory."""
    if path.exists():
        return path
    import numpy as np

    start, offset = safetensors_header(shape)
    noise = np.random.default_rng(0).normal(0, 0.02, _BLOCK // 4).astype(np.float32).tobytes()
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(start)
        while offset > 0:
            offset -= file.write(noise[:offset])
    return part.rename(path)


def write_torch(path: Path, source: Path) -> Path:
    """Save the same tensors with `torch.save`."""
    if not path.exists():
        import torch
        from safetensors.torch import load_file

        torch.save(load_file(source), path)
    return path


def write_training(path: Path, source: Path) -> Path:
    """Save a training checkpoint: model, AdamW state, epoch."""
    if not path.exists():
        import torch
        from safetensors.torch import load_file

        model = load_file(source)
        state = {
            index: {
                "step": torch.tensor(100.0),
                "exp_avg": torch.zeros_like(tensor),
                "exp_avg_sq": torch.zeros_like(tensor),
            }
            for index, tensor in enumerate(model.values())
        }
        groups = [{"lr": 1e-4, "params": list(range(len(model)))}]
        optimizer = {"state": state, "param_groups": groups}
        torch.save({"model": model, "optimizer": optimizer, "epoch": 7}, path)
    return path


def write_shards(folder: Path, source: Path, count: int = 4) -> Path:
    """Split the checkpoint into shards with an index, as transformers does."""
    if folder.exists():
        return folder
    from safetensors.torch import load_file, save_file

    model = load_file(source)
    part = folder.with_suffix(".part")
    part.mkdir()
    names = list(model)
    weight_map: dict[str, str] = {}
    for shard in range(count):
        file = f"model-{shard + 1:05d}-of-{count:05d}.safetensors"
        chosen = {name: model[name] for name in names[shard::count]}
        save_file(chosen, part / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(chosen, file)
    total = sum(tensor.nbytes for tensor in model.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (part / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return part.rename(folder)


def write_large_grid(path: Path) -> Path:
    """Write a SAM with a grid of 64×64 cells of 1,280 channels, and little else."""
    if not path.exists():
        import torch
        from safetensors.torch import save_file

        tensors = {
            "image_encoder.patch_embed.proj.weight": torch.zeros(1280, 3, 16, 16),
            "image_encoder.pos_embed": torch.randn(1, 64, 64, 1280) * 0.02,
        }
        for block in range(32):
            length = 127 if block % 8 == 7 else 27
            for axis in "hw":
                name = f"image_encoder.blocks.{block}.attn.rel_pos_{axis}"
                tensors[name] = torch.randn(length, 80) * 0.02
        save_file(tensors, path)
    return path


def write_many_tables(path: Path, blocks: int = 1250) -> Path:
    """Write a Swin of four stages with this many blocks each: a relative table in every one."""
    if not path.exists():
        import torch
        from safetensors.torch import save_file

        tensors = {"patch_embed.proj.weight": torch.zeros(8, 3, 4, 4)}
        for stage in range(4):
            for block in range(blocks):
                stem = f"layers.{stage}.blocks.{block}.attn"
                tensors[f"{stem}.relative_position_bias_table"] = (
                    torch.randn(169, 2 << stage) * 0.02
                )
                tensors[f"{stem}.qkv.weight"] = torch.zeros(3, 8)
        save_file(tensors, path)
    return path
