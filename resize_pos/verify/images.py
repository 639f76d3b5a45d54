"""Run source and output at their own sizes on the user's images, and compare the results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.core.errors import ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.verify.models import Loaded

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff"})
_BATCH = 8
_MOST = 256
# A picture may take this many bytes of memory, and so many times the size of its file.
_ALLOWED, _TIMES = 64 << 20, 40
_BYTES_A_PIXEL = 6  # as it is decoded, and as it is converted


@dataclass(frozen=True, slots=True)
class Probe:
    """The results of two checkpoints on the user's images, compared."""

    images: int
    feature_cosine: float  # mean over images, pooled features
    feature_cosine_worst: float
    top1_agreement: float | None  # None: the model has no classes
    attention_entropy_before: float | None  # mean over blocks, ÷ that of uniform attention
    attention_entropy_after: float | None


def image_files(folder: Path) -> tuple[Path, ...]:
    """List the images of a folder and its subfolders in a fixed order."""
    if not folder.is_dir():
        raise ResizePosError(f"--images {folder}: there is no such folder.")
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES)
    if not found:
        raise ResizePosError(
            f"--images {folder}: it holds no images.",
            hint=f"looked for {', '.join(sorted(_SUFFIXES))}.",
        )
    if len(found) > _MOST:  # take an even sample over all folders, which are often classes
        found = [found[i * len(found) // _MOST] for i in range(_MOST)]
    return tuple(found)


def probe(source: Loaded, output: Loaded, files: Sequence[Path]) -> Probe:
    """Show the same images to both models, each at its own size."""
    import torch
    from torch.nn import functional

    cosines: list[float] = []
    agreed = 0
    entropies: tuple[list[float], list[float]] = ([], [])
    normalise = [_normalisation(loaded) for loaded in (source, output)]
    for start in range(0, len(files), _BATCH):
        prepared: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for path in files[start : start + _BATCH]:
            picture = _open(path, source.channels)  # one at a time: they may be large
            for index, loaded in enumerate((source, output)):
                prepared[index].append(_prepare(picture, loaded, normalise[index]))
        features, answers = [], []
        for index, loaded in enumerate((source, output)):
            batch = torch.stack(prepared[index])
            with torch.no_grad(), _AttentionEntropy(loaded.model, entropies[index]):
                pooled, scores = loaded.features(batch)
                features.append(pooled)
                if scores is not None:
                    answers.append(scores)
        flat = [f.flatten(1).double() for f in features]
        cosines += functional.cosine_similarity(flat[0], flat[1]).tolist()
        if len(answers) == 2:
            agreed += int((answers[0].argmax(-1) == answers[1].argmax(-1)).sum())
    return Probe(
        len(files),
        sum(cosines) / len(cosines),
        min(cosines),
        agreed / len(files) if source.classes else None,
        _mean(entropies[0]),
        _mean(entropies[1]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _open(path: Path, channels: int) -> Image:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # More pixels than any photograph: a small file that would fill the memory.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                _require_pixels(picture, path.stat().st_size)
                return picture.convert("L" if channels == 1 else "RGB")
    except Exception as error:  # the decoders of Pillow have no common exception class
        raise ResizePosError(f"{path}: not an image that can be read ({error}).") from error


def _require_pixels(picture: Image, size: int) -> None:
    """Refuse a small file with very many pixels: they would take far more memory than the file."""
    most = (_ALLOWED + _TIMES * size) // _BYTES_A_PIXEL
    if picture.width * picture.height > most:
        raise ResizePosError(
            f"{picture.width} × {picture.height} pixels in {size} bytes; at most {most} are read"
        )


def _normalisation(loaded: Loaded) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    mean, deviation = list(loaded.mean), list(loaded.deviation)
    if len(mean) != loaded.channels:  # the model's own mean is for another number of channels
        mean = [sum(mean) / len(mean)] * loaded.channels
        deviation = [sum(deviation) / len(deviation)] * loaded.channels
    return torch.tensor(mean)[:, None, None], torch.tensor(deviation)[:, None, None]


def _prepare(
    picture: Image, loaded: Loaded, normalisation: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Resize the whole image to the model's size, so that both models see the same content."""
    import numpy as np
    import torch
    from PIL import Image

    size = (loaded.size.width, loaded.size.height)
    pixels = np.asarray(picture.resize(size, Image.Resampling.BICUBIC), dtype=np.float32) / 255
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return (torch.from_numpy(np.ascontiguousarray(planes)) - normalisation[0]) / normalisation[1]


class _AttentionEntropy:
    """While active, record the entropy of every attention map of timm's plain attention."""

    def __init__(self, model: torch.nn.Module, into: list[float]) -> None:
        self._into = into
        self._modules = [m for m in model.modules() if _is_plain_attention(m)]
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        for module in self._modules:
            self._handles.append(module.register_forward_pre_hook(self._note))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, module: Any, inputs: tuple[Any, ...]) -> None:
        tokens = inputs[0]
        count = tokens.shape[1]
        qkv = module.qkv(tokens).reshape(len(tokens), count, 3, module.num_heads, -1)
        query, key = qkv.permute(2, 0, 3, 1, 4)[:2]
        query, key = module.q_norm(query), module.k_norm(key)
        maps = ((query * module.scale) @ key.transpose(-2, -1)).softmax(dim=-1)
        entropy = -(maps * maps.clamp(min=1e-12).log()).sum(-1).mean()
        self._into.append(float(entropy) / math.log(count))


def _is_plain_attention(module: object) -> bool:
    return all(hasattr(module, name) for name in ("qkv", "num_heads", "scale", "q_norm", "k_norm"))


def describe(result: Probe) -> Iterator[str]:
    """Return the probe in words."""
    yield (
        f"on {result.images} images the features keep a cosine of {result.feature_cosine:.3f} "
        f"(worst {result.feature_cosine_worst:.3f})"
    )
    if result.top1_agreement is not None:
        yield f"top-1 answers agree on {result.top1_agreement:.1%} of them"
    if result.attention_entropy_before is not None and result.attention_entropy_after is not None:
        yield (
            "attention entropy (share of uniform) goes from "
            f"{result.attention_entropy_before:.3f} to {result.attention_entropy_after:.3f}"
        )
