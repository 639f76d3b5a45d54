"""A check, its level, and the worst of several: what `verdict.py` returns and reports show."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from resize_pos.core.fast_dataclass import dataclass

LABEL = (
    "structural checks on the weights alone; accuracy is for an evaluation, or for "
    "`resize-pos verify --images`"
)


class Level(StrEnum):
    """How a check came out; ordered by severity in `SEVERITY`."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


SEVERITY = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}


NEUTRAL = frozenset({"libraries"})  # checks that state a fact and judge nothing


@dataclass(frozen=True, slots=True)
class Check:
    """One judged measure."""

    name: str
    level: Level
    detail: str


def worst(checks: Iterable[Check]) -> Level:
    """Return the most severe level; ok if there are no checks."""
    return max((check.level for check in checks), key=SEVERITY.__getitem__, default=Level.OK)
