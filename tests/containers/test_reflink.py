"""On a file system that shares extents, a conversion writes the new bytes and shares the others.

Needs the right to mount an image and the tools that make one; skipped where either is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import resize_pos
from resize_pos.containers.detect import open_container

MAKERS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"]}
BULK = 64 * 2**20  # bytes that nothing changes
SIZE = "512M"


@pytest.fixture(params=MAKERS)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    maker = MAKERS[request.param]
    if os.geteuid() != 0 or shutil.which(maker[0]) is None:
        pytest.skip(f"{maker[0]} and the right to mount are needed")
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    subprocess.run(["truncate", "-s", SIZE, image], check=True)
    subprocess.run([*maker, image], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mount: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def used(folder: Path) -> int:
    os.sync()
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def tensors() -> dict[str, torch.Tensor]:
    noise = torch.randn(BULK // 4096, 1024)
    return {
        "blocks.0.mlp.weight": noise,
        "cls_token": torch.zeros(1, 1, 32),
        "patch_embed.proj.weight": torch.zeros(32, 3, 16, 16),
        "pos_embed": torch.randn(1, 1 + 6 * 8, 32),
    }


@pytest.mark.parametrize("name", ["vit.safetensors", "vit.pth"])
def test_what_does_not_change_is_shared(name: str, shared: Path) -> None:
    path = shared / name
    (save_file if name.endswith(".safetensors") else torch.save)(tensors(), path)
    before = used(shared)
    report = resize_pos.resize_checkpoint(path, to="144x192", from_="96x128")
    assert report.output is not None
    assert used(shared) - before < 4 * 2**20
    source, output = open_container(path), open_container(report.output)
    assert output.tensors["pos_embed"].shape == (1, 1 + 9 * 12, 32)
    bulk = "blocks.0.mlp.weight"
    np.testing.assert_array_equal(output.read(bulk), source.read(bulk))
