"""Hold every tensor that is not in the plan against the old geometry.

Names of position tables never end, but their numbers do: what belongs to the old grid has an axis
as long as its number of cells. A tensor that matches and that nothing explains is a suspect. A
strong one stops the run, because half a converted model is worse than none. Reads shapes only, one
pass over all tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

from resize_pos.core.errors import TableError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import Role, name_pattern
from resize_pos.families.tables import Action, Located, Step
from resize_pos.planning.census.echoes import (
    FEWEST_CELLS,
    MOST_HEADS,
    Suspect,
    echoes,
    is_looked_up,
    matrix_of,
    widths_of_vectors,
)
from resize_pos.planning.census.fixed_layers import require_fixed_layers
from resize_pos.planning.census.heads import heads_over_cells
from resize_pos.planning.census.odd_layers import (
    flat_readers,
    is_layer,
    is_norm_over_cells,
    long_axes,
    mixes_one_axis,
)
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    axial_pair_names,
    has_pixels,
    is_matrix_name,
    sound_of,
    sounds_like_text,
)
from resize_pos.planning.unknown_names.commands import MOST_CELLS, from_flag, reads_sequences
from resize_pos.planning.unknown_names.neutral_names import counts_something_else

_CELLS = (Role.ABSOLUTE, Role.MIXING)  # one row or column per cell of the image
_GRIDS = (*_CELLS, Role.REFERENCE)
_FEWEST_ROWS = 9  # a 3×3 grid; smaller counts are tokens, heads and the like
_FEWEST_SIDE = 4  # cells
_MOST_STACKED = 16  # tables of several cameras or bands in one tensor
# An axis of positions by its name: one row per row or column of cells.
_AXIS_NAME = lazy_regex(r"(?:^|[._])(?:height|width|row|col|pos_?[hwxy]|axial)_?emb", re.IGNORECASE)
_ROTARY = lazy_regex(
    r"rope|rotary|(?:^|[._])(?:cos|sin|cis|angles?)(?:$|[._])|freqs", re.IGNORECASE
)
_RANDOM = lazy_regex(r"projection_matrix$")  # Performer's random features
_USUAL_MULTIPLE = 32  # of which the lengths of layers are multiples
_STATED_SIZE = lazy_regex(r"(?<![0-9])([1-9][0-9]{1,3})x([1-9][0-9]{1,3})(?![0-9])")
# A layer's bias is a vector: what has two axes and this name has offsets or pairs.
_WIDEST_OFFSETS = 3  # times as many columns as rows
_OFFSETS = lazy_regex(r"bias(?:_?(?:tab|table|map|grid|matrix|lut))?$", re.IGNORECASE)


def require_whole(located: Located, steps: Sequence[Step], request: Request) -> None:
    """Refuse to convert a part of a model: stop at the first tensor that nothing explains."""
    _require_references(steps)
    _require_plain_names(located, request)
    require_fixed_layers(located, request)
    found = suspects(located, steps, request)
    if not found:
        return
    first = found[0]
    regexes = [f"^{re.escape(suspect.tensor.name)}$" for suspect in found]
    names = "|".join(regexes)
    several = f", and {len(found) - 1} more" if len(found) > 1 else ""
    message = f"{first.tensor} {first.reason}{several}; no family explains it."
    leave = f"--leave '{names}' if it does not depend on the resolution"
    if all(suspect.flag == "--also" for suspect in found):
        hint = f"pass --also '{names}' to resize it along with that table, or {leave}."
    elif all(suspect.flag == "--pattern" for suspect in found):
        named = f"--pattern '{names}'"
        if all(suspect.axes for suspect in found):
            pairs = zip(regexes, found, strict=True)
            named = " ".join(f"--pattern '{regex}' --axes '{s.axes}'" for regex, s in pairs)
        hint = f"pass {named}{from_flag(request)} to resize it, or {leave}."
    else:
        hint = f"convert it with its own library, or pass {leave}."
    raise TableError(message, hint=hint)


def _require_plain_names(located: Located, request: Request) -> None:
    """Refuse names that state the sizes of stages: enc.64x64_conv, enc.32x32_down."""
    leave = None if request.leave is None else name_pattern("--leave", *request.leave)
    sizes: dict[tuple[int, int], str] = {}
    for name in located.others:
        stated = _STATED_SIZE.search(name) if "x" in name else None
        if stated is not None and not (leave is not None and leave.search(name)):
            sizes.setdefault((int(stated[1]), int(stated[2])), name)
    for (height, width), name in sizes.items():
        half = sizes.get((height // 2, width // 2))
        if half is not None and height % 2 == width % 2 == 0:
            raise TableError(
                f"{name} and {half} state sizes in their names, so the model for another size has "
                "other names.",
                hint=r"convert it with its own library, or pass --leave '\d+x\d+' if its code "
                "keeps these names.",
            )


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
    # A buffer that belongs to no table is explained by nothing.
    derived = {s.name for s in steps if s.table.role is Role.DERIVED and s.table.follows is None}
    explained = {step.name for step in steps} - derived
    explained |= {each.tensor.name for each in located.left_alone}
    leave = None if request.leave is None else name_pattern("--leave", *request.leave)
    others = [
        info
        for name, info in located.others.items()
        if name not in explained and not (leave is not None and leave.search(name))
    ]
    changed = [step for step in steps if _is_grid(step)]
    masks = [
        Suspect(info, words) for info in others if len(info.shape) == 3 and (words := _mask(info))
    ]
    if masks:
        return masks
    shown = {
        info.name: Suspect(info, each.reason, "--pattern" if each.axes else "", each.axes)
        for info in others
        if (each := located.shown.get(info.name))
    }
    if changed:
        names = {step.name for step in changed}
        found = {n: each for n, each in shown.items() if located.shown[n].table in names}
        strong = echoes(others, changed, located.others, explained)
        found |= {each.tensor.name: each for each in strong}
        heads = heads_over_cells(others, changed, located.others)
        sure = (each for each, is_sure in heads if is_sure)
        return list(({each.tensor.name: each for each in sure} | found).values())
    if located.near_misses or any(step.table.role in _GRIDS for step in steps):
        return []  # a known table that has its size already says what depends on the image
    if reads_sequences(located.others):
        return []  # a model of words or sound has no cells of an image
    named = {each.tensor.name for each in located.looks_like}  # with a warning
    orphans = _orphans([info for info in others if info.name not in named], located.others)
    # Coordinates and maps are known by their values; of others, the shape says more.
    clear = {n: each for n, each in shown.items() if each.axes or "holds" in each.reason}
    return list((shown | {each.tensor.name: each for each in orphans} | clear).values())


def weak_suspects(located: Located, steps: Sequence[Step], request: Request) -> list[Suspect]:
    """List the unexplained tensors that may show the old geometry by chance."""
    changed = [step for step in steps if _is_grid(step)]
    leave = None if request.leave is None else name_pattern("--leave", *request.leave)
    others = [
        info
        for name, info in (located.others.items() if changed else ())
        if len(info.shape) == 2 and not (leave is not None and leave.search(name))
    ]
    heads = heads_over_cells(others, changed, located.others)
    return [suspect for suspect, sure in heads if not sure]


def _mask(info: TensorInfo) -> str:
    """Say what a square of cells for each window, or for each head, is; empty for anything else."""
    if info.name.endswith(".attn_mask"):  # of a text, it hides the words that come later
        return "" if sounds_like_text(info.name) else "masks the windows of one image size"
    count, rows, columns = info.shape
    square = rows == columns >= _FEWEST_ROWS and math.isqrt(rows) ** 2 == rows and count > 1
    if not square or not DTYPES[info.dtype].floating or is_matrix_name(info.name):
        return ""
    if counts_something_else(info.name) or sound_of(info.name) is Sound.OTHER:
        return ""
    return f"has one row and one column for each of {rows} cells, {count} times"


def _is_grid(step: Step) -> bool:
    return step.action in (Action.RESIZE, Action.REGENERATE) and step.table.role in _CELLS


def _orphans(others: Sequence[TensorInfo], every: Mapping[str, TensorInfo]) -> list[Suspect]:
    """Find what forbids to say that nothing depends on the resolution."""
    norms = widths_of_vectors(every.values(), {n for n in every if n.endswith("bias")})
    layers = {matrix_of(info) for info in every.values()}
    made = {out for out, reads in layers if out != reads}
    for each in every.values():
        if len(each.shape) == 2 and each.shape[0] > MOST_CELLS:
            layers = set()  # a language model; its norms may have no weights
        if len(each.shape) > 2 and max(each.shape[2:]) > 1 and is_matrix_name(each.name):
            made.update(each.shape[:2])  # what a kernel with an extent reads and puts out
    # Tables of other blocks, axes and stages explain nothing: as many offsets, other heads.
    features = {
        length
        for each in every.values()
        if DTYPES[each.dtype].floating and is_matrix_name(each.name)
        if not (
            (is_looked_up(each, every) or _is_bias_table(each)) and min(each.shape) <= MOST_HEADS
        )
        for length in each.shape
    }
    pixels = has_pixels(every.values())
    flat = {info.name: (cells, count) for info, cells, count in flat_readers(every)}
    found = []
    for info in others:
        if not DTYPES[info.dtype].floating or len(info.shape) < 2:
            continue
        if orphan := _orphan(info, norms):
            usual = len(info.shape) <= 3 and 1 < info.shape[-1] != info.shape[-2]
            stacked = len(info.shape) == 3 and 1 < info.shape[0] <= _MOST_STACKED < info.shape[1]
            axes = "n (p h w s) d" if stacked else ""
            found.append(Suspect(info, orphan, "--pattern" if usual else "", axes))
        elif reason := (
            _axis_table(info, every)
            or _norm(info, every, norms)
            or _flat(info, flat)
            or _spectrum(info, norms)
            or _mixes_cells(info, norms, layers, made, pixels)
            or _per_head(info, every, norms, features)
            or (pixels and _angles(info, features))
            or _reads_tokens(info, norms, features)
        ):
            found.append(Suspect(info, reason))
    return found


def _axis_table(info: TensorInfo, every: Mapping[str, TensorInfo]) -> str:
    if mixes_one_axis(info, every):
        return f"mixes rows or columns of {info.shape[0]} cells"
    words = "sounds like one row per row or column of cells"
    if len(info.shape) == 2 and info.shape[0] >= _FEWEST_ROWS and _AXIS_NAME.search(info.name):
        return words
    names = None if is_layer(info) else axial_pair_names(info.name, every)
    if names is None or counts_something_else(info.name):
        return ""
    first, second = (every[name].shape for name in names)
    if len(first) != len(second) or len(long_axes(first)) < 2:
        return ""
    differ = [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]]
    crossed = len(differ) == 2 and all(1 in pair for pair in differ)
    sides = [max(pair) for pair in differ] if crossed else list(sum(differ, ()))
    return words if len(sides) == 2 and min(sides) >= _FEWEST_SIDE else ""


def _norm(info: TensorInfo, every: Mapping[str, TensorInfo], widths: Mapping[int, int]) -> str:
    """A norm with a weight for every cell: [cells, width], or [channels, height, width]."""
    if not is_norm_over_cells(info, every):
        return ""
    lengths = long_axes(info.shape)
    cells = math.prod(lengths[1:] if len(lengths) > 2 else lengths[:1])
    usual = len(lengths) > 2 or lengths[-1] in widths
    return f"normalises {cells} cells at once" if usual and cells >= _FEWEST_ROWS else ""


def _flat(info: TensorInfo, flat: Mapping[str, tuple[int, int]]) -> str:
    """A head that reads a map of features as one row of numbers."""
    if info.name not in flat:
        return ""
    cells, channels = flat[info.name]
    return f"reads {cells} cells of {channels} channels at once"


def _reads_tokens(info: TensorInfo, widths: Mapping[int, int], features: Collection[int]) -> str:
    """A parameter over cells and something else than features: Linformer's proj_k."""
    if len(info.shape) != 2 or is_matrix_name(info.name) or _RANDOM.search(info.name):
        return ""
    if any(length in widths or length in features for length in info.shape):
        return ""
    for cells in info.shape:
        grid = math.isqrt(cells) ** 2 == cells or math.isqrt(cells - 1) ** 2 == cells - 1
        if grid and cells >= FEWEST_CELLS and cells % _USUAL_MULTIPLE:
            return f"has an axis of {cells}, and none as long as a width of this model"
    return ""


