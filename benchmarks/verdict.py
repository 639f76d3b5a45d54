"""How often the verdict is right, on tables that its limits were set on and on others.

    python -m benchmarks.verdict [--only NAME …] [--networks FOLDER --data FOLDER] [--docs FILE]

Every table of `benchmarks/tables/` and of the two sample models is resized between several pairs of
grids: by this project, by other libraries' own code and by other proper kernels (`proper.py`), and
damaged in 97 ways (`damage.py`, `damage_more.py`). Eight further honest ways and 18 wrong ones were
written after the limits were fixed (`unseen.py`). `verify`'s verdict on each is counted. With the
trained networks (`small_vits.py`) the damage is also run, to know which of it costs anything, and
networks are trained on for up to 300 steps after an honest resize. `verdict.json` keeps every case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from benchmarks import proper, unseen
from benchmarks.damage import honest
from benchmarks.damage_more import ALL_DAMAGE, honest_results, is_damage, plant
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.verdict import SMALL
from resize_pos.verify.against_source import TableVerification, explain

if TYPE_CHECKING:
    from benchmarks.verdict_networks import Judge

HERE = Path(__file__).parent
TABLES, RESULTS = HERE / "tables", HERE / "verdict.json"
BEGIN, END = "<!-- verdict: begin -->", "<!-- verdict: end -->"
Table = NDArray[np.float32]
Shape = tuple[int, int]
# Factors on height and width. The last three are for honest resizes alone.
FACTORS = ((1.5, 1.4), (0.6, 0.55), (1.2, 0.8), (2.5, 2.2), (0.25, 0.3))
FOR_DAMAGE = 2
MOST_CELLS = 3600
KEPT = (
    *("unlikeness", "unlikeness_honest", "misplaced", "misplaced_honest", "foreign_cells"),
    *("foreign_cells_honest", "foreign_channels", "foreign_channels_honest", "mean_shift"),
    *("mean_shift_honest", "gain", "norm_sampled", "norm_honest_low", "norm_honest_high"),
    *("window_prominence", "fewest_cells", "neighbour_deficit", "prefix_change"),
)


@dataclass(frozen=True)
class Known:
    """A trained table and what is known of it."""

    name: str
    rows: Table
    prefix: int
    grid: Shape
    held_out: bool
    windowed: bool
    origin: str
    seen: bool = True  # in a sweep, before the limits were fixed


@dataclass(frozen=True)
class Case:
    """One table that was made, and what the verdict says of it."""

    table: str
    held_out: bool
    windowed: bool
    target: Shape
    group: str  # a key of `GROUPS`
    how: str
    level: str
    named: bool
    words: str
    cost: float | None  # of damage: rise of the loss ÷ that of the honest resize; None: not run
    costly: bool | None
    measures: Mapping[str, float]


def known_tables() -> Iterator[Known]:
    """Give every table that is stored here."""
    root = HERE.parent
    for name, path, grid in (
        ("digits", root / "sample_checkpoints" / "digits_vit_224.safetensors", (14, 14)),
        ("clothes", HERE / "clothes_vit_96x128.safetensors", (12, 16)),
    ):
        rows = load_file(path)["pos_embed"][0].astype(np.float32)
        yield Known(name, rows, 1, grid, False, False, path.name)
    listed = json.loads((TABLES / "tables.json").read_text(encoding="utf-8"))
    with np.load(TABLES / "tables.npz") as stored:
        for name, about in listed.items():
            yield Known(
                name,
                stored[name].astype(np.float32),
                about["prefix"],
                (about["grid"][0], about["grid"][1]),
                about["held_out"],
                about["windowed"],
                about["origin"],
                about["seen"],
            )


def targets(grid: Shape) -> list[Shape]:
    """Choose the grids that a table is resized to."""
    made = [(max(2, round(grid[0] * h)), max(2, round(grid[1] * w))) for h, w in FACTORS]
    return [t for t in dict.fromkeys(made) if t != grid and t[0] * t[1] <= MOST_CELLS]


def step_for(known: Known, target: Shape) -> Step:
    family = custom_family("pos_embed", "(p h w s) d")
    info = TensorInfo("pos_embed", known.rows.shape, "F32")
    place = PositionTable(info, family, "", family.axes[0], Grid(*known.grid), prefix=known.prefix)
    shape = (known.prefix + target[0] * target[1], known.rows.shape[1])
    operation = Resample(CONVENTIONS["timm"].resampling)
    return Step(place, Action.RESIZE, Grid(*target), shape, operation, "")


def versions(known: Known, target: Shape, *, damage: bool) -> Iterator[tuple[str, str, Table]]:
    """Resize a table in every honest way, and damage it in every way that applies."""
    rows, prefix, grid = known.rows, known.prefix, known.grid
    for like in CONVENTIONS:
        yield "own", like, honest(rows, prefix, grid, target, like)
    cells = rows[prefix:].reshape(*grid, -1)
    for group, ways in (("library", proper.LIBRARIES), ("other", proper.OTHERS)):
        for name, way in ways.items():
            yield group, name, _whole(rows[:prefix], way(cells, target))
    for name, way in unseen.HONEST.items():
        yield "unseen", name, _whole(rows[:prefix], way(cells, target))
    if damage:
        fair = honest_results(rows, prefix, grid, target)
        for name, way in unseen.DAMAGE.items():
            made = _whole(rows[:prefix], way(cells, target))
            if is_damage(made, fair):
                yield "unseen damage", name, made
        for how in ALL_DAMAGE:
            planted = plant(how, rows, prefix, grid, target, fair)
            if planted is not None:
                yield "damage", how, planted


def _whole(prefix_rows: Table, cells: Table) -> Table:
    grid = cells.reshape(-1, cells.shape[-1])
    return np.concatenate([prefix_rows, grid]).astype(np.float32)


def is_named(found: TableVerification) -> bool:
    """Whether the verdict says what is wrong: a mistake by name, or which part is what."""
    if found.diagnosis is not None:
        return True
    said = " ".join(check.detail for check in found.checks if check.level is not Level.OK)
    return any(word in said for word in NAMES)


NAMES = (
    *("re-initialised", "all zero", "constant", "shuffled", "scaled?", "prefix or suffix rows"),
    *("another checkpoint's", "swapped", "mirrored", "cropped", "Noise was added"),
)


def cases(known: Known, judge: Judge | None) -> Iterator[Case]:
    """Judge every version of one table."""
    for index, target in enumerate(targets(known.grid)):
        step = step_for(known, target)
        made = list(versions(known, target, damage=index < FOR_DAMAGE))
        if judge is not None and index < FOR_DAMAGE:
            made += [("trained", how, table) for how, table in judge.trained(known, target)]
        for group, how, table in made:
            found = explain(step, known.rows, table)
            checks = [c for c in found.checks if not (known.windowed and c.name == "window")]
            level = worst(checks)
            said = " | ".join(c.detail for c in checks if c.level is level)
            cost, costly = None, None
            if judge is not None and group in DAMAGED:
                cost, costly = judge.cost(known, target, table)
            kept = {key: round(found.measures[key], 4) for key in KEPT if key in found.measures}
            yield Case(
                *(known.name, known.held_out, known.windowed, target, group, how, level.value),
                *(is_named(found), said[:200], cost, costly, kept),
            )


GROUPS = {
    "own": "this project's own",
    "library": "libraries' own code",
    "other": "other proper kernels",
    "unseen": "other kernels, never looked at",
    "trained": "trained after an honest resize",
    "damage": "damaged, all",
    "unseen damage": "damage that was never looked at",
}
DAMAGED = ("damage", "unseen damage")
SECTIONS = (
    ("tables that the limits were set on", False, True),
    ("held out, but seen in a sweep before the limits were fixed", True, True),
    ("held out and never looked at before", True, False),
)


def report(found: Sequence[Case]) -> str:
    """Give the confusion tables as Markdown."""
    lines: list[str] = []
    known = {table.name: table for table in known_tables()}
    for title, held_out, seen in SECTIONS:
        which = [name for name, t in known.items() if (t.held_out, t.seen) == (held_out, seen)]
        mine = [case for case in found if case.table in which]
        names = sorted({case.table for case in mine})
        lines += [f"**{title.capitalize()}** ({len(names)}: {', '.join(names)})", ""]
        lines += ["| made by | cases | ok | warn | fail | named |", "|---|---|---|---|---|---|"]
        for group, words in GROUPS.items():
            lines.append(_row(words, [c for c in mine if c.group == group], group in DAMAGED))
        costly = [case for case in mine if case.costly]
        lines.append(_row("damaged, costs accuracy", costly, True))
        few = [c for c in mine if c.group in DAMAGED and _small(c)]
        lines += [_row(f"damaged, under {SMALL} cells", few, True), ""]
    return "\n".join(lines)


def _small(case: Case) -> bool:
    return case.measures.get("fewest_cells", SMALL) < SMALL


def _row(words: str, mine: Sequence[Case], damage: bool) -> str:
    counts = Counter(case.level for case in mine)
    failed = [case for case in mine if case.level == "fail"]
    named = f"{sum(c.named for c in failed)}/{len(failed)}" if damage else ""
    levels = " | ".join(str(counts[level]) for level in ("ok", "warn", "fail"))
    return f"| {words} | {len(mine)} | {levels} | {named} |"


def write_into(path: Path, text: str) -> None:
    """Replace what stands between the two marks."""
    old = path.read_text(encoding="utf-8")
    before, rest = old.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def read_results(path: Path = RESULTS) -> list[Case]:
    """Read the cases of the last run."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [Case(**{**case, "target": tuple(case["target"])}) for case in stored]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=__doc__)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these tables alone")
    parser.add_argument("--networks", type=Path, metavar="FOLDER", help="small_vits' output")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="small_vits' data")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the counts there, too")
    parser.add_argument("--join", type=Path, nargs="*", metavar="FILE", help="join earlier outputs")
    options = parser.parse_args(arguments)
    judge: Judge | None = None
    if options.networks is not None:
        from benchmarks.verdict_networks import Judge

        judge = Judge(options.networks, options.data)
    started, found = time.monotonic(), []
    listed = {known.name: known for known in known_tables()}
    for path in options.join or ():
        found += read_results(path)
    chosen = () if options.join else options.only or listed
    for known in (listed[name] for name in chosen):
        found += list(cases(known, judge))
        seconds = time.monotonic() - started
        print(f"{known.name}: {len(found)} cases, {seconds:.0f} s", file=sys.stderr, flush=True)
    options.output.write_text(
        "[\n" + ",\n".join(json.dumps(asdict(case)) for case in found) + "\n]\n",
        encoding="utf-8",
    )
    text = report(found)
    print(text)
    if options.docs is not None:
        write_into(options.docs, text)


if __name__ == "__main__":
    main()
