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
from resize_pos.planning.candidates import Sound, axial_pair_names, has_pixels, sound_of
from resize_pos.planning.neutral_names import counts_something_else

_FEWEST_ROWS = 9  # a 3×3 grid; smaller counts are tokens, heads and the like
_FEWEST_CELLS = 36  # of a table whose rows are looked for elsewhere; smaller counts are everywhere
_WEIGHTS = lazy_regex(
    r"(?:^|[./_])(?:(?:weight|bias|kernel|scale|gamma|beta)\w*|\w+_(?:weight|bias)|original\d?)$"
)
# An axis of positions by its name: one row per row or column of cells.
_AXIS_NAME = lazy_regex(r"(?:^|[._])(?:height|width|row|col|pos_?[hwxy]|axial)_?emb", re.IGNORECASE)
# Tables that are looked up by word, or that ask: their number of rows is no grid.
_LOOKED_UP = lazy_regex(
    r"quer(?:y|ies)|latent|vocab|(?:word|token)s?_?emb|embed_tokens|wte\b", re.IGNORECASE
)
_MOST_HEADS = 64
_ROTARY = lazy_regex(
    r"rope|rotary|(?:^|[._])(?:cos|sin|cis|angles?)(?:$|[._])|freqs", re.IGNORECASE
)
_OFFSETS = lazy_regex(r"(?:rel|relative|pair|offset)\w*bias$", re.IGNORECASE)
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
        return list(_echoes(others, changed, _features_of(located.others, explained)))
    depends = any(step.table.role is not Role.DERIVED for step in steps)
    return [] if depends or located.near_misses else _orphans(others, located.others)


def _is_grid(step: Step) -> bool:
    roles = (Role.ABSOLUTE, Role.MIXING)
    return step.action in (Action.RESIZE, Action.REGENERATE) and step.table.role in roles


def _widths(tensors: Iterable[TensorInfo], besides: Collection[str]) -> Counter[int]:
    """Count the lengths of norms and biases: the widths of a model, which are no grids."""
    flat = (info for info in tensors if len(info.shape) == 1 and info.name not in besides)
    return Counter(info.shape[0] for info in flat)


def _features_of(tensors: Mapping[str, TensorInfo], tables: Collection[str]) -> Mapping[int, int]:
    """Count the lengths of norms and biases, but not of norms over the cells.

    Such a norm has a length that no layer reads or puts out.
    """
    layers = {
        length
        for info in tensors.values()
        if len(info.shape) > 1 and info.name not in tables and DTYPES[info.dtype].floating
        for length in info.shape
    }
    over_cells = {
        info.shape[0]
        for name, info in tensors.items()
        if len(info.shape) == 1 and name.endswith(".weight") and info.shape[0] not in layers
    }
    widths = _widths(tensors.values(), tables)
    return {length: count for length, count in widths.items() if length not in over_cells}


def _echoes(
    others: Sequence[TensorInfo], changed: Sequence[Step], widths: Mapping[int, int]
) -> Iterator[Suspect]:
    """Find tensors with an axis as long as the rows of a table that changes."""
    counts: dict[int, str] = {}
    flat: dict[int, str] = {}  # all numbers of a table in one row: what a head over all cells reads
    grids: dict[tuple[int, ...], str] = {}
    for step in changed:
        table = step.table
        rows = table.layout.rows(table.tensor.shape)
        for count in (rows, table.frames * table.grid.cells, table.grid.cells):
            if count >= _FEWEST_CELLS and count not in widths:
                counts.setdefault(count, table.name)
                flat.setdefault(count * table.tensor.shape[-1], table.name)
        if {"h", "w"} <= table.layout.axes and table.grid.cells >= _FEWEST_CELLS:
            grids.setdefault((table.grid.height, table.grid.width), table.name)
    layers = Counter(_DIGITS.sub("N", info.name) for info in others) if counts else Counter[str]()
    for info in others if counts or grids else ():
        if len(info.shape) == 2 and info.shape[1] in flat:
            words = f"reads all of {info.shape[1]} numbers of a grid, that of {flat[info.shape[1]]}"
            yield Suspect(info, words)
            continue
        shape = info.shape[1:] if info.shape[:1] == (1,) else info.shape
        sides = [each for each in (shape[1:], shape[:2]) if len(shape) == 3 and each in grids]
        if sides and DTYPES[info.dtype].floating:
            yield Suspect(info, f"has the grid of {grids[sides[0]]} in its shape")
            continue
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
    features: dict[int, set[str]] = {}  # lengths of weights, and what has them
    for each in every.values():
        if _WEIGHTS.search(each.name):
            for length in each.shape:
                features.setdefault(length, set()).add(_DIGITS.sub("N", each.name))
    pixels = has_pixels(every.values())
    found = []
    for info in others:
        if not DTYPES[info.dtype].floating or len(info.shape) < 2:
            continue
        if orphan := _orphan(info, norms):
            usual = len(info.shape) <= 3 and info.shape[-1] > 1
            found.append(Suspect(info, orphan, "--pattern" if usual else ""))
        elif reason := (
            _axis_table(info)
            or _mixes_cells(info, norms, layers, made)
            or _per_head(info, every, norms, features)
            or (pixels and _angles(info, features))
        ):
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
    if counts_something_else(info.name) or sound_of(info.name) is Sound.OTHER:
        return ""
    return f"may be a position table of {rows} rows"


def _angles(info: TensorInfo, features: Mapping[int, Collection[str]]) -> str:
    """A stored table of rotary angles, one row per cell: texts have no kernel for pixels."""
    rows = max(info.shape)
    if _ROTARY.search(info.name) and rows >= _FEWEST_CELLS and rows not in features:
        return f"may hold rotary angles for each of {rows} cells"
    return ""


def _per_head(
    info: TensorInfo,
    every: Mapping[str, TensorInfo],
    widths: Mapping[int, int],
    features: Mapping[int, Collection[str]],
) -> str:
    """A table with a short axis for the heads, and one number for each of many offsets."""
    name, lengths = info.name, [length for length in info.shape if length > 1]
    if not 2 <= len(lengths) <= 3 or counts_something_else(name):
        return ""
    looked_up = name.endswith(".weight") and name.removesuffix("weight") + "bias" not in every
    layer = _WEIGHTS.search(name) is not None and not _OFFSETS.search(name)
    if layer and not (looked_up and len(lengths) == 2):
        return ""
    vague = sound_of(name) is Sound.OTHER  # T5's buckets sound like it, too
    for heads in (lengths[-1],) if layer or looked_up else (lengths[0], lengths[-1]):
        offsets = math.prod(lengths) // heads
        if not (1 < heads <= _MOST_HEADS and offsets >= _FEWEST_ROWS):
            continue
        divides = any(width % heads == 0 and width > heads for width in widths)
        if not divides or heads * offsets in widths:  # one row per head, each as wide as a head
            continue
        elsewhere = set(features.get(offsets, ())) - {_DIGITS.sub("N", name)}
        odd_pair = offsets % 2 == 1 and axial_pair_names(name, every) is not None
        if not elsewhere and (not vague or odd_pair or _counts_pairs(lengths, heads)):
            return f"may hold one number per head for each of {offsets} offsets"
    return ""


def _counts_pairs(lengths: Sequence[int], heads: int) -> bool:
    """Whether lengths besides the heads are (2h-1)(2w-1) offsets, or pairs of cells."""
    others = list(lengths)
    others.remove(heads)
    if len(others) == 2:
        return others[0] == others[1] or all(length % 2 for length in others)
    return any(math.isqrt(n) ** 2 == n and n % 2 for n in (others[0], others[0] - 3))


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
