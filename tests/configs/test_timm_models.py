"""A name is given only to weights that are those of a model of timm, tensor by tensor."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from resize_pos.configs.timm_models import _PATCHES, KnownModel, timm_model
from resize_pos.core.tensors import TensorInfo

NAMES = [f"vit_{size}_patch{patch}_224" for size, found in _PATCHES.items() for patch in found]


def tensors_of(name: str, **options: object) -> dict[str, TensorInfo]:
    with torch.device("meta"):
        model = timm.create_model(name, **options)
    return {key: TensorInfo(key, tuple(t.shape), "F32") for key, t in model.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_model_of_timm(name: str) -> None:
    assert timm_model(tensors_of(name)) == KnownModel(name)


@pytest.mark.parametrize(
    "options", [{"num_classes": 0}, {"num_classes": 7, "in_chans": 1}, {"img_size": (96, 160)}]
)
def test_what_differs_from_the_defaults_is_stated(options: dict[str, Any]) -> None:
    stated = {key: value for key, value in options.items() if key != "img_size"}
    found = timm_model(tensors_of("vit_tiny_patch16_224", **options))
    assert found == KnownModel("vit_tiny_patch16_224", stated)


@pytest.mark.parametrize(
    "name",
    [
        "vit_base_patch16_clip_224",
        "deit_tiny_distilled_patch16_224",
        "deit3_small_patch16_224",
        "vit_small_patch14_dinov2",
        "vit_base_patch16_siglip_224",
        "beit_base_patch16_224",
        "swin_tiny_patch4_window7_224",
    ],
)
def test_other_models_get_no_name(name: str) -> None:
    assert timm_model(tensors_of(name)) is None


def test_a_part_of_a_model_gets_no_name() -> None:
    tensors = tensors_of("vit_tiny_patch16_224")
    del tensors["norm.bias"]
    assert timm_model(tensors) is None
    assert timm_model({}) is None
