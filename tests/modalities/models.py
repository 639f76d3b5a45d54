"""Volumes, videos, spectrograms, satellite images and latents: each model at three sizes."""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.modalities import shapes

HEADERS = Path(__file__).parent / "headers"
Sides = tuple[int, ...]
State = dict[str, torch.Tensor]
_TYPES = {"F32": torch.float32, "I64": torch.int64}


@dataclass(frozen=True)
class Model:
    """A model that is converted from its first size to each of the others."""

    name: str
    kind: str
    made_by: str
    state: Callable[[Sides], State]  # what it stores at a size
    sizes: tuple[Sides, Sides, Sides]
    flags: Callable[[Sides, Sides], list[str]]  # source, target → what a user types


def text(sides: Sides) -> str:
    """Write sides as the command line takes them."""
    return "x".join(map(str, sides))


def _plain(source: Sides, target: Sides) -> list[str]:
    return ["--from", text(source), "--to", text(target)]


def _bare(source: Sides, target: Sides) -> list[str]:
    return ["--to", text(target)]


def _video(source: Sides, target: Sides) -> list[str]:
    frames = ["--to-frames", str(target[0])] if target[0] != source[0] else []
    return ["--from", text(source[1:]), "--to", text(target[1:]), *frames]


def _sound(source: Sides, target: Sides) -> list[str]:
    mel = ["--to-mel", str(target[0])] if target[0] != source[0] else []
    return ["--to-time", str(target[1]), *mel]


def _sound_from(source: Sides, target: Sides) -> list[str]:
    return ["--from", text(source), *_sound(source, target)]


def _window(source: Sides, target: Sides) -> list[str]:
    return ["--to-window", text(target)]


def _written_down(make: Callable[[Sides], shapes.Shapes]) -> Callable[[Sides], State]:
    def state(sides: Sides) -> State:
        random = torch.Generator().manual_seed(sum(sides))
        return {name: torch.randn(s, generator=random) for name, s in make(sides).items()}

    return state


def _recorded(name: str) -> tuple[str, Callable[[Sides], State], tuple[Sides, Sides, Sides]]:
    """Read a header that `tests.modalities.record` wrote."""
    found = json.loads((HEADERS / f"{name}.json").read_text(encoding="utf-8"))
    first, second, third = (tuple(map(int, size.split("x"))) for size in found["sizes"])

    def state(sides: Sides) -> State:
        entry, random = found["sizes"][text(sides)], torch.Generator().manual_seed(sum(sides))
        made = {}
        for key, words in entry["tensors"].items():
            dtype, *lengths = words.split()
            shape, kind = list(map(int, lengths)), _TYPES[dtype]
            if key in entry["values"]:
                raw = zlib.decompress(base64.b64decode(found["blobs"][entry["values"][key]]))
                array = np.frombuffer(bytearray(raw), {"F32": "<f4", "I64": "<i8"}[dtype])
                made[key] = torch.from_numpy(array.reshape(shape))
            elif kind is torch.int64:
                made[key] = torch.zeros(shape, dtype=kind)
            else:
                made[key] = torch.randn(shape, generator=random)
        return made

    return found["made_by"], state, (first, second, third)


def _built(make: Callable[[Sides], Any]) -> Callable[[Sides], State]:
    def state(sides: Sides) -> State:
        torch.manual_seed(sum(sides))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(sides)
        return {name: tensor.contiguous() for name, tensor in model.state_dict().items()}

    return state


def _monai(name: str, **options: Any) -> Callable[[Sides], State]:
    def make(sides: Sides) -> Any:
        import monai.networks.nets as nets

        return getattr(nets, name)(in_channels=1, img_size=sides, **options)

    return _built(make)


def _swin_unetr(sides: Sides) -> Any:
    import monai.networks.nets as nets

    depths = (1, 1, 1, 1)
    build = vars(nets)["SwinUNETR"]
    return build(1, 2, depths=depths, num_heads=depths, feature_size=12, window_size=sides)


def _transformers(
    config: str, model: str, sized: Callable[[Sides], dict[str, Any]]
) -> Callable[[Sides], State]:
    def make(sides: Sides) -> Any:
        import transformers

        small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
        layers = {"num_hidden_layers": 1}
        made = getattr(transformers, config)(**small, **layers, **sized(sides))
        return getattr(transformers, model)(made)

    return _built(make)


def _whisper(sides: Sides) -> Any:
    import transformers

    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=40,
        max_source_positions=sides[1] // 2, max_target_positions=24, num_mel_bins=sides[0],
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperModel(config)


_VOLUME: tuple[Sides, Sides, Sides] = ((32, 48, 64), (48, 80, 32), (64, 64, 64))
_CLIP: tuple[Sides, Sides, Sides] = ((8, 112, 112), (4, 168, 168), (16, 84, 84))
_SMALL = {"hidden_size": 24, "mlp_dim": 24, "num_heads": 2}
_DEEP = {**_SMALL, "num_layers": 1, "patch_size": (16, 16, 16)}
_HF = "transformers"


