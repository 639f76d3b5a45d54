"""Relative tables of volumes: windows with a depth, and one table per axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from resize_pos import ResizePosError, resize_checkpoint, verify_checkpoint
from resize_pos.cli.inspect import command as inspect_command

Sides = tuple[int, int, int]
TABLE = "swinViT.layers1.0.blocks.0.attn.relative_position_bias_table"


def text(sides: Sides) -> str:
    return "x".join(map(str, sides))


def swin(path: Path, window: Sides, *, index: bool = True) -> Path:
    """Write what a SwinUNETR stores of one block: its table, its index, its patch embedding."""
    random = torch.Generator().manual_seed(0)
    rows = int(np.prod([2 * side - 1 for side in window]))
    tensors = {
        TABLE: torch.randn(rows, 3, generator=random),
        "swinViT.patch_embed.proj.weight": torch.randn(12, 1, 2, 2, 2, generator=random),
    }
    if index:
        places = torch.stack(torch.meshgrid(*map(torch.arange, window), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None] + torch.tensor(window)[:, None, None] - 1
        tall, wide = 2 * window[1] - 1, 2 * window[2] - 1
        index_of = (apart[0] * tall + apart[1]) * wide + apart[2]
        tensors[TABLE.replace("bias_table", "index")] = index_of
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


@pytest.mark.parametrize("target", [(5, 7, 7), (4, 3, 6)], ids=text)
def test_a_window_is_resampled_along_its_three_axes(target: Sides, tmp_path: Path) -> None:
    source = (7, 7, 7)
    path = swin(tmp_path / "m.safetensors", source)
    report = resize_checkpoint(path, to_window=text(target), relative_like="hf")
    assert report.output is not None
    before, after = load_file(path), load_file(report.output)
    cells = before[TABLE].double().reshape(13, 13, 13, 3).permute(3, 0, 1, 2)[None]
    size = [2 * side - 1 for side in target]
    wanted = torch.nn.functional.interpolate(cells, size=size, mode="trilinear")
    rows = wanted[0].permute(1, 2, 3, 0).reshape(-1, 3)
    torch.testing.assert_close(after[TABLE].double(), rows, rtol=0, atol=1e-6)
    kept = "swinViT.patch_embed.proj.weight"
    assert torch.equal(before[kept], after[kept])
    found = verify_checkpoint(report.output, against=path)
    assert found.against is not None
    origins = [check.detail for t in found.against.tables for check in t.checks[:1]]
    assert origins[0].startswith("made by") or origins[1].startswith("made by")
    assert found.verdict != "fail"


def test_a_window_does_not_follow_the_volume(tmp_path: Path) -> None:
    path = swin(tmp_path / "m.safetensors", (7, 7, 7))
    report = resize_checkpoint(path, to="64x96x96")
    assert report.output is None
    assert any("its window 7×7×7 does not follow" in step.reason for step in report.plan.steps)


def test_one_number_for_a_cube_is_refused(tmp_path: Path) -> None:
    path = swin(tmp_path / "m.safetensors", (7, 7, 7))
    with pytest.raises(ResizePosError, match="needs three sides"):
        resize_checkpoint(path, to_window=5)


def test_a_window_that_is_no_cube_is_read_with_its_index_or_asked_about(tmp_path: Path) -> None:
    path = swin(tmp_path / "m.safetensors", (8, 7, 7))
    report = resize_checkpoint(path, to_window="16x7x7")
    assert {step.reason for step in report.plan.changes if step.name == TABLE} == {
        "offsets of 8×7×7 → 16×7×7"
    }
    path = swin(tmp_path / "bare.safetensors", (2, 3, 4), index=False)
    with pytest.raises(ResizePosError, match="105 offsets") as refusal:
        resize_checkpoint(path, to_window="3x3x4")
    assert 'from_window="DxHxW"' in str(refusal.value.hint)
    report = resize_checkpoint(path, from_window="2x3x4", to_window="3x3x4")
    assert report.output is not None
    assert len(load_file(report.output)[TABLE]) == 5 * 5 * 7
    with pytest.raises(ResizePosError, match="would have 63"):
        resize_checkpoint(path, from_window="2x2x4", to_window="3x3x4", force=True)


def test_an_image_model_has_no_deep_window(tmp_path: Path) -> None:
    name = "layers.0.blocks.0.attn.relative_position_bias_table"
    tensors = {name: torch.randn(169, 3), "patch_embed.proj.weight": torch.randn(12, 3, 4, 4)}
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(ResizePosError, match="no window in this file has a depth"):
        resize_checkpoint(tmp_path / "m.safetensors", to=224, to_window="2x7x7")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("window", [(5, 7, 7), (4, 3, 6)], ids=text)
def test_monai_loads_other_windows_strictly_and_runs(window: Sides, tmp_path: Path) -> None:
    nets = pytest.importorskip("monai.networks.nets")

    def build(sides: Any) -> Any:
        heads, depths = (1, 1, 1, 1), (1, 1, 1, 1)
        return nets.SwinUNETR(
            1, 2, depths=depths, num_heads=heads, feature_size=12, window_size=sides
        )

    path = tmp_path / "swin_unetr.pt"
    torch.save(build(7).state_dict(), path)
    report = resize_checkpoint(path, to_window=text(window))
    assert report.output is not None
    model = build(window).eval()
    model.load_state_dict(torch.load(report.output, weights_only=True), strict=True)
    with torch.no_grad():
        model(torch.zeros(1, 1, 32, 64, 32))


def sam(path: Path, grid: Sides, window: int) -> Path:
    """Write SAM-Med3D's tables (image_encoder3D.py): one relative table per axis and block."""
    random = torch.Generator().manual_seed(0)
    stem = "image_encoder."
    tensors = {
        f"{stem}pos_embed": torch.randn(1, *grid, 8, generator=random),
        f"{stem}patch_embed.proj.weight": torch.randn(8, 1, 16, 16, 16, generator=random),
        f"{stem}neck.0.weight": torch.randn(4, 8, 1, 1, 1, generator=random),
    }
    for block in range(4):
        sides = grid if block % 2 else (window,) * 3
        for axis, side in zip("dhw", sides, strict=True):
            name = f"{stem}blocks.{block}.attn.rel_pos_{axis}"
            tensors[name] = torch.randn(2 * side - 1, 4, generator=random)
    save_file(tensors, path)
    return path


