"""Train the sample checkpoint: a small timm ViT on scikit-learn's digits, drawn at 224 pixels.

    python sample_checkpoints/train_digits_vit.py [--output FILE] [--epochs N] [--seed N]

About eight minutes on one CPU core. The table starts almost at zero and learns faster than the
rest (`TABLE_LR_SCALE`): in so few steps it would otherwise stay small, and the sample is there to
show a table that the model really uses.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from digits import SPLIT_SEED, build_model, count_correct, draw, load_split, neighbour_cosine
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

SIZE = 224
BATCH = 64
LR = 2e-3
TABLE_LR_SCALE = 4.0
TABLE_STD = 1e-3
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.05
SCALES = (0.6, 1.3)
ASPECT = 0.15
PATCH_DROP = (0.3, 0.7)


def random_placement(count: int) -> tuple[Tensor, Tensor]:
    """Draw scale and shift (`count`×2 each) for one batch.

    Scales above 1 crop the digit; they show the model the patch content of larger canvases.
    """
    low, high = SCALES
    scale = low * (high / low) ** torch.rand(count, 1)
    aspect = torch.exp((torch.rand(count, 1) * 2 - 1) * ASPECT)
    scale = torch.cat([scale * aspect, scale / aspect], dim=1)
    room = (1 - scale).abs().clamp(min=0.1) / 2
    return scale, (torch.rand(count, 2) * 2 - 1) * room


def make_optimizer(model: nn.Module) -> torch.optim.AdamW:
    """AdamW in three groups: decayed matrices, plain vectors, and the faster position table."""
    matrices, vectors, tables = [], [], []
    for name, parameter in model.named_parameters():
        if name == "pos_embed":
            tables.append(parameter)
        elif parameter.ndim < 2 or name == "cls_token":
            vectors.append(parameter)
        else:
            matrices.append(parameter)
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": WEIGHT_DECAY},
            {"params": vectors, "weight_decay": 0.0},
            {"params": tables, "weight_decay": 0.0, "lr": LR * TABLE_LR_SCALE},
        ],
        lr=LR,
        betas=(0.9, 0.99),
    )


def train(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Train a fresh model on `images` (N×1×8×8); prints the loss every fifth epoch."""
    model = build_model(SIZE, SIZE, patch_drop=PATCH_DROP[0])
    table = model.get_parameter("pos_embed")
    nn.init.normal_(table, std=TABLE_STD)
    patch_drop = model.get_submodule("patch_drop")
    optimizer = make_optimizer(model)
    steps = epochs * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        [group["lr"] for group in optimizer.param_groups],
        total_steps=steps,
        pct_start=0.15,
        cycle_momentum=False,
    )
    started = time.monotonic()
    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for chosen in torch.split(torch.randperm(len(images)), BATCH):
            # A varying number of tokens saves time and prepares for grids of other sizes.
            rate = float(torch.empty(1).uniform_(*PATCH_DROP))
            patch_drop.prob = rate  # type: ignore[assignment]
            canvas = draw(images[chosen], SIZE, SIZE, *random_placement(len(chosen)))
            loss = functional.cross_entropy(
                model(canvas), labels[chosen], label_smoothing=LABEL_SMOOTHING
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        if epoch % 5 == 0:
            print(
                f"epoch {epoch:3d}  loss {total / len(images):.3f}  "
                f"table: neighbour cosine {neighbour_cosine(table.detach(), 14, 14):.2f}  "
                f"({time.monotonic() - started:.0f} s)",
                flush=True,
            )
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, score once on the held-out digits, save."""
    parser = argparse.ArgumentParser(description="Train the digits sample checkpoint.")
    default = Path(__file__).with_name("digits_vit_224.safetensors")
    parser.add_argument("--output", type=Path, default=default)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="1 makes runs repeatable")
    options = parser.parse_args(arguments)

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    train_x, train_y, test_x, test_y = load_split()
    model = train(train_x, train_y, options.epochs)
    correct = count_correct(model, test_x, test_y, SIZE, SIZE)
    accuracy = correct / len(test_y)
    print(f"test accuracy {100 * accuracy:.1f} % ({correct} of {len(test_y)} digits)")

    state = model.state_dict()
    save_file(
        {name: state[name].contiguous() for name in sorted(state)},
        options.output,
        {
            "format": "pt",
            "task": "scikit-learn digits, 10 classes, 1 channel, 224 px",
            "test_accuracy": f"{accuracy:.4f}",
            "split_seed": str(SPLIT_SEED),
            "seed": str(options.seed),
            "epochs": str(options.epochs),
        },
    )
    print(f"saved {options.output}")


if __name__ == "__main__":
    main()
