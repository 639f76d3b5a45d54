"""Tables of offsets under names that no family knows: do their windows follow the image?

Stages of a pyramid see the image at different resolutions. A window that is the same in two stages
is therefore not the image, and its table stays at every size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role
from resize_pos.families.tables import LeftAlone, NearMiss

_FAMILY = Family(
    name="unknown-window",
    title="offsets in windows, in a model that no family knows",
    role=Role.INERT,
    key=".*",
    axes=(),
    why="stages of different width have the same window, so it does not follow the image",
    source="planning/unknown_names/windows.py",
)


def windows_left_alone(
    near_misses: Sequence[NearMiss], tensors: Mapping[str, TensorInfo]
) -> tuple[LeftAlone, ...]:
    """Return the near misses that are tables of windows which do not follow the image."""
    sides = {miss.tensor.name: window_side(miss.tensor) for miss in near_misses}
    windows = [miss.tensor for miss in near_misses if sides[miss.tensor.name]]
    if len({sides[info.name] for info in windows}) != 1:
        return ()
    neighbours = _widths_by_module(tensors)
    stages = {neighbours.get(_module(info.name), frozenset()) for info in windows}
    if len(stages - {frozenset()}) < 2:
        return ()
    return tuple(LeftAlone(info, _FAMILY) for info in windows)


def window_side(info: TensorInfo) -> int:
    """Return the side of the window whose offsets a table may hold: (2n-1)×(2n-1); 0 if none."""
    shape = [length for length in info.shape if length != 1]
    if len(shape) < 2:
        return 0
    if shape[0] == shape[1] and shape[0] % 2:
        return (shape[0] + 1) // 2
    side = math.isqrt(shape[0])
    return (side + 1) // 2 if side > 1 and side * side == shape[0] and side % 2 else 0


def _module(name: str) -> str:
    parts = name.removesuffix(".weight").rpartition(".")
    return parts[0]


def _widths_by_module(tensors: Mapping[str, TensorInfo]) -> Mapping[str, Collection[int]]:
    """List what the layers of every module read and put out."""
    found: dict[str, set[int]] = {}
    for info in tensors.values():
        if len(info.shape) == 2 and not window_side(info):
            parts = info.name.split(".")
            for end in range(1, len(parts)):
                found.setdefault(".".join(parts[:end]), set()).update(info.shape)
    return {module: frozenset(widths) for module, widths in found.items()}
