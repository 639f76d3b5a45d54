"""Diffusion and satellite layouts, by the names and shapes of the originals: a cell in pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from resize_pos import resize_checkpoint
from resize_pos.cli.resize import command

WIDTH = 16


def sincos(height: int, width: int) -> NDArray[np.float64]:
    """Give DiT's table (models.py, get_2d_sincos_pos_embed): columns first, sines first."""
    rates = 1.0 / 10000 ** (np.arange(WIDTH // 4) / (WIDTH / 4))
    rows, columns = np.divmod(np.arange(height * width), width)
    halves = [np.outer(places, rates) for places in (columns, rows)]
    return np.concatenate([f(half) for half in halves for f in (np.sin, np.cos)], axis=1)


def dit(path: Path, side: int, *, channels: int = 4) -> Path:
    """Write what DiT stores besides its blocks: 2×2 latents per cell."""
    random = torch.Generator().manual_seed(0)
    tensors = {
        "pos_embed": torch.from_numpy(sincos(side, side)).float()[None],
        "x_embedder.proj.weight": torch.randn(WIDTH, channels, 2, 2, generator=random),
        "y_embedder.embedding_table.weight": torch.randn(11, WIDTH, generator=random),
    }
    if channels == 16:
        tensors["context_embedder.weight"] = torch.randn(WIDTH, 8, generator=random)
    save_file(tensors, path)
    return path


@pytest.mark.parametrize(("size", "grid"), [("512x384", (32, 24)), ("128x192", (8, 12))])
def test_one_cell_of_dit_is_sixteen_pixels(
    size: str, grid: tuple[int, int], tmp_path: Path
) -> None:
    path = dit(tmp_path / "dit.safetensors", 16)
    report = resize_checkpoint(path, from_=256, to=size, sincos="absolute")
    assert report.output is not None
    after = load_file(report.output)["pos_embed"]
    wanted = torch.from_numpy(sincos(*grid)).float()[None]
    torch.testing.assert_close(after, wanted, rtol=0, atol=1e-5)


def test_stable_diffusion_3_crops_its_own_grid(tmp_path: Path) -> None:
    report = resize_checkpoint(dit(tmp_path / "sd3.safetensors", 24, channels=16), to=512)
    assert report.output is None
    assert "crops this grid" in report.plan.steps[0].reason


def test_the_recipe_s_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "recipes" / "diffusion.md"
    words = page.read_text(encoding="utf-8").split("```console\n$ ")[1].split("```")[0].split()
    monkeypatch.chdir(tmp_path)
    dit(tmp_path / "dit.safetensors", 16)
    said = CliRunner().invoke(command, words[1:])
    assert said.exit_code == 0, said.output
    assert load_file("dit-512.safetensors")["pos_embed"].shape == (1, 32 * 32, WIDTH)


@pytest.mark.filterwarnings("ignore")
def test_diffusers_stores_no_table_that_changes(tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")

    def build(latents: int) -> torch.nn.Module:
        model: torch.nn.Module = diffusers.DiTTransformer2DModel(
            num_attention_heads=3, attention_head_dim=8, num_layers=1, sample_size=latents
        )
        return model

    state = {key: value.contiguous() for key, value in build(32).state_dict().items()}
    save_file(state, tmp_path / "d.safetensors")
    report = resize_checkpoint(tmp_path / "d.safetensors", to=512)
    assert report.output is None
    build(64).load_state_dict(load_file(tmp_path / "d.safetensors"), strict=True)


@pytest.mark.parametrize("size", ["96x160", "64x48"])
def test_satmae_s_groups_share_one_table(size: str, tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    shapes = {
        "pos_embed": (1, 1 + 12 * 12, 12),
        "channel_embed": (1, 2, 4),
        "cls_token": (1, 1, 16),
        "patch_embed.0.proj.weight": (16, 4, 8, 8),
        "patch_embed.1.proj.weight": (16, 6, 8, 8),
        "decoder_pos_embed": (1, 1 + 12 * 12, 6),
        "decoder_channel_embed": (1, 3, 2),
    }
    tensors = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "satmae.safetensors")
    report = resize_checkpoint(tmp_path / "satmae.safetensors", to=size)
    assert report.output is not None
    after = load_file(report.output)
    tall, wide = (int(side) // 8 for side in size.split("x"))
    assert after["pos_embed"].shape == (1, 1 + tall * wide, 12)
    assert after["decoder_pos_embed"].shape == (1, 1 + tall * wide, 6)
    assert torch.equal(after["channel_embed"], tensors["channel_embed"])
