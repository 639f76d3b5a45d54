"""A comparison as one JSON document, schema `resize-pos/compare/1`."""

from __future__ import annotations

from typing import Any

from resize_pos._version import __version__
from resize_pos.quality.checks import LABEL
from resize_pos.report.json import checks_document, health_document, traffic_document
from resize_pos.verify.compare import Comparison, Side, TableComparison
from resize_pos.verify.kept_grid import KeptGrid

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
        "kept_grid": None if comparison.kept_grid is None else _kept(comparison.kept_grid),
        "traffic": traffic_document(comparison.traffic),
    }


def _kept(kept: KeptGrid) -> dict[str, Any]:
    patch, new = kept.patch, kept.new_patch
    return {
        "grid": [kept.grid.height, kept.grid.width],
        "instead_of": [kept.instead_of.height, kept.instead_of.width],
        "patch": [patch.height, patch.width],
        "new_patch": None if new is None else [new.height, new.width],
        "response_error": kept.response_error,
        "command": kept.command or None,
        "obstacle": kept.obstacle or None,
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
