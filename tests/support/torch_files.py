"""Torch checkpoints for the tests, made by the real torch, and read back without it."""

from __future__ import annotations

import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.builders import vit

PROTOCOLS = (2, 3, 4, 5)


def state_dict(height: int = 3, width: int = 5, *, prefix: str = "") -> OrderedDict[str, Any]:
    """Make the tensors of a tiny ViT on a grid that is not square."""
    arrays = vit(height, width)
    return OrderedDict((prefix + name, torch.from_numpy(a)) for name, a in arrays.items())


class TinyViT(nn.Module):
    """A module with a position table among parameters of other shapes."""

    def __init__(self, height: int = 3, width: int = 5, channels: int = 8) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, channels))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + height * width, channels))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, channels, 4, 4)
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patch_embed.proj(images).flatten(2).transpose(1, 2)  # type: ignore[operator]
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], 1)
        return self.head(self.norm(tokens + self.pos_embed)[:, 0])  # type: ignore[no-any-return]


def save(path: Path, content: object, protocol: int = 2) -> Path:
    """Write with torch.save."""
    torch.save(content, path, pickle_protocol=protocol)
    return path


def raw_records(path: Path) -> dict[str, tuple[int, bytes]]:
    """Read checksum and bytes of each record, without torch and in order."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {i.filename: (i.CRC, archive.read(i)) for i in archive.infolist()}


def data_offsets(path: Path) -> dict[str, int]:
    """Tell where the bytes of each record begin."""
    blob = path.read_bytes()
    found = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", blob, info.header_offset + 26)
            found[info.filename] = info.header_offset + 30 + name + extra
    return found
