"""What the operator costs: round trips, borders, rounding, and what other libraries would do."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from resize_pos.core.conventions import PEERS, Coordinates, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.catalogue import Peer
from resize_pos.quality.measures.energy import norm_map
from resize_pos.quality.measures.sampling import (
    Wide,
    centred,
    median,
    ratio,
    resample,
    size,
    some_channels,
)
from resize_pos.transforms.kernels import operator

_LONGEST_INVERSE = 512  # a pseudo-inverse is cubic in the length


def round_trips(source: Wide, target: Wide, resampling: Resampling) -> dict[str, float]:
    """Go back to the source grid: by the same method, and by the best linear operator."""
    before, after = some_channels(source), some_channels(target)
    scale = size(centred(before))
    if not scale:
        return {}
    old, new = grid_of(before), grid_of(after)
    back = resample(after, old, resampling)
    measures = {"round_trip": size(back - before) / scale}
    if max(old.height, old.width, new.height, new.width) <= _LONGEST_INVERSE:
        # einsum without optimisation is a plain loop: it starts no threads
        rows = np.einsum("hi,cijd->chjd", _inverse(old.height, new.height, resampling), after)
        best = np.einsum("wj,chjd->chwd", _inverse(old.width, new.width, resampling), rows)
        measures["round_trip_best"] = size(best - before) / scale
    return measures


@lru_cache(maxsize=32)
def _inverse(source: int, target: int, resampling: Resampling) -> Wide:
    inverse = np.linalg.pinv(operator(source, target, resampling).matrix, rcond=1e-10)
    return inverse.astype(np.float64, copy=False)


def clamped(source: Grid, target: Grid, resampling: Resampling) -> dict[str, float]:
    """Count the new rows and columns beyond the source's outermost centres."""
    return {
        "clamped_rows": _clamped(source.height, target.height, resampling.coordinates),
        "clamped_columns": _clamped(source.width, target.width, resampling.coordinates),
    }


def _clamped(source: int, target: int, rule: Coordinates) -> float:
    if rule is Coordinates.CORNERS or source == target:
        return 0.0
    length = target + 0.1 if rule is Coordinates.OFFSET else target
    where = (np.arange(target) + 0.5) * source / length - 0.5
    return float(np.count_nonzero((where < -1e-9) | (where > source - 1 + 1e-9)))


def peers(source: Wide, target: Wide) -> tuple[Peer, ...]:
    """Resize the table as each library would; return each result's distance and norm ratio."""
    before, after = some_channels(source), some_channels(target)
    scale = size(after)
    norm_before = float(norm_map(before).mean())
    results: dict[Resampling, tuple[float, float]] = {}
    for convention in PEERS:
        if convention.resampling in results:
            continue
        theirs = resample(before, grid_of(after), convention.resampling)
        distance = ratio(size(theirs - after), scale)
        norms = ratio(float(norm_map(theirs).mean()), norm_before, 1.0)
        results[convention.resampling] = (distance, norms)
    return tuple(
        Peer(convention.name, convention.resampling, *results[convention.resampling])
        for convention in PEERS
    )


def rounding(
    source: Wide, target: Wide, resampling: Resampling, others: tuple[Peer, ...]
) -> dict[str, float]:
    """Compare the stored result with the exact one, and with how much libraries differ."""
    before, after = some_channels(source), some_channels(target)
    exact = resample(before, grid_of(after), resampling)
    scale = size(exact)
    error = ratio(size(after - exact), scale)
    spread = [peer.distance for peer in others if peer.resampling != resampling]
    typical = median(spread) if spread else 0.0
    measures = {"rounding": error}
    if typical:
        measures["rounding_share"] = error / typical
    return measures


def grid_of(array: Wide) -> Grid:
    """Return the grid of a (copies, h, w, d) array."""
    return Grid(array.shape[1], array.shape[2])
