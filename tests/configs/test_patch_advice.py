"""`--to-patch` changes no config, so the list of what is left names every place of the patch size.

Each test follows the list, and the library then loads the output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
import transformers
from safetensors.torch import load_file, save_file

from resize_pos import resize_checkpoint
from resize_pos.configs.patch_advice import patch_edits
from resize_pos.core.geometry import Size
from resize_pos.report.report import Report
from resize_pos.report.to_do import loading_task, still_to_change

SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
}
MADE: dict[str, Any] = {"to": (288, 192), "to_patch": 32}  # 9×6 patches of 16 px


def follow_advice(report: Report, folder: Path) -> dict[str, Any]:
    """Make every change of config files that is left to the user; return them by key."""
    changed = {}
    for advice in still_to_change(report):
        path = folder / advice.file
        document = json.loads(path.read_text())
        *sections, key = advice.key.split(".")
        part = document
        for section in sections:
            part = part[section]
        assert part.get(key) == advice.before
        part[key] = advice.after
        path.write_text(json.dumps(document))
        changed[advice.key] = advice.after
    return changed


def test_a_folder_of_transformers_loads_after_the_changes(tmp_path: Path) -> None:
    config = transformers.ViTConfig(image_size=[144, 96], patch_size=16, **SMALL)
    model = transformers.ViTModel(config)
    model.save_pretrained(tmp_path / "vit")
    report = resize_checkpoint(
        tmp_path / "vit", output=tmp_path / "out", edit_configs=False, **MADE
    )
    changed = follow_advice(report, tmp_path / "out")
    assert changed == {"image_size": [288, 192], "patch_size": 32}
    loaded = transformers.ViTModel.from_pretrained(tmp_path / "out")
    assert loaded.embeddings.patch_embeddings.projection.weight.shape[2:] == (32, 32)
    table = loaded.embeddings.position_embeddings
    assert torch.equal(table, model.embeddings.position_embeddings)


def test_the_patch_size_of_an_image_tower_is_found(tmp_path: Path) -> None:
    config = transformers.CLIPConfig(
        vision_config={"image_size": 96, "patch_size": 16, **SMALL},
        text_config={"vocab_size": 100, **SMALL},
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path / "clip")
    report = resize_checkpoint(
        tmp_path / "clip", output=tmp_path / "out", edit_configs=False, to=192, to_patch=32
    )
    changed = follow_advice(report, tmp_path / "out")
    assert changed["vision_config.patch_size"] == 32
    transformers.CLIPModel.from_pretrained(tmp_path / "out")


def test_the_same_image_in_larger_patches_needs_no_other_size(tmp_path: Path) -> None:
    config = transformers.ViTConfig(image_size=[192, 96], patch_size=16, **SMALL)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    report = resize_checkpoint(
        tmp_path / "vit",
        output=tmp_path / "out",
        edit_configs=False,
        to=(192, 96),
        to_patch=32,
    )
    assert follow_advice(report, tmp_path / "out") == {"patch_size": 32}
    transformers.ViTModel.from_pretrained(tmp_path / "out")


def test_a_folder_of_timm_loads_after_the_changes(tmp_path: Path) -> None:
    arguments = {"img_size": [144, 96], "embed_dim": 32, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", **{**arguments, "img_size": (144, 96)})
    timm.models.save_for_hf(model, tmp_path / "vit", model_args=arguments)
    report = resize_checkpoint(
        tmp_path / "vit", output=tmp_path / "out", edit_configs=False, **MADE
    )
    changed = follow_advice(report, tmp_path / "out")
    assert changed["model_args.patch_size"] == 32
    loaded = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    assert loaded.patch_embed.proj.weight.shape == (32, 3, 32, 32)
    assert torch.equal(loaded.pos_embed, model.pos_embed)


def test_no_code_is_printed_that_cannot_load_another_patch(tmp_path: Path) -> None:
    """create_model of open_clip and get_model of torchvision have no argument for it."""
    tower = {"image_size": [144, 96], "patch_size": 16, "width": 64, "layers": 1, "head_width": 32}
    text = {"context_length": 9, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1}
    model = open_clip.CLIP(32, open_clip.CLIPVisionCfg(**tower), open_clip.CLIPTextCfg(**text))
    source = tmp_path / "clip.safetensors"
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, source)
    options: dict[str, Any] = {"from_": (144, 96), "output": tmp_path / "out.safetensors"}
    report = resize_checkpoint(source, **options, **MADE)
    assert loading_task(report) is None
    left = {advice.key: advice.after for advice in still_to_change(report)}
    assert left["model_cfg.vision_cfg.patch_size"] == 32
    tower |= {"image_size": left["model_cfg.vision_cfg.image_size"], "patch_size": 32}
    made = open_clip.CLIP(32, open_clip.CLIPVisionCfg(**tower), open_clip.CLIPTextCfg(**text))
    made.load_state_dict(load_file(tmp_path / "out.safetensors"))
    plain = resize_checkpoint(source, **options, to=(288, 192), force=True)
    code = loading_task(plain)
    assert code is not None and "force_image_size=(288, 192)" in code.code


@pytest.mark.parametrize(
    ("file", "document", "key", "value"),
    [
        ("config.json", {"patch_size": [16, 16]}, "patch_size", [32, 24]),
        ("config.json", {"model_type": "vit"}, "patch_size", [32, 24]),
        ("config.json", {"vision_config": {}}, "vision_config.patch_size", [32, 24]),
        ("processor_config.json", {"patch_size": 16}, "patch_size", [32, 24]),
        (
            "open_clip_config.json",
            {"model_cfg": {"vision_cfg": {"patch_size": 16}}},
            "model_cfg.vision_cfg.patch_size",
            [32, 24],
        ),
    ],
)
def test_the_form_of_the_old_value_is_kept(
    file: str, document: dict[str, Any], key: str, value: object
) -> None:
    (edit,) = patch_edits({file: document}, Size(16, 16), Size(32, 24))
    assert (edit.key, edit.after) == (key, value)


def test_another_patch_size_is_left_alone() -> None:
    documents: dict[str, dict[str, Any]] = {
        "config.json": {"patch_size": 14},
        "preprocessor_config.json": {"size": 224},
    }
    assert list(patch_edits(documents, Size(16, 16), Size(32, 32))) == []


def test_the_code_for_timm_states_the_patch_that_a_config_beside_the_file_states(
    tmp_path: Path,
) -> None:
    arguments = {"img_size": [144, 96], "embed_dim": 32, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", **{**arguments, "img_size": (144, 96)})
    timm.models.save_for_hf(model, tmp_path / "vit", model_args=arguments, safe_serialization=True)
    source = tmp_path / "vit" / "model.safetensors"
    report = resize_checkpoint(source, output=tmp_path / "out.safetensors", **MADE)
    code = loading_task(report)
    assert code is not None and "img_size=(288, 192), patch_size=32" in code.code.replace("\n", "")
