"""Model folders as the real libraries save them: small models with random weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

V: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def files(folder: Path) -> dict[str, bytes]:
    """Read a folder, subfolders included, byte by byte."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def save_hf(model: Any, processor: Any, folder: Path, **options: Any) -> Path:
    """Save as transformers does, with a file and a subfolder that are none of its business."""
    model.save_pretrained(folder, **options)
    if processor is not None:
        processor.save_pretrained(folder)
    (folder / "README.md").write_text("# a model\n", encoding="utf-8")
    (folder / "extra").mkdir()
    (folder / "extra" / "notes.txt").write_text("kept\n", encoding="utf-8")
    return folder


@dataclass(frozen=True, slots=True)
class HFModel:
    """A model of 4×4 patches, the processor that feeds it, and a size it can take."""

    name: str
    make: Callable[[Any], Any]
    make_processor: Callable[[Any], Any]
    to: str = "96x128"
    text: bool = False

    def model(self) -> Any:
        import transformers

        return self.make(transformers)

    def processor(self) -> Any:
        import transformers

        return self.make_processor(transformers)

    def model_class(self) -> Any:
        return type(self.model())

    def forward(self, model: Any, pixels: torch.Tensor) -> None:
        """Run it; a table that does not fit its input raises."""
        words = {"input_ids": torch.tensor([[1, 2, 3]])} if self.text else {}
        model(pixel_values=pixels, **words)


def vit_model(**options: Any) -> Any:
    """A classifier in transformers' layout, 64 px at patch 16."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(image_size=64, patch_size=16, num_labels=3, **{**V, **options})
    )


_SMALL = {"size": {"height": 64, "width": 64}}
_CROPPED = {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}}
_TEXT = {"vocab_size": 100, "max_position_embeddings": 12, **V}
_TOWER = {"image_size": 64, "patch_size": 16, **V}

HF_MODELS: Mapping[str, HFModel] = {
    model.name: model
    for model in (
        HFModel("vit", lambda _: vit_model(), lambda hf: hf.ViTImageProcessor(**_SMALL)),
        HFModel(
            "deit",
            lambda hf: hf.DeiTModel(hf.DeiTConfig(**_TOWER)),
            lambda hf: hf.ViTImageProcessor(**_SMALL),
        ),
        HFModel(
            "dinov2",
            lambda hf: hf.Dinov2Model(hf.Dinov2Config(image_size=64, patch_size=16, **V)),
            lambda hf: hf.BitImageProcessor(**_CROPPED),
            to="96",
        ),
        HFModel(
            "clip",
            lambda hf: hf.CLIPModel(hf.CLIPConfig(vision_config=_TOWER, text_config=_TEXT)),
            lambda hf: hf.CLIPImageProcessor(**_CROPPED),
            to="96",
            text=True,
        ),
        HFModel(
            "siglip",
            lambda hf: hf.SiglipModel(hf.SiglipConfig(vision_config=_TOWER, text_config=_TEXT)),
            lambda hf: hf.SiglipImageProcessor(**_SMALL),
            to="96",
            text=True,
        ),
    )
}


def peak_memory(*words: object) -> float:
    """Run the command line in a process of its own and give its peak memory in bytes."""
    # The peak that the system reports for a child includes its parent's before the exec.
    script = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from resize_pos.cli.app import _run\n"
        "assert _run(sys.argv[1:], debug=True) == 0\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print('\\n' + re.search(r'VmHWM:\\s+(\\d+)', status)[1])\n"
    )
    command = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1]) * 1024


_WORDS: dict[str, Any] = {**V, "vocab_size": 50}
_OPT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
}

# Text models of 64 positions, and what their config calls them before and after growing to 96.
TEXT_MODELS: Mapping[str, tuple[Callable[[Any], Any], str, int, int]] = {
    "bert": (
        lambda hf: hf.BertModel(hf.BertConfig(max_position_embeddings=64, **_WORDS)),
        "max_position_embeddings",
        64,
        96,
    ),
    "roberta": (
        lambda hf: hf.RobertaModel(hf.RobertaConfig(max_position_embeddings=66, **_WORDS)),
        "max_position_embeddings",
        66,
        98,
    ),
    "opt": (
        lambda hf: hf.OPTModel(hf.OPTConfig(max_position_embeddings=64, vocab_size=50, **_OPT)),
        "max_position_embeddings",
        64,
        96,
    ),
    "gpt2": (
        lambda hf: hf.GPT2Model(
            hf.GPT2Config(n_positions=64, n_embd=32, n_layer=1, n_head=4, vocab_size=50)
        ),
        "n_positions",
        64,
        96,
    ),
}
