"""Every config class of transformers that has patches: is its resolution key known?"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from resize_pos.configs.keys import RESOLUTION_KEYS, TWO_SIDES

# Model types without image_size that need no key: their towers have no table with one row per
# patch, or a section inside them states the size.
_NO_TABLE = {
    "blt",
    "chmv2",
    "clap_audio_model",
    "depth_anything",
    "depth_pro",
    "dinat",
    "ernie4_5_vl_moe_vision",
    "exaone4_5_vision",
    "florence_vision",
    "gemma4_unified_vision",
    "gemma4_vision",
    "inkling_vision",
    "janus_vqgan",
    "neomme",
    "poolformer",
    "prompt_depth_anything",
    "qwen2_5_omni_vision_encoder",
    "qwen2_5_vl_vision",
    "qwen2_vl_vision",
    "video_llama_3_vision",
}


def _with_patches() -> Iterator[tuple[str, set[str]]]:
    """List model types whose config class has a patch size or a number of patches."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for model_type in CONFIG_MAPPING:
        module = importlib.import_module(CONFIG_MAPPING[model_type].__module__)
        for cls in vars(module).values():
            if inspect.isclass(cls) and cls.__module__ == module.__name__:
                found: Any = cls
                names = (
                    {each.name for each in dataclasses.fields(found)}
                    if dataclasses.is_dataclass(found)
                    else set(inspect.signature(found.__init__).parameters)
                )
                if getattr(found, "model_type", "") and names & {"patch_size", "num_patches"}:
                    yield found.model_type, names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_config_without_image_size_has_another_key_or_no_table() -> None:
    """Otherwise `image_size` would be added to a section whose class does not read it."""
    without = {name for name, names in _with_patches() if "image_size" not in names}
    assert len(without) > 20
    assert without - set(RESOLUTION_KEYS) - TWO_SIDES == _NO_TABLE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_resolution_key_is_a_field_of_its_class() -> None:
    fields = dict(_with_patches())
    assert {
        name for name, key in RESOLUTION_KEYS.items() if key not in fields.get(name, {key})
    } == set()
