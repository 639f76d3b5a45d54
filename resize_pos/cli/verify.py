"""`resize-pos verify`: is this file what it claims to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from resize_pos.cli._options import DEBUG_OPTION, JSON_OPTION, SOURCE_OPTIONS, command_line, given
from resize_pos.errors import UsageError


@click.command("verify")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="SOURCE",
    help="The checkpoint that it was made from.",
)
@click.option("--size", metavar="SIZE", help="Only say whether it fits this image size.")
@click.option(
    "--to", metavar="SIZE", help="Image size of CHECKPOINT, where its tables leave doubt."
)
@click.option("--to-grid", metavar="HxW", help="Its grid in patches, instead of --to.")
@click.option("--model", metavar="timm:NAME", help="Load it strictly and run one forward pass.")
@click.option(
    "--model-arg",
    "model_args",
    multiple=True,
    metavar="KEY=VALUE",
    help="A constructor argument of the model; repeatable.",
)
@click.option(
    "--images",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Run source and output on these images and compare (with --model and --against).",
)
@SOURCE_OPTIONS
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also write a report (.html, .md, .json); repeatable.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 on a warning, too.")
@JSON_OPTION
@click.option("-v", "--verbose", is_flag=True, help="Print the measures and every convention.")
@DEBUG_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    checkpoint: Path,
    against: Path | None,
    size: str | None,
    model: str | None,
    model_args: tuple[str, ...],
    images: Path | None,
    reports: tuple[Path, ...],
    strict: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Hold CHECKPOINT against its source, load it into a model, or ask whether it fits a size.

    \b
      resize-pos verify vit-384.safetensors --against vit.safetensors
      resize-pos verify vit-384.safetensors --model timm:vit_base_patch16_224
      resize-pos verify vit-384.safetensors --size 384

    Compares byte for byte what should be untouched, recomputes every table under each library's
    convention, and names the mistake where none of them made it. Options such as --from and
    --prefix describe the source.

    Exit codes: 0 sound (or it fits); 3 damaged; 1 could not be checked (or it does not fit).
    """
    if size is not None:
        if against or model or images or reports:
            raise UsageError("--size only looks at the header; it excludes the other checks.")
        ctx.exit(_say_fit(checkpoint, size, as_json, given(**options)))
    if against is None and model is None:
        raise UsageError(
            "nothing to verify against.",
            hint="pass --against SOURCE, --model timm:NAME, or --size SIZE.",
        )
    from resize_pos.api import verify_checkpoint
    from resize_pos.report.files import require_report_targets
    from resize_pos.report.verified import verified_document

    require_report_targets(reports)
    verified = verify_checkpoint(
        checkpoint,
        against,
        model=model,
        model_args=model_args,
        images=images,
        **given(**options),
    )
    if reports:
        from resize_pos.report.verified_page import write_verified

        write_verified(verified, reports, command_line(ctx))
    if as_json:
        document = verified_document(verified)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from resize_pos.cli._verified import show_verified

        show_verified(verified, verbose=verbose)
    ctx.exit(verified.exit_code(strict=strict))


def _say_fit(checkpoint: Path, size: str, as_json: bool, options: dict[str, Any]) -> int:
    from resize_pos.containers import open_container
    from resize_pos.convert import locate
    from resize_pos.fit import fit
    from resize_pos.request import Request

    request = Request.make(**{**options, "to": size})
    answer = fit(locate(open_container(checkpoint), request), request)
    if as_json:
        document = {
            "schema": "resize-pos/fit/1",
            "path": str(checkpoint),
            "fits": answer.fits,
            "detail": answer.detail,
        }
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        click.echo(f"{checkpoint.name} {answer.detail}")
    return 0 if answer.fits else 1
