"""Tables that the libraries themselves compute are recognised, and made anew as they make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from resize_pos import resize_checkpoint
from resize_pos.core.geometry import Grid
from resize_pos.families.tables import Action
from tests.support.builders import raw_tensors, vit, write_safetensors

CHANNELS = 48
Single = NDArray[np.float32]
Library = Callable[[Grid], Single]  # (1, prefix + cells, channels)


def hf_vit_mae(grid: Grid) -> Single:
    """A fresh ViTMAE holds zeros, so its own function is called as its own code calls it."""
    from transformers import ViTMAEConfig, ViTMAEModel

    assert grid.is_square
    config = ViTMAEConfig(
        image_size=grid.height * 16,
        patch_size=16,
        hidden_size=CHANNELS,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
    )
    embeddings = ViTMAEModel(config).embeddings
    embeddings.patch_embeddings.projection._is_hf_initialized = False
    with torch.no_grad():
        embeddings.initialize_weights()
    assert embeddings.position_embeddings.any()
    return np.array(embeddings.position_embeddings.detach().numpy())


def open_clip_sin_cos_2d(grid: Grid) -> Single:
    from open_clip.pos_embed import get_2d_sincos_pos_embed

    assert grid.is_square
    return np.asarray(get_2d_sincos_pos_embed(CHANNELS, grid.height, cls_token=True), np.float32)[
        None
    ]


def open_clip_on_any_grid(grid: Grid) -> Single:
    """The function below the square one takes coordinates: x first, whatever it calls them."""
    from open_clip.pos_embed import get_2d_sincos_pos_embed_from_grid

    y, x = np.meshgrid(
        np.arange(grid.height, dtype=np.float32),
        np.arange(grid.width, dtype=np.float32),
        indexing="ij",
    )
    rows = get_2d_sincos_pos_embed_from_grid(CHANNELS, np.stack([x, y]))
    cls = np.zeros((1, CHANNELS))
    return np.concatenate([cls, rows]).astype(np.float32)[None]


SQUARE, WIDE = Grid(14, 14), Grid(6, 9)
# library, its formula, source grid, target grids
LIBRARIES: Mapping[str, tuple[Library, str, Grid, list[Grid]]] = {
    "HF ViTMAE": (hf_vit_mae, "mae", SQUARE, [Grid(24, 24), Grid(8, 8)]),
    "open_clip": (open_clip_sin_cos_2d, "mae", SQUARE, [Grid(24, 24), Grid(8, 8)]),
    "any grid": (open_clip_on_any_grid, "mae", WIDE, [Grid(13, 5), Grid(4, 16)]),
}
CASES = [(name, target) for name, entry in LIBRARIES.items() for target in entry[3]]


def source_file(folder: Path, table: Single, grid: Grid) -> Path:
    tensors = vit(grid.height, grid.width, channels=CHANNELS)
    return write_safetensors(folder / "mae.safetensors", tensors | {"pos_embed": table})


@pytest.mark.parametrize(("name", "target"), CASES, ids=str)
def test_absolute_coordinates_give_the_library_s_own_table(
    name: str, target: Grid, tmp_path: Path
) -> None:
    library, formula, grid, _ = LIBRARIES[name]
    path = source_file(tmp_path, library(grid), grid)
    report = resize_checkpoint(path, to_grid=target, from_grid=grid, sincos="absolute")
    (step,) = report.plan.steps
    assert step.action is Action.REGENERATE
    assert step.table.fixed is not None
    assert step.table.fixed.formula == formula
    assert report.output is not None
    values = np.frombuffer(raw_tensors(report.output)[0]["pos_embed"][1], np.float32)
    expected = library(target)
    difference = np.abs(values.reshape(expected.shape) - expected).max()
    assert difference <= (6e-8 if name != "HF ViTMAE" else 2e-6), difference


@pytest.mark.parametrize("target", [Grid(24, 20), Grid(8, 11), Grid(32, 28)], ids=str)
def test_rescaled_coordinates_are_what_interpolation_approximates(
    target: Grid, tmp_path: Path
) -> None:
    path = source_file(tmp_path, open_clip_sin_cos_2d(SQUARE), SQUARE)
    tables = {}
    for mode in ("rescaled", "interpolate", "absolute"):
        output = tmp_path / f"{mode}.safetensors"
        resize_checkpoint(path, to_grid=target, sincos=mode, output=output)
        tables[mode] = np.frombuffer(raw_tensors(output)[0]["pos_embed"][1], np.float32)
    exact = np.linalg.norm(tables["rescaled"])
    assert 0.002 < np.linalg.norm(tables["interpolate"] - tables["rescaled"]) / exact < 0.03
    assert np.linalg.norm(tables["absolute"] - tables["rescaled"]) / exact > 0.2


def test_marian_s_table_goes_on_where_it_ended(tmp_path: Path) -> None:
    from transformers import MarianConfig, MarianModel

    def build(length: int) -> MarianModel:
        return MarianModel(
            MarianConfig(
                d_model=32,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                vocab_size=99,
                pad_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
                max_position_embeddings=length,
            )
        )

    tables = {
        length: np.array(build(length).encoder.embed_positions.create_weight().numpy())
        for length in (40, 70)
    }
    tensors = {"model.encoder.embed_positions.weight": tables[40]}
    (tmp_path / "config.json").write_text('{"model_type": "marian"}', encoding="utf-8")
    path = write_safetensors(tmp_path / "marian.safetensors", tensors)
    report = resize_checkpoint(path, to=70)
    (step,) = report.plan.steps
    assert step.table.fixed is not None
    assert step.table.fixed.formula == "marian"
    assert report.output is not None
    values = np.frombuffer(raw_tensors(report.output)[0][step.table.name][1], np.float32)
    np.testing.assert_allclose(values.reshape(70, 32), tables[70], rtol=0, atol=6e-8)
