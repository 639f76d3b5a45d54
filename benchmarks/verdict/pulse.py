"""A real network without attention that has a vector for each place: it reads a pulse off a face.

    python -m benchmarks.verdict.pulse --packages FOLDER

stores its tables. `real.py` measures what damage costs it. The folder holds the wheel of
open-rppg (`pip download --no-deps open-rppg==0.1.1`), whose weights are an HDF5 file, so h5py has
to be installed, too.

FacePhys is a convolutional network with a memory. Each of its eight layers follows the mean and the
spread of every channel at every place through time, and begins with a mean and a spread that were
trained: sixteen tables, of 36×36, 18×18, 9×9 and 5×5 cells. At another size of the picture they
have to be resized, as positions have. The tables of the first layer of each size are stored.

Its answer is the pulse over sixteen frames: pieces of two photographs that grow lighter and darker.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.verdict.real import (
    REFERENCE,
    Answers,
    Package,
    Real,
    Run,
    Shape,
    State,
    Table,
    centred,
    opened,
    photographs,
)
from benchmarks.verdict.tables import PULSE, Known, store_table
from benchmarks.ways.damage import honest

PACKAGE = "open_rppg-0.1.1-py3-none-any.whl"
FILE = "rppg/weights/FacePhys.rlap.weights.h5"
SIZES = (36, 18, 9, 5)
MOMENTS = {"mean": "tn/vars/3", "spread": "tn/vars/4"}  # the second is a logarithm of the square
FRAMES, RATE = 16, 30.0
BEAT, DEPTH = 1.2, 0.03  # in 1/s, and as a part of the light


@dataclass(frozen=True)
class Place:
    """Where a table stands: its block, its layer in it, and which moment it begins with."""

    block: int
    layer: int
    moment: str

    @property
    def name(self) -> str:
        """Name it; layers after the first are numbered."""
        side, number = SIZES[self.block], f"_{self.layer}" if self.layer else ""
        return f"pulse_{self.moment}_{side}x{side}{number}"

    @property
    def key(self) -> str:
        """Return the name of its tensor in the file."""
        return f"{_block(self.block)}/{_layer(self.layer)}/{MOMENTS[self.moment]}"


PLACES = {
    place.name: place
    for place in (
        Place(block, layer, moment)
        for block in range(len(SIZES))
        for layer in range(2)
        for moment in MOMENTS
    )
}
STORED = tuple(name for name, place in PLACES.items() if not place.layer)


def _numbered(name: str, index: int) -> str:
    return f"{name}_{index}" if index else name


def _block(index: int) -> str:
    return f"layers/sequential/layers/{_numbered('ssc_block', index)}"


def _layer(index: int) -> str:
    return f"ssc/layers/{_numbered('ss_conv', index)}"


def weights(package: Package) -> State:
    """Read all tensors of the file."""
    h5py: Any = import_module("h5py")
    found: dict[str, Tensor] = {}

    def keep(name: str, stored: Any) -> None:
        if isinstance(stored, h5py.Dataset):
            found[name] = torch.from_numpy(np.asarray(stored[()], np.float32))

    with h5py.File(io.BytesIO(package.read(FILE)), "r") as file:
        file.visititems(keep)
    return found


def rows_of(state: State, place: Place) -> Table:
    """Return a table, cells × channels."""
    side = SIZES[place.block]
    return state[place.key].reshape(side * side, -1).numpy()


# --- the network ----------------------------------------------------------------------------------


def _followed(state: State, key: str, x: Tensor, moments: Mapping[str, Tensor]) -> Tensor:
    """Normalise (clips, frames, h, w, channels) by moments that follow the values."""
    rate, scale, shift = (state[f"{key}/tn/vars/{index}"] for index in range(3))
    kept = 1 - math.log(2) / rate.exp() / RATE
    mean, square = moments["mean"], moments["spread"].exp()
    made = []
    for frame in x.unbind(1):
        mean = (1 - kept) * frame + kept * mean
        square = (1 - kept) * (frame - mean) ** 2 + kept * square
        made.append((frame - mean) * torch.rsqrt(square + 1e-5) * scale + shift)
    return torch.stack(made, 1)


def _remembered(state: State, key: str, x: Tensor) -> Tensor:
    """Run a state space model over (clips, frames, values)."""
    decay, rate_shift, skip, first, begin = (state[f"{key}/vars/{index}"] for index in range(5))
    heads, wide, deep = begin.shape[2:5]
    inner = heads * wide
    told = x @ state[f"{key}/in_proj/vars/0"]
    gates, mixed, rates = torch.split(told, [2 * inner, inner + 2 * deep, heads], -1)
    before = first.expand(len(x), -1, -1)[:, 1:]
    window = torch.cat([before, mixed], 1).unfold(1, first.shape[1], 1)
    filters = state[f"{key}/conv1d/vars/0"][0, :, :, 0].T
    mixed = functional.relu6((window * filters).sum(-1) + state[f"{key}/conv1d/vars/1"])
    values, inputs, outputs = torch.split(mixed, [inner, deep, deep], -1)
    values = values.reshape(*values.shape[:2], heads, wide)
    rates = (rates + rate_shift).exp().clamp(0, 6)
    forgets = torch.exp(rates * torch.complex(-decay[:, 0].exp(), decay[:, 1]))
    memory = torch.complex(begin[0, 0, ..., 0], begin[0, 0, ..., 1]).expand(len(x), -1, -1, -1)
    made = []
    for at in range(x.shape[1]):
        new = (rates[:, at, :, None] * values[:, at])[..., None] * inputs[:, at, None, None]
        memory = memory * forgets[:, at, :, None, None] + new
        read = (memory * outputs[:, at, None, None]).sum(-1)
        both = torch.stack([read.real, read.imag], 2).flatten(1, 2)  # heads × 2, values
        here = torch.stack([values[:, at], torch.zeros_like(values[:, at])], 2).flatten(1, 2)
        made.append((both + skip * here).flatten(1))
    y = torch.stack(made, 1) * functional.relu6(gates)
    y = y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5) * state[f"{key}/norm/vars/0"]
    return y @ state[f"{key}/out_proj/vars/0"]


def _convolved(state: State, key: str, x: Tensor, stride: int = 1) -> Tensor:
    """Convolve each frame, with zeros around it as TensorFlow places them."""
    kernel = state[f"{key}/vars/0"].permute(3, 2, 0, 1)
    flat = x.flatten(0, 1).permute(0, 3, 1, 2)
    if stride == 1:
        made = functional.conv2d(flat, kernel, state[f"{key}/vars/1"], padding="same")
    else:
        padded = functional.pad(flat, (0, flat.shape[3] % 2, 0, flat.shape[2] % 2))
        made = functional.conv2d(padded, kernel, state[f"{key}/vars/1"], stride=stride)
    made = made.permute(0, 2, 3, 1)
    return made.reshape(*x.shape[:2], *made.shape[1:])


Moments = Callable[[Place], Tensor]


def _one_layer(state: State, block: int, layer: int, x: Tensor, moments: Moments) -> Tensor:
    key = f"{_block(block)}/{_layer(layer)}"
    begun = {moment: moments(Place(block, layer, moment)) for moment in MOMENTS}
    x = _followed(state, key, x, begun)
    seen = _convolved(state, f"{key}/conv1/layers/conv2d", x)
    dense = f"{key}/conv1/layers/dense/vars"
    seen = functional.relu6(seen @ state[f"{dense}/0"] + state[f"{dense}/1"]).mean((2, 3))
    told = _remembered(state, f"{key}/ssm", seen) @ state[f"{key}/proj/vars/0"]
    return functional.relu6(_convolved(state, f"{key}/conv2", x + told[:, :, None, None]))


def _layers(
    state: State, x: Tensor, projected: Tensor, moments: Moments, first: int, last: int
) -> tuple[Tensor, Tensor]:
    """Run some of the eight layers: what comes out, and the input of its block."""
    for index in range(first, last):
        block, layer = divmod(index, 2)
        if layer == 0:
            projected = x = x @ state[f"{_block(block)}/in_proj/vars/0"]
        x = _one_layer(state, block, layer, x, moments)
        if layer == 1:
            x = _convolved(state, f"{_block(block)}/ds", x + projected, 2)
    return x, projected


def pulse(state: State, x: Tensor, projected: Tensor, moments: Moments, first: int = 0) -> Tensor:
    """Run the network on (clips, frames, h, w, 3): one value for each frame.

    `first`: begin with this layer, whose input is `x`; `projected` is that of its block.
    """
    x, _ = _layers(state, x, projected, moments, first, 2 * len(SIZES))
    x = x.mean((2, 3)) @ state["layers/sequential_1/layers/dense/vars/0"]
    for index in range(2):
        x = _remembered(state, f"head/layers/{_numbered('ss_mr_ppg', index)}", x)
    return x @ state["head/layers/dense/vars/0"] + state["head/layers/dense/vars/1"]


def clips(size: Shape) -> Tensor:
    """Make sixteen frames of each photograph, lighter and darker as by a pulse."""
    still = photographs(size).permute(0, 2, 3, 1)[:, None]
    times = torch.arange(FRAMES) / RATE
    light = 1 + DEPTH * torch.sin(2 * math.pi * BEAT * times)
    return (still * light.reshape(1, -1, 1, 1, 1)).clamp(0, 1)


def sizes_of(picture: Shape) -> list[Shape]:
    """Return the grid of each block."""
    found = [picture]
    for _ in SIZES[1:]:
        found.append((-(-found[-1][0] // 2), -(-found[-1][1] // 2)))
    return found


def facephys(name: str, package: Package) -> Real:
    """Read the network, to run it with other versions of one of its tables."""
    state, place = weights(package), PLACES[name]
    return Real(name, rows_of(state, place), partial(_at, state, place))


def _at(state: State, place: Place, target: Shape) -> Run:
    """Prepare it for another grid; all its other tables are resized honestly."""
    picture = (target[0] * 2**place.block, target[1] * 2**place.block)
    grids, resized = sizes_of(picture), {}
    for other in PLACES.values():
        side, new = SIZES[other.block], grids[other.block]
        rows = honest(rows_of(state, other), 0, (side, side), new, REFERENCE)
        resized[other] = torch.from_numpy(rows).reshape(*new, -1)
    shown, first = clips(picture), 2 * place.block + place.layer
    with torch.no_grad():
        x, projected = _layers(state, shown, shown, resized.__getitem__, 0, first)

    @torch.no_grad()
    def run(table: Table) -> Answers:
        changed = {**resized, place: torch.from_numpy(table).reshape(*target, -1)}
        return centred(pulse(state, x, projected, changed.__getitem__, first))

    return run


# As in `real.NETWORKS`.
NETWORKS: Mapping[str, tuple[str, Callable[[Package], Real], int]] = {
    name: (PACKAGE, partial(facephys, name), 3600) for name in STORED
}


def tables(packages: Path) -> Iterator[Known]:
    """Give the tables that are stored."""
    with opened(packages / PACKAGE) as package:
        state = weights(package)
    for name in STORED:
        place = PLACES[name]
        grid = (SIZES[place.block], SIZES[place.block])
        origin = f"from the PyPI package open-rppg 0.1.1 (MIT licence), {FILE}, {place.key}"
        what = "the mean" if place.moment == "mean" else "the logarithm of the square"
        words = f"{what} that FacePhys begins with at each place, {origin}"
        rows = rows_of(state, place)
        yield Known(name, rows, 0, grid, True, False, words, False, PULSE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, metavar="FOLDER")
    for known in tables(parser.parse_args(arguments).packages):
        store_table(known)


if __name__ == "__main__":
    main()
