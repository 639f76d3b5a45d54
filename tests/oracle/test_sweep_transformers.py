"""Every transformers model whose config has an image size: the plan predicts all shapes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from tests.oracle.sweeps import Shapes, Tally, shapes_of, whole_patches

# A refusal has to give one of these reasons; anything else is a gap.
REASONS = (
    "images of different sizes",  # DeepSeek-VL hybrid: two towers, and --to is one size
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
    return shapes_of(lambda: model(copy.deepcopy(config)))


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


def doubled(part: Any) -> Any:
    """Give twice the image size in whole patches, in the form that the config has."""
    patch = getattr(part, "patch_size", None)
    if isinstance(part.image_size, int):
        return 2 * whole_patches(part.image_size, patch)
    return [2 * whole_patches(side, patch) for side in part.image_size]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a thousand models' own code
def test_the_plan_predicts_every_shape() -> None:
    tally, unbuilt = Tally(), []
    for kind, model, config, part in sized_models():
        try:
            source, stated = shapes(model, config), config.to_dict()
            part.image_size = double = doubled(part)
            target = shapes(model, config)
        except Exception:  # it needs a library, or more of a config than its default
            unbuilt.append(kind)
            continue
        to = (double, double) if isinstance(double, int) else (double[0], double[1])
        tally.record(kind, source, target, to, stated)
    print(f"\ntransformers {transformers.__version__}: {tally}")  # noqa: T201
    print(f"not built from a default config: {', '.join(unbuilt)}")  # noqa: T201
    assert len(tally.right) > 80
    assert not tally.wrong
    assert not tally.suspects
    assert not tally.unexplained(REASONS)
