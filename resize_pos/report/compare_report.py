"""A comparison as one JSON document, schema `resize-pos/compare/1`."""

from __future__ import annotations

from typing import Any

from resize_pos._version import __version__
from resize_pos.quality.verdict import LABEL
from resize_pos.report.json import checks_document, health_document
from resize_pos.verify.compare import Comparison, Side, TableComparison

SCHEMA = "resize-pos/compare/1"


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "source": None if comparison.source is None else str(comparison.source),
        "labels": list(comparison.labels),
        "judged_by": LABEL,
        "tables": [_table(table) for table in comparison.tables],
    }


def _table(table: TableComparison) -> dict[str, Any]:
    source = table.source_grid
    return {
        "name": table.name,
        "from": None if source is None else [source.height, source.width],
        "grid": [table.grid.height, table.grid.width],
        "sides": [_side(side) for side in table.sides],
        "distances": [list(row) for row in table.distances],
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "verdict": side.verdict.value,
        "origin": side.origin,
        "health": health_document(side.health),
        "measures": dict(side.measures),
        "checks": checks_document(side.checks),
    }
