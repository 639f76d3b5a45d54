"""Settle prefix, grid and suffix of one table from evidence, or refuse with every answer left.

In order: what flags state, what the file says about itself, what a config beside it says, and a
single square that the candidates allow. Compare grids, never row counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from resize_pos.errors import GeometryError
from resize_pos.families import Family, Owner
from resize_pos.geometry import Grid, Size
from resize_pos.tensors import TensorInfo

_MOST_LISTED = 8
_WIDEST_ASPECT = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """How many rows may stand before (or after) the grid, and why."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A grid that some evidence states; a binding one must fit or the request is refused."""

    grid: Grid
    reason: str
    binding: bool = False
    size: Size | None = None  # pixels, where only the user's word gives the patch size


@dataclass(frozen=True, slots=True)
class Geometry:
    """The settled answer, with the evidence in words."""

    prefix: int
    grid: Grid
    suffix: int
    evidence: tuple[str, ...]


def candidates(
    owners: Sequence[Owner],
    stem: str,
    tensors: Mapping[str, TensorInfo],
    stated: int | None,
    flag: str,
) -> tuple[Candidate, ...]:
    """List the possible row counts, likeliest first; a flag leaves only its own."""
    if stated is not None:
        return (Candidate(stated, f"{flag} {stated}"),)
    found: dict[int, Candidate] = {}
    for owner in owners:
        siblings = [stem + name for name in owner.siblings]
        if any(name not in tensors for name in siblings):
            continue
        count = owner.count + sum(math.prod(tensors[name].shape[:-1]) for name in siblings)
        if siblings:
            reason = f"{' + '.join(siblings)} may own {_rows(count)}"
        else:
            reason = f"{_rows(count)} without a token" if count else "no such rows"
        found.setdefault(count, Candidate(count, reason))
    return tuple(found.values())


def kernel_patch(
    family: Family, stem: str, tensors: Mapping[str, TensorInfo]
) -> tuple[Size, str] | None:
    """Read the patch size off the patch-embedding kernel, convolution or linear."""
    for name in (stem + sibling for sibling in family.patch):
        shape = tensors[name].shape if name in tensors else ()
        if len(shape) == 4:
            return Size(shape[2], shape[3]), f"{name} is a {shape[2]}×{shape[3]} kernel"
        side = math.isqrt(shape[1] // 3) if len(shape) == 2 else 0
        if side and side * side * 3 == shape[1]:
            return Size(side, side), f"{name} reads {side}×{side}×3 pixels"
    return None


def settle(
    name: str,
    rows: int,
    prefixes: Sequence[Candidate],
    suffixes: Sequence[Candidate],
    hypotheses: Iterable[Hypothesis],
    patch: Size | None,
) -> Geometry:
    """Solve rows = prefix + h·w + suffix over the typed candidates."""
    remarks: list[str] = []
    pairs = [(p, s) for p in prefixes for s in suffixes if p.count + s.count < rows]
    for hypothesis in hypotheses:
        left = rows - hypothesis.grid.cells
        fits = [(p, s) for p, s in pairs if p.count + s.count == left]
        if len(fits) == 1:
            return _settled(hypothesis.grid, *fits[0], [*remarks, hypothesis.reason])
        if fits:
            raise _ambiguous(name, rows, [(p, hypothesis.grid, s) for p, s in fits])
        if hypothesis.binding:
            raise _disagreement(name, rows, hypothesis, pairs, patch)
        remarks.append(f"{hypothesis.reason}, which does not fit {rows} rows")
    squares = _squares(rows, pairs)
    if len(squares) == 1:
        prefix, grid, suffix = squares[0]
        return _settled(grid, prefix, suffix, [*remarks, "the only square that fits"])
    raise _ambiguous(name, rows, squares or _rectangles(rows, pairs))


def _settled(grid: Grid, prefix: Candidate, suffix: Candidate, reasons: Sequence[str]) -> Geometry:
    owners = [c.reason for c in (prefix, suffix) if c.count or c.reason.startswith("--")]
    return Geometry(prefix.count, grid, suffix.count, (*reasons, *owners))


_Answer = tuple[Candidate, Grid, Candidate]
_Pairs = Sequence[tuple[Candidate, Candidate]]


def _squares(rows: int, pairs: _Pairs) -> list[_Answer]:
    found = []
    for prefix, suffix in pairs:
        cells = rows - prefix.count - suffix.count
        side = math.isqrt(cells)
        if side * side == cells:
            found.append((prefix, Grid(side, side), suffix))
    return found


def _rectangles(rows: int, pairs: _Pairs) -> list[_Answer]:
    found: list[_Answer] = []
    for prefix, suffix in pairs:
        cells = rows - prefix.count - suffix.count
        grids = [Grid(h, cells // h) for h in range(1, cells + 1) if cells % h == 0]
        grids = [
            g for g in grids if max(g.height, g.width) <= _WIDEST_ASPECT * min(g.height, g.width)
        ]
        grids.sort(key=lambda g: (abs(math.log(g.width / g.height)), g.height))
        found += [(prefix, grid, suffix) for grid in grids]
    return found


def _ambiguous(name: str, rows: int, answers: Sequence[_Answer]) -> GeometryError:
    if not answers:
        return GeometryError(
            f"{name} has {rows} rows, which no grid fits with the prefixes known for its family.",
            hint="state the grid with --from-grid HxW, and --prefix N for the rows before it.",
        )
    shown = "; ".join(_sum(*answer) for answer in answers[:_MOST_LISTED])
    more = f"; and {len(answers) - _MOST_LISTED} more" if len(answers) > _MOST_LISTED else ""
    flags = ["--from-grid HxW"]
    if len({answer[0].count for answer in answers}) > 1:
        flags.append("--prefix N")
    if len({answer[2].count for answer in answers}) > 1:
        flags.append("--suffix N")
    return GeometryError(
        f"{name} has {rows} rows, which can be read as {shown}{more}.",
        hint=f"settle it with {' or '.join(flags)}, or with --from SIZE (height × width).",
    )


def _disagreement(
    name: str, rows: int, hypothesis: Hypothesis, pairs: _Pairs, patch: Size | None
) -> GeometryError:
    grid = hypothesis.grid
    left = rows - grid.cells
    message = f"{name} has {rows} rows; {hypothesis.reason} would need {grid.cells} (+ prefix)."
    if 0 < left <= _MOST_LISTED:
        return GeometryError(
            message,
            hint=f"{rows} = {left} + {grid}: if {_rows(left)} stand before the grid, "
            f"pass --prefix {left}.",
        )
    squares = _squares(rows, pairs)
    if not squares:
        return GeometryError(message, hint="state the grid in the file with --from-grid HxW.")
    prefix, square, suffix = squares[0]
    truth = _sum(prefix, square, suffix)
    size = hypothesis.size
    if size is not None and not (size.height % square.height or size.width % square.width):
        other = Size(size.height // square.height, size.width // square.width)
        return GeometryError(
            message,
            hint=f"{truth} fits {size} px at patch {other}; pass --patch {other}, or drop --from.",
        )
    if patch is not None:
        truth += f" is a {square.pixels(patch)} px / patch {patch} checkpoint"
    return GeometryError(message, hint=f"{truth}; drop --from, or correct it.")


def _sum(prefix: Candidate, grid: Grid, suffix: Candidate) -> str:
    parts = [str(c.count) for c in (prefix,) if c.count]
    parts.append(str(grid))
    parts += [str(c.count) for c in (suffix,) if c.count]
    total = prefix.count + grid.cells + suffix.count
    return f"{total} = {' + '.join(parts)}"


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"
