"""`resize-pos resize`: the default command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resize_pos.cli._options import (
    DEBUG_OPTION,
    JSON_OPTION,
    LENGTH_OPTIONS,
    METHOD_OPTIONS,
    SOURCE_OPTIONS,
    given,
)
from resize_pos.convert import Job, run
from resize_pos.errors import UsageError
from resize_pos.measures.catalogue import Limit
from resize_pos.report.files import require_report_targets, write_reports
from resize_pos.request import Request


@click.command("resize")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--to",
    metavar="SIZE",
    help="Target image size: 384, or 384x512 (height × width); for a text model its length.",
)
@click.option("--to-grid", metavar="HxW", help="Target grid in patches, instead of --to.")
@click.option(
    "--to-window",
    metavar="N|HxW",
    help="Target attention window of models such as Swin, in cells.",
)
@SOURCE_OPTIONS
@METHOD_OPTIONS
@LENGTH_OPTIONS
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Target [default: NAME-SIZE beside the source].",
)
@click.option("-f", "--force", is_flag=True, help="Replace an existing target.")
@click.option("--no-config", is_flag=True, help="Of a folder, convert the weights alone.")
@click.option("--copy", is_flag=True, help="Copy unchanged files; else large ones are hard-linked.")
@click.option("-n", "--dry-run", is_flag=True, help="Show the plan and write nothing.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also write a report (.json); repeatable.",
)
@click.option(
    "--max",
    "limits",
    multiple=True,
    metavar="MEASURE=LIMIT",
    help="Exit with 3 when a measure exceeds this; repeatable.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 on a warning, too.")
@JSON_OPTION
@click.option("-q", "--quiet", is_flag=True, help="Print only the path of the output.")
@click.option("-v", "--verbose", is_flag=True, help="Print the evidence and the measures.")
@DEBUG_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    checkpoint: Path,
    output: Path | None,
    force: bool,
    no_config: bool,
    copy: bool,
    dry_run: bool,
    device: str,
    reports: tuple[Path, ...],
    limits: tuple[str, ...],
    strict: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Transfer CHECKPOINT to another input resolution.

    \b
      resize-pos vit.safetensors --from 224 --to 384
      resize-pos vit.safetensors --to 384x512 --like hf -o wide.safetensors
      resize-pos model-folder/ --to 384        weights, config.json and processors together
      resize-pos clip.safetensors --to-length 248 --length-method stretch:20
      resize-pos odd.safetensors --pattern 'my_pos$' --axes '1 (p h w s) d' --to-grid 8x64

    The source is never modified; an existing target is refused without --force.
    """
    if quiet and (verbose or as_json):
        raise UsageError("-q excludes -v and --json.")
    request = Request.make(**given(**options))
    bounds = tuple(Limit.parse(text) for text in limits)
    require_report_targets(reports)
    wants_document = as_json or bool(reports)
    report = run(
        Job(
            checkpoint,
            request,
            output,
            force,
            dry_run,
            device,
            hash_output=wants_document,
            limits=bounds,
            edit_configs=not no_config,
            copy=copy,
        )
    )
    write_reports(report, reports)
    if as_json:
        from resize_pos.report.as_json import report_json

        click.echo(report_json(report))
    elif quiet:
        click.echo(str(report.output or report.source))
    else:
        from resize_pos.cli._render import show_report

        show_report(report, verbose=verbose)
    ctx.exit(report.exit_code(strict=strict))
