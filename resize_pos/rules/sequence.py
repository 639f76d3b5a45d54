"""1-D tables of text: one row per token."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.request import Request
from resize_pos.rules.base import Match, Surroundings
from resize_pos.tables import PositionTable, Step, keep


def settle_table(
    match: Match,
    around: Surroundings,  # noqa: ARG001
    settled: Mapping[str, PositionTable],  # noqa: ARG001
) -> PositionTable:
    """Take every row for a token."""
    grid = match.layout.grid(match.tensor.shape)
    assert grid is not None
    evidence = ("one row per token",)
    return PositionTable(
        match.tensor, match.family, match.stem, match.layout, grid, evidence=evidence
    )


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:  # noqa: ARG001
    """Leave it: an image size says nothing about a text."""
    return keep(table, "a text table; no length was asked for")
