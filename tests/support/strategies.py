"""What the laws range over."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st

from resize_pos.core.conventions import Coordinates, Method, Resampling
from resize_pos.core.geometry import Grid

LAW = settings(deadline=None, max_examples=60)  # no deadline: a slow machine breaks no law

EVERY_RESAMPLING = [Resampling(*c) for c in itertools.product(Method, (False, True), Coordinates)]
RESAMPLINGS = [
    resampling
    for resampling in EVERY_RESAMPLING
    if resampling.coordinates is Coordinates.HALF_PIXEL
    or (resampling.method is not Method.NEAREST and not resampling.antialias)
]


def lengths(largest: int = 40) -> st.SearchStrategy[int]:
    """Positions along one axis."""
    return st.integers(1, largest)


def grids(largest: int = 24) -> st.SearchStrategy[Grid]:
    """Grids, mostly not square."""
    return st.builds(Grid, lengths(largest), lengths(largest))


def resamplings() -> st.SearchStrategy[Resampling]:
    """Every resampling that has a meaning."""
    return st.sampled_from(RESAMPLINGS)
