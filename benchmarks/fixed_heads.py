"""What --restore-norms, --attention-scale and --to-patch do to networks whose heads stay fixed.

    python -m benchmarks quality --networks FOLDER --data FOLDER [--docs docs/artifacts.md]

Four networks of `small_vits.py`, three seeds each, are transferred to other sizes by
`resize_state_dict`, as users would do it, and run on 200 test pictures of that size. Each variant
is compared with the plain transfer picture by picture. The standard error is the larger of two:
over all pictures, and over the means of the three seeds. `fixed_heads.json` keeps every comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.networks.small_vits import (
    EXPERIMENT,
    NETWORKS,
    SEEDS,
    TASKS,
    TEST,
    Network,
    SmallViT,
    evaluate,
    loss_of,
    pictures,
)
from resize_pos.api import resize_state_dict

RESULTS = Path(__file__).with_name("fixed_heads.json")
BEGIN, END = "<!-- fixed heads: begin -->", "<!-- fixed heads: end -->"
FACTORS = (0.5, 0.67, 2.0)
TUNED_AT = 0.67
PICTURES = 200
STEPS, BATCH, RATE = 30, 16, 3e-4  # of the short fine-tune
PLAIN = "plain"
VARIANTS: Mapping[str, Any] = {
    PLAIN: {},
    "restore norms": {"restore_norms": True},
    "attention scale": {"attention_scale": True},
    "both": {"restore_norms": True, "attention_scale": True},
}
TUNED = ("restore norms",)  # variants that are also compared after the short fine-tune
KERNEL = "keep the grid, resize the kernel"

Shape = tuple[int, int]


@dataclass(frozen=True)
class Outcome:
    """One variant of one network at one size, relative to the plain transfer."""

    network: str
    seed: int
    factor: float
    grid: Shape
    variant: str
    tuned: bool
    loss: float  # of the plain transfer
    success: float  # of the plain transfer
    loss_difference: float
    loss_error: float  # standard error over the pictures
    success_difference: float
    success_error: float


def seeds_of(name: str) -> Iterator[Network]:
    """Give a network's three versions."""
    for candidate in (name, *(f"{name}_seed{seed}" for seed in SEEDS)):
        yield NETWORKS[candidate]


