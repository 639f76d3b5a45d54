"""`resize-pos inspect`: what a checkpoint holds, from its header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resize_pos.cli.options import DEBUG_OPTION, JSON_OPTION, PLACE, SOURCE_OPTIONS, for_request
from resize_pos.cli.terminal import say_json
from resize_pos.core.errors import UsageError
from resize_pos.core.request import Request
from resize_pos.core.tensors import total_bytes
from resize_pos.families.tables import PositionTable
from resize_pos.report.inspection import Inspection
from resize_pos.run.inspection import inspect


@click.command("inspect")
@click.argument("checkpoint", type=PLACE)
@SOURCE_OPTIONS
@click.option(
    "--health", is_flag=True, help="Read the tables' values and judge them (needs numpy)."
)
@click.option(
    "--show", is_flag=True, help="Draw how similar a cell is to every other (needs numpy)."
)
@JSON_OPTION
@click.option("-v", "--verbose", is_flag=True, help="List every tensor, too.")
@DEBUG_OPTION
def command(
    checkpoint: Path, health: bool, show: bool, as_json: bool, verbose: bool, **options: Any
) -> None:
    """Show the position tables of CHECKPOINT: grid, prefix, family, and the evidence for each.

    \b
      resize-pos inspect vit.safetensors
      resize-pos inspect vit.safetensors --health --show

    Reads the header only; with --health also the tables, and says what they are (learned,
    untrained, sin-cos …) and whether somebody has botched a resize. Tensors that sound like
    position tables and are none are listed with the reason; a table that can be read in two ways
    is listed with the flag that settles it.
    """
    if show and as_json:
        raise UsageError("--show draws for a terminal; it excludes --json.")
    request = Request.make(**for_request(options))
    inspection = inspect(checkpoint, request, health=health, pictures=show)
    if as_json:
        say_json(_document(inspection))
        return
    from resize_pos.cli.render import show_inspection

    show_inspection(inspection, verbose=verbose)


def _table(table: PositionTable, inspection: Inspection) -> dict[str, Any]:
    from resize_pos.report.json import health_document, table_document

    document = table_document(table)
    if table.name in inspection.health:
        document["health"] = health_document(inspection.health[table.name])
    return document


def _document(inspection: Inspection) -> dict[str, Any]:
    from resize_pos.report.json import traffic_document

    located = inspection.located
    return {
        "schema": "resize-pos/inspection/1",
        "path": str(inspection.path),
        "format": inspection.format,
        "tensors": len(inspection.tensors),
        "bytes": total_bytes(inspection.tensors.values()),
        "traffic": traffic_document(inspection.traffic),
        "tables": [_table(table, inspection) for table in located.tables],
        "unsettled": [
            {
                "name": entry.tensor.name,
                "family": entry.family.name,
                "shape": list(entry.tensor.shape),
                "error": entry.error.message,
                "hint": entry.error.hint,
            }
            for entry in located.unsettled
        ],
        "left_alone": [
            {
                "name": entry.tensor.name,
                "family": entry.family.name,
                "shape": list(entry.tensor.shape),
                "reason": entry.family.why,
            }
            for entry in located.left_alone
        ],
        "near_misses": [
            {"name": miss.tensor.name, "shape": list(miss.tensor.shape), "reason": miss.reason}
            for miss in located.near_misses
        ],
        "looks_like": [
            {"name": miss.tensor.name, "shape": list(miss.tensor.shape), "reason": miss.reason}
            for miss in located.looks_like
        ],
    }
