"""Work that judging many versions of one table has in common, done once.

Every mistake, every honest result and every intermediate resize is recomputed from the source for
each table that is judged. They depend on the source and the two grids alone, so the results for the
last few sources are kept. The functions are pure: what is kept equals what would be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.geometry import Grid
from resize_pos.quality.measures import likeness
from resize_pos.quality.measures.likeness import Sample
from resize_pos.verify import against_source
from resize_pos.verify.made_by import mistakes, offsets, proper
from resize_pos.verify.made_by.pair import Pair

_KEPT = 2  # the results of so many sources; those of a large one take 100 MB
_KEYS = "benchmarks_shared"  # marks a function that is shared already


def _content(array: NDArray[Any]) -> Hashable:
    return array.shape, array.dtype.str, array.tobytes()


def _of_pair(pair: Pair) -> Hashable:
    return _content(pair.before), pair.prefix, pair.suffix, pair.source, pair.target


def _of_sample(sample: Sample, cosines: NDArray[Any]) -> Hashable:
    return tuple(_content(rows) for rows in sample.honest)


def _of_source(source: NDArray[Any], target: Grid) -> Hashable:
    return _content(source), target


def _of_grids(source: Grid, target: Grid) -> Hashable:
    return source, target


def _of_table(table: Hashable, array: NDArray[Any]) -> Hashable:
    return table, _content(array)


def _of_step(step: Hashable, before: NDArray[Any]) -> Hashable:
    return step, _content(before)


def _of_results(honest: list[Any]) -> Hashable:
    return tuple((one.name, _content(one.cells)) for one in honest)


def _remembered(function: Callable[..., Any], key: Callable[..., Hashable]) -> Callable[..., Any]:
    """Keep the last results of a function; what an iterator gives is kept as a list."""
    kept: dict[Hashable, Any] = {}

    @wraps(function)
    def called(*arguments: Any) -> Any:
        wanted = key(*arguments)
        if wanted not in kept:
            made = function(*arguments)
            if isinstance(made, Iterable) and not isinstance(made, list | tuple | np.ndarray):
                made = list(made)
            if len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            kept[wanted] = made
        return kept[wanted]

    setattr(called, _KEYS, True)
    return called


_SHARED: tuple[tuple[ModuleType, str, Callable[..., Hashable]], ...] = (
    (mistakes, "_mistakes", _of_pair),
    (mistakes, "turned", _of_source),
    (proper, "two_resizes", _of_grids),
    (likeness, "_left_out", _of_sample),
    (against_source, "examine", _of_table),
    (offsets, "_honest_results", _of_step),
    (offsets, "_envelope", _of_results),
)


def share() -> None:
    """Let this process keep what depends on the source and the grids alone."""
    for module, name, key in _SHARED:
        function = getattr(module, name)
        if not hasattr(function, _KEYS):
            setattr(module, name, _remembered(function, key))