@pytest.mark.parametrize("target", [(6, 8, 10), (3, 4, 5)], ids=text)
def test_global_blocks_of_sam_follow_the_volume(target: Sides, tmp_path: Path) -> None:
    path = sam(tmp_path / "sam.safetensors", (4, 8, 8), window=14)
    report = resize_checkpoint(path, to=text(tuple(16 * side for side in target)))  # type: ignore[arg-type]
    assert report.output is not None
    expected = load_file(sam(tmp_path / "expected.safetensors", target, window=14))
    before, after = load_file(path), load_file(report.output)
    assert {name: t.shape for name, t in after.items()} == {
        name: t.shape for name, t in expected.items()
    }
    for block in (0, 2):
        for axis in "dhw":
            name = f"image_encoder.blocks.{block}.attn.rel_pos_{axis}"
            assert torch.equal(before[name], after[name])
    name = "image_encoder.blocks.1.attn.rel_pos_d"
    rows = before[name].double().T[None]
    wanted = torch.nn.functional.interpolate(rows, size=2 * target[0] - 1, mode="linear")[0].T
    torch.testing.assert_close(after[name].double(), wanted, rtol=0, atol=1e-6)


def test_inspect_shows_the_depth(tmp_path: Path) -> None:
    said = CliRunner().invoke(inspect_command, [str(swin(tmp_path / "m.safetensors", (7, 7, 7)))])
    assert said.exit_code == 0, said.output
    assert "offsets of 7×7×7" in said.output
