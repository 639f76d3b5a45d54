"""Hold every tensor that is not in the plan against the old geometry.

Names of position tables never end, but their numbers do: what belongs to the old grid has an axis
as long as its number of cells. A tensor that matches and that nothing explains is a suspect. A
strong one stops the run, because half a converted model is worse than none. Reads shapes only, one
pass over all tensors.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resize_pos.core.errors import TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import Role, name_pattern
from resize_pos.families.tables import Action, Located, Step

_FEWEST_ROWS = 9  # a 3×3 grid; smaller counts are tokens, heads and the like
_FEWEST_CELLS = 36  # of a table whose rows are looked for elsewhere; smaller counts are everywhere
_WEIGHTS = lazy_regex(
    r"(?:^|[./_])(?:(?:weight|bias|kernel|scale|gamma|beta)\w*|\w+_(?:weight|bias)|original\d?)$"
)
# An axis of positions by its name: one row per row or column of cells.
_AXIS_NAME = lazy_regex(r"(?:^|[._])(?:height|width|row|col|pos_?[hwxy]|axial)_?emb", re.IGNORECASE)
_TOKENS = lazy_regex(
    r"quer(?:y|ies)|token|prompt|latent|codebook|anchor|memory|slot|prototype|centroid|label|class"
    r"|expert|bucket|point|region|keypoint|vocab|word|char|text|head|label|speaker|time|frame"
    r"|temporal|freq|inv_|rope|rotary|register|center|queue|bank|mask_|logit|gate|dist|scale|mean"
    r"|std|prior|cluster|noise|basis|bins",
    re.IGNORECASE,
)
# Tables that are looked up by word, or that ask: their number of rows is no grid.
_LOOKED_UP = lazy_regex(
    r"quer(?:y|ies)|latent|vocab|(?:word|token)s?_?emb|embed_tokens|wte\b", re.IGNORECASE
)
_DIGITS = lazy_regex(r"\d+")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tensor that looks as if it depended on the resolution, and why."""

    tensor: TensorInfo
    reason: str
    flag: str = ""  # that would convert it: --also a table with as many rows, --pattern alone


def require_whole(located: Located, steps: Sequence[Step], request: Request) -> None:
    """Refuse to convert a part of a model: stop at the first tensor that nothing explains."""
    _require_references(steps)
    found = suspects(located, steps, request)
    if not found:
        return
    first = found[0]
    names = "|".join(f"^{re.escape(suspect.tensor.name)}$" for suspect in found)
    several = f", and {len(found) - 1} more" if len(found) > 1 else ""
    message = f"{first.tensor} {first.reason}{several}; no family explains it."
    leave = f"--leave '{names}' if it does not depend on the resolution"
    if all(suspect.flag == "--also" for suspect in found):
        hint = f"pass --also '{names}' to resize it along with that table, or {leave}."
    elif all(suspect.flag == "--pattern" for suspect in found):
        size = "" if request.from_size is not None or request.from_grid is not None else _FROM
        hint = f"pass --pattern '{names}'{size} to resize it, or {leave}."
    else:
        hint = f"convert it with its own library, or pass {leave}."
    raise TableError(message, hint=hint)


_FROM = " --from SIZE"


def _require_references(steps: Sequence[Step]) -> None:
    """Refuse to leave a reference grid that relative tables share and that change."""
    changed = {
        step.table.grid: step.name
        for step in steps
        if step.action is Action.RESIZE and step.table.role is Role.RELATIVE
    }
    heights = {grid.height: name for grid, name in changed.items() if grid.width == 1}
    for step in steps:
        if step.table.role is Role.REFERENCE and step.action is Action.KEEP:
            grid = step.table.grid
            other = changed.get(grid) or heights.get(grid.height)
            if other is not None:
                raise TableError(
                    f"{step.name} would stay at {grid}, while {other}, of the same grid, changes.",
                    hint="pass --reference-grids resize to change both.",
                )


def suspects(located: Located, steps: Sequence[Step], request: Request) -> list[Suspect]:
    """List the unexplained tensors that the old geometry shows in."""
    explained = {step.name for step in steps} | {each.tensor.name for each in located.left_alone}
    leave = None if request.leave is None else name_pattern("--leave", *request.leave)
    others = [
        info
        for name, info in located.others.items()
        if name not in explained and not (leave is not None and leave.search(name))
    ]
    changed = [step for step in steps if _is_grid(step)]
    masks = [
        Suspect(info, "masks the windows of one image size")
        for info in others
        if info.name.endswith(".attn_mask") and len(info.shape) == 3
    ]
    if masks:
        return masks
    if changed:
        widths = _widths(located.others.values(), besides=())
        return list(_echoes(others, changed, widths))
    depends = any(step.table.role is not Role.DERIVED for step in steps)
    return [] if depends or located.near_misses else _orphans(others, located.others)


def _is_grid(step: Step) -> bool:
    roles = (Role.ABSOLUTE, Role.MIXING)
    return step.action in (Action.RESIZE, Action.REGENERATE) and step.table.role in roles


