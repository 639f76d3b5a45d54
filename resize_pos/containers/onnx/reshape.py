"""What the shape given to a Reshape becomes when its input grows.

A Reshape splits and joins neighbouring dimensions. So its input and output are cut into groups with
equal numbers of elements: [1, 197, 768] → [1, 197, 12, 64] is 1 | 197 | 768 → 12·64. A group whose
input does not change keeps its numbers; the others hold as many elements as before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

_MOST_TRIED = 4096  # combinations of new numbers in one group

GridPair = tuple[tuple[int, int], tuple[int, int]]  # (height, width) before and after


def groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Cut both shapes into the smallest groups with equal products; None: they do not match."""
    if math.prod(before) != math.prod(after) or 0 in before:
        return None
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        ins, outs, left, right = [i], [j], before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                ins.append(i)
                left *= before[i]
                i += 1
            else:
                outs.append(j)
                right *= after[j]
                j += 1
        found.append((ins, outs))
    if not found:  # a scalar
        return None
    found[-1][0].extend(range(i, len(before)))  # only ones are left
    found[-1][1].extend(range(j, len(after)))
    return found


def new_sizes(
    old_in: Sequence[int],
    new_in: Sequence[int],
    old_out: Sequence[int],
    moves: Mapping[int, Collection[int]],
    grids: Collection[GridPair],
) -> list[int] | None:
    """Return the output sizes that belong to a new input; None: more than one reading, or none.

    `moves` says which sizes may become which, `grids` which pairs of neighbours become which.
    """
    cut = groups(old_in, old_out)
    if cut is None or len(old_in) != len(new_in):
        return None
    sizes = list(old_out)
    for ins, outs in cut:
        before, after = [old_in[i] for i in ins], [new_in[i] for i in ins]
        if before == after:
            continue
        chosen = _fitting([old_out[j] for j in outs], before, after, moves, grids)
        if chosen is None:
            return None
        for j, size in zip(outs, chosen, strict=True):
            sizes[j] = size
    return sizes


def _fitting(
    old: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    moves: Mapping[int, Collection[int]],
    grids: Collection[GridPair],
) -> list[int] | None:
    elements = math.prod(after)
    plain = [size for size in old if size != 1]
    if len(plain) <= 1:
        at = old.index(plain[0]) if plain else len(old) - 1
        return [elements if index == at else 1 for index in range(len(old))]
    if plain == [size for size in before if size != 1] and len(old) == len(before):
        return list(after)
    for (height, width), (new_height, new_width) in sorted(grids):
        if list(plain) == [height, width] and new_height * new_width == elements:
            rest = iter((new_height, new_width))
            return [size if size == 1 else next(rest) for size in old]
    options = [sorted({size, *moves.get(size, ())}) for size in old]
    if math.prod(len(option) for option in options) > _MOST_TRIED:
        return None
    fits = [list(c) for c in itertools.product(*options) if math.prod(c) == elements]
    if len(fits) > 1 and len(before) == 1:  # pixels → cells along one side, and pixels of a cell
        sides = {pair for one, other in grids for pair in zip(one, other, strict=True)}
        sides |= {(size, size) for size in old}
        fits = [c for c in fits if sides.issuperset(zip(old, c, strict=True))]
    return fits[0] if len(fits) == 1 else None
