"""Sources and manifest → jobs, each with a target that no other job writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resize_pos.containers.io.remote_path import RemotePath, place
from resize_pos.core.errors import ContainerError, OutputError, ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.request import Request
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import make_plan
from resize_pos.planning.rules.base import Surroundings
from resize_pos.run.batch.discover import Discovery, Found, discover
from resize_pos.run.batch.manifest import ManifestJob, merged
from resize_pos.run.job import Job


@dataclass(frozen=True, slots=True)
class Jobs:
    """Every job of a batch, in the order of the sources, and what the search found."""

    jobs: tuple[Job, ...]
    search: Discovery


def collect(
    sources: Iterable[str],
    entries: Sequence[ManifestJob],
    manifest_dir: Path,
    options: Mapping[str, Any],
    template: Job,
    output_dir: Path,
) -> Jobs:
    """Find every checkpoint; refuse two jobs with the same target."""
    _require_output_apart(sources, output_dir)
    whole = discover(sources, output_dir)
    found = [(it, template.request) for it in whole.found]
    for entry in entries:
        request = _request(entry, options)
        search = discover([_named(entry.source, manifest_dir)], output_dir)
        search.notes = [f"{entry.where}: {note}" for note in search.notes]
        found += [(_placed(it, entry, len(search.found)), request) for it in search.found]
        whole.add(search)
    jobs = tuple(
        replace(template, source=it.source, request=request, output=output_dir / it.place)
        for it, request in found
    )
    if not jobs:
        raise ContainerError(
            "no checkpoint was found.",
            hint=" ".join(whole.notes) or "name a folder, files or globs.",
        )
    require_distinct(jobs)
    for request in {job.request for job in jobs}:
        _require_sense(request)
    return Jobs(jobs, whole)


def require_distinct(jobs: Sequence[Job]) -> None:
    """Refuse jobs with the same target, a target inside another target, or a target on a source."""
    owners: dict[Path, Job] = {}
    for job in jobs:
        assert job.output is not None
        first = owners.setdefault(job.output, job)
        if first is not job:
            raise UsageError(
                f"{first.source} and {job.source} would both become {job.output}.",
                hint="name the folder above them, so that its tree is mirrored; or give them an "
                "output of their own in a --manifest.",
            )
    for target, job in owners.items():
        for parent in target.parents:
            if parent in owners:
                raise UsageError(
                    f"{job.source} would become {target}, inside of {parent}, which "
                    f"{owners[parent].source} becomes.",
                    hint="give them an output of their own in a --manifest.",
                )
    sources = {job.source.resolve(): job for job in jobs}
    for target in owners:
        if target.resolve() in sources:
            raise OutputError(
                f"{target}: the target is a source, which is never modified.",
                hint="name another folder with --output-dir.",
            )


def _require_sense(request: Request) -> None:
    """Refuse at once a request that would be refused for every checkpoint.

    To find out, plan it for a checkpoint without tensors.
    """
    try:
        make_plan(locate_tables(Surroundings({}, request)), request)
    except UsageError:
        raise
    except ResizePosError:
        return


def _require_output_apart(sources: Iterable[str], output_dir: Path) -> None:
    for word in sources:
        path = place(word)
        local = not isinstance(path, RemotePath)
        if path.resolve() == output_dir.resolve() and (not local or path.is_dir()):
            raise UsageError(
                f"--output-dir {output_dir}: is the source folder itself.",
                hint="name another folder; one inside of it is not searched.",
            )


def _named(source: str, manifest_dir: Path) -> str:
    """Return a source of a manifest: a URL, or a path relative to the manifest."""
    return source if isinstance(place(source), RemotePath) else str(manifest_dir / source)


def _request(entry: ManifestJob, options: Mapping[str, Any]) -> Request:
    try:
        return Request.make(**merged(options, entry.options))
    except UsageError as error:
        raise UsageError(f"{entry.where}: {error.message}", error.hint) from None


def _placed(found: Found, entry: ManifestJob, count: int) -> Found:
    """Place a job at the output of its manifest entry, or below it for a folder or a glob."""
    if entry.output is None:
        return found
    place = Path(entry.output)
    if place.is_absolute() or ".." in place.parts:
        raise UsageError(f"{entry.where}: output {entry.output} is not below --output-dir.")
    alone = count == 1 and not entry.output.endswith("/")
    return Found(found.source, place if alone else place / found.place)
