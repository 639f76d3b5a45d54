"""What a damaged table costs its network, and what training makes of an honest one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.damage import honest
from benchmarks.small_vits import NETWORKS, TASKS, TEST, SmallViT, loss_of, pictures

if TYPE_CHECKING:
    from benchmarks.verdict import Known

Table = NDArray[np.float32]
Shape = tuple[int, int]
PICTURES = 60  # test pictures that each damaged table is run on
BATCH, STEPS, RATE = 16, 300, 3e-4  # of the training after a resize
COSTLY = 1.05  # times the honest loss; and 3 standard errors above it


class Judge:
    """The trained networks, run at other grids with tables that somebody made."""

    def __init__(self, folder: Path, data: Path) -> None:
        torch.set_num_threads(1)
        self.folder, self.data = folder, data
        self._honest: dict[tuple[str, Shape], Tensor] = {}

    def knows(self, known: Known) -> bool:
        """Whether there is a network for a table; windows would need their own table."""
        return known.name in NETWORKS and not known.windowed

    def cost(self, known: Known, target: Shape, table: Table) -> tuple[float | None, bool | None]:
        """Give the loss relative to the honest resize's, and whether that is a real rise."""
        if not self.knows(known):
            return None, None
        key = known.name, target
        if key not in self._honest:
            fair = honest(known.rows, known.prefix, known.grid, target, "hf")
            self._honest[key] = self._losses(known, target, fair)
        before, after = self._honest[key], self._losses(known, target, table)
        apart = after - before
        error = float(apart.std()) / len(apart) ** 0.5
        ratio = float(after.mean() / before.mean())
        return round(ratio, 4), ratio > COSTLY and float(apart.mean()) > 3 * error

    def trained(self, known: Known, target: Shape) -> Iterator[tuple[str, Table]]:
        """Train a network on after an honest resize; give its table."""
        if not self.knows(known) or target[0] * target[1] > 400:
            return
        network = NETWORKS[known.name]
        images, labels = (values[TEST:] for values in pictures(network.data, self.data))
        fair = honest(known.rows, known.prefix, known.grid, target, "timm")
        model = self._model(known, target, fair)
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        generator = torch.Generator().manual_seed(1)
        size = (target[0] * network.patch, target[1] * network.patch)
        for _ in range(STEPS):
            chosen = torch.randint(len(images), (BATCH,), generator=generator)
            inputs, truth = TASKS[network.task](
                network, images[chosen], labels[chosen], size, generator, True
            )
            loss = loss_of(network, model(inputs), truth)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        yield f"{STEPS} steps at {RATE:g}", model.pos_embed.detach()[0].numpy().copy()

    def _model(self, known: Known, target: Shape, table: Table) -> SmallViT:
        network = NETWORKS[known.name]
        state = load_file(self.folder / f"{known.name}.safetensors")
        model = SmallViT(network, target)
        model.load_state_dict({**state, "pos_embed": torch.from_numpy(table.copy())[None]})
        return model

    @torch.no_grad()
    def _losses(self, known: Known, target: Shape, table: Table) -> Tensor:
        model = self._model(known, target, table).eval()
        network = model.network
        size = (target[0] * network.patch, target[1] * network.patch)
        images, labels = (values[:PICTURES] for values in pictures(network.data, self.data))
        generator = torch.Generator().manual_seed(99)
        inputs, truth = TASKS[network.task](network, images, labels, size, generator, False)
        output = model(inputs)
        if network.task in ("find", "fill"):
            errors: Tensor = (output - truth).flatten(1).pow(2).mean(1)
            return errors
        logits = output.reshape(len(output), -1, 10).transpose(1, 2)
        answers = truth.reshape(len(truth), -1)
        return torch.nn.functional.cross_entropy(logits, answers, reduction="none").mean(1)
