"""Whether FacePhys's tables pass after fine-tuning, and fail if they were damaged before it.

    python -m benchmarks.verdict.pulse_tuned --packages FOLDER

The package is that of `pulse.py`. The network learns from itself, as in `tuned.py`:
at the new size it should read the pulse that it read at its own. All sixteen tables are resized and
trained at once, so each run gives sixteen verdicts, which are printed. The runs were fixed before
any of them was judged. It takes about four minutes of one core.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.verdict.count import DAMAGED, made, step_for
from benchmarks.verdict.pulse import (
    BEAT,
    DEPTH,
    FRAMES,
    PACKAGE,
    PLACES,
    RATE,
    SIZES,
    Place,
    pulse,
    rows_of,
    sizes_of,
    weights,
)
from benchmarks.verdict.real import Shape, State, opened
from benchmarks.verdict.tables import Known, Table
from benchmarks.verdict.tuned import CLIP, PICTURES, crops
from resize_pos.quality.checks import worst
from resize_pos.verify.against_source import explain

NATIVE = (SIZES[0], SIZES[0])
CLIPS = 2  # that a step sees


@dataclass(frozen=True)
class Run:
    """How all tables were resized, and how they were trained then."""

    picture: Shape
    start: str  # a way of `verdict.ways`, honest or not
    rate: float
    steps: int
    decay: float = 0.0
    alone: bool = False  # the tables are trained, and nothing else

    @property
    def how(self) -> str:
        """Name it."""
        what = "tables" if self.alone else "all"
        return f"{self.start}, then {self.steps} steps of AdamW at {self.rate:g}: {what}"


RUNS = (
    Run((44, 40), "hf", 1e-4, 80, 0.05),
    Run((44, 40), "timm", 1e-3, 80, alone=True),
    Run((28, 26), "torch area", 1e-3, 60, 0.05),
    Run((28, 26), "hf", 3e-3, 100, alone=True),
    Run((28, 26), "one_d", 1e-3, 60, alone=True),
    Run((44, 40), "off_by_one", 1e-4, 60, 0.05),
)


def shown(pictures: Tensor, size: Shape, phase: float) -> Tensor:
    """Make a clip of each picture, lighter and darker as by a pulse."""
    small = functional.interpolate(pictures, size, mode="bilinear", antialias=True)
    light = 1 + DEPTH * torch.sin(2 * math.pi * BEAT * torch.arange(FRAMES) / RATE + phase)
    clips = small.permute(0, 2, 3, 1)[:, None] * light.reshape(1, -1, 1, 1, 1)
    return clips.clamp(0, 1)


def train(state: State, known: dict[Place, Known], run: Run) -> Iterator[tuple[Place, str, Table]]:
    """Resize and train all tables: where each stands, the group of its way, and the table."""
    torch.manual_seed(0)
    random, pictures, grids = np.random.default_rng(0), crops(), sizes_of(run.picture)
    own = {p: torch.from_numpy(k.rows).reshape(*k.grid, -1) for p, k in known.items()}
    started = {place: made(k, grids[place.block], run.start) for place, k in known.items()}
    tables = {
        place: torch.from_numpy(rows.copy()).reshape(*grids[place.block], -1).requires_grad_()
        for place, (_, rows) in started.items()
    }
    trained = dict(state)
    if not run.alone:
        trained = {key: value.clone().requires_grad_() for key, value in state.items()}
    everything = [*tables.values(), *(v for v in trained.values() if v.requires_grad)]
    optimizer = torch.optim.AdamW(everything, lr=run.rate, weight_decay=run.decay)
    warm = max(1, run.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / warm) * (0.5 + 0.5 * math.cos(math.pi * step / run.steps))
        ),
    )
    for _ in range(run.steps):
        chosen = pictures[torch.from_numpy(random.choice(PICTURES, CLIPS, replace=False))]
        phase = float(random.uniform(0, 2 * math.pi))
        clips, native = (shown(chosen, size, phase) for size in (run.picture, NATIVE))
        with torch.no_grad():
            wanted = pulse(state, native, native, own.__getitem__)
        loss = functional.mse_loss(pulse(trained, clips, clips, tables.__getitem__), wanted)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(everything, CLIP)
        optimizer.step()
        schedule.step()
    for place, table in tables.items():
        cells = table.detach().reshape(-1, table.shape[-1]).numpy()
        yield place, started[place][0], cells


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with opened(options.packages / PACKAGE) as package:
        state = weights(package)
    sides = {place: (SIZES[place.block],) * 2 for place in PLACES.values()}
    known = {
        place: Known(name, rows_of(state, place), 0, sides[place], True, False, PACKAGE)
        for name, place in PLACES.items()
    }
    for run in RUNS:
        levels: Counter[str] = Counter()
        for place, group, rows in train(state, known, run):
            target = sizes_of(run.picture)[place.block]
            found = explain(step_for(known[place], target), known[place].rows, rows)
            kind = "damaged" if group in DAMAGED else "honest"
            levels[f"{kind}, {worst(found.checks).value}"] += 1
        print(f"{run.how}: {dict(levels)}", flush=True)


if __name__ == "__main__":
    main()
