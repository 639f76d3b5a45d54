"""Which mistake made this table? Recompute every known one, then look at what differs.

A hypothesis is a table computed from the source. If the output equals it, the hypothesis explains
the output. If no hypothesis matches, the measures decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from resize_pos.core.conventions import DEFAULT, Method, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import proper
from resize_pos.quality.measures.energy import norm_map
from resize_pos.quality.measures.sampling import Wide, resample, size
from resize_pos.verify.made_by.copied import find_block, find_kept_rows, find_old_cells
from resize_pos.verify.made_by.diagnosis import Diagnosis
from resize_pos.verify.made_by.fitted import Fitted
from resize_pos.verify.made_by.lost import HonestRows, find_dim_border, find_lost
from resize_pos.verify.made_by.map import find_map
from resize_pos.verify.made_by.methods import distance, honest_rows
from resize_pos.verify.made_by.moved import find_moved
from resize_pos.verify.made_by.pair import Pair
from resize_pos.verify.made_by.parts import Finding, find_parts, find_values, find_zeros
from resize_pos.verify.made_by.places import find_places
from resize_pos.verify.made_by.rearranged import find_turned, find_unpermuted
from resize_pos.verify.made_by.turned import flat, resamplings, turned
from resize_pos.verify.made_by.window import find_window

_EXPLAINED = 0.02  # relative distance at which a mistake is recognised for certain
_PROPORTIONAL = 1e-3  # … and at which it is one factor and nothing else
_RESEMBLED = 0.2  # … and at which it is likely
_NEARLY = 0.02  # … of how much positions differ: so near to a convention, cells are in their places
_MEAN, _NO_MEAN = 0.05, 0.05  # of how much positions differ: a mean that tells; one that is gone
_DISPLACED = Finding("displaced", "cells were read from other places than their own")


def diagnose(
    pair: Pair, *, trained: bool = False, fitted: Fitted = Fitted.UNKNOWN, lost: bool = False
) -> Diagnosis | None:
    """Find the mistake that explains the table best; None if none is close.

    `trained`: look for cells that were wrong before the table was trained on, too. That needs a
    table that a kernel for images stretches. `fitted`: the kernel that makes the table. If it is an
    honest one, only a mistake that was recomputed counts, places that no rule gives, and cells that
    were set to zero. `lost`: the table looks random, so no place of the source is looked for in it.
    """
    kept = find_kept_rows(pair) or find_block(pair)
    if kept is not None:
        return _certain(kept)
    best = nearest_mistake(pair)
    # The weights of a kernel have a sum of one, so nothing was scaled.
    scaled = None if fitted is Fitted.HONEST else _scaled(pair)
    if scaled is not None and (best is None or scaled.error < best.error):
        best = scaled
    honest = min(distance(pair.cells_after, honest_rows(pair, r)) for r in resamplings())
    if best is not None and best.certain and best.error <= 0.5 * honest:
        return best
    table = pair.cells_after.reshape(pair.target.height, pair.target.width, -1)
    window = find_places(pair.cells_before[0], table)
    if window is not None:
        return Diagnosis(window.name, window.detail, window.error, True)
    if fitted is Fitted.HONEST:
        return _zeros(pair)
    parts = _certain(find_old_cells(pair)) or _parts(pair, lost=lost)
    if parts is not None:
        return parts
    varying = size(pair.cells_after - pair.cells_after.mean(axis=0))
    in_place = lost or honest * size(pair.cells_after) <= _NEARLY * varying
    window = None if in_place else find_window(pair.cells_before[0], table)
    if window is not None:
        return Diagnosis(window.name, window.detail, window.error, True)
    if best is not None and (best.error > _RESEMBLED or best.error > 0.5 * honest):
        best = None
    if fitted is Fitted.DISPLACED and not in_place and (best is None or not best.certain):
        best = _certain(_DISPLACED)
    moved = _moved(pair) if trained and not lost else None
    if moved is None and not in_place:
        moved = _mapped(pair)
    if moved is None or best is None or best.name == "scaled":
        return moved or best
    return replace(best, certain=True)


def nearest_mistake(pair: Pair) -> Diagnosis | None:
    """Recompute every mistake that is known, and return the one that comes nearest."""
    best: Diagnosis | None = None
    for name, detail, rows in (*_mistakes(pair), *turned(pair.cells_before, pair.target)):
        error = distance(pair.cells_after, rows)
        if best is None or error < best.error:
            best = Diagnosis(name, detail, error, error <= _EXPLAINED)
    return best


def _certain(found: Finding | None) -> Diagnosis | None:
    return None if found is None else Diagnosis(found.name, found.detail, 0.0, True)


def _moved(pair: Pair) -> Diagnosis | None:
    """Say which cells were wrong before the table was trained on."""
    if not pair.is_whole:
        return None
    grid = pair.whole_grid
    some = pair.cells_before, pair.cells_after
    found = find_moved(*some, grid, pair.whole_after, pair.target)
    return _certain(found)


def _mapped(pair: Pair) -> Diagnosis | None:
    """Say that cells were read from other places, or from beyond the border."""
    honest = [honest_rows(pair, resampling) for resampling in resamplings()]
    rest = pair.cells_after, honest, pair.target
    found = find_map(pair.cells_before[0], *rest) or find_dim_border(*rest)
    return _certain(found)


def _zeros(pair: Pair) -> Diagnosis | None:
    """Say which cells are exactly zero."""
    honest = flat(resample(pair.whole_grid, pair.target, DEFAULT.resampling))
    found = find_zeros(pair.whole_after, honest, pair.target)
    return _certain(found)


def _parts(pair: Pair, *, lost: bool) -> Diagnosis | None:
    """Describe what differs, where part of the table is honest or all of it is in another order."""
    if not pair.is_whole:
        return find_turned(pair)
    table = pair.whole_after
    results = {r: flat(resample(pair.whole_grid, pair.target, r)) for r in resamplings()}
    # Nearest picks single cells, so it says nothing about how much other kernels differ.
    smooth = [rows for r, rows in results.items() if r.method is not Method.NEAREST]
    mean = pair.whole_before.mean(axis=0)
    for resampling, honest in results.items():
        found = find_parts(table, honest, pair.target, mean)
        usual = found is None or found.is_usual(table, honest, smooth)
        if found and not usual and not any(found.is_like(table, r) for r in results.values()):
            # Cells of a picture that was turned are in another order, which says less.
            whole = find_turned(pair) if found.name == "shuffled" else None
            return whole or Diagnosis(found.name, f"{found.detail} ({resampling})", 0.0, True)
    # Single values say something only where cells and channels are in their places.
    whole = find_unpermuted(pair) or find_turned(pair) or _mean_removed(pair)
    if lost:
        return whole
    return whole or _values(pair, results) or _zeros(pair) or _lost(pair, [*results.values()])


def _mean_removed(pair: Pair) -> Diagnosis | None:
    """Say that the mean is gone from what any proper kernel makes, conventions or not."""
    table = pair.cells_after
    mean = table.mean(axis=0)
    for kernel in (*proper.CONVENTIONAL, *proper.OTHERS):
        honest = flat(proper.resized(pair.cells_before, pair.target, kernel))
        usual = honest.mean(axis=0)
        varying = size(honest - usual)
        telling = size(usual) * np.sqrt(len(table)) >= _MEAN * varying
        apart = size((table - mean) - (honest - usual))
        if telling and size(mean) <= _NO_MEAN * size(usual) and apart <= _NO_MEAN * varying:
            words = "an honest resize, but without its mean vector"
            return Diagnosis("mean removed", words, 0.0, True)
    return None


def _values(pair: Pair, results: Mapping[Resampling, Wide]) -> Diagnosis | None:
    """Say what was done to single values of the honest result that is nearest."""
    nearest = min(results, key=lambda r: distance(pair.whole_after, results[r]))
    found = find_values(pair.whole_after, results[nearest])
    if found is None:
        return None
    return Diagnosis(found.name, f"{found.detail} ({nearest})", 0.0, True)


def _lost(pair: Pair, results: list[Wide]) -> Diagnosis | None:
    """Say what the table has lost that no honest resize takes."""
    grid = pair.whole_grid
    smoothest = flat(proper.resized(grid, pair.target, proper.SMOOTHEST))
    honest = HonestRows(results, smoothest, norm_map(grid).reshape(-1))
    found = find_lost(pair.whole_after, honest, pair.target)
    return _certain(found)


def _mistakes(pair: Pair) -> Iterator[tuple[str, str, Wide]]:
    """Compute what each mistake would have made: name, words, grid rows."""
    grid, source, target = pair.cells_before, pair.source, pair.target
    for resampling in resamplings():
        yield from _misplaced(pair, resampling)
        if source.height == 1 or source.width == 1:
            continue
        line = grid.reshape(1, 1, source.cells, -1)
        one_d = resample(line, Grid(1, target.cells), resampling)
        yield (
            "1-D",
            f"resampled as one sequence of {source.cells} rows ({resampling})",
            flat(one_d),
        )
        turned = resample(grid.swapaxes(1, 2), target, resampling)
        yield "swapped", f"height and width are exchanged: transposed ({resampling})", flat(turned)
        if not source.is_square:
            other = grid.reshape(1, source.width, source.height, -1)
            words = f"read as {source.width}×{source.height}: height and width are swapped"
            misread = resample(other, Grid(target.width, target.height), resampling)
            yield "swapped", words, flat(misread)
            yield "swapped", words, flat(resample(other, target, resampling))
        for axis, word in ((1, "vertically"), (2, "horizontally")):
            mirrored = resample(np.flip(grid, axis), target, resampling)
            yield "mirrored", f"mirrored {word} ({resampling})", flat(mirrored)
    rows, columns = np.arange(target.height), np.arange(target.width)
    tiles = grid[:, rows % source.height][:, :, columns % source.width]
    if target.height <= source.height and target.width <= source.width:
        yield "cropped", "the top left of the source, not resampled: cropped", flat(tiles)
        top, left = (source.height - target.height) // 2, (source.width - target.width) // 2
        middle = grid[:, top : top + target.height, left : left + target.width]
        yield "cropped", "the middle of the source, not resampled: cropped", flat(middle)
    else:
        yield "tiled", "the source repeated side by side, not resampled: tiled", flat(tiles)
    mean = np.broadcast_to(flat(grid).mean(axis=0), (target.cells, grid.shape[-1]))
    yield "constant", "every position is the source's mean", mean
    edge = np.minimum(rows, source.height - 1), np.minimum(columns, source.width - 1)
    repeated = grid[:, edge[0]][:, :, edge[1]]
    yield "padded", "the source with its last row and column repeated: padded", flat(repeated)


def _misplaced(pair: Pair, resampling: Resampling) -> Iterator[tuple[str, str, Wide]]:
    """Prefix rows in the wrong place, and shifts by a cell or two."""
    source, target, before = pair.source, pair.target, pair.before
    honest = resample(pair.cells_before, target, resampling)
    shape = (1, source.height, source.width, before.shape[1])
    extra = pair.prefix + pair.suffix
    if extra:
        front = before[: source.cells].reshape(shape)
        words = f"prefix rows were taken for cells of the grid ({resampling})"
        yield "prefix", words, flat(resample(front, target, resampling))
        back = before[len(before) - source.cells :].reshape(shape)
        if pair.suffix:
            yield "prefix", words, flat(resample(back, target, resampling))
    if pair.prefix:
        late = np.concatenate([flat(honest), before[: pair.prefix]])
        words = "the prefix rows stand behind the grid instead of before it"
        yield "prefix", words, late[pair.prefix : pair.prefix + target.cells]
    for axis, word in ((1, "down"), (2, "right")):
        for step in (-2, -1, 1, 2):
            if honest.shape[axis] > abs(step):
                count = "1 cell" if abs(step) == 1 else f"{abs(step)} cells"
                words = f"everything is shifted {count} {word if step > 0 else _back(word)}"
                yield "shifted", words, flat(np.roll(honest, step, axis))
                where = np.clip(np.arange(honest.shape[axis]) - step, 0, honest.shape[axis] - 1)
                yield "shifted", words, flat(honest.take(where, axis))


def _back(word: str) -> str:
    return {"down": "up", "right": "left"}[word]


def _scaled(pair: Pair) -> Diagnosis | None:
    """An honest table times a factor."""
    best: Diagnosis | None = None
    for resampling in resamplings():
        honest = honest_rows(pair, resampling)
        energy = float(np.einsum("nd,nd->", honest, honest))
        if not energy:
            return None
        factor = float(np.einsum("nd,nd->", honest, pair.cells_after)) / energy
        error = distance(pair.cells_after, factor * honest)
        # Restored norms differ by a few per cent; this is not a mistake. One factor for all is.
        low, high = (0.995, 1.005) if error <= _PROPORTIONAL else (0.87, 1.15)
        if not low < factor < high and (best is None or error < best.error):
            words = f"{resampling}, but multiplied by {factor:.3g}"
            best = Diagnosis("scaled", words, error, error <= _EXPLAINED)
    return best
