"""Determine prefix, grid and suffix of a table from evidence, or refuse and list the candidates.

The evidence is used in this order: flags, the record in the file itself, a config beside the file,
the only square that the candidates allow, the table's values. Grids are compared, never row counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Owner

_CLASS = "cls_token"
_MOST_LISTED = 8
_WIDEST_ASPECT = 16
_LIKELY = (224, 240, 256, 336, 384, 448, 512, 518)  # pixels of a square; more so than a rectangle
_MOST_PREFIX = 8  # largest prefix that is tried without evidence for it


@dataclass(frozen=True, slots=True)
class RowCount:
    """A possible number of rows before (or after) the grid, and the reason for it."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A grid that some evidence states. If `binding`, it must fit, or the request is refused."""

    grid: Grid
    reason: str
    binding: bool = False
    size: Size | None = None  # pixels, where the patch size is known only from flags
    frames: int | None = None  # or slices, where the evidence states them, too


@dataclass(frozen=True, slots=True)
class Geometry:
    """The prefix, grid and suffix that were determined, with the evidence in words."""

    prefix: int
    grid: Grid
    suffix: int
    evidence: tuple[str, ...]
    frames: int = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the rows of a table: prefix + frames · grid + suffix."""

    prefix: RowCount
    grid: Grid
    suffix: RowCount
    frames: int = 1

    def __str__(self) -> str:
        cells = str(self.grid) if self.frames == 1 else f"{self.frames}×{self.grid}"
        parts = [str(self.prefix.count)] if self.prefix.count else []
        parts += [cells, *([str(self.suffix.count)] if self.suffix.count else [])]
        total = self.prefix.count + self.frames * self.grid.cells + self.suffix.count
        return f"{total} = {' + '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Opinion:
    """Which of several possible readings the values support."""

    choice: Reading | None  # None: the values support none clearly
    words: str


Judge = Callable[[Sequence[Reading]], Opinion]
_Pairs = Sequence[tuple[RowCount, RowCount]]


def candidates(
    owners: Sequence[Owner],
    stem: str,
    tensors: Mapping[str, TensorInfo],
    stated: int | None,
    flag: str,
) -> tuple[RowCount, ...]:
    """List the possible row counts, the most likely first. If a flag states one, list only that."""
    if stated is not None:
        return (RowCount(stated, f"{flag} {stated}"),)
    found: dict[int, RowCount] = {}
    together = {owner.siblings for owner in owners if len(owner.siblings) > 1}
    for owner in owners:
        siblings = [stem + name for name in owner.siblings]
        if any(name not in tensors for name in siblings):
            continue
        # No known model gives rows to its registers, and none to the class token that it has.
        if (_CLASS, *owner.siblings) in together and stem + _CLASS in tensors:
            continue
        count = owner.count + sum(math.prod(tensors[name].shape[:-1]) for name in siblings)
        if siblings:
            reason = f"{' + '.join(siblings)} may account for {rows_in_words(count)}"
        else:
            reason = f"{rows_in_words(count)} without a token" if count else "no such rows"
        found.setdefault(count, RowCount(count, reason))
    return tuple(found.values())


def settle(
    name: str,
    rows: int,
    prefixes: Sequence[RowCount],
    suffixes: Sequence[RowCount],
    hypotheses: Iterable[Hypothesis],
    tiling: Tiling | None,
    *,
    timed: bool = False,
    volume: bool = False,
    judge: Judge | None = None,
    square: bool = True,
) -> Geometry:
    """Solve rows = prefix + frames·h·w + suffix over the typed candidates.

    `square`: a grid without other evidence may be assumed to be square.
    """
    remarks: list[str] = []
    pairs = [(p, s) for p in prefixes for s in suffixes if p.count + s.count < rows]
    for hypothesis in hypotheses:
        fits = _fits(rows, pairs, hypothesis.grid, timed)
        if hypothesis.frames is not None:
            fits = [fit for fit in fits if fit.frames == hypothesis.frames]
        if len(fits) == 1:
            return settled(fits[0], [*remarks, hypothesis.reason])
        if fits:
            opinion = judge(fits) if judge is not None and not timed else None
            if opinion is not None and opinion.choice is not None:
                return settled(opinion.choice, [*remarks, hypothesis.reason, opinion.words])
            raise _ambiguous(name, rows, fits, opinion)
        if hypothesis.binding:
            left = rows - hypothesis.grid.cells * (hypothesis.frames or 1)
            split = None if timed else _split(rows, left, hypothesis.grid, judge)
            raise _disagreement(name, rows, hypothesis, pairs, tiling, split)
        remarks.append(f"{hypothesis.reason}, which does not fit {rows} rows")
    if timed:
        return _settle_frames(name, rows, pairs, remarks, judge, volume=volume)
    squares = _squares(rows, pairs)
    answers = readings(rows, pairs)
    rivals = [] if len(squares) != 1 else _with_tokens(squares[0], answers, tiling)
    if square and len(squares) == 1 and not rivals:
        return settled(squares[0], [*remarks, ONLY_SQUARE])
    squares = [*squares, *rivals]
    opinion = judge(answers) if judge is not None and answers else None
    if opinion is not None and opinion.choice is not None:
        return settled(opinion.choice, [*remarks, opinion.words])
    near = _near(rows, pairs, judge)
    raise _ambiguous(name, rows, squares or answers, opinion, near=near, patched=tiling is not None)


def _settle_frames(
    name: str,
    rows: int,
    pairs: _Pairs,
    remarks: Sequence[str],
    judge: Judge | None,
    *,
    volume: bool,
) -> Geometry:
    """Determine frames and grid together: by the values; a volume by its only cube, too."""
    tubes = _tubes(rows, pairs)
    answers = _volumes(rows, pairs) if volume else tubes
    opinion = judge(answers) if judge is not None and answers else None
    choice = opinion.choice if opinion is not None else None
    cubes = [tube for tube in tubes if volume and tube.frames == tube.grid.height]
    if len(cubes) == 1 and choice in (None, cubes[0]):
        return settled(cubes[0], [*remarks, "the only cube that fits"])
    if choice is not None and opinion is not None and not cubes:
        return settled(choice, [*remarks, opinion.words])
    raise _ambiguous(name, rows, tubes or answers, opinion, timed=True)


def _volumes(rows: int, pairs: _Pairs) -> list[Reading]:
    """List every reading as depth × height × width."""
    found = []
    for prefix, suffix in pairs:
        cells = rows - prefix.count - suffix.count
        for depth in _divisors(cells):
            for height in _divisors(cells // depth):
                sides = (depth, height, cells // depth // height)
                if min(sides) > 1:
                    found.append(Reading(prefix, Grid(*sides[1:]), suffix, depth))
    return found


def _divisors(number: int) -> list[int]:
    small = [side for side in range(1, math.isqrt(number) + 1) if number % side == 0]
    return sorted({*small, *(number // side for side in small)})


def _near(rows: int, pairs: _Pairs, judge: Judge | None) -> Opinion | None:
    """Score prefix counts that have no other evidence; the result is used only in the hint."""
    known = {prefix.count for prefix, _ in pairs}
    stated = any(prefix.reason.startswith("--") for prefix, _ in pairs)
    if judge is None or stated or not pairs:
        return None
    suffixes = dict.fromkeys(suffix for _, suffix in pairs)
    counts = [count for count in range(_MOST_PREFIX + 1) if count not in known]
    unheard = [(RowCount(n, ""), s) for n in counts for s in suffixes if n + s.count < rows]
    opinion = judge(readings(rows, [*unheard, *pairs]))
    choice = opinion.choice
    return opinion if choice is not None and choice.prefix.count not in known else None


ONLY_SQUARE = "the only square that fits"


def settled(reading: Reading, reasons: Sequence[str]) -> Geometry:
    """Return the chosen reading as a `Geometry`, with the reasons as evidence."""
    owners = [
        c.reason for c in (reading.prefix, reading.suffix) if c.count or c.reason.startswith("--")
    ]
    evidence = (*reasons, *owners)
    return Geometry(
        reading.prefix.count, reading.grid, reading.suffix.count, evidence, reading.frames
    )


def readings(rows: int, pairs: _Pairs) -> list[Reading]:
    """List every grid that the candidates allow, the squarest first."""
    found: list[Reading] = []
    for prefix, suffix in pairs:
        cells = rows - prefix.count - suffix.count
        sides = [side for side in range(1, math.isqrt(cells) + 1) if cells % side == 0]
        grids = {Grid(*pair) for a in sides for pair in ((a, cells // a), (cells // a, a))}
        narrow = [
            g for g in grids if max(g.height, g.width) <= _WIDEST_ASPECT * min(g.height, g.width)
        ]
        narrow.sort(key=lambda g: (abs(math.log(g.width / g.height)), g.height))
        found += [Reading(prefix, grid, suffix) for grid in narrow]
    return found


def _fits(rows: int, pairs: _Pairs, grid: Grid, timed: bool) -> list[Reading]:
    found = []
    for prefix, suffix in pairs:
        frames, rest = divmod(rows - prefix.count - suffix.count, grid.cells)
        if rest == 0 and (frames == 1 or (timed and frames > 1)):
            found.append(Reading(prefix, grid, suffix, frames))
    return found


def _squares(rows: int, pairs: _Pairs) -> list[Reading]:
    return [reading for reading in readings(rows, pairs) if reading.grid.is_square]


def _with_tokens(
    square: Reading, answers: Sequence[Reading], tiling: Tiling | None
) -> list[Reading]:
    """List the readings in which tokens of the file own rows, if a square leaves none to them.

    25 rows are 5×5, or a class row and 4×6. A square of a size that models are published in is
    believed, as some models give their tokens no row.
    """
    if square.prefix.count or square.suffix.count or _is_published(square.grid, tiling):
        return []
    return [
        each
        for each in answers
        if "may account for" in f"{each.prefix.reason} {each.suffix.reason}"
        and each.prefix.count + each.suffix.count
        and max(each.grid.height, each.grid.width) <= 2 * min(each.grid.height, each.grid.width)
    ]


def _is_published(grid: Grid, tiling: Tiling | None) -> bool:
    steps = [tiling] if tiling is not None else [Tiling(Size(side, side)) for side in (14, 16)]
    sizes = [step.pixels(grid) for step in steps]
    return any(size.height in _LIKELY for size in sizes)


def _tubes(rows: int, pairs: _Pairs) -> list[Reading]:
    """List every reading as frames × square grid; first those with about as many frames as rows."""
    found = []
    for prefix, suffix in pairs:
        cells = rows - prefix.count - suffix.count
        for side in range(2, math.isqrt(cells) + 1):
            if cells % (side * side) == 0:
                found.append(Reading(prefix, Grid(side, side), suffix, cells // side**2))
    return sorted(found, key=lambda r: abs(math.log(r.frames / r.grid.height)))


def _ambiguous(
    name: str,
    rows: int,
    answers: Sequence[Reading],
    opinion: Opinion | None = None,
    *,
    timed: bool = False,
    near: Opinion | None = None,
    patched: bool = True,
) -> GeometryError:
    look = f" {opinion.words}." if opinion is not None else ""
    if near is not None and near.choice is not None:
        grid, prefix = near.choice.grid, near.choice.prefix.count
        return GeometryError(
            f"{name} has {rows} rows: its grid cannot be determined with the known numbers of "
            f"prefix rows; but {near.words}.",
            hint=f"if {rows_in_words(prefix)} stand before the grid, pass --prefix {prefix} "
            + (f"--from-grid {grid.height}x{grid.width}." if patched else "--from SIZE."),
        )
    if not answers:
        return GeometryError(
            f"{name} has {rows} rows: no grid fits with the known numbers of prefix rows.{look}",
            hint="state the grid with --from-grid HxW, and --prefix N for the rows before it; or "
            f"pass --leave '^{re.escape(name)}$' if it does not depend on the resolution.",
        )
    shown = "; ".join(str(answer) for answer in answers[:_MOST_LISTED])
    more = f"; and {len(answers) - _MOST_LISTED} more" if len(answers) > _MOST_LISTED else ""
    flags = ["--from-grid HxW"]
    if len({answer.prefix.count for answer in answers}) > 1:
        flags.append("--prefix N")
    if len({answer.suffix.count for answer in answers}) > 1:
        flags.append("--suffix N")
    kind = " (frames × height × width)" if timed else ""
    return GeometryError(
        f"{name} has {rows} rows, which can be read as {shown}{more}{kind}.{look}",
        hint=f"settle it with --from SIZE (height × width), or with {' or '.join(flags)}.",
    )


def _split(rows: int, left: int, grid: Grid, judge: Judge | None) -> Reading | None:
    """Ask the values how many of the rows beside the grid stand before it, how many after it."""
    if judge is None or not 0 < left <= _MOST_LISTED:
        return None
    counts = [(RowCount(n, ""), RowCount(left - n, "")) for n in range(left, -1, -1)]
    return judge([reading for reading in readings(rows, counts) if reading.grid == grid]).choice


def _disagreement(
    name: str,
    rows: int,
    hypothesis: Hypothesis,
    pairs: _Pairs,
    tiling: Tiling | None,
    split: Reading | None,
) -> GeometryError:
    grid = hypothesis.grid
    cells = grid.cells * (hypothesis.frames or 1)
    left = rows - cells
    message = f"{name} has {rows} rows; {hypothesis.reason} would need {cells} (+ prefix)."
    if split is not None and split.suffix.count:
        return GeometryError(
            message,
            hint=f"its values vary smoothly if {split}: pass --prefix {split.prefix.count} "
            f"--suffix {split.suffix.count}.",
        )
    if 0 <= left <= _MOST_LISTED:
        stand = f"{rows_in_words(left)} stand" if left else "no row stands"
        return GeometryError(
            message,
            hint=f"{rows} = {left} + {grid}: if {stand} before the grid, pass --prefix {left}.",
        )
    squares = _squares(rows, pairs)
    if not squares:
        return GeometryError(
            message,
            hint=f"state the grid in the file with --from-grid HxW, or, if {rows_in_words(left)} "
            f"belong to tokens, how many of them stand before it and after it: --prefix N "
            f"--suffix {left}-N."
            if left > 0
            else "state the grid in the file with --from-grid HxW.",
        )
    square = squares[0].grid
    truth = str(squares[0])
    size = hypothesis.size
    if size is not None and not (size.height % square.height or size.width % square.width):
        other = Size(size.height // square.height, size.width // square.width)
        return GeometryError(
            message,
            hint=f"{truth} fits {size} px at patch {other}; pass --patch {other}, or drop --from.",
        )
    if tiling is not None:
        truth += f" is a {tiling.pixels(square)} px / patch {tiling} checkpoint"
    flag = "--from-grid" if "--from-grid" in hypothesis.reason else "--from"
    return GeometryError(message, hint=f"{truth}; drop {flag}, or correct it.")


def rows_in_words(count: int) -> str:
    """Return a number of rows as words."""
    return f"{count} row" if count == 1 else f"{count} rows"
