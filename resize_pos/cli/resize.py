"""`resize-pos resize`: the default command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from resize_pos.cli.github import annotated
from resize_pos.cli.options import (
    CONVERSION_OPTIONS,
    DEBUG_OPTION,
    ONCE,
    PLACE,
    command_line,
    make_job,
)
from resize_pos.cli.terminal import say, say_json
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.core.errors import UsageError
from resize_pos.report.report import Report
from resize_pos.run.job import Job, output_place, run


@click.command("resize")
@click.argument("checkpoint", type=PLACE)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    **ONCE,
    help="Target: a file, or FOLDER/ [default: NAME-SIZE beside the source].",
)
@CONVERSION_OPTIONS
@click.option(
    "--push",
    metavar="ORG/NAME",
    help="Upload the output to this model on the hub; a new one is private.",
)
@click.option("--push-pr", is_flag=True, help="With --push: open a pull request.")
@click.option("-v", "--verbose", is_flag=True, help="Print the evidence and the measures.")
@DEBUG_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    checkpoint: Path,
    output: str | None,
    reports: tuple[Path, ...],
    strict: bool,
    as_json: bool,
    form: str,
    quiet: bool,
    verbose: bool,
    push: str | None,
    push_pr: bool,
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
    form = "json" if as_json else form
    if quiet and (verbose or form != "text"):
        raise UsageError("-q excludes -v, --json and --format.")
    wants_document = form != "text" or bool(reports)
    with annotated(checkpoint, wanted=form == "github"):
        place = output_place(output)
        if push_pr and push is None:
            raise UsageError("--push-pr needs --push ORG/NAME.")
        job = make_job(checkpoint, options, hash_output=wants_document, **place)
        convert: Callable[[Job], Report] = run
        if push is not None:
            convert = _run_and_upload(push, job, ctx, pull_request=push_pr, strict=strict)
        with _progress(job, visible=form == "text" and not quiet):
            report = _run_with_reports(convert, job, reports, ctx) if reports else convert(job)
    if form == "json":
        from resize_pos.report.json import report_document

        say_json(report_document(report))
    elif form == "github":
        _annotate(report)
    elif quiet:
        say(str(report.output or report.source))
    else:
        from resize_pos.cli.render import show_report

        show_report(report, verbose=verbose)
    ctx.exit(report.exit_code(strict=strict))


def _progress(job: Job, *, visible: bool) -> AbstractContextManager[None]:
    """Show how far a conversion in a store is; local ones are over before anyone looks."""
    in_a_store = isinstance(job.source, RemotePath) or isinstance(job.output, RemotePath)
    if not visible or not in_a_store:
        return nullcontext()
    from resize_pos.cli.underway import shown_underway

    return shown_underway(job, sys.stderr)


def _run_and_upload(
    push: str, job: Job, ctx: click.Context, *, pull_request: bool, strict: bool
) -> Callable[[Job], Report]:
    """Check the upload's target now; return what converts and then uploads."""
    from resize_pos.run.push import push_target, pushed

    target = push_target(push, job, pull_request=pull_request)
    return lambda job: pushed(run(job), job, target, command_line(ctx), strict=strict)


def _run_with_reports(
    convert: Callable[[Job], Report], job: Job, reports: Sequence[Path], ctx: click.Context
) -> Report:
    from resize_pos.report.files import require_report_targets, wants_pictures, write_reports

    require_report_targets(reports, force=job.force, sources=[job.source])
    report = convert(replace(job, draw=wants_pictures(reports)))
    write_reports(report, reports, command_line(ctx))
    return report


def _annotate(report: Report) -> None:
    from resize_pos.cli.github import annotate_checks, append_summary
    from resize_pos.report.files import report_markdown

    where = report.source if report.output is None else report.output
    annotate_checks(report.checks, report.source, f"{report.status.value}: {where}")
    append_summary(report_markdown(report))
