"""What a damaged table costs its network, and what training makes of an honest one.

    python -m benchmarks.verdict.small_networks --networks FOLDER --data FOLDER [--only NAME …]

`--networks` and `--data` are the folders of `small_vits.py` and `other_vits.py`. A network that is
not there is left out. The results do not depend on the
verdict, so they are stored: `tables/costs.json` has the loss of every damaged table, and
`tables/trained.npz` the tables of networks that were trained on after an honest resize (as
float16). `python -m benchmarks.verdict` reads both. One table takes one to two minutes on one core.
What is stored already is kept; delete both files to make everything anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.networks.other_vits import OTHERS, OtherViT
from benchmarks.networks.other_vits import TASKS as OTHER_TASKS
from benchmarks.networks.small_vits import NETWORKS, TASKS, TEST, SmallViT, loss_of, pictures
from benchmarks.verdict.tables import COSTS, TRAINED, Known, cost_key, costs, known_tables, trained
from benchmarks.ways.damage import honest

if TYPE_CHECKING:
    from benchmarks.verdict.tables import Cost

Table = NDArray[np.float32]
Shape = tuple[int, int]
PICTURES = 60  # test pictures that each damaged table is run on
BATCH, STEPS, RATE = 16, 300, 3e-4  # of the training after a resize
BATCHES = 6  # of test pictures, for the networks of `other_vits.py`
OTHER = "other_"  # how their tables' names begin
MOST_TRAINED = 400  # cells of the new grid
COSTLY = 1.05  # times the honest loss; and 3 standard errors above it


class Judge:
    """One trained network, run at other grids with tables that somebody made."""

    def __init__(self, known: Known, folder: Path, data: Path) -> None:
        self.known, self.data = known, data
        self.network = NETWORKS[known.name]
        self.state = load_file(folder / f"{known.name}.safetensors")
        self._runs: dict[Shape, tuple[SmallViT, Tensor, Tensor, Tensor]] = {}

    def cost(self, target: Shape, table: Table) -> Cost:
        """Give the loss relative to the honest resize's, and whether that is a real rise."""
        if target not in self._runs:
            self._runs[target] = self._prepared(target)
        model, inputs, truth, before = self._runs[target]
        return compared(before, self._losses(model, inputs, truth, table))

    def trained(self, target: Shape) -> Table | None:
        """Train the network on after an honest resize; give its table."""
        if target[0] * target[1] > MOST_TRAINED:
            return None
        network = self.network
        images, labels = (values[TEST:] for values in pictures(network.data, self.data))
        model = self._model(target, self._fair(target, "timm"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        generator = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            chosen = torch.randint(len(images), (BATCH,), generator=generator)
            inputs, truth = TASKS[network.task](
                network, images[chosen], labels[chosen], self._size(target), generator, True
            )
            loss = loss_of(network, model(inputs), truth)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        result: Table = model.pos_embed.detach()[0].numpy().copy()
        return result

    def _size(self, target: Shape) -> Shape:
        return target[0] * self.network.patch, target[1] * self.network.patch

    def _fair(self, target: Shape, like: str) -> Table:
        return honest(self.known.rows, self.known.prefix, self.known.grid, target, like)

    def _model(self, target: Shape, table: Table) -> SmallViT:
        model = SmallViT(self.network, target)
        model.load_state_dict({**self.state, "pos_embed": torch.from_numpy(table.copy())[None]})
        return model

    def _prepared(self, target: Shape) -> tuple[SmallViT, Tensor, Tensor, Tensor]:
        """Build the network for a grid, its pictures, and its losses with the honest table."""
        network, fair = self.network, self._fair(target, "hf")
        images, labels = (values[:PICTURES] for values in pictures(network.data, self.data))
        generator = torch.Generator().manual_seed(99)
        inputs, truth = TASKS[network.task](
            network, images, labels, self._size(target), generator, False
        )
        model = self._model(target, fair).eval()
        return model, inputs, truth, self._losses(model, inputs, truth, fair)

    @torch.no_grad()
    def _losses(self, model: SmallViT, inputs: Tensor, truth: Tensor, table: Table) -> Tensor:
        model.pos_embed.copy_(torch.from_numpy(table.copy())[None])
        output = model(inputs)
        if self.network.task in ("find", "fill"):
            errors: Tensor = (output - truth).flatten(1).pow(2).mean(1)
            return errors
        logits = output.reshape(len(output), -1, 10).transpose(1, 2)
        answers = truth.reshape(len(truth), -1)
        return torch.nn.functional.cross_entropy(logits, answers, reduction="none").mean(1)


class OtherJudge:
    """One network of `other_vits.py`, run at other grids with tables that somebody made."""

    def __init__(self, known: Known, folder: Path, data: Path) -> None:
        self.known, self.data = known, data
        name = known.name.removeprefix(OTHER)
        self.other = OTHERS[name]
        self.state = load_file(folder / f"{name}.safetensors")
        self._runs: dict[Shape, tuple[OtherViT, Tensor]] = {}

    def cost(self, target: Shape, table: Table) -> Cost:
        """Give the loss relative to the honest resize's, and whether that is a real rise."""
        if target not in self._runs:
            model = self._model(target)
            fair = honest(self.known.rows, self.known.prefix, self.known.grid, target, "hf")
            self._runs[target] = model, self._losses(model, fair)
        model, before = self._runs[target]
        return compared(before, self._losses(model, table))

    def trained(self, _: Shape) -> Table | None:
        """Give nothing: `other_vits.py --trained` makes those."""
        return None

    def _model(self, target: Shape) -> OtherViT:
        state = dict(self.state)
        del state["pos_embed"]
        if "places" in state:  # the decoder's positions
            places = honest(state["places"][0].numpy(), 0, self.other.grid, target, "hf")
            state["places"] = torch.from_numpy(places.copy())[None]
        model = OtherViT(replace(self.other, grid=target)).eval()
        model.load_state_dict(state, strict=False)
        return model

    @torch.no_grad()
    def _losses(self, model: OtherViT, table: Table) -> Tensor:
        """Give the loss of each of several batches of test pictures, always the same ones."""
        model.pos_embed.copy_(torch.from_numpy(table.copy())[None])
        data, loss_of_batch = OTHER_TASKS[self.other.task]
        images, labels = (values[:TEST] for values in pictures(data, self.data))
        losses = []
        for index in range(BATCHES):
            rng = torch.Generator().manual_seed(99 + index)
            chosen = torch.randint(len(images), (BATCH,), generator=rng)
            losses.append(loss_of_batch(model, images[chosen], labels[chosen], rng))
        return torch.stack(losses)


def compared(before: Tensor, after: Tensor) -> Cost:
    """Compare the losses of the same pictures, or batches: their ratio, and whether it counts."""
    apart = after - before
    error = float(apart.std()) / len(apart) ** 0.5
    ratio = float(after.mean() / before.mean())
    return round(ratio, 4), ratio > COSTLY and float(apart.mean()) > 3 * error


def run(
    judge: Judge | OtherJudge, found: Mapping[str, Cost], tables: Mapping[str, Table]
) -> tuple[dict[str, Cost], dict[str, Table]]:
    """Add the cost of every damage to one table, and its trained tables, to earlier results."""
    from benchmarks.verdict.count import DAMAGED, FOR_DAMAGE, targets, versions

    known = judge.known
    all_found, all_tables = dict(found), dict(tables)
    for target in targets(known.grid)[:FOR_DAMAGE]:
        for group, how, table in versions(known, target, damage=True):
            key = cost_key(known.name, target, how)
            if group in DAMAGED and key not in found:
                all_found[key] = judge.cost(target, table)
        key = cost_key(known.name, target, f"{STEPS} steps at {RATE:g}")
        after = None if key in tables else judge.trained(target)
        if after is not None:
            all_tables[key] = after
    return all_found, all_tables


def store(found: Mapping[str, Cost], tables: Mapping[str, Table]) -> None:
    """Write all results."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(found.items())]
    COSTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    halves = {key: tables[key].astype(np.float16) for key in sorted(tables)}
    np.savez_compressed(TRAINED, **halves)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these tables alone")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for known in known_tables():
        name = known.name.removeprefix(OTHER)
        if known.windowed or not (options.networks / f"{name}.safetensors").exists():
            continue  # windows would need their own table
        if options.only and known.name not in options.only:
            continue
        started = time.monotonic()
        make = OtherJudge if known.name.startswith(OTHER) else Judge
        found, tables = run(make(known, options.networks, options.data), costs(), trained())
        store(found, tables)
        took = time.monotonic() - started
        print(f"{known.name}: {len(found)} costs, {took:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
