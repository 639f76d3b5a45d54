"""Stored row numbers (`position_ids`) of a table that has a name of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable


def with_their_tables(tables: Mapping[str, PositionTable]) -> Iterator[PositionTable]:
    """Let row numbers without a table beside them follow the one that has as many rows.

    Several tables with as many rows must agree on the grid.
    """
    for numbers in tables.values():
        rule = numbers.family.derived
        if rule is None or rule.formula != "positions" or numbers.follows is not None:
            continue
        leaders = [
            table
            for table in tables.values()
            if table.role is Role.ABSOLUTE
            and table.layout.rows(table.tensor.shape) == numbers.tensor.elements
        ]
        if len({(table.grid, table.prefix, table.suffix) for table in leaders}) == 1:
            leader = leaders[0]
            words = f"it numbers as many rows as {leader.name} has"
            yield replace(numbers, grid=leader.grid, follows=leader.name, evidence=(words,))