def _models() -> Iterator[Model]:
    for name, options in (
        ("ViT", {**_DEEP, "proj_type": "conv"}),
        ("ViT", {**_DEEP, "proj_type": "perceptron"}),
        ("UNETR", {**_SMALL, "out_channels": 2, "feature_size": 4}),
        ("ViTAutoEnc", _DEEP),
    ):
        more = f", {options['proj_type']}" if "proj_type" in options else ""
        made = f"monai: networks.nets.{name}"
        yield Model(f"{name}{more}", "volume", made, _monai(name, **options), _VOLUME, _plain)
    windows: tuple[Sides, Sides, Sides] = ((7, 7, 7), (5, 7, 7), (4, 3, 6))
    made = "monai: networks.nets.SwinUNETR(window_size)"
    yield Model("SwinUNETR", "volume", made, _built(_swin_unetr), windows, _window)
    cube: tuple[Sides, Sides, Sides] = ((128, 128, 128), (64, 96, 160), (96, 96, 96))
    yield _from_source("SAM-Med3D", "volume", shapes.sam_med3d, cube, _bare)
    yield Model(
        "TimeSformer", "video", f"{_HF}: TimesformerModel",
        _transformers(
            "TimesformerConfig", "TimesformerModel",
            lambda s: {"num_frames": s[0], "image_size": s[1], "patch_size": 14},
        ), _CLIP, _video,
    )  # fmt: skip
    yield Model(
        "ViViT", "video", f"{_HF}: VivitModel",
        _transformers(
            "VivitConfig", "VivitModel",
            lambda s: {"num_frames": s[0], "image_size": s[1], "tubelet_size": [2, 14, 14]},
        ), _CLIP, _video,
    )  # fmt: skip
    yield Model(
        "VideoMAE", "video", f"{_HF}: VideoMAEModel",
        _transformers(
            "VideoMAEConfig", "VideoMAEModel",
            lambda s: {"num_frames": s[0], "image_size": s[1], "patch_size": 14},
        ), _CLIP, _video,
    )  # fmt: skip
    yield Model(
        "V-JEPA 2", "video", f"{_HF}: VJEPA2Model",
        _transformers(
            "VJEPA2Config", "VJEPA2Model",
            lambda s: {
                "frames_per_clip": s[0], "crop_size": s[1], "patch_size": 14,
                "pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1,
            },
        ), _CLIP, _video,
    )  # fmt: skip
    yield _of_library("V-JEPA", "video", "vjepa", _video)
    wide: tuple[Sides, Sides, Sides] = ((8, 112, 112), (4, 168, 112), (16, 84, 84))
    yield _from_source("InternVideo 2", "video", shapes.internvideo2, wide, _video)
    yield _from_source("InternVideo 2, stage 2", "video", shapes.internvideo2_stage2, wide, _video)
    yield _from_source(
        "InternVideo 2, two tables", "video", shapes.internvideo2_separate, wide, _video
    )
    yield Model(
        "AST", "audio", f"{_HF}: ASTModel",
        _transformers(
            "ASTConfig", "ASTModel", lambda s: {"num_mel_bins": s[0], "max_length": s[1]}
        ), ((128, 1024), (128, 512), (64, 256)), _sound_from,
    )  # fmt: skip
    sound: tuple[Sides, Sides, Sides] = ((128, 1024), (128, 512), (64, 256))
    yield _from_source("AST, original code", "audio", shapes.ast, sound, _sound_from)
    yield _of_library("PaSST", "audio", "passt", _sound)
    yield _of_library("Dasheng", "audio", "dasheng", _sound)
    yield _from_source("EAT", "audio", shapes.eat, sound, _sound_from)
    yield _from_source("BEATs", "audio", shapes.beats, sound, _sound)
    spoken: tuple[Sides, Sides, Sides] = ((20, 300), (20, 200), (20, 480))
    yield Model("Whisper", "audio", f"{_HF}: WhisperModel", _built(_whisper), spoken, _sound)
    land: tuple[Sides, Sides, Sides] = ((96, 96), (160, 160), (64, 64))
    yield _from_source("SatMAE", "satellite", shapes.satmae, land, _bare)
    fine_tuned = shapes.satmae_classifier
    yield _from_source("SatMAE, fine-tuned", "satellite", fine_tuned, land, _bare)
    yield _of_library("TerraMind", "satellite", "terramind", _bare)
    latents: tuple[Sides, Sides, Sides] = ((256, 256), (512, 512), (128, 128))
    yield _from_source("DiT", "diffusion", shapes.dit, latents, _plain)
    yield _of_library("FasterViT", "image", "fastervit", _bare)


def _from_source(
    name: str,
    kind: str,
    make: Callable[[Sides], shapes.Shapes],
    sizes: tuple[Sides, Sides, Sides],
    flags: Callable[[Sides, Sides], list[str]],
) -> Model:
    return Model(name, kind, "its source code", _written_down(make), sizes, flags)


def _of_library(
    name: str, kind: str, header: str, flags: Callable[[Sides, Sides], list[str]]
) -> Model:
    made_by, state, sizes = _recorded(header)
    return Model(name, kind, made_by, state, sizes, flags)


MODELS = tuple(_models())
