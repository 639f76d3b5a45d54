"""Convert a folder, load it back with transformers, and run an image and a text through it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resize_pos.configs.values import ConfigEdit
from resize_pos.report.report import Report
from tests.vlm.tokens import number
from tests.vlm.zoo import Vlm

FILES = ("config.json", "processor_config.json", "preprocessor_config.json")
_PARTS = {
    "image_processor": "preprocessor_config.json",
    "video_processor": "video_preprocessor_config.json",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one conversion."""

    report: Report
    tokens: int  # placeholders that the processor wrote for one image
    pixels: tuple[int, ...]

    @property
    def edits(self) -> tuple[ConfigEdit, ...]:
        return self.report.plan.config_edits


def run(family: Vlm, folder: Path, **call: Any) -> tuple[int, tuple[int, ...]]:
    """Load strictly, feed one image and a prompt, and count the placeholders."""
    import torch
    import transformers
    from PIL import Image

    architecture = read(folder, "config.json")["architectures"][0]
    cls = getattr(transformers, architecture)
    model, loading = cls.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    processor = transformers.AutoProcessor.from_pretrained(folder)
    noise = np.random.default_rng(0).integers(0, 255, (40, 56, 3), dtype=np.uint8)
    text = {"text": family.prompt} if family.prompt else {}
    call = {**family.call, **call}
    inputs = dict(processor(images=Image.fromarray(noise), **text, return_tensors="pt", **call))
    inputs |= {name: torch.zeros(shape) for name, shape in family.given.items()}
    if type(model).__name__ == "FlavaForPreTraining":
        inputs |= {"input_ids_masked": inputs["input_ids"], "return_loss": True}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.zeros((1, 2), dtype=torch.long)
    with torch.no_grad():
        model.eval()(**inputs)
    tokens = int((inputs["input_ids"] == number(family.token)).sum()) if family.token else 0
    return tokens, tuple(inputs[family.pixels].shape)


def read(folder: Path, file: str) -> Any:
    return json.loads((folder / file).read_text(encoding="utf-8"))


def keys(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """List the path of every key, to see that none was added and none was lost."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from keys(inner, (*path, name))


def split_processor(folder: Path) -> None:
    """Lay a processor out as files of before transformers 5: one file per part."""
    whole = read(folder, "processor_config.json")
    for part, file in _PARTS.items():
        if part in whole:
            (folder / file).write_text(json.dumps(whole.pop(part), indent=2), encoding="utf-8")
    (folder / "processor_config.json").write_text(json.dumps(whole, indent=2), encoding="utf-8")