def _widths(tensors: Iterable[TensorInfo], besides: Collection[str]) -> Counter[int]:
    """Count the lengths of norms and biases: the widths of a model, which are no grids."""
    flat = (info for info in tensors if len(info.shape) == 1 and info.name not in besides)
    return Counter(info.shape[0] for info in flat)


def _echoes(
    others: Sequence[TensorInfo], changed: Sequence[Step], widths: Mapping[int, int]
) -> Iterator[Suspect]:
    """Find tensors with an axis as long as the rows of a table that changes."""
    counts: dict[int, str] = {}
    for step in changed:
        table = step.table
        rows = table.layout.rows(table.tensor.shape)
        for count in (rows, table.frames * table.grid.cells, table.grid.cells):
            if count >= _FEWEST_CELLS and count not in widths:
                counts.setdefault(count, table.name)
    layers = Counter(_DIGITS.sub("N", info.name) for info in others) if counts else Counter[str]()
    for info in others if counts else ():
        axes = [length for length in info.shape if length in counts]
        # An index is one over pairs of cells. A layer that every block has counts only if both its
        # axes do; so does one whose length is a usual multiple of a width.
        index = not DTYPES[info.dtype].floating
        weight = bool(_WEIGHTS.search(info.name))
        repeated = weight and layers[_DIGITS.sub("N", info.name)] > 1
        kernel = weight and len(info.shape) > 3
        if kernel or len(axes) < 1 + (index or repeated) or _LOOKED_UP.search(info.name):
            continue
        if weight and any(_is_multiple(axes[0], width) for width in widths):
            continue
        rows = math.prod(info.shape[:-1])
        words = f"has an axis of {axes[0]}, as {counts[axes[0]]} has"
        joins = not index and len(info.shape) in (2, 3) and rows in counts and len(axes) == 1
        yield Suspect(info, words, "--also" if joins else "")


def _is_multiple(count: int, width: int) -> bool:
    """Whether a count is what layers make of a width: keys and values, or a hidden layer."""
    return count in (2 * width, 3 * width, 4 * width)


def _orphans(others: Sequence[TensorInfo], every: Mapping[str, TensorInfo]) -> list[Suspect]:
    """Find what forbids to say that nothing depends on the resolution."""
    norms = _widths(every.values(), {n for n in every if n.endswith("bias")})
    layers = {_matrix(info) for info in every.values()}
    made = {out for out, reads in layers if out != reads}
    found = []
    for info in others:
        if not DTYPES[info.dtype].floating or len(info.shape) < 2:
            continue
        if orphan := _orphan(info, norms):
            usual = len(info.shape) <= 3 and info.shape[-1] > 1
            found.append(Suspect(info, orphan, "--pattern" if usual else ""))
        elif reason := _axis_table(info) or _mixes_cells(info, norms, layers, made):
            found.append(Suspect(info, reason))
    return found


def _matrix(info: TensorInfo) -> tuple[int, int]:
    """Return outputs and inputs of a layer without an extent; (0, 0) for anything else."""
    lengths = info.shape[:2] if len(info.shape) == 3 and info.shape[2] == 1 else info.shape[-2:]
    plain = len(info.shape) == 2 or (len(info.shape) == 3 and 1 in (info.shape[0], info.shape[2]))
    return (lengths[0], lengths[1]) if plain else (0, 0)


def _axis_table(info: TensorInfo) -> str:
    if len(info.shape) == 2 and info.shape[0] >= _FEWEST_ROWS and _AXIS_NAME.search(info.name):
        return "sounds like one row per row or column of cells"
    return ""


def _orphan(info: TensorInfo, widths: Mapping[int, int]) -> str:
    """A parameter that is no layer's weight and has one row of the model's width per something."""
    rows = math.prod(info.shape[:-1])
    alone = not widths or info.shape[-1] in widths
    if rows < _FEWEST_ROWS or not alone or _WEIGHTS.search(info.name) or len(info.shape) > 4:
        return ""
    return "" if _TOKENS.search(info.name) else f"may be a position table of {rows} rows"


def _mixes_cells(
    info: TensorInfo,
    widths: Mapping[int, int],
    layers: Collection[tuple[int, int]],
    made: Collection[int],
) -> str:
    """Find weights from cells to cells: a square number on an axis that is no width of the model.

    A weight of n×n is one if no other layer puts out n. Of a network over cells, the first layer
    reads as many as the last one puts out, and neither number is the length of a norm.
    """
    first, second = _matrix(info)
    if len(info.shape) == 4 and info.shape[0] == 1:  # a bias per pair of cells, for each head
        first, second = info.shape[-2:]
    if not first or first in widths or second in widths:
        return ""
    cells = [n for n in (first, second) if n >= _FEWEST_ROWS and math.isqrt(n) ** 2 == n]
    if first == second and cells and first not in made:
        return f"has one row and one column for each of {first} cells"
    if first != second and cells and (second, first) in layers:
        return f"is a layer over {cells[0]} cells"
    return ""
