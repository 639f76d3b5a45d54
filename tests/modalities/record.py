"""Record what models of libraries that the tests do not install store, at three sizes each.

`python -m tests.modalities.record [NAME …]` writes `headers/NAME.json`: names, dtypes and shapes of
the whole state dict, and the values of buffers. It needs the packages themselves (installed without
their dependencies, and imported without the parts that need those); the tests need only the files.
"""

from __future__ import annotations

import base64
import importlib
import importlib.metadata
import json
import sys
import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.outside.record import _DTYPES as DTYPES

HEADERS = Path(__file__).parent / "headers"
Sides = tuple[int, ...]
_LARGEST = 40_000  # bytes of a buffer whose values are kept
_ANY_VALUE = ("running_mean", "running_var", "relative_bias")  # statistics, and caches


@dataclass(frozen=True)
class Recipe:
    """A model of a package at a source size and two targets."""

    package: str
    call: str  # how it was built, in words of Python
    build: Callable[[Sides], torch.nn.Module]
    sizes: tuple[Sides, Sides, Sides]


def _passt(sides: Sides) -> torch.nn.Module:
    passt = importlib.import_module("hear21passt.models.passt")
    model: torch.nn.Module = passt.PaSST(
        img_size=sides, stride=10, embed_dim=24, depth=1, num_heads=2, num_classes=5, distilled=True
    )
    return model


def _dasheng(sides: Sides) -> torch.nn.Module:
    sound = types.ModuleType("torchaudio")
    sound.transforms = types.ModuleType("torchaudio.transforms")  # type: ignore[attr-defined]
    for name in ("MelSpectrogram", "AmplitudeToDB"):  # store nothing in a state dict that is kept
        setattr(sound.transforms, name, _nothing)
    sys.modules.setdefault("torchaudio", sound)
    sys.modules.setdefault("torchaudio.transforms", sound.transforms)
    models = importlib.import_module("dasheng.train.models")
    model: torch.nn.Module = models.AudioTransformerMAE_Encoder(
        embed_dim=24, depth=1, num_heads=2, n_mels=sides[0], target_length=sides[1]
    )
    return model


def _nothing(*_: Any, **__: Any) -> torch.nn.Module:
    return torch.nn.Identity()


def _fastervit(sides: Sides) -> torch.nn.Module:
    module = importlib.import_module("fastervit.models.faster_vit")
    model: torch.nn.Module = module.FasterViT(
        depths=[1, 1, 2, 1], num_heads=[1, 1, 2, 2], window_size=[7] * 4, ct_size=2, dim=8,
        in_dim=8, mlp_ratio=1, resolution=sides[0], drop_path_rate=0, layer_scale=1e-5,
        hat=[False, False, True, False], num_classes=5,
    )  # fmt: skip
    model.eval()(torch.zeros(1, 3, *sides))  # fills its caches
    return model


_TERRAMIND = "terratorch.models.backbones.terramind.model"


def _terramind(sides: Sides) -> torch.nn.Module:
    for depth in range(1, 6):  # without the parts of terratorch that read data sets
        name = ".".join(_TERRAMIND.split(".")[:depth])
        if name not in sys.modules:
            package = types.ModuleType(name)
            root = Path(importlib.metadata.distribution("terratorch").locate_file(""))  # type: ignore[arg-type]
            package.__path__ = [str(root / name.replace(".", "/"))]
            sys.modules[name] = package
    model = importlib.import_module(f"{_TERRAMIND}.terramind")
    info = importlib.import_module(f"{_TERRAMIND}.modality_info").MODALITY_INFO
    info = {name: _small(entry) for name, entry in info.items()}
    options = {"img_size": sides[0], "dim": 16, "patch_size": 16}
    seen = ["S2L2A", "S1GRD", "DEM", "LULC", "caption", "coords"]
    encoder, _ = model.build_modality_embeddings(info, seen, **options)
    made = ["S2L2A", "DEM", "NDVI", "caption"]
    decoder, _ = model.build_output_modality_embeddings(info, made, **options)
    whole: torch.nn.Module = model.TerraMind(
        encoder_embeddings=encoder, decoder_embeddings=decoder, modality_info=info, dim=16,
        encoder_depth=1, decoder_depth=1, num_heads=2,
    )  # fmt: skip
    return whole


