"""The digits task shared by the scripts in this folder: data, drawing, model, scoring."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn import functional

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ModuleNotFoundError:
    raise SystemExit(
        "The digits come with scikit-learn, which is not installed: pip install scikit-learn"
    ) from None

PATCH = 16
EMBED_DIM = 48
DEPTH = 4
HEADS = 4
CLASSES = 10
SPLIT_SEED = 0


def _import_vision_transformer() -> type[nn.Module]:
    """Import timm's VisionTransformer, also beside a torchvision without compiled operators.

    timm imports torchvision, and torchvision registers fake kernels for two operators at import.
    Where its binary does not fit the installed torch they are unknown and the import fails, so
    their schemas are declared. Nothing here calls them.
    """
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("torchvision::nms", "torchvision::qnms"):
            with suppress(RuntimeError):  # somebody else has declared it
                torch.library.define(name, schema)
    from timm.models.vision_transformer import VisionTransformer

    result: type[nn.Module] = VisionTransformer
    return result


def build_model(height: int = 224, width: int = 224, *, patch_drop: float = 0.0) -> nn.Module:
    """Build the untrained timm model for an input of `height` × `width` pixels."""
    return _import_vision_transformer()(
        img_size=(height, width),
        patch_size=PATCH,
        in_chans=1,
        num_classes=CLASSES,
        embed_dim=EMBED_DIM,
        depth=DEPTH,
        num_heads=HEADS,
        patch_drop_rate=patch_drop,
        weight_init="jax",
    )


def load_split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return train images, train labels, test images, test labels; images are N×1×8×8 in 0…1.

    The test quarter is stratified and fixed by `SPLIT_SEED`; no script trains or selects on it.
    """
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        pixels.astype("float32") / 16.0,
        labels,
        test_size=0.25,
        random_state=SPLIT_SEED,
        stratify=labels,
    )
    train_x, test_x = (torch.from_numpy(part).reshape(-1, 1, 8, 8) for part in parts[:2])
    train_y, test_y = (torch.from_numpy(part).long() for part in parts[2:])
    return train_x, train_y, test_x, test_y


def _strokes(pixels: int, scale: Tensor, shift: Tensor) -> Tensor:
    """Bilinear weights N×pixels×8 of one axis: which digit pixels each canvas pixel mixes."""
    canvas = (torch.arange(pixels) + 0.5) / pixels
    centre = ((canvas - 0.5 - shift[:, None]) / scale[:, None] + 0.5) * 8.0 - 0.5
    return (1.0 - (centre[..., None] - torch.arange(8)).abs()).clamp(min=0.0)


def draw(
    images: Tensor,
    height: int,
    width: int,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """Draw 8×8 digits on a canvas of `height` × `width` pixels, normalised to −1…1.

    `scale` and `shift` (N×2: vertical, horizontal) are fractions of the canvas. Without them the
    digit fills the canvas, stretched if that is not square: a position is a *part* of the canvas.
    """
    scale = torch.ones(len(images), 2) if scale is None else scale
    shift = torch.zeros(len(images), 2) if shift is None else shift
    down = _strokes(height, scale[:, 0], shift[:, 0])
    across = _strokes(width, scale[:, 1], shift[:, 1])
    canvas = down @ images[:, 0] @ across.transpose(1, 2)
    return canvas[:, None] * 2.0 - 1.0


@torch.no_grad()
def count_correct(model: nn.Module, images: Tensor, labels: Tensor, height: int, width: int) -> int:
    """Count the digits that `model` names correctly at `height` × `width` pixels."""
    model.eval()
    correct = 0
    for batch, truth in zip(torch.split(images, 50), torch.split(labels, 50), strict=True):
        correct += int((model(draw(batch, height, width)).argmax(1) == truth).sum())
    return correct


def neighbour_cosine(table: Tensor, height: int, width: int) -> float:
    """Mean cosine between horizontally and vertically adjacent cells of a position table.

    `table` is 1×rows×D with `height`·`width` grid rows last; cells are centred by their mean.
    About 0 for an untrained table, towards 1 for a smooth one.
    """
    cells = table[0, -height * width :].double().reshape(height, width, -1)
    cells = functional.normalize(cells - cells.mean((0, 1)), dim=-1)
    across = (cells[:, 1:] * cells[:, :-1]).sum(-1).flatten()
    down = (cells[1:] * cells[:-1]).sum(-1).flatten()
    return float(torch.cat([across, down]).mean())


def model_from_state(state: Mapping[str, Tensor], height: int, width: int) -> nn.Module:
    """Build the model for `height` × `width` pixels and load `state` strictly."""
    model = build_model(height, width)
    model.load_state_dict(dict(state), strict=True)
    return model
