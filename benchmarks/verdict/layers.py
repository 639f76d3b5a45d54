"""Where the limits for layers over patches and for tables with windows lie.

    python -m benchmarks.verdict.layers [--docs]

Layers over patches: the three trained mixers of `mixing.py` on larger grids, as this tool transfers
them (in float32, float16 and bfloat16) and in wrong ways. Windows: the two trained tables of
`small_vits.py` whose network attends in windows, tiled by this tool and damaged. For the share of
the variance that a window explains, every other stored table is measured, too. It takes a few
seconds. `--docs` draws docs/verdict_layers.svg, as `python -m benchmarks.verdict --docs` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from benchmarks.verdict.tables import Known, known_tables
from resize_pos.core.axes import Layout
from resize_pos.core.conventions import DEFAULT
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Mixing, ResampleTiled
from resize_pos.quality.measures.direct import measure_direct
from resize_pos.transforms.execute import transform
from resize_pos.transforms.kernels import operator
from resize_pos.transforms.mixing import resize_mixing, undo_mixing

HERE = Path(__file__).parents[1]
PLOT = HERE.parent / "docs" / "verdict_layers.svg"
Wide = NDArray[np.float64]
HOW = DEFAULT.resampling
SOURCE = Grid(8, 8)  # of the mixers
LARGER = (Grid(12, 12), Grid(16, 16), Grid(12, 16), Grid(10, 8))
MIXERS = {"digits_mlp_mixer_64": False, "digits_resmlp_64": True, "digits_gmlp_64": True}
READS = ("mlp_tokens.fc1.weight", "gate.proj.weight", "linear_tokens.weight")
WINDOWS = {"fashion_window_16x12": 4, "fashion_window_12x18": 6}
SIDES = range(3, 9)  # windows that are tried on tables without any


@dataclass(frozen=True)
class Case:
    """One layer or table, and its measures."""

    held_out: bool
    group: str  # "own" or "damage"
    measures: Mapping[str, float]


def _bfloat16(values: Wide) -> Wide:
    whole = values.astype(np.float32).view(np.uint32)
    return ((whole + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def mixing_cases() -> Iterator[Case]:
    """Transfer every layer that reads patches, in right and wrong ways."""
    layout = Layout.parse("k (h w)")
    for name, held_out in MIXERS.items():
        state = load_file(HERE / "mixers" / f"{name}.safetensors")
        weights = [w.astype(np.float64) for key, w in state.items() if key.endswith(READS)]
        for weight, target in ((w, t) for w in weights for t in LARGER):
            right = resize_mixing(weight, layout, SOURCE, target, HOW, Mixing.READS)
            sides = (target.height, target.width)
            there = [operator(8, side, HOW).matrix for side in sides]
            back = [operator(side, 8, HOW).matrix for side in sides]
            transposed = np.kron(there[0].T * (8 / sides[0]), there[1].T * (8 / sides[1]))
            order = np.random.default_rng(0).permutation(target.cells)
            made = {
                "float32": right.astype(np.float32).astype(np.float64),
                "float16": right.astype(np.float16).astype(np.float64),
                "bfloat16": _bfloat16(right),
                "wrong: transposed": weight @ transposed,
                "wrong: resampled back": weight @ np.kron(*back),
                "wrong: patches shuffled": right[:, order],
                "wrong: halved": 0.5 * right,
            }
            for how, new in made.items():
                old = undo_mixing(new, layout, SOURCE, target, HOW, Mixing.READS)
                loss = float(np.linalg.norm(old - weight) / np.linalg.norm(weight))
                group = "damage" if how.startswith("wrong") else "own"
                yield Case(held_out, group, {"mixing_loss": loss})


def window_cases() -> Iterator[Case]:
    """Tile the tables with windows, and damage them; look for windows in the other tables."""
    for known in known_tables():
        if known.name in WINDOWS:
            yield from _tiled(known, WINDOWS[known.name])
            continue
        height, width = known.grid
        for side in SIDES:
            if height % side == width % side == 0 and height * width // side**2 >= 6:
                share = _measured(known, side, Grid(*known.grid), None)["window_share"]
                yield Case(known.held_out, "damage", {"window_share": share})


def _tiled(known: Known, side: int) -> Iterator[Case]:
    height, width = known.grid
    for down, right in ((1, 1), (2, 1), (1, 2), (2, 3)):
        target = Grid(height + down * side, width + right * side)
        found = _measured(known, side, target, None)
        yield Case(known.held_out, "own", found)
        damaged = (
            lambda cells: np.roll(cells, side // 2, axis=1),
            lambda cells: np.roll(cells, 1, axis=(0, 1)),
            lambda cells: cells[::-1],
            lambda cells: np.random.default_rng(0).permutation(cells.reshape(-1, cells.shape[-1])),
        )
        for change in damaged:
            values = _measured(known, side, target, change)
            yield Case(known.held_out, "damage", {"window_kept": values["window_kept"]})
        plain = {"window_kept": found["window_kept_plain"]}  # windows stretched by interpolation
        yield Case(known.held_out, "damage", plain)


def _measured(known: Known, side: int, target: Grid, change: object) -> Mapping[str, float]:
    """Tile a table, change its cells, and measure it."""
    from benchmarks.verdict.count import step_for

    plain = step_for(known, (target.height, target.width))
    step = replace(plain, operation=ResampleTiled(HOW, Grid(side, side)))
    made = known.rows if target == Grid(*known.grid) else transform(step, known.rows)
    if callable(change):
        grid = made[known.prefix :].reshape(target.height, target.width, -1)
        cells = np.asarray(change(grid), np.float32).reshape(-1, made.shape[1])
        made = np.concatenate([made[: known.prefix], cells])
    return measure_direct(step, known.rows, made).values


def cases() -> list[Case]:
    """Measure all of them."""
    return [*mixing_cases(), *window_cases()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="draw docs/verdict_layers.svg")
    options = parser.parse_args(arguments)
    found = cases()
    for name in ("mixing_loss", "window_kept", "window_share"):
        for group in ("own", "damage"):
            values = [c.measures[name] for c in found if c.group == group and name in c.measures]
            print(f"{name}, {group}: {len(values)} from {min(values):.2g} to {max(values):.2g}")
    if options.docs:
        from benchmarks.verdict.plot import LAYERS, draw_strips

        PLOT.write_text(draw_strips(found, LAYERS), encoding="utf-8")


if __name__ == "__main__":
    main()
