"""Folders whose size is not that of one square grid: what their configs say, and become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos.api import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.detect import open_container
from tests.oracle.relative_more import hf_levit, hf_seggpt

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}
SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 64}


def spectrogram_folder(folder: Path, **options: Any) -> Path:
    from transformers import ASTConfig, ASTFeatureExtractor, ASTModel

    sides = {"num_mel_bins": 48, "max_length": 96}
    ASTModel(ASTConfig(**sides, **SMALL, **options)).save_pretrained(folder)
    ASTFeatureExtractor(**sides).save_pretrained(folder)
    return folder


def document(folder: Path, file: str) -> Any:
    return json.loads((folder / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("to", ["48x200", "64x64"])
@pytest.mark.parametrize("steps", [(10, 10), (16, 16), (8, 10)])
def test_a_spectrogram_s_config_gives_its_grid_and_its_steps(
    steps: tuple[int, int], to: str, tmp_path: Path
) -> None:
    from transformers import ASTModel

    strides = dict(zip(("frequency_stride", "time_stride"), steps, strict=True))
    source = spectrogram_folder(tmp_path / "ast", **strides)
    (table,) = inspect_checkpoint(source).located.tables
    assert (table.grid.height, table.grid.width) == tuple(
        (side - 16) // step + 1 for side, step in zip((48, 96), steps, strict=True)
    )
    report = resize_checkpoint(source, to=to)
    assert report.output is not None
    height, width = map(int, to.split("x"))
    for file in ("config.json", "preprocessor_config.json"):
        assert document(report.output, file)["num_mel_bins"] == height
        assert document(report.output, file)["max_length"] == width
    assert "image_size" not in document(report.output, "config.json")
    model, loading = ASTModel.from_pretrained(report.output, output_loading_info=True)
    assert not any(loading.values())
    assert model.embeddings.position_embeddings.shape[1] == table.prefix + (
        ((height - 16) // steps[0] + 1) * ((width - 16) // steps[1] + 1)
    )


def test_a_swin_folder_says_the_size_that_was_asked_for(tmp_path: Path) -> None:
    from transformers import SwinConfig, SwinModel, ViTImageProcessor

    source = tmp_path / "swin"
    SwinModel(SwinConfig(**SWIN)).save_pretrained(source)
    ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(source)
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    assert not report.plan.changes
    assert document(report.output, "config.json")["image_size"] == [96, 128]
    assert document(report.output, "config.json")["window_size"] == 4
    size = document(report.output, "preprocessor_config.json")["size"]
    assert (size["height"], size["width"]) == (96, 128)
    _, loading = SwinModel.from_pretrained(report.output, output_loading_info=True)
    assert not any(loading.values())


def test_a_swin_folder_of_timm_says_the_size_that_was_asked_for(tmp_path: Path) -> None:
    import timm
    from timm.models import save_for_hf

    options = {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2), "window_size": 4}
    model = timm.create_model("swin_tiny_patch4_window7_224", img_size=64, **options)
    arguments = {"img_size": 64, **options}
    save_for_hf(model, tmp_path / "swin", model_args=arguments, safe_serialization=True)
    report = resize_checkpoint(tmp_path / "swin", to="96x128")
    assert report.output is not None
    config = document(report.output, "config.json")
    assert config["model_args"]["img_size"] == [96, 128]
    assert config["pretrained_cfg"]["input_size"] == [3, 96, 128]
    assert config["model_args"]["window_size"] == 4
    again = timm.create_model(f"local-dir:{report.output}", pretrained=True)
    assert again.patch_embed.img_size == (96, 128)


def test_a_model_that_sees_and_reads_takes_to_for_the_image(tmp_path: Path) -> None:
    """ALIGN has a table for its texts alone; its images go through a convolution."""
    import torch
    from safetensors.torch import save_file

    table = "text_model.embeddings.position_embeddings.weight"
    words = "text_model.embeddings.word_embeddings.weight"
    tensors = {table: torch.randn(512, 8), words: torch.randn(9, 8)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = {"model_type": "align", "vision_config": {"image_size": 289}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    plan = resize_checkpoint(tmp_path, to=256, dry_run=True).plan
    assert not plan.changes
    plan = resize_checkpoint(tmp_path, to_length=256, dry_run=True).plan
    assert [step.table.name for step in plan.changes] == [table]


TIED: dict[str, dict[str, Any]] = {
    "botnet26t_256": {},
    "coatnet_pico_rw_224": {"depths": (1, 1, 1, 1), "embed_dim": (32, 32, 32, 64)},
    "levit_128s": {},
    "maxvit_nano_rw_256": {"depths": (1, 1), "embed_dim": (32, 64), "stem_width": 8},
    "beit_base_patch16_224": {"embed_dim": 32, "depth": 1, "num_heads": 4},
}


@pytest.mark.parametrize("name", TIED)
def test_a_folder_whose_relative_tables_follow_the_image_builds_at_the_new_size(
    name: str, tmp_path: Path
) -> None:
    """No table of theirs has a grid that says how large the image is: BoTNet's have one axis."""
    import timm
    import torch
    from timm.models import save_for_hf

    arguments = {"img_size": 128, **TIED[name]}
    source = tmp_path / "source"
    model = timm.create_model(name, num_classes=3, **arguments)
    for key, parameter in model.named_parameters():
        if "rel" in key or "biases" in key:
            torch.nn.init.normal_(parameter)
    save_for_hf(model, source, model_args=arguments, safe_serialization=True)
    # timm's loader takes every flat table of offsets for a square one, and fails on others.
    width = 160 if name in ("botnet26t_256", "levit_128s") else 192
    report = resize_checkpoint(source, to=(192, width))
    assert report.plan.changes and report.output is not None
    config = document(report.output, "config.json")
    assert config["model_args"]["img_size"] == (192 if width == 192 else [192, width])
    assert config["pretrained_cfg"]["input_size"] == [3, 192, width]
    # timm resamples a table that does not fit without a word: equal values prove that it did not.
    again = timm.create_model(f"local-dir:{report.output}", pretrained=True)
    written = open_container(report.output)
    for key, tensor in again.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), written.read(key))


@pytest.mark.parametrize(("name", "to"), [("seggpt", "128x64"), ("seggpt", "64x96"), ("levit", 48)])
def test_a_transformers_folder_with_relative_tables_alone_loads_at_the_new_size(
    name: str, to: str | int, tmp_path: Path
) -> None:
    model = hf_seggpt((64, 32)) if name == "seggpt" else hf_levit(80)
    model.save_pretrained(tmp_path / "source")  # type: ignore[operator]
    report = resize_checkpoint(tmp_path / "source", to=to)
    assert report.output is not None
    sides = [int(side) for side in str(to).split("x")]
    stated = document(report.output, "config.json")["image_size"]
    assert stated == (sides[0] if len(sides) == 1 else sides)
    loaded: Any = type(model)
    _, loading = loaded.from_pretrained(report.output, output_loading_info=True)
    assert not any(loading.values())