def _small(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Cut a vocabulary down: it does not depend on the image."""
    new = dict(entry)
    for key in ("encoder_embedding", "decoder_embedding"):
        if isinstance(entry[key], partial) and "vocab_size" in entry[key].keywords:
            new[key] = partial(entry[key].func, **entry[key].keywords | {"vocab_size": 8})
    return new | ({"vocab_size": 8} if "vocab_size" in entry else {})


def _vjepa(sides: Sides) -> torch.nn.Module:
    frames, side = sides[0], sides[1]
    encoder = importlib.import_module("vjepa.models.vision_transformer").VisionTransformer(
        img_size=side, patch_size=16, num_frames=frames, tubelet_size=2, embed_dim=24, depth=1,
        num_heads=2, uniform_power=True,
    )  # fmt: skip
    predictor = importlib.import_module("vjepa.models.predictor").VisionTransformerPredictor(
        img_size=side, patch_size=16, num_frames=frames, tubelet_size=2, embed_dim=24,
        predictor_embed_dim=24, depth=1, num_heads=2, uniform_power=True, use_mask_tokens=True,
        num_mask_tokens=2,
    )  # fmt: skip
    return torch.nn.ModuleDict({"encoder": encoder, "predictor": predictor})


RECIPES = {
    "passt": Recipe(
        "hear21passt", "models.passt.PaSST(img_size=(mel, time), stride=10)", _passt,
        ((128, 998), (128, 498), (96, 298)),
    ),
    "dasheng": Recipe(
        "dasheng", "train.models.AudioTransformerMAE_Encoder(target_length=time)", _dasheng,
        ((64, 1008), (64, 504), (64, 1512)),
    ),
    "fastervit": Recipe(
        "fastervit", "models.faster_vit.FasterViT(resolution=side)", _fastervit,
        ((224, 224), (448, 448), (672, 672)),
    ),
    "terramind": Recipe(
        "terratorch", "….terramind.TerraMind, six inputs and four outputs, image_size=side",
        _terramind, ((224, 224), (320, 320), (128, 128)),
    ),
    "vjepa": Recipe(
        "vjepa", "models: VisionTransformer and VisionTransformerPredictor(num_frames, img_size)",
        _vjepa, ((16, 96, 96), (16, 160, 160), (24, 64, 64)),
    ),
}  # fmt: skip


def record(recipe: Recipe) -> dict[str, Any]:
    """Describe the state dicts of one model at its three sizes."""
    blobs: dict[str, int] = {}
    sizes = {}
    for sides in recipe.sizes:
        torch.manual_seed(0)
        model = recipe.build(sides)
        learned = {name for name, one in model.named_parameters() if one.requires_grad}
        state = model.state_dict()
        values = {
            name: blobs.setdefault(_packed(tensor), len(blobs))
            for name, tensor in state.items()
            if name not in learned
            and tensor.numel() > 1
            and tensor.nbytes <= _LARGEST
            and not name.endswith(_ANY_VALUE)
        }
        tensors = {
            name: " ".join([DTYPES[t.dtype], *map(str, t.shape)]) for name, t in state.items()
        }
        sizes["x".join(map(str, sides))] = {"tensors": tensors, "values": values}
    version = importlib.metadata.version(recipe.package)
    made_by = f"{recipe.package} {version}: {recipe.call}"
    return {"made_by": made_by, "sizes": sizes, "blobs": list(blobs)}


def _packed(tensor: torch.Tensor) -> str:
    raw = tensor.detach().contiguous().numpy().tobytes()
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def main(names: list[str]) -> None:
    """Write the headers of all models, or of some."""
    for name in names or RECIPES:
        text = json.dumps(record(RECIPES[name]), separators=(",", ":"))
        HEADERS.mkdir(exist_ok=True)
        (HEADERS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}: {len(text)} characters\n")


if __name__ == "__main__":
    main(sys.argv[1:])
