"""How often the verdict on relative tables is right, and where its limits lie.

    python -m benchmarks.verdict.offsets [--docs]

The tables are those of `small_offsets.py`. Each is resized in offset space by every convention and
by five other kernels, taken from networks that were trained on after a resize, and damaged in 14
ways. The kernels and mistakes of `unseen.py` are applied, too.
`--docs` writes the counts into docs/artifacts.md and draws docs/verdict_relative.svg.
`python -m benchmarks.verdict --docs` does that, too.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdict.named import is_named
from benchmarks.verdict.shared import share
from benchmarks.ways import unseen
from benchmarks.ways.proper import OTHERS, SMOOTH
from resize_pos.core.conventions import RELATIVE_CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import ResampleOffsets
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role, custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import Level, worst
from resize_pos.transforms.execute import transform
from resize_pos.verify.against_source import explain
from resize_pos.verify.made_by.offsets import limits, nearest_honest

HERE = Path(__file__).parents[1]
STORED, ABOUT = HERE / "tables" / "offsets.npz", HERE / "tables" / "offsets.json"
DOCS, PLOT = HERE.parent / "docs" / "artifacts.md", HERE.parent / "docs" / "verdict_relative.svg"
BEGIN, END = "<!-- offsets: begin -->", "<!-- offsets: end -->"
Table = NDArray[np.float32]
Shape = tuple[int, int]
FACTORS = ((1.5, 1.7), (0.6, 0.75), (2.0, 1.2))
KERNELS = ("torch area", "PIL bicubic", "scipy zoom cubic", "FITPACK spline", "PIL lanczos")


def targets(grid: Shape) -> list[Shape]:
    """Choose the windows that a table is resized to."""
    made = [(max(2, round(grid[0] * h)), max(2, round(grid[1] * w))) for h, w in FACTORS]
    return [target for target in dict.fromkeys(made) if target != grid]


def _stored(grid: Shape) -> Shape:
    return 2 * grid[0] - 1, 2 * grid[1] - 1


def step_for(table: Table, grid: Shape, target: Shape, like: str = "swin") -> Step:
    plain = custom_family("relative_position_bias_table", "(h w s) d")
    family = replace(plain, role=Role.RELATIVE)
    info = TensorInfo("relative_position_bias_table", table.shape, "F32")
    place = PositionTable(info, family, "", family.axes[0], Grid(*grid))
    rows = int(np.prod(_stored(target)))
    operation = ResampleOffsets(RELATIVE_CONVENTIONS[like].resampling)
    shape = (rows, table.shape[1])
    return Step(place, Action.RESIZE, Grid(*target), shape, operation, "")


def honest(table: Table, grid: Shape, target: Shape, like: str) -> Table:
    """Resize as a library does."""
    made: Table = transform(step_for(table, grid, target, like), table)
    return made


def _cells(table: Table, grid: Shape) -> Table:
    return table.reshape(*_stored(grid), -1)


def _after(change: Callable[[Table], NDArray[np.floating]]) -> Callable[..., Table]:
    """Resize honestly, then change the grid of offsets."""

    def made(table: Table, grid: Shape, target: Shape) -> Table:
        cells = change(_cells(honest(table, grid, target, "swin"), target).copy())
        return np.ascontiguousarray(cells, np.float32).reshape(-1, table.shape[1])

    return made


def _one_d(table: Table, grid: Shape, target: Shape) -> Table:
    """Interpolate the flattened offsets as a line."""
    rows = int(np.prod(_stored(target)))
    places = np.linspace(0, len(table) - 1, rows)
    low = np.minimum(places.astype(int), len(table) - 2)
    share = (places - low)[:, None]
    made: Table = (table[low] * (1 - share) + table[low + 1] * share).astype(np.float32)
    return made


def _cut(table: Table, grid: Shape, target: Shape) -> Table:
    """Keep the first rows; what is missing is drawn anew."""
    rows = int(np.prod(_stored(target)))
    new = np.random.default_rng(0).normal(0, 0.02, (rows, table.shape[1])).astype(np.float32)
    kept = min(rows, len(table))
    new[:kept] = table[:kept]
    return new


def _swapped(table: Table, grid: Shape, target: Shape) -> Table:
    """Read height for width."""
    turned = np.ascontiguousarray(_cells(table, grid).swapaxes(0, 1)).reshape(table.shape)
    return honest(turned, (grid[1], grid[0]), target, "swin")


def _noise(cells: Table, share: float) -> Table:
    drawn = np.random.default_rng(1).normal(0, 1, cells.shape) * cells.std((0, 1)) * share
    noise: Table = drawn.astype(np.float32)
    return noise


DAMAGE: Mapping[str, Callable[[Table, Shape, Shape], Table]] = {
    "1-D": _one_d,
    "cut off": _cut,
    "height and width swapped": _swapped,
    "mirrored": _after(lambda c: c[:, ::-1]),
    "rotated by 180°": _after(lambda c: c[::-1, ::-1]),
    "rolled by one": _after(lambda c: np.roll(c, 1, 1)),
    "rolled by half": _after(lambda c: np.roll(c, (c.shape[0] // 2, c.shape[1] // 2), (0, 1))),
    "re-initialised": _after(lambda c: _noise(c, 1.0)),
    "all zero": _after(lambda c: c * 0),
    "negated": _after(lambda c: -c),
    "heads in reverse order": _after(lambda c: c[..., ::-1]),
    "shuffled": _after(
        lambda c: np.random.default_rng(2).permutation(c.reshape(-1, c.shape[-1])).reshape(c.shape)
    ),
    "noise added": _after(lambda c: c + _noise(c, 1.5)),
    "doubled": _after(lambda c: c * 2),
}


# Every cell of a relative table is an offset, so a shift by a quarter is as wrong as in an image.
UNSEEN = unseen.DAMAGE


def damaged(how: str, table: Table, grid: Shape, target: Shape) -> Table:
    """Damage a table in one way."""
    return DAMAGE[how](table, grid, target)


@dataclass(frozen=True)
class Case:
    """One relative table that was made, and what the verdict says of it."""

    table: str
    held_out: bool
    seen: bool
    group: str
    how: str
    level: str
    named: bool
    said: str
    costly: bool | None
    measures: Mapping[str, float]


def versions(table: Table, grid: Shape, target: Shape) -> Iterator[tuple[str, str, Table]]:
    """Resize a table in every honest way, and damage it."""
    cells, stored = _cells(table, grid), _stored(target)
    for like in RELATIVE_CONVENTIONS:
        if like != "tinyvit":  # that one resamples distances
            yield "own", like, honest(table, grid, target, like)
    kernels = [("other", name, OTHERS[name]) for name in KERNELS]
    kernels += [("unseen", name, way) for name, way in unseen.HONEST.items()]
    for group, name, way in kernels:
        yield group, name, _rows(way(cells, stored))
    fair = _rows(SMOOTH(cells, stored)), honest(table, grid, target, "swin")
    wrong = [("damage", how, damaged(how, table, grid, target)) for how in DAMAGE]
    wrong += [("unseen damage", how, _rows(way(cells, stored))) for how, way in UNSEEN.items()]
    for group, how, made in wrong:
        # A table that is symmetric can be mirrored without damage.
        if not any(np.allclose(made, one, atol=1e-3 * float(np.abs(one).max())) for one in fair):
            yield group, how, made


def _rows(cells: Table) -> Table:
    return np.ascontiguousarray(cells, np.float32).reshape(-1, cells.shape[-1])


def cases(jobs: int = 1) -> Iterator[Case]:
    """Judge every version of every table, each table in one of several processes."""
    names = list(json.loads(ABOUT.read_text(encoding="utf-8")))
    if jobs == 1:
        found: Iterator[list[Case]] = map(_judged, names)
    else:
        # A fork of a process with threads, as the one that judged real tables, may wait for ever.
        found = ProcessPoolExecutor(jobs, get_context("spawn")).map(_judged, names)
    for mine in found:
        yield from mine


def _judged(name: str) -> list[Case]:
    share()
    return list(cases_of(name))


def cases_of(name: str) -> Iterator[Case]:
    """Judge every version of one table."""
    known = json.loads(ABOUT.read_text(encoding="utf-8"))[name]
    with np.load(STORED) as stored:
        tables = {key: stored[key] for key in stored.files if key.startswith(name)}
    table, grid = tables[name], tuple(known["grid"])
    for target in targets(grid):
        step = step_for(table, grid, target)
        at = f"{target[0]}x{target[1]}"
        made = list(versions(table, grid, target))
        if f"{name} {at} trained" in tables:
            made.append(("trained", "trained", tables[f"{name} {at} trained"]))
        for group, how, result in made:
            costly = known["costs"].get(f"{at} {how}", (None, None))[1]
            found = _case(step, table, result)
            yield replace(
                found,
                table=name,
                held_out=known["held_out"],
                seen=known["seen"],
                group=group,
                how=how,
                costly=costly,
            )


def _case(step: Step, table: Table, result: Table) -> Case:
    """Judge one version of a table."""
    found = explain(step, table, np.ascontiguousarray(result, np.float32))
    near = nearest_honest(step, table, result)
    unlike, zero = limits(near)
    values = {
        **found.measures,
        "offsets_unlikeness": near.unlikeness,
        "offset_zero_unlikeness": near.at_zero,
        "offsets_ok": unlike[0],
        "offsets_most": unlike[1],
        "offset_zero_ok": zero[0],
        "offset_zero_most": zero[1],
    }
    measures = {key: round(float(value), 4) for key, value in values.items()}
    level = worst(found.checks)
    said = " | ".join(c.detail for c in found.checks if c.level is level is not Level.OK)
    named = is_named(found)
    return Case("", False, True, "", "", level.value, named, said[:200], None, measures)


GROUPS = {
    "own": "by a library's convention",
    "other": "by other kernels",
    "unseen": "by the kernels of `unseen.py`",
    "trained": "trained after an honest resize",
    "damage": "damaged, all",
    "unseen damage": "damaged as in `unseen.py`",
}
DAMAGED = ("damage", "unseen damage")
SECTIONS = (
    ("Tuned on", False, True),
    ("Not tuned on, but seen while the limits were set", True, True),
    ("Real, judged once before the limits were changed", True, False),
)


def report(found: Sequence[Case]) -> str:
    """Give the confusion tables as Markdown."""
    lines: list[str] = []
    for title, held_out, seen in SECTIONS:
        mine = [case for case in found if (case.held_out, case.seen) == (held_out, seen)]
        count = len({case.table for case in mine})
        lines += [f"**{title}** ({count} relative tables)", ""]
        lines += ["| made by | cases | ok | warn | fail | named |", "|---|---|---|---|---|---|"]
        groups = [(words, [c for c in mine if c.group == g]) for g, words in GROUPS.items()]
        groups.append(("damaged, costs accuracy", [c for c in mine if c.costly]))
        for words, of_group in groups:
            counts = Counter(case.level for case in of_group)
            levels = " | ".join(str(counts[level]) for level in ("ok", "warn", "fail"))
            failed = [case for case in of_group if case.level == "fail"]
            damage = bool(of_group) and of_group[0].group in DAMAGED
            named = f"{sum(c.named for c in failed)}/{len(failed)}" if damage else ""
            lines.append(f"| {words} | {len(of_group)} | {levels} | {named} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write counts and the plot into docs/")
    options = parser.parse_args(arguments)
    found = list(cases(os.cpu_count() or 1))
    text = report(found)
    print(text)
    if options.docs:
        from benchmarks.verdict.plot import draw_offsets

        old = DOCS.read_text(encoding="utf-8")
        before, rest = old.split(BEGIN)
        DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
        PLOT.write_text(draw_offsets(found), encoding="utf-8")


if __name__ == "__main__":
    main()
