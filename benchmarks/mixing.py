"""MLP-Mixer, ResMLP and gMLP on grids that they were not trained on, without fine-tuning.

    python -m benchmarks mixing [--train] [--docs docs/artifacts.md]

`--train` trains the three small models again (timm's code, the digits of scikit-learn, a few
minutes on one core) and replaces the checkpoints in `benchmarks/mixers`. The experiment converts
them with this tool, and with two other ways to invert the resampling, and counts the digits that
are read correctly.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from resize_pos import resize_state_dict
from resize_pos.core.conventions import DEFAULT
from resize_pos.transforms.kernels import operator

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).with_name("mixers")
RESULTS = Path(__file__).with_name("mixing.json")
BEGIN, END = "<!-- mixing: begin -->", "<!-- mixing: end -->"
PATCH, CELLS, WIDTH, DEPTH = 8, 8, 32, 3
EPOCHS, BATCH, RATE = 60, 64, 2e-3
SIZES = ((64, 64), (96, 96), (128, 128), (96, 128), (80, 64), (48, 48), (32, 48))
READS = ("mlp_tokens.fc1.weight", "gate.proj.weight", "linear_tokens.weight")

Size = tuple[int, int]
State = Mapping[str, Tensor]


def digits() -> Any:
    sys.path.insert(0, str(ROOT / "sample_checkpoints"))
    import digits as module

    module._import_vision_transformer()
    return module


def build(name: str, size: Size) -> nn.Module:
    digits()
    from timm.layers import GatedMlp
    from timm.models.mlp_mixer import MixerBlock, MlpMixer, ResBlock, SpatialGatingBlock

    kinds: Mapping[str, dict[str, Any]] = {
        "MLP-Mixer": {"block_layer": MixerBlock, "mlp_ratio": (1.0, 2.0)},
        "ResMLP": {"block_layer": ResBlock, "mlp_ratio": 2.0},
        "gMLP": {"block_layer": SpatialGatingBlock, "mlp_ratio": 4.0, "mlp_layer": GatedMlp},
    }
    model: nn.Module = MlpMixer(
        num_classes=10,
        img_size=size,
        in_chans=1,
        patch_size=PATCH,
        num_blocks=DEPTH,
        embed_dim=WIDTH,
        **kinds[name],
    )
    return model


MODELS = ("MLP-Mixer", "ResMLP", "gMLP")


def checkpoint(name: str) -> Path:
    return FOLDER / f"digits_{name.lower().replace('-', '_')}_64.safetensors"


def train(name: str) -> None:
    """Train on shifted and scaled digits, so that a position is no pixel of one drawing."""
    task = digits()
    torch.manual_seed(0)
    images, labels, *_ = task.load_split()
    model = build(name, (PATCH * CELLS,) * 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.02)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    model.train()
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))
        for chosen in torch.split(order[: len(order) // BATCH * BATCH], BATCH):
            scale = 0.85 + 0.2 * torch.rand(len(chosen), 2)
            shift = 0.1 * (torch.rand(len(chosen), 2) - 0.5)
            drawn = task.draw(images[chosen], PATCH * CELLS, PATCH * CELLS, scale, shift)
            loss = functional.cross_entropy(model(drawn), labels[chosen])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
    FOLDER.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, checkpoint(name))


def accuracy(name: str, state: State, size: Size, images: Tensor, labels: Tensor) -> float:
    model = build(name, size)
    model.load_state_dict(state, strict=True)
    return float(digits().count_correct(model, images, labels, *size)) / len(labels)


def transferred(state: State, size: Size) -> State:
    """Convert with this tool; the checkpoint alone says what it is."""
    return resize_state_dict(dict(state), to=size)


def _with_reader(inverse: Callable[[int, int], Any]) -> Callable[[State, Size], State]:
    """Replace R⁺ in the layers that read patches by another way back to the old grid."""

    def convert(state: State, size: Size) -> State:
        target = (size[0] // PATCH, size[1] // PATCH)
        back = np.kron(*(inverse(CELLS, cells) for cells in target))
        plain = np.kron(*(operator(CELLS, m, DEFAULT.resampling).matrix for m in target))
        made = dict(transferred(state, size))
        for key in state:
            if key.endswith(READS):
                weight = state[key].double().numpy()
                both = weight.shape == (CELLS**2, CELLS**2) and not key.endswith(READS[0])
                new = (plain @ weight if both else weight) @ back
                made[key] = torch.from_numpy(new).float()
        return made

    return convert


def _transposed(source: int, target: int) -> Any:
    return operator(source, target, DEFAULT.resampling).matrix.T * (source / target)


def _resampled(source: int, target: int) -> Any:
    return operator(target, source, DEFAULT.resampling).matrix


WAYS: Mapping[str, Callable[[State, Size], State]] = {
    "R⁺ (this tool)": transferred,
    "Rᵀ, scaled": _with_reader(_transposed),
    "resampled back": _with_reader(_resampled),
}


def experiment() -> Iterator[dict[str, Any]]:
    _, _, images, labels = digits().load_split()
    for name in MODELS:
        state = load_file(checkpoint(name))
        for size in SIZES:
            for way, convert in WAYS.items():
                made = state if size == (PATCH * CELLS,) * 2 else convert(state, size)
                right = accuracy(name, made, size, images, labels)
                yield {"model": name, "size": size, "way": way, "accuracy": right}


def report(found: Sequence[Mapping[str, Any]]) -> str:
    sizes = list(dict.fromkeys(tuple(row["size"]) for row in found))
    heads = ["model", "inverse", *(f"{h // PATCH}×{w // PATCH}" for h, w in sizes)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name in dict.fromkeys(row["model"] for row in found):
        for way in dict.fromkeys(row["way"] for row in found):
            of = {
                tuple(row["size"]): row["accuracy"]
                for row in found
                if (row["model"], row["way"]) == (name, way)
            }
            cells = [f"{100 * of[size]:.1f}" for size in sizes]
            lines.append("| " + " | ".join([name, way, *cells]) + " |")
    return "\n".join(lines)


def write_into(path: Path, text: str) -> None:
    """Replace what stands between the two marks."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixing", description=__doc__)
    parser.add_argument("--train", action="store_true", help="train the models again")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="also write the table there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in MODELS if options.train else ():
        train(name)
    found = list(experiment())
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(report(found))
    if options.docs is not None:
        write_into(options.docs, report(found))


if __name__ == "__main__":
    main()
