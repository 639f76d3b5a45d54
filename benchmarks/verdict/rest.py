"""Where the limits lie for what no kernel explains of a table.

    python -m benchmarks.verdict.rest [--docs] [--every N]

A kernel is fitted to every N-th version of each table (`verdict.py` makes them; only those that no
known method makes), and to all tables that were trained after an honest resize. What it leaves is
measured, as `verify/made_by/unmatched.py` does. `--docs` draws docs/verdict_rest.svg. With the
usual N it takes about three minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdict.count import FOR_DAMAGE, Shape, step_for, targets, trained_tables, versions
from benchmarks.verdict.shared import share
from benchmarks.verdict.tables import Known, known_tables
from resize_pos.families.tables import stored_grid
from resize_pos.quality.measures.table import measure_table, unfold
from resize_pos.verify.made_by import training
from resize_pos.verify.made_by.fitted import fit_nearby
from resize_pos.verify.made_by.methods import match_conventions, recognise_proper
from resize_pos.verify.made_by.pair import make_pair

PLOT = Path(__file__).parents[2] / "docs" / "verdict_rest.svg"
EVERY = 40
NOT_MEASURED = float("nan")


@dataclass(frozen=True)
class Case:
    """One table, and what the fitted kernel leaves of it."""

    held_out: bool
    group: str
    measures: Mapping[str, float]


def measured(known: Known, target: Shape, group: str, table: NDArray[np.float32]) -> Case | None:
    """Fit a kernel to a table; None if a known method made it, or too few cells are left."""
    step = step_for(known, target)
    old, new = unfold(step, known.rows, table)
    grids = [stored_grid(step.table.role, grid) for grid in (step.table.grid, step.target)]
    pair = make_pair(old, new, *grids)
    if match_conventions(pair, table.dtype)[0].exact or recognise_proper(pair, table.dtype)[0]:
        return None
    rest = fit_nearby(pair.many_grid, pair.many_after, pair.target)
    left = training.unexplained(pair.many_grid, pair.many_after, rest, pair.target)
    if left is None or left.is_small:
        return None
    envelope = measure_table(step, known.rows, table, None, None).values["unlikeness_honest"]
    found = {
        "elsewhere": left.moved,
        "most_little": left.most_little(envelope),
        "least_much": left.least_much(envelope),
        "left": left.left,
        "least_left": left.least_left(envelope),
        "directions": left.directions,
    }
    return Case(known.held_out, group, found)


def cases(known: Known, every: int) -> Iterator[Case]:
    """Measure every N-th version of a table."""
    for target in targets(known.grid)[:FOR_DAMAGE]:
        for group, _, table in versions(known, target, damage=True, every=every):
            found = measured(known, target, group, table)
            if found is not None:
                yield found


def trained_cases(known: Sequence[Known]) -> Iterator[Case]:
    """Measure the tables that were trained on."""
    for one, target, group, _, table in trained_tables(known):
        found = measured(one, target, group, table)
        if found is not None:
            yield found


def _between(value: float, low: float, high: float) -> float:
    """Place a value between zero and its two limits, which are drawn at 1 and 2."""
    return value / low if value <= low else 1 + (value - low) / max(high - low, 0.01 * low)


def _directions(values: Mapping[str, float]) -> float:
    if values["elsewhere"] <= values["most_little"]:
        return NOT_MEASURED
    return _between(values["directions"], training.DIRECTIONS, training.FILLED)


# Trained tables are drawn with the honest ones.
REST: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "what comes from no cell around its place (fails only if it is no training)": lambda values: (
        _between(values["elsewhere"], values["most_little"], values["least_much"])
    ),
    "directions of that ÷ those of noise, where it is much (training, then noise)": _directions,
    "positions that are missing (a warning at most)": lambda values: min(
        max(1 - values["left"], 0.0) / (1 - values["least_left"]), 1.9
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verdict.rest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--docs", action="store_true", help="draw docs/verdict_rest.svg")
    parser.add_argument("--every", type=int, default=EVERY, metavar="N")
    options = parser.parse_args(arguments)
    share()
    known = list(known_tables())
    found = list(trained_cases(known))
    for one in known:
        found += cases(one, options.every)
        print(f"{one.name}: {len(found)} cases", file=sys.stderr, flush=True)
    if options.docs:
        from benchmarks.verdict.plot import draw_strips

        PLOT.write_text(draw_strips(found, REST), encoding="utf-8")


if __name__ == "__main__":
    main()
