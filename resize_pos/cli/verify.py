"""`resize-pos verify`: is this file what it claims to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from resize_pos.cli.github import annotated
from resize_pos.cli.options import (
    DEBUG_OPTION,
    FORMAT_OPTION,
    JSON_OPTION,
    ONCE,
    PLACE,
    REPORT_OPTION,
    SOURCE_OPTIONS,
    STRICT_OPTION,
    command_line,
    for_request,
)
from resize_pos.cli.terminal import say, say_json
from resize_pos.core.errors import UsageError

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic
    from resize_pos.report.verify_report import Verified
    from resize_pos.verify.folder import FolderCheck


_ITSELF = Path()  # --config without a folder: the checkpoint's own


@click.command("verify")
@click.argument("checkpoints", metavar="CHECKPOINT", nargs=-1, required=True, type=PLACE)
@click.option(
    "--against",
    type=PLACE,
    metavar="SOURCE",
    **ONCE,
    help="The checkpoint that it was made from.",
)
@click.option(
    "--trained",
    is_flag=True,
    help="CHECKPOINT was trained on after the resize: other tensors may differ from the source's.",
)
@click.option("--size", metavar="SIZE", **ONCE, help="Only say whether it fits this image size.")
@click.option(
    "--config",
    type=PLACE,
    metavar="[DIR]",
    is_flag=False,
    flag_value=_ITSELF,
    help="Only say whether it fits the size that a config in DIR states. Without DIR: whether the "
    "weights, config and processor of the folder CHECKPOINT agree.",
)
@click.option(
    "--to", metavar="SIZE", **ONCE, help="Image size of CHECKPOINT, where its tables leave doubt."
)
@click.option("--to-grid", metavar="HxW", **ONCE, help="Its grid in patches, instead of --to.")
@click.option(
    "--model",
    metavar="LIBRARY:NAME",
    **ONCE,
    help="Load it strictly and run one forward pass: timm:NAME, hf:FOLDER or open_clip:NAME.",
)
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
@REPORT_OPTION
@click.option("-f", "--force", is_flag=True, help="Replace an existing report of any kind.")
@STRICT_OPTION
@JSON_OPTION
@FORMAT_OPTION
@click.option("-v", "--verbose", is_flag=True, help="Print the measures and every convention.")
@DEBUG_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    checkpoints: tuple[Path, ...],
    against: Path | None,
    trained: bool,
    size: str | None,
    config: Path | None,
    model: str | None,
    model_args: tuple[str, ...],
    images: Path | None,
    reports: tuple[Path, ...],
    force: bool,
    strict: bool,
    as_json: bool,
    form: str,
    verbose: bool,
    **options: Any,
) -> None:
    """Compare CHECKPOINT with its source, load it into a model, or see whether it fits a size.

    \b
      resize-pos verify vit-384.safetensors --against vit.safetensors
      resize-pos verify vit-384.safetensors --model timm:vit_base_patch16_224
      resize-pos verify vit-384.safetensors --size 384
      resize-pos verify vit-384.safetensors --config model-folder/
      resize-pos verify model-folder/ --config

    Compares byte for byte what should be untouched, recomputes every table under each library's
    convention, and names the mistake where none of them made it. Options such as --from and
    --prefix describe the source.

    Exit codes: 0 sound (or it fits); 3 damaged; 1 could not be checked (or it does not fit).
    """
    form = "json" if as_json else form
    with annotated(checkpoints[0], wanted=form == "github"):
        if size is not None or config is not None:
            if against or trained or model or images or reports or (size and config):
                raise UsageError(
                    "--size and --config only look at the header; each excludes the other checks."
                )
            answers = [
                _say_fit(path, size, config, form, for_request(options)) for path in checkpoints
            ]
            ctx.exit(0 if all(answers) else 1)
        if len(checkpoints) > 1:
            raise UsageError(
                "only --size and --config take several checkpoints at once.",
                hint="to compare two files, write: resize-pos verify OUTPUT --against SOURCE",
            )
        if against is None and model is None:
            raise UsageError(
                "nothing to verify against.",
                hint="pass --against SOURCE, --model timm:NAME, --size SIZE or --config DIR.",
            )
        from resize_pos.core.request import Request
        from resize_pos.report.files import require_report_targets
        from resize_pos.run.verification import verify

        sources = [path for path in (*checkpoints, against) if path is not None]
        require_report_targets(reports, force=force, sources=sources)
        verified = verify(
            checkpoints[0],
            against,
            Request.make(**for_request(options)),
            trained=trained,
            model=model,
            model_args=model_args,
            images=images,
        )
        if reports:
            from resize_pos.report.verify_page import write_verified

            write_verified(verified, reports, command_line(ctx))
    _show(verified, form, verbose=verbose)
    ctx.exit(verified.exit_code(strict=strict))


def _show(verified: Verified, form: str, *, verbose: bool) -> None:
    if form == "json":
        from resize_pos.report.verify_report import verified_document

        say_json(verified_document(verified))
    elif form == "github":
        from resize_pos.cli.github import annotate_checks, append_summary
        from resize_pos.report.markdown import code

        checks = () if verified.against is None else verified.against.checks
        annotate_checks(checks, verified.output, f"verified: {verified.verdict.value}")
        words = f"{code(str(verified.output))}: {verified.verdict.value}"
        append_summary(f"## resize-pos verify\n\n{words}")
    else:
        from resize_pos.cli.render_verify import show_verified

        show_verified(verified, verbose=verbose)


def _say_fit(
    checkpoint: Path, size: str | None, config: Path | None, form: str, options: dict[str, Any]
) -> bool:
    from resize_pos.configs.read import ConfigFiles
    from resize_pos.containers.metering import Meter
    from resize_pos.containers.sources import open_source
    from resize_pos.core.geometry import Size
    from resize_pos.core.request import Request
    from resize_pos.planning.locate import locate_in
    from resize_pos.verify.size_check import fit, fit_config

    if size is not None:
        Size.parse(size, "--size")  # a mistake is told under the name that was typed
    request = Request.make(**options, to=size) if size else Request.make(**options)
    metered = Meter.of(checkpoint, config)
    if config == _ITSELF:
        from resize_pos.verify.folder import check_folder

        checked = check_folder(checkpoint, request)
        return _say(checkpoint, form, checked.agrees, _agreement(checked), metered.used())
    container = open_source(checkpoint)
    located = locate_in(container, request)
    if config is None:
        answer = fit(located, request, container.image_sizes)
    else:
        answer = fit_config(located, request, ConfigFiles(config).sizes(), str(config))
    return _say(checkpoint, form, answer.fits, answer.detail, metered.used())


def _agreement(checked: FolderCheck) -> str:
    """Say what was compared, or every value that does not fit, one to a line."""
    if checked.agrees:
        return f"agrees with itself: {'; '.join(checked.compared)}"
    return "does not agree with itself:\n  " + "\n  ".join(checked.disagreements)


def _say(
    checkpoint: Path, form: str, fits: bool, detail: str, traffic: Traffic | None = None
) -> bool:
    words = f"{checkpoint.name} {detail}"
    if form == "json":
        from resize_pos.report.json import traffic_document

        document = {
            "schema": "resize-pos/fit/1",
            "path": str(checkpoint),
            "fits": fits,
            "detail": detail,
            "traffic": traffic_document(traffic),
        }
        say_json(document, indent=None)
    elif form == "github":
        from resize_pos.cli.github import annotate, append_summary
        from resize_pos.report.markdown import text

        annotate("ok" if fits else "fail", words, file=checkpoint, title="resize-pos verify")
        append_summary(f"- {text(words)}")
    else:
        for line in words.split("\n"):
            say(line)
        if traffic is not None:
            from resize_pos.cli.render import show_traffic

            show_traffic(traffic)
    return fits
