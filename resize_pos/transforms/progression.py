"""BEiT's source coordinates: offsets that grow apart like a geometric progression.

A trained window of n cells is laid over a larger one so that near offsets stay where they were and
far ones are spread: offset k of the source lies at 1 + q + … + q^(k−1) of the target. Free of
numpy, so that a plan can tell how far the source reaches.
"""

from __future__ import annotations

from functools import lru_cache

_LEAST, _MOST, _CLOSE = 1.01, 1.5, 1e-6  # as in BEiT, EVA, mmpretrain and timm


@lru_cache(maxsize=256)
def common_ratio(source: int, target: int) -> float:
    """Find q by bisection, so that `source` steps reach `target`; between 1.01 and 1.5."""
    least, most = _LEAST, _MOST
    ratio = least
    while most - least > _CLOSE:
        ratio = (least + most) / 2
        if (1 - ratio**source) / (1 - ratio) > target:
            most = ratio
        else:
            least = ratio
    return ratio


def source_offsets(source: int, target: int, ratio: float | None = None) -> list[float]:
    """Return the coordinate of each of `source` offsets (an odd number) among `target` offsets."""
    half = source // 2
    q = common_ratio(half, target // 2) if ratio is None else ratio
    side: list[float] = []
    position = 1.0
    for step in range(half):
        side.append(position)
        position += q ** (step + 1)
    return [*(-offset for offset in reversed(side)), 0.0, *side]


def reach(source: int, target: int, ratio: float | None = None) -> tuple[float, int]:
    """Return how far the source's outermost offset lies, and how far the target looks."""
    return source_offsets(source, target, ratio)[-1], target // 2