def _spectrum(info: TensorInfo, widths: Mapping[int, int]) -> str:
    """A filter of complex numbers over the frequencies of a grid: h × w × channels × 2."""
    if len(info.shape) != 4 or info.shape[3] != 2 or info.shape[2] not in widths:
        return ""
    height, width, channels, _ = info.shape
    if min(height, width) < _FEWEST_SIDE or channels < _FEWEST_ROWS or height > channels:
        return ""
    return f"may be a filter over {height}×{width} frequencies of a grid"


def _orphan(info: TensorInfo, widths: Mapping[int, int]) -> str:
    """A parameter that is no layer's weight and has one row of the model's width per something."""
    rows = math.prod(info.shape[:-1])
    alone = not widths or info.shape[-1] in widths
    if rows < _FEWEST_ROWS or not alone or is_matrix_name(info.name) or len(info.shape) > 4:
        return ""
    if info.shape[-1] == 1 and math.prod(info.shape) == max(info.shape):  # a gain per channel
        return ""
    if counts_something_else(info.name) or sound_of(info.name) is Sound.OTHER:
        return ""
    return f"may be a position table of {rows} rows"


def _angles(info: TensorInfo, features: Collection[int]) -> str:
    """A stored table of rotary angles, one row per cell: texts have no kernel for pixels."""
    rows = max(info.shape)
    if _ROTARY.search(info.name) and rows >= FEWEST_CELLS and rows not in features:
        return f"may hold rotary angles for each of {rows} cells"
    return ""