def transferred(network: Network, state: Mapping[str, Tensor], grid: Shape, how: str) -> SmallViT:
    """Transfer a network's state as a user would, and load it strictly."""
    known: Any = {"from_grid": network.grid, "prefix": network.prefix}
    if how == KERNEL:
        size = (grid[0] * network.patch, grid[1] * network.patch)
        patch = (size[0] // network.grid[0], size[1] // network.grid[1])
        new = resize_state_dict(state, to=size, to_patch=patch, **known)
        model = SmallViT(replace(network, patch=patch[0]), network.grid)
    else:
        new = resize_state_dict(state, to_grid=grid, **VARIANTS[how], **known)
        model = SmallViT(network, grid)
    model.load_state_dict(new, strict=True)
    return model.eval()


def outcomes(network: Network, seed: int, nets: Path, data: Path) -> Iterator[Outcome]:
    """Run every variant of one network at every size."""
    state = load_file(nets / f"{network.name}.safetensors")
    for factor in FACTORS:
        grid = (max(2, round(network.grid[0] * factor)), max(2, round(network.grid[1] * factor)))
        if grid == network.grid:
            continue
        models = {how: transferred(network, state, grid, how) for how in VARIANTS}
        if factor == 2.0:  # the only factor at which every grid and patch is whole
            models[KERNEL] = transferred(network, state, grid, KERNEL)
        plain = evaluate(models[PLAIN], data, PICTURES)
        for how, model in models.items():
            if how != PLAIN:
                yield _compared(
                    network, seed, factor, grid, how, False, plain, evaluate(model, data, PICTURES)
                )
        if factor != TUNED_AT:
            continue
        for model in (models[PLAIN], *(models[how] for how in TUNED)):
            fine_tune(model, data)
        plain = evaluate(models[PLAIN], data, PICTURES)
        for how in TUNED:
            after = evaluate(models[how], data, PICTURES)
            yield _compared(network, seed, factor, grid, how, True, plain, after)


def _compared(
    network: Network,
    seed: int,
    factor: float,
    grid: Shape,
    how: str,
    tuned: bool,
    plain: tuple[Tensor, Tensor],
    other: tuple[Tensor, Tensor],
) -> Outcome:
    loss, success = other[0] - plain[0], other[1] - plain[1]
    name = network.name.split("_seed")[0]
    return Outcome(
        *(name, seed, factor, grid, how, tuned, float(plain[0].mean()), float(plain[1].mean())),
        *(float(loss.mean()), _error(loss), float(success.mean()), _error(success)),
    )


def _error(differences: Tensor) -> float:
    return float(differences.std() / len(differences) ** 0.5)


def fine_tune(model: SmallViT, data: Path) -> None:
    """Train on for a few steps, on the same pictures for everybody."""
    network, grid = model.network, model.grid
    size = (grid[0] * network.patch, grid[1] * network.patch)
    images, labels = (values[TEST:] for values in pictures(network.data, data))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(1)
    model.train()
    for _ in range(STEPS):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        inputs, truth = TASKS[network.task](
            network, images[chosen], labels[chosen], size, generator, True
        )
        loss = loss_of(network, model(inputs), truth)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    model.eval()


def run(nets: Path, data: Path) -> list[Outcome]:
    """Run all networks and seeds; keep the results after each, and tell the progress."""
    started, found = time.monotonic(), []
    for seed in range(1 + len(SEEDS)):
        for name in EXPERIMENT:
            network = list(seeds_of(name))[seed]
            found += list(outcomes(network, seed, nets, data))
            print(f"{network.name}: {time.monotonic() - started:.0f} s", flush=True)
            listed = ",\n".join(json.dumps(asdict(one)) for one in found)
            RESULTS.write_text(f"[\n{listed}\n]\n", encoding="utf-8")
    return found


def read_results(path: Path = RESULTS) -> list[Outcome]:
    """Read the outcomes of the last run."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [Outcome(**{**one, "grid": tuple(one["grid"])}) for one in stored]


def pooled(mine: Sequence[Outcome], value: str, error: str) -> tuple[float, float]:
    """Give the mean over the seeds and the larger of the two standard errors."""
    means = torch.tensor([getattr(one, value) for one in mine])
    within = sum(getattr(one, error) ** 2 for one in mine) ** 0.5 / len(mine)
    between = float(means.std() / len(means) ** 0.5) if len(means) > 1 else 0.0
    return float(means.mean()), max(within, between)


def report(found: Sequence[Outcome]) -> str:
    """Give one table per variant: networks down, sizes across."""
    lines: list[str] = []
    variants = dict.fromkeys((one.variant, one.tuned) for one in found)
    for variant, tuned in variants:
        title = f"**{variant.capitalize()}**{f', after {STEPS} steps of training' if tuned else ''}"
        mine = [one for one in found if (one.variant, one.tuned) == (variant, tuned)]
        factors = sorted({one.factor for one in mine})
        lines += [f"{title}: change of the loss (of the accuracy, in points)", ""]
        lines.append("| network | " + " | ".join(f"× {factor:g}" for factor in factors) + " |")
        lines.append("|---|" + "---|" * len(factors))
        for name in dict.fromkeys(one.network for one in mine):
            cells = [
                _cell([one for one in mine if (one.network, one.factor) == (name, factor)])
                for factor in factors
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(mine: Sequence[Outcome]) -> str:
    if not mine:
        return "–"
    loss, loss_error = pooled(mine, "loss_difference", "loss_error")
    success, success_error = pooled(mine, "success_difference", "success_error")
    words = f"{loss:+.3f} ± {loss_error:.3f} ({100 * success:+.1f} ± {100 * success_error:.1f})"
    clear = abs(loss) > 2 * loss_error
    return (f"**{words}**" if clear else words).replace("-", "−")


def write_into(path: Path, text: str) -> None:
    """Replace what stands between the two marks."""
    old = path.read_text(encoding="utf-8")
    before, rest = old.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
