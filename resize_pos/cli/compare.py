"""`resize-pos compare`: several resized versions side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resize_pos.cli.options import (
    DEBUG_OPTION,
    JSON_OPTION,
    ONCE,
    PLACE,
    REPORT_OPTION,
    SOURCE_OPTIONS,
    command_line,
    for_request,
)
from resize_pos.cli.terminal import say_json


@click.command("compare")
@click.argument("checkpoints", nargs=-1, required=True, type=PLACE)
@click.option(
    "--to", metavar="SIZE", **ONCE, help="Resize SOURCE to this size by every convention."
)
@click.option("--to-grid", metavar="HxW", **ONCE, help="Target grid in patches, instead of --to.")
@SOURCE_OPTIONS
@JSON_OPTION
@REPORT_OPTION
@click.option("-f", "--force", is_flag=True, help="Replace an existing report of any kind.")
@DEBUG_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    checkpoints: tuple[Path, ...],
    as_json: bool,
    reports: tuple[Path, ...],
    force: bool,
    **options: Any,
) -> None:
    """Put several versions of the same tables side by side.

    \b
      resize-pos compare vit.safetensors --to 384            every library's convention
      resize-pos compare vit.safetensors a.safetensors b.safetensors
      resize-pos compare a.safetensors b.safetensors         two files of one resolution

    The first file is the source where its grid differs from the others'. With one file, its
    tables are resized in memory; nothing is written.
    """
    from resize_pos.core.request import Request
    from resize_pos.report.compare_report import comparison_document
    from resize_pos.run.comparison import compare

    if reports:
        from resize_pos.report.files import require_report_targets

        require_report_targets(reports, force=force, sources=checkpoints)
    comparison = compare(checkpoints, Request.make(**for_request(options)))
    if reports:
        from resize_pos.report.compare_page import write_comparison

        write_comparison(comparison, reports, command_line(ctx))
    if as_json:
        say_json(comparison_document(comparison))
        return
    from resize_pos.cli.render_verify import show_comparison

    show_comparison(comparison)