def _per_head(
    info: TensorInfo,
    every: Mapping[str, TensorInfo],
    widths: Mapping[int, int],
    features: Collection[int],
) -> str:
    """A table with a short axis for the heads, and one number for each of many offsets."""
    name, lengths = info.name, [length for length in info.shape if length > 1]
    if not 2 <= len(lengths) <= 3:
        return ""
    layer = counts_something_else(name) or (is_matrix_name(name) and not is_looked_up(info, every))
    if layer and not _is_bias_table(info):
        return ""
    vague = sound_of(name) is Sound.OTHER  # T5's buckets sound like it, too
    for heads in (lengths[0], lengths[-1]):
        offsets = math.prod(lengths) // heads
        if not (1 < heads <= MOST_HEADS and offsets >= _FEWEST_ROWS):
            continue
        divides = any(width % heads == 0 and width > heads for width in widths)
        if not divides or heads * offsets in widths:  # one row per head, each as wide as a head
            continue
        odd_pair = offsets % 2 == 1 and axial_pair_names(name, every) is not None
        if offsets not in features and (not vague or odd_pair or _counts_pairs(lengths, heads)):
            return f"may hold one number per head for each of {offsets} offsets"
    return ""


def _is_bias_table(info: TensorInfo) -> bool:
    """Whether a tensor is called a bias and is none of a layer, as it is no vector."""
    return len(long_axes(info.shape)) > 1 and _OFFSETS.search(info.name) is not None


