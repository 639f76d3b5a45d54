"""A zoo of small checkpoints: several families, every container, and what goes wrong in real ones.

A container joins by adding a writer to `WRITERS`; every family is then written in it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.builders import Tensors, flat, smooth, write_safetensors

Arrays = dict[str, NDArray[Any]]

TO = "96x128"  # 6×8 patches of 16 pixels; every source is 64 px, 4×4


def _noise(*shape: int, seed: int = 3) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _timm(d: int) -> Arrays:
    return {
        "cls_token": _noise(1, 1, d),
        "pos_embed": flat(4, 4, d),
        "patch_embed.proj.weight": _noise(d, 3, 16, 16),
        "blocks.0.attn.qkv.weight": _noise(3 * d, d),
    }


def _timm_without_cls(d: int) -> Arrays:
    return {"pos_embed": flat(4, 4, d, prefix=0), "patch_embed.proj.weight": _noise(d, 3, 16, 16)}


def _distilled(d: int) -> Arrays:
    return {**_timm(d), "dist_token": _noise(1, 1, d), "pos_embed": flat(4, 4, d, prefix=2)}


def _training(d: int) -> Arrays:
    """Two copies, as in a teacher and its student."""
    return {f"{who}.{name}": v for who in ("teacher", "student") for name, v in _timm(d).items()}


def _hf_vit(d: int) -> Arrays:
    stem = "vit.embeddings."
    return {
        f"{stem}cls_token": _noise(1, 1, d),
        f"{stem}position_embeddings": flat(4, 4, d),
        f"{stem}patch_embeddings.projection.weight": _noise(d, 3, 16, 16),
        "vit.layernorm.bias": _noise(d),
    }


def _hf_clip(d: int) -> Arrays:
    image, text = "vision_model.embeddings.", "text_model.embeddings."
    return {
        f"{image}class_embedding": _noise(d),
        f"{image}position_embedding.weight": flat(4, 4, d)[0],
        f"{image}patch_embedding.weight": _noise(d, 3, 16, 16),
        f"{text}position_embedding.weight": _noise(16, d),
        f"{text}token_embedding.weight": _noise(50, d),
    }


def _clip(d: int) -> Arrays:
    return {
        "positional_embedding": _noise(16, d),
        "token_embedding.weight": _noise(50, d),
        "visual.class_embedding": _noise(d),
        "visual.positional_embedding": flat(4, 4, d)[0],
        "visual.conv1.weight": _noise(d, 3, 16, 16),
    }


def _torchvision(d: int) -> Arrays:
    return {
        "class_token": _noise(1, 1, d),
        "conv_proj.weight": _noise(d, 3, 16, 16),
        "encoder.pos_embedding": flat(4, 4, d),
    }


def sam(d: int, height: int = 4, width: int = 4) -> Arrays:
    """One block with a window of 2×2, which stays, and a global one, which follows the image."""
    return {
        "pos_embed": smooth(height, width, d)[None],
        "patch_embed.proj.weight": _noise(d, 3, 16, 16),
        "blocks.0.attn.rel_pos_h": smooth(3, 1, d)[:, 0],
        "blocks.0.attn.rel_pos_w": smooth(3, 1, d)[:, 0],
        "blocks.1.attn.rel_pos_h": smooth(2 * height - 1, 1, d)[:, 0],
        "blocks.1.attn.rel_pos_w": smooth(2 * width - 1, 1, d)[:, 0],
        "neck.0.weight": _noise(d, d, 1, 1),
    }


FAMILIES: Mapping[str, Callable[[int], Arrays]] = {
    "timm": _timm,
    "timm_without_cls": _timm_without_cls,
    "distilled": _distilled,
    "training": _training,
    "hf_vit": _hf_vit,
    "hf_clip": _hf_clip,
    "clip": _clip,
    "torchvision": _torchvision,
    "sam": sam,
}

# name → (widths, stored dtype)
VARIANTS: Mapping[str, tuple[int, Any]] = {
    "tiny": (8, np.float32),
    "small": (24, np.float32),
    "base": (64, np.float32),
    "half": (16, np.float16),
    "bf16": (16, ml_dtypes.bfloat16),
}

WRITERS: Mapping[str, Callable[[Path, Tensors], Path]] = {
    ".safetensors": lambda path, tensors: write_safetensors(path, tensors, {"format": "pt"}),
}

BROKEN: Mapping[str, bytes] = {
    "broken/cut_off.safetensors": (10_000).to_bytes(8, "little") + b'{"pos_embed":',
    "broken/login.safetensors": b"<!doctype html><title>Sign in</title>",
}
NOTHING = "convnet.safetensors"  # has nothing to resize
AT_TARGET = "sam/at_target.safetensors"


def names() -> list[str]:
    """Name every sound checkpoint that has something to resize, below the zoo's folder."""
    return [
        f"{family}/{variant}{suffix}"
        for family in FAMILIES
        for variant in VARIANTS
        for suffix in WRITERS
    ]


def build_zoo(folder: Path) -> Path:
    """Write the whole zoo."""
    for name in names():
        family, variant = Path(name).parent.name, Path(name).stem
        width, dtype = VARIANTS[variant]
        arrays = {key: array.astype(dtype) for key, array in FAMILIES[family](width).items()}
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[path.suffix](path, arrays)
    for name, content in BROKEN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write_safetensors(folder / NOTHING, {"stem.weight": _noise(8, 3, 7, 7)})
    write_safetensors(folder / AT_TARGET, sam(8, 6, 8))
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Read every file that is neither hidden nor inside of something hidden."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in files.items()
        if not any(part.startswith(".") for part in name.parts)
    }
