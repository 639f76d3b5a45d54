"""`resize-pos batch`: many checkpoints, unattended."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from resize_pos.cli.options import CONVERSION_OPTIONS, DEBUG_OPTION, Count, for_request, make_job
from resize_pos.cli.progress import Progress, open_progress
from resize_pos.cli.terminal import say, say_json
from resize_pos.containers.io.remote_path import RemotePath, place
from resize_pos.containers.io.stage_names import this_writer
from resize_pos.containers.metering import Meter
from resize_pos.core.errors import UsageError
from resize_pos.report.batch import write_batch_reports
from resize_pos.report.batch_result import BatchResult, job_document
from resize_pos.report.files import require_report_targets
from resize_pos.run.batch.jobs import Jobs, collect
from resize_pos.run.batch.ledger import AnyLedger, Ledger
from resize_pos.run.batch.manifest import ManifestJob, read_manifest
from resize_pos.run.batch.pools import usable_cores
from resize_pos.run.batch.run import Batch, plan_all, prepare, run_all
from resize_pos.run.batch.work import Outcome
from resize_pos.run.job import Job

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic

_MOST_WORKERS = 4  # by default: beyond that, disks are what is waited for

_MOST_NOTES = 2  # of those that stores give to every job alike


@click.command("batch")
@click.argument("sources", nargs=-1, metavar="SOURCE…")
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where the tree below each source is mirrored.",
)
@click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    help="Jobs with sizes and options of their own: .toml, .csv or .jsonl.",
)
@click.option(
    "-j",
    "--jobs",
    "workers",
    type=Count(min=1),
    metavar="N",
    help=f"Processes [default: one per core, at most {_MOST_WORKERS}].",
)
@click.option("--dask", metavar="ADDRESS", help="Run on this Dask scheduler's cluster.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first job that fails.")
@CONVERSION_OPTIONS
@DEBUG_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    output_dir: Path,
    manifest: Path | None,
    workers: int | None,
    dask: str | None,
    fail_fast: bool,
    dry_run: bool,
    reports: tuple[Path, ...],
    strict: bool,
    as_json: bool,
    form: str,
    quiet: bool,
    **options: Any,
) -> None:
    """Transfer every checkpoint below the SOURCEs: folders, files, globs or URLs.

    \b
      resize-pos batch zoo/ 'more/**/*.pth' --to 384 -o out/ -j 4
      resize-pos batch --manifest jobs.toml -o out/ --report zoo.html
      resize-pos batch s3://zoo/ --to 384 -o s3://zoo-384/

    Every option of `resize` but --push applies to every job. One job's failure does not stop the
    others. Run it again to finish what is missing: what is current is left alone.
    """
    started = time.perf_counter()
    form = "json" if as_json else form
    if quiet and form != "text":
        raise UsageError("-q excludes --json and --format.")
    if not sources and manifest is None:
        raise UsageError("nothing to convert.", hint="name a folder, files or globs.")
    output_dir = place(output_dir)
    entries = () if manifest is None else read_manifest(manifest)
    meter = Meter.of(output_dir, *map(place, [*sources, *(entry.source for entry in entries)]))
    if dask is not None and workers is not None:
        raise UsageError("-j counts local processes; with --dask the cluster decides.")
    wants_document = form != "text" or bool(reports)
    template = make_job(Path(), options, hash_output=wants_document, many=True)
    found = _collect(sources, entries, manifest, options, template, output_dir)
    jobs, search = found.jobs, found.search
    require_report_targets(reports, force=template.force, sources=[job.source for job in jobs])
    own = [_own_reports(path) for path in reports if path.suffix.lower() == ".html"]
    if own and dask is not None and isinstance(output_dir, RemotePath):
        own = []  # the workers may have another disk
        note = "the pages of single jobs are left out: workers of Dask may have another disk."
        say(("note: ", "yellow"), note, err=True)
    outcomes: list[Outcome] = []
    with open_progress(visible=not dry_run and not quiet and _is_terminal(sys.stderr)) as progress:
        if dry_run:
            known = _open_ledger(output_dir)
            batch = prepare(jobs, output_dir, known, search=search)
            events = plan_all(batch, known, search)
            _follow(events, batch, progress, outcomes, form, quiet)
        else:
            output_dir.mkdir(parents=True, exist_ok=True)
            with _open_ledger(output_dir) as ledger:
                batch = prepare(jobs, output_dir, ledger, own, search)
                count = workers or min(usable_cores(), _MOST_WORKERS)
                running = run_all(batch, ledger, workers=count, dask=dask, fail_fast=fail_fast)
                # Closed, and not left to the garbage collector: closing ends the workers.
                with contextlib.closing(running), _telling(outcomes, len(jobs)):
                    _follow(running, batch, progress, outcomes, form, quiet)
    seconds = time.perf_counter() - started
    results = tuple(outcome.result for outcome in outcomes)
    used = _traffic(meter, outcomes)
    summary = BatchResult(output_dir, results, len(jobs), seconds, strict, used)
    write_batch_reports(summary, reports)
    if form == "github":
        _annotate(summary)
    elif form == "text" and not quiet:
        from resize_pos.cli.render_batch import show_summary

        show_summary(summary)
    ctx.exit(summary.exit_code)


def _open_ledger(output_dir: Path) -> AnyLedger:
    if isinstance(output_dir, RemotePath):
        from resize_pos.run.batch.store_ledger import StoreLedger

        return StoreLedger(output_dir)
    return Ledger(output_dir)


def _traffic(meter: Meter, outcomes: Iterable[Outcome]) -> Traffic | None:
    """Add up the requests of this process and of the workers."""
    total = meter.used()
    if total is not None:
        for outcome in outcomes:
            if outcome.traffic is not None and outcome.worker != this_writer():
                total += outcome.traffic
        if len(total.notes) > _MOST_NOTES:
            kept, more = total.notes[:_MOST_NOTES], len(total.notes) - _MOST_NOTES
            total = replace(total, notes=(*kept, f"the same happened {more} more times"))
    return total


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None: it was closed by whoever started us


@contextlib.contextmanager
def _telling(outcomes: Sequence[Outcome], total: int) -> Iterator[None]:
    """Add to an interrupt how far the batch had come."""
    try:
        yield
    except KeyboardInterrupt as error:
        done = sum(not outcome.failed for outcome in outcomes)
        whole = ", and their outputs are complete" if done else ""
        error.add_note(f"{done} of {total} finished{whole}; run it again to continue.")
        raise


def _collect(
    sources: Sequence[str],
    entries: Sequence[ManifestJob],
    manifest: Path | None,
    options: dict[str, Any],
    template: Job,
    output_dir: Path,
) -> Jobs:
    folder = Path() if manifest is None else manifest.parent
    found = collect(sources, entries, folder, for_request(options), template, output_dir)
    for note in found.search.notes:
        say(("note: ", "yellow"), note, err=True)
    return found


def _own_reports(path: Path) -> tuple[Path, str]:
    return path.with_name(f"{path.stem}-jobs"), ".html"


def _follow(
    events: Iterable[Any],
    batch: Batch,
    progress: Progress,
    outcomes: list[Outcome],
    form: str,
    quiet: bool,
) -> None:
    """Print every event as it happens, in the format that was asked for."""
    total = len(batch.settled) + len(batch.left)
    progress.begin(batch)
    for event in events:
        if not isinstance(event, Outcome):
            progress.started(event.task)
            continue
        outcomes.append(event)
        progress.finished(event)
        failure = event.result.failure
        if form == "json":
            say_json(job_document(event.result, total), indent=None)
        elif quiet and failure is None:
            say(str(event.task.target))
        elif not quiet and not progress.visible:
            from resize_pos.cli.render_batch import result_line

            say(f"[{len(outcomes)}/{total}] {result_line(event.result)}", err=True)
        if quiet and failure is not None:
            say(f"error: {event.result.complaint}", err=True)


def _annotate(summary: BatchResult) -> None:
    from resize_pos.cli.github import annotate, append_summary
    from resize_pos.report.batch import batch_markdown, count_words

    for result in (*summary.failed, *summary.warned):
        level = "fail" if result.failure is not None else result.verdict.value
        for reason in result.reasons:
            annotate(level, reason, file=result.source, title="resize-pos")
    annotate("ok", f"{count_words(summary.counts)}.", title="resize-pos batch")
    append_summary(batch_markdown(summary))