def _counts_pairs(lengths: Sequence[int], heads: int) -> bool:
    """Whether lengths besides the heads are (2h-1)(2w-1) offsets, or pairs of cells."""
    others = list(lengths)
    others.remove(heads)
    if len(others) == 2:
        return others[0] == others[1] or all(length % 2 for length in others)
    return any(n % 2 and _odd_sides(n) for n in (others[0], others[0] - 3))


def _odd_sides(count: int) -> bool:
    """Whether a number is (2h-1)(2w-1) of a grid that is not too narrow."""
    low = next(side for side in range(math.isqrt(count), 0, -1) if count % side == 0)
    return low >= _FEWEST_SIDE and count // low <= _WIDEST_OFFSETS * low


def _mixes_cells(
    info: TensorInfo,
    widths: Mapping[int, int],
    layers: Collection[tuple[int, int]],
    made: Collection[int],
    pixels: bool,
) -> str:
    """Find weights from cells to cells: a square number on an axis that is no width of the model.

    A weight of n×n is one if no other layer puts out n. Of a network over cells, the first layer
    reads as many as the last one puts out, and neither number is the length of a norm.
    """
    first, second = matrix_of(info)
    if len(info.shape) == 4 and info.shape[0] == 1:  # a bias per pair of cells, for each head
        first, second = info.shape[-2:]
    if not first or first in widths or second in widths or sounds_like_text(info.name):
        return ""
    cells = [n for n in (first, second) if n >= _FEWEST_ROWS and math.isqrt(n) ** 2 == n]
    if first == second and (cells or pixels) and first >= FEWEST_CELLS and first not in made:
        return f"has one row and one column for each of {first} cells"
    if first != second and (cells or pixels) and (second, first) in layers:
        return f"is a layer over {cells[0] if cells else f'{first} or {second}'} cells"
    return ""
