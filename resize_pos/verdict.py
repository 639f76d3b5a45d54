"""Numbers → ok / warn / fail, with the reason in words.

The thresholds were measured on real weights: 97 honest resizes and 89 broken ones of two trained
networks (docs/artifacts.md). They judge structure; only an evaluation can judge accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a check came out; ordered by severity in `_SEVERITY`."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_SEVERITY = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}


@dataclass(frozen=True, slots=True)
class Check:
    """One judged measure."""

    name: str
    level: Level
    detail: str


NORM_OK = (0.86, 1.16)
NORM_TOLERABLE = (0.74, 1.35)
NEIGHBOUR_DEFICIT_OK = 0.15
PREFIX_CHANGE_OK = 1e-6
PREFIX_CHANGE_TOLERABLE = 0.1


def judge(measures: Mapping[str, float]) -> tuple[Check, ...]:
    """Judge the measures of one table; a measure that is absent is not judged."""
    judges = {
        "prefix_change": _prefix,
        "norm_ratio": _norms,
        "neighbour_deficit": _neighbours,
    }
    return tuple(check(measures[name]) for name, check in judges.items() if name in measures)


def worst(checks: Iterable[Check]) -> Level:
    """Give the most severe level; ok when there is nothing to judge."""
    return max((check.level for check in checks), key=_SEVERITY.__getitem__, default=Level.OK)


def _prefix(change: float) -> Check:
    if change <= PREFIX_CHANGE_OK:
        return Check("prefix", Level.OK, "prefix and suffix rows are unchanged")
    level = Level.WARN if change <= PREFIX_CHANGE_TOLERABLE else Level.FAIL
    return Check("prefix", level, f"prefix or suffix rows changed by {change:.1%}")


def _norms(ratio: float) -> Check:
    direction = "fall" if ratio < 1 else "grow"
    detail = f"norms {direction} by {abs(ratio - 1):.1%}"
    if abs(ratio - 1) < 0.0005:
        detail = "norms are kept"
    if NORM_OK[0] <= ratio <= NORM_OK[1]:
        return Check("norms", Level.OK, detail)
    if NORM_TOLERABLE[0] <= ratio <= NORM_TOLERABLE[1]:
        return Check("norms", Level.WARN, f"{detail}: expect to fine-tune")
    return Check("norms", Level.FAIL, f"{detail}: far outside what honest resizing does")


def _neighbours(deficit: float) -> Check:
    if deficit <= NEIGHBOUR_DEFICIT_OK:
        return Check("smoothness", Level.OK, "neighbours are as similar as before")
    return Check(
        "smoothness",
        Level.WARN,
        f"neighbouring cells are less similar than in the source (cosine −{deficit:.2f} at equal "
        "distance)",
    )
