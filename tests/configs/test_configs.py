"""Image sizes that config files state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resize_pos.configs.read import ConfigFiles

# file, document, size and patch found (height, width)
STATED: list[tuple[str, Any, tuple[int, int], tuple[int, int] | None]] = [
    ("config.json", {"image_size": 224, "patch_size": 16}, (224, 224), (16, 16)),
    ("config.json", {"image_size": [32, 128], "patch_size": [4, 8]}, (32, 128), (4, 8)),
    ("config.json", {"vision_config": {"image_size": 336, "patch_size": 14}}, (336, 336), (14, 14)),
    ("config.json", {"pretrained_cfg": {"input_size": [3, 256, 192]}}, (256, 192), None),
    ("config.json", {"model_args": {"img_size": 384}}, (384, 384), None),
    (
        "open_clip_config.json",
        {"model_cfg": {"vision_cfg": {"image_size": 224, "patch_size": 32}}},
        (224, 224),
        (32, 32),
    ),
]
SILENT: list[str] = [
    "",
    "[",
    "[]",
    "{}",
    '{"image_size": "224"}',
    '{"image_size": true}',
    '{"image_size": -1}',
    '{"image_size": [1, 2, 3, 4]}',
    '{"vision_config": 3}',
    "[" * 100_000,
]


@pytest.mark.parametrize(("file", "document", "size", "patch"), STATED)
def test_a_stated_size_is_found(
    file: str,
    document: Any,
    size: tuple[int, int],
    patch: tuple[int, int] | None,
    tmp_path: Path,
) -> None:
    (tmp_path / file).write_text(json.dumps(document))
    (found,) = ConfigFiles(tmp_path).sizes()
    assert (found.size.height, found.size.width) == size
    assert patch == (None if found.patch is None else (found.patch.height, found.patch.width))
    assert found.file == file


@pytest.mark.parametrize("text", SILENT)
def test_what_is_not_understood_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    assert ConfigFiles(tmp_path).sizes() == ()


def test_the_model_s_own_arguments_come_before_the_pretrained_ones(tmp_path: Path) -> None:
    """timm keeps the pretrained input size in the config of a model built at another one."""
    document = {"pretrained_cfg": {"input_size": [3, 224, 224]}, "model_args": {"img_size": 256}}
    (tmp_path / "config.json").write_text(json.dumps(document))
    assert [found.size.height for found in ConfigFiles(tmp_path).sizes()] == [256, 224]
