"""Every transformers model whose config has an image size: the plan predicts all shapes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from tests.oracle.sweeps import Shapes, Tally

# Tensors that follow the image by rules of their own; whoever teaches them shortens this list.
PENDING = (
    r"relative_position_(bias_)?(table|index)|relative_coords_table|rel_pos_[hw]$"
    r"|attention_bias(es|_idxs)|position_ids$|inv_freq|rope"
)
# A refusal has to give one of these reasons; anything else is a gap.
REASONS = (
    "cannot be transferred",  # SAM 3, Hiera
    "different sizes",  # two towers with images of their own
    "not a multiple",
    "can be read as",  # a video table: frames × height × width is not in the shapes
    "only text tables",  # ALIGN, OmDet: the image tower is convolutional
    "relative_position_bias_table",  # pending, and the only hit
)
DEPTHS = ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "layers")
PARTS = ("vision_config", "image_config", "backbone_config", "visual", "text_config")


def shallow(config: Any) -> None:
    """Take two layers of each stack, where the config gives a plain number."""
    for name in DEPTHS:
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, 2)
    for name in PARTS:
        part = getattr(config, name, None)
        if isinstance(part, transformers.PreTrainedConfig):
            shallow(part)


def sized(config: Any) -> Any | None:
    """Find the config that holds the image size, perhaps inside another one."""
    for part in (*(getattr(config, name, None) for name in PARTS[:2]), config):
        size = getattr(part, "image_size", None)
        whole = isinstance(size, int) or (
            isinstance(size, (list, tuple)) and len(size) == 2 and all(type(n) is int for n in size)
        )
        if whole and isinstance(part, transformers.PreTrainedConfig):
            return part
    return None


def shapes(model: type[Any], config: Any) -> Shapes:
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = model(copy.deepcopy(config))
    return {key: tuple(value.shape) for key, value in built.state_dict().items()}


def sized_models() -> Iterator[tuple[str, type[Any], Any, Any]]:
    for kind, config_name in sorted(CONFIG_MAPPING_NAMES.items()):
        names = MODEL_MAPPING_NAMES.get(kind)
        if names is None:
            continue
        name = names if isinstance(names, str) else names[0]
        try:
            model, config = getattr(transformers, name), getattr(transformers, config_name)()
        except Exception:  # a default config that its own library refuses
            continue
        part = sized(config)
        if part is not None:
            shallow(config)
            yield kind, model, config, part


@pytest.mark.slow
def test_the_plan_predicts_every_shape() -> None:
    tally, unbuilt = Tally(), []
    for kind, model, config, part in sized_models():
        size = part.image_size
        double = size * 2 if isinstance(size, int) else [side * 2 for side in size]
        pair = (size, size) if isinstance(size, int) else tuple(size)
        try:
            source = shapes(model, config)
            part.image_size = double
            target = shapes(model, config)
        except Exception:  # it needs a library, or more of a config than its default
            unbuilt.append(kind)
            continue
        to = (pair[0] * 2, pair[1] * 2)
        tally.record(kind, source, target, to, PENDING, None if pair[0] == pair[1] else pair)
    print(f"\ntransformers {transformers.__version__}: {tally}")  # noqa: T201
    print(f"not built from a default config: {', '.join(unbuilt)}")  # noqa: T201
    assert not tally.wrong
    assert all(any(reason in text for reason in REASONS) for text in tally.refused)
