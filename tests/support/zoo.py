"""A zoo of small checkpoints: several families, every container, and what goes wrong in real ones.

A container joins by adding a row to `CONTAINERS`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from tests.support.builders import flat, smooth, write_safetensors

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
    "base": (48, np.float32),
    "half": (16, np.float16),
    "bf16": (16, ml_dtypes.bfloat16),
}


def _safetensors(path: Path, arrays: Arrays) -> None:
    write_safetensors(path, arrays, {"format": "pt"})


def _tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _torch(path: Path, arrays: Arrays) -> None:
    torch.save({"model": _tensors(arrays), "epoch": 3}, path)


def _legacy(path: Path, arrays: Arrays) -> None:
    torch.save(_tensors(arrays), path, _use_new_zipfile_serialization=False)


def _torchscript(path: Path, arrays: Arrays) -> None:
    root = torch.nn.Module()
    for name, tensor in _tensors(arrays).items():
        *stem, last = name.split(".")
        module = root
        for part in stem:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.register_parameter(last, torch.nn.Parameter(tensor))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated; its files are not
        torch.jit.save(torch.jit.script(root), str(path))


def _npz(path: Path, arrays: Arrays) -> None:
    named: Any = arrays  # its signature has options of its own among the names
    np.savez(path, **named)


def _folder(path: Path, arrays: Arrays) -> None:
    path.mkdir()
    config = {"model_type": "vit", "image_size": 64, "patch_size": 16}
    (path / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (path / "README.md").write_text("# a model\n", encoding="utf-8")
    _safetensors(path / "model.safetensors", arrays)


def _sharded(path: Path, arrays: Arrays) -> None:
    path.mkdir()
    homes = {}
    for number, (name, array) in enumerate(arrays.items(), start=1):
        homes[name] = f"model-{number:05}-of-{len(arrays):05}.safetensors"
        _safetensors(path / homes[name], {name: array})
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": homes}
    (path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def write_distributed(path: Path, arrays: Arrays) -> None:
    """Write torch's sharded format; not in the table, for its reader has to import torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no process group is there
        save_distributed({"model": _tensors(arrays)}, checkpoint_id=path, no_dist=True)


class Written(NamedTuple):
    """A container: how its files end, how they are written, and what is written in it."""

    ending: str
    write: Callable[[Path, Arrays], None]
    families: Sequence[str]
    variants: Sequence[str]


_FEW = ("timm", "hf_vit", "clip")

CONTAINERS: Mapping[str, Written] = {
    "safetensors": Written(".safetensors", _safetensors, tuple(FAMILIES), ("tiny", "half", "bf16")),
    "torch": Written(".pth", _torch, _FEW, ("base",)),
    "legacy": Written(".pt", _legacy, _FEW, ("base",)),
    "torchscript": Written(".script.pt", _torchscript, ("timm",), ("tiny",)),
    "npz": Written(".npz", _npz, _FEW, ("half",)),
    "folder": Written("-folder", _folder, ("hf_vit",), ("base", "half", "bf16")),
    "sharded": Written("-sharded", _sharded, _FEW, ("base",)),
}

BROKEN: Mapping[str, bytes] = {
    "broken/cut_off.safetensors": (10_000).to_bytes(8, "little") + b'{"pos_embed":',
    "broken/login.safetensors": b"<!doctype html><title>Sign in</title>",
}
NOTHING = "convnet/tiny.safetensors"  # has nothing to resize
AT_TARGET = "sam/at_target.safetensors"


def names(container: str | None = None) -> list[str]:
    """Name every sound checkpoint that has something to resize, below the zoo's folder."""
    return [
        f"{family}/{variant}{kind.ending}"
        for name, kind in CONTAINERS.items()
        for family in kind.families
        for variant in kind.variants
        if container in (None, name)
    ]


def build_zoo(folder: Path) -> Path:
    """Write the whole zoo."""
    for kind in CONTAINERS.values():
        for family in kind.families:
            for variant in kind.variants:
                width, dtype = VARIANTS[variant]
                arrays = {k: array.astype(dtype) for k, array in FAMILIES[family](width).items()}
                path = folder / family / f"{variant}{kind.ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                kind.write(path, arrays)
    for name, content in BROKEN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / NOTHING).parent.mkdir()
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
