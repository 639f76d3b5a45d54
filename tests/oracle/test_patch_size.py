"""`--to-patch` against timm's own resize of patch embeddings, and as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from timm.layers import resample_patch_embed

from resize_pos import ResizePosError, resize_checkpoint, resize_state_dict
from resize_pos.core.axes import Layout
from resize_pos.core.conventions import DEFAULT
from resize_pos.core.geometry import Grid
from resize_pos.transforms.patch_kernel import resize_kernel

SIZES = [((16, 16), (8, 12)), ((8, 8), (16, 20)), ((14, 14), (16, 16)), ((6, 10), (6, 5))]
SMALL = {"embed_dim": 48, "depth": 1, "num_heads": 3, "num_classes": 0}


def kernel(channels: int, size: tuple[int, int]) -> torch.Tensor:
    return torch.randn(12, channels, *size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize(("source", "target"), SIZES, ids=str)
def test_a_convolution_is_resized_as_timm_does(
    channels: int, source: tuple[int, int], target: tuple[int, int]
) -> None:
    weight = kernel(channels, source)
    ours = resize_kernel(
        weight.numpy(), Layout.parse("d c h w"), Grid(*source), Grid(*target), DEFAULT.resampling
    )
    theirs = resample_patch_embed(weight, list(target))
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize(
    ("axes", "order", "back"),
    [
        ("d (h w c=3)", (0, 2, 3, 1), lambda x: x.reshape(12, 8, 12, 3).transpose(0, 3, 1, 2)),
        ("d (c=3 h w)", (0, 1, 2, 3), lambda x: x.reshape(12, 3, 8, 12)),
    ],
)
def test_a_linear_layer_is_a_convolution_in_another_order(
    axes: str, order: tuple[int, ...], back: object
) -> None:
    weight = kernel(3, (16, 16)).numpy()
    flat = weight.transpose(order).reshape(12, -1)
    sizes = Grid(16, 16), Grid(8, 12)
    ours = resize_kernel(flat, Layout.parse(axes), *sizes, DEFAULT.resampling)
    expected = resize_kernel(weight, Layout.parse("d c h w"), *sizes, DEFAULT.resampling)
    assert callable(back)
    np.testing.assert_array_equal(back(ours), expected)


def test_an_enlarged_patch_gives_the_tokens_of_the_original() -> None:
    weight, patch = kernel(3, (16, 16)).double(), torch.randn(1, 3, 16, 16, dtype=torch.float64)
    ours = resize_kernel(
        weight.numpy(), Layout.parse("d c h w"), Grid(16, 16), Grid(32, 24), DEFAULT.resampling
    )
    larger = F.interpolate(patch, size=(32, 24), mode="bicubic", antialias=True)
    tokens = torch.einsum("dchw,bchw->bd", torch.from_numpy(ours), larger)
    torch.testing.assert_close(tokens, torch.einsum("dchw,bchw->bd", weight, patch))


@pytest.mark.parametrize(
    ("to", "patch", "grid"), [((128, 192), 8, (16, 24)), (None, 8, (14, 14)), (168, 24, (7, 7))]
)
def test_the_grid_follows_from_size_and_patch(
    to: object, patch: int, grid: tuple[int, int], tmp_path: Path
) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=112, **SMALL)
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    report = resize_checkpoint(tmp_path / "vit.safetensors", to=to, to_patch=patch)  # type: ignore[arg-type]
    size = (grid[0] * patch, grid[1] * patch)
    target = timm.create_model("vit_tiny_patch16_224", img_size=size, patch_size=patch, **SMALL)
    assert report.output is not None
    assert f"-patch{patch}" in report.output.name
    target.load_state_dict(load_file(report.output), strict=True)


def test_a_tube_keeps_its_frames() -> None:
    state = {
        "pos_embed": torch.randn(1, 4 * 49, 12),
        "patch_embed.proj.weight": torch.randn(12, 3, 2, 16, 16),
    }
    ours = resize_state_dict(state, to_patch=8, from_=112)
    assert ours["patch_embed.proj.weight"].shape == (12, 3, 2, 8, 8)
    assert ours["pos_embed"].shape == (1, 4 * 14 * 14, 12)
    frame = resample_patch_embed(state["patch_embed.proj.weight"][:, :, 1], [8, 8])
    torch.testing.assert_close(
        ours["patch_embed.proj.weight"][:, :, 1], frame, rtol=1e-4, atol=1e-4
    )


def test_every_copy_of_a_kernel_is_resized_once() -> None:
    one = {
        "pos_embed": torch.randn(1, 49, 12),
        "decoder_pos_embed": torch.randn(1, 49, 6),
        "patch_embed.proj.weight": torch.randn(12, 3, 16, 16),
    }
    state = {wrap + key: value for wrap in ("", "ema.") for key, value in one.items()}
    ours = resize_state_dict(state, to_patch=8)
    for wrap in ("", "ema."):
        assert ours[f"{wrap}patch_embed.proj.weight"].shape[2:] == (8, 8)
        assert ours[f"{wrap}pos_embed"].shape == (1, 196, 12)
        assert ours[f"{wrap}decoder_pos_embed"].shape == (1, 196, 6)


def test_a_file_without_its_patch_embedding_is_refused() -> None:
    state = {"pos_embed": torch.randn(1, 49, 12)}
    with pytest.raises(ResizePosError, match="to_patch needs the patch embedding"):
        resize_state_dict(state, to=224, patch=16, to_patch=8)
