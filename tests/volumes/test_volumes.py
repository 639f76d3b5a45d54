"""Tables of volumes: depth × height × width, against torch and, where it is installed, MONAI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from resize_pos.api import resize_checkpoint
from resize_pos.cli.resize import command
from resize_pos.core.errors import GeometryError, TableError, UsageError
from resize_pos.core.geometry import Grid, Size
from tests.support.builders import vit, write_safetensors

NAME = "vit.patch_embedding.position_embeddings"
CHANNELS = 6


def volume(path: Path, grid: tuple[int, int, int], *, perceptron: bool = False) -> Path:
    """Write the tables of a MONAI ViT at patch 16, and a tensor that must not change."""
    rows = grid[0] * grid[1] * grid[2]
    random = torch.Generator().manual_seed(0)
    kernel = (CHANNELS, 4 * 16**3) if perceptron else (CHANNELS, 1, 16, 16, 16)
    middle = "patch_embeddings.1.weight" if perceptron else "patch_embeddings.weight"
    tensors = {
        NAME: torch.randn(1, rows, CHANNELS, generator=random),
        f"vit.patch_embedding.{middle}": torch.randn(kernel, generator=random),
        "vit.norm.weight": torch.randn(CHANNELS, generator=random),
    }
    save_file(tensors, path)
    return path


def sides(values: tuple[int, int, int]) -> str:
    return "x".join(str(16 * value) for value in values)


@pytest.mark.parametrize("perceptron", [False, True])
@pytest.mark.parametrize(
    ("source", "target"), [((2, 3, 4), (3, 5, 2)), ((3, 3, 3), (4, 4, 4)), ((4, 2, 3), (2, 4, 6))]
)
def test_a_volume_is_torch_s_trilinear(
    source: tuple[int, int, int], target: tuple[int, int, int], perceptron: bool, tmp_path: Path
) -> None:
    path = volume(tmp_path / "vit.safetensors", source, perceptron=perceptron)
    report = resize_checkpoint(
        path, to=sides(target), from_=sides(source), method="bilinear", antialias=False
    )
    assert report.output is not None
    before, after = load_file(path), load_file(report.output)
    cells = before[NAME].reshape(*source, CHANNELS).permute(3, 0, 1, 2)[None].double()
    wanted = torch.nn.functional.interpolate(cells, size=target, mode="trilinear")
    rows = wanted[0].permute(1, 2, 3, 0).reshape(1, -1, CHANNELS)
    torch.testing.assert_close(after[NAME].double(), rows, rtol=0, atol=1e-6)
    assert all(torch.equal(before[n], after[n]) for n in before if n != NAME)


def test_a_volume_is_bicubic_along_each_axis(tmp_path: Path) -> None:
    source, target = (2, 3, 4), (3, 5, 2)
    path = volume(tmp_path / "vit.safetensors", source)
    report = resize_checkpoint(path, to_grid="3x5x2", from_grid="2x3x4", antialias=False)
    assert report.output is not None
    cells = load_file(path)[NAME].double().numpy().reshape(*source, CHANNELS)
    for axis, count in enumerate(target):
        eye = torch.eye(cells.shape[axis], dtype=torch.float64)[None, None]
        along = torch.nn.functional.interpolate(
            eye, size=(count, cells.shape[axis]), mode="bicubic"
        )[0, 0].numpy()
        cells = np.moveaxis(np.tensordot(along, cells, axes=(1, axis)), 0, axis)
    after = load_file(report.output)[NAME].double().numpy().reshape(*target, CHANNELS)
    np.testing.assert_allclose(after, cells, rtol=0, atol=1e-6)


def test_a_cube_needs_no_word_about_the_source(tmp_path: Path) -> None:
    path = volume(tmp_path / "vit.safetensors", (3, 3, 3))
    said = CliRunner().invoke(command, [str(path), "--to", "64x80x48"])
    assert said.exit_code == 0, said.output
    assert load_file(tmp_path / "vit-64x80x48.safetensors")[NAME].shape[1] == 4 * 5 * 3


def test_what_is_left_to_change_has_three_sides(tmp_path: Path) -> None:
    path = volume(tmp_path / "vit.safetensors", (3, 3, 3))
    report = resize_checkpoint(path, from_="48x48x48", to="64x80x48")
    assert [(a.before, a.after) for a in report.config_advice] == [([48, 48, 48], [64, 80, 48])]


def test_a_volume_that_is_no_cube_is_asked_about(tmp_path: Path) -> None:
    path = volume(tmp_path / "vit.safetensors", (2, 3, 4))
    with pytest.raises(GeometryError, match="24 rows"):
        resize_checkpoint(path, to="48x48x48")


def test_sides_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = volume(tmp_path / "vit.safetensors", (3, 3, 3))
    with pytest.raises(UsageError, match="needs three sides"):
        resize_checkpoint(path, to=64)
    with pytest.raises(GeometryError, match="a depth of 40") as refusal:
        resize_checkpoint(path, to="40x48x48")
    assert "32 or 48" in str(refusal.value.hint)
    with pytest.raises(GeometryError, match="would need 18"):
        resize_checkpoint(path, to="64x64x64", from_="32x48x48")


def test_an_image_has_no_depth(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "vit.safetensors", vit(), {"format": "pt"})
    with pytest.raises(TableError, match="has a depth"):
        resize_checkpoint(path, to="32x96x96")
    with pytest.raises(UsageError, match="three sides"):
        resize_checkpoint(path, to=96, patch="16x16x16")


def test_three_sides_are_read_depth_first() -> None:
    assert Size.parse("64x96x128") == Size(96, 128, 64) == Size.parse((64, 96, 128))
    assert str(Size.parse("64x96x128")) == "64x96x128"
    assert Grid.parse("4x6x8").plane == Grid(6, 8)
    for wrong in ("1x2x3x4", "0x2x3", "64x", "x64"):
        with pytest.raises(UsageError):
            Size.parse(wrong)


def _monai() -> dict[str, Callable[[tuple[int, int, int]], Any]]:
    nets = pytest.importorskip("monai.networks.nets")
    small = {"hidden_size": 24, "mlp_dim": 24, "num_heads": 2}
    deep = {**small, "num_layers": 1}
    patch = (16, 16, 16)
    return {
        "vit": lambda size: nets.ViT(1, size, patch, proj_type="conv", **deep),
        "perceptron": lambda size: nets.ViT(1, size, patch, proj_type="perceptron", **deep),
        "unetr": lambda size: nets.UNETR(1, 2, size, feature_size=4, **small),
        "autoencoder": lambda size: nets.ViTAutoEnc(1, size, patch, **deep),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["vit", "perceptron", "unetr", "autoencoder"])
@pytest.mark.parametrize("target", [(48, 80, 32), (64, 64, 64)])
def test_monai_loads_it_strictly_and_runs(
    name: str, target: tuple[int, int, int], tmp_path: Path
) -> None:
    make = _monai()[name]
    path, size = tmp_path / "m.safetensors", (32, 48, 64)
    save_file({k: v.contiguous() for k, v in make(size).state_dict().items()}, path)
    to, from_ = ("x".join(map(str, each)) for each in (target, size))
    report = resize_checkpoint(path, to=to, from_=from_)
    assert report.output is not None
    model = make(target).eval()
    model.load_state_dict(load_file(report.output), strict=True)
    with torch.no_grad():
        model(torch.zeros(1, 1, *target))


def test_the_recipe_s_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "recipes" / "volumes.md"
    words = page.read_text(encoding="utf-8").split("```console\n$ ")[1].split("```")[0].split()
    monkeypatch.chdir(tmp_path)
    volume(tmp_path / "unetr.safetensors", (6, 6, 6))
    assert words[0] == "resize-pos"
    assert CliRunner().invoke(command, words[1:]).exit_code == 0
    assert load_file("unetr-64x128x128.safetensors")[NAME].shape[1] == 4 * 8 * 8
