"""Run the pipeline for one job: locate, plan, transform, write, check, measure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from resize_pos.configs.advice import advise
from resize_pos.configs.inside import SizesInside, sizes_inside
from resize_pos.configs.read import ConfigFile, ConfigFiles, architecture, configs_library
from resize_pos.configs.timm_models import KnownModel, timm_model
from resize_pos.configs.values import ConfigEdit, config_files
from resize_pos.containers.base import Container, Copied, Promised
from resize_pos.containers.detect import open_container, suffix_by_content, unnamed_format
from resize_pos.containers.hub import is_hub_address
from resize_pos.containers.io.atomic_output import (
    output_error,
    require_absent,
    require_space,
    require_writable,
    staged,
)
from resize_pos.containers.io.remote_path import RemotePath, place
from resize_pos.containers.metering import Meter
from resize_pos.containers.reformat import converted
from resize_pos.containers.sources import (
    Source,
    expect_upload,
    require_other_place,
    resolve_source,
)
from resize_pos.core.devices import CPU
from resize_pos.core.errors import ContainerError, ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.notes import Note
from resize_pos.core.request import Request
from resize_pos.core.request_fields import JobFields
from resize_pos.planning.geometry.prefix_place import check_prefix_places
from resize_pos.planning.locate import locate_tables, require_one_geometry
from resize_pos.planning.memory_check import require_memory
from resize_pos.planning.output_name import default_output
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.provenance import record
from resize_pos.planning.rules.base import Surroundings
from resize_pos.quality.measures.catalogue import Limit
from resize_pos.report.report import Report, Status, TableReport
from resize_pos.run.graphs import at_new_size

if TYPE_CHECKING:
    from resize_pos.run.compute import Tables


@dataclass(frozen=True, slots=True)
class Job(JobFields):
    """One checkpoint to convert, with its target and options (`JOB_OPTIONS` in `core/options.py`).

    The fields here are no options of their own; a command or the API fills them in.
    """

    source: Path
    request: Request
    output: Path | None = None  # None: beside the source, with the target size in its name
    into_folder: bool = False  # the output is a folder for a file, which gets its default name
    hash_output: bool = False
    limits: tuple[Limit, ...] = ()  # limits that the user set for measures
    draw: bool = False  # also compute the pictures of the HTML page
    many: bool = False  # one of a batch: sizes are pixels, and a text model stays as it is


@dataclass(frozen=True, slots=True)
class _Written:
    """The part of the report that only a run with output has."""

    copied: Copied
    tables: tuple[TableReport, ...] = ()
    sha256: str | None = None


class OutputPlace(TypedDict):
    """Where the output of a job goes."""

    output: Path | None
    into_folder: bool


def output_place(given: str | os.PathLike[str] | None) -> OutputPlace:
    """Read a target as a user writes it; a slash at its end means a folder."""
    if given is None:
        return {"output": None, "into_folder": False}
    text = os.fspath(given)
    if not text:
        raise UsageError("-o is empty.", hint="name a file, for example -o out.safetensors.")
    if text == "-":
        raise UsageError(
            "-o -: the output is checked before it gets its name, so it cannot be a stream.",
            hint="name a file, for example -o out.safetensors.",
        )
    if is_hub_address(Path(text)):
        raise UsageError(
            f"-o {text}: an output is uploaded to the hub after it was checked here.",
            hint=f"name a folder with -o, and pass --push {text.removeprefix('hf:').strip('/')}",
        )
    return {"output": place(text), "into_folder": text.endswith(("/", os.sep))}


def run(job: Job) -> Report:
    """Run a job, or only plan it. The target is written atomically."""
    started = time.perf_counter()
    job = replace(job, source=place(job.source), output=job.output and place(job.output))
    metered = Meter.of(job.source, job.output)
    source = resolve_source(job.source)
    if not job.dry_run:
        expect_upload(source.path, job.output)
    opened = open_container(source.path)
    if not opened.tensors:
        raise ContainerError(f"{source.name}: holds no tensors that could be transferred.")
    job = replace(job, into_folder=_goes_into_folder(job, opened))
    named = None if job.into_folder else job.output
    container = converted(opened, named, drop_extras=job.drop_extras, select=job.select)
    other_kind = bool(container.output_tag) and named is not None  # a TorchScript archive
    only_converts = container.conversion is not None or other_kind
    try:
        around = Surroundings.of(container, job.request, many=job.many)
        located = check_prefix_places(locate_tables(around), around)
        require_one_geometry(container.copies, located)
        # The config files beside a lone weight file may belong to another model.
        own_configs = job.edit_configs and container.owns_configs
        configs = around.files.read(config_files(located), strict=True) if own_configs else {}
        documents = {name: file.document for name, file in configs.items()}
        plan = make_plan(located, job.request, documents, needs_target=not only_converts)
        container.require_convertible([step.name for step in plan.changes])
        plan = _with_optimizers(plan, container)
        require_memory(plan)
        container = at_new_size(container, plan, partial(make_plan, located))
    except ResizePosError as error:
        error.message = f"{source.name}: {error.message}"
        raise
    changes = bool(plan.changes or plan.config_edits)
    if plan.changes or only_converts:
        plan = replace(plan, notes=(*plan.notes, *container.notes))
    folder = container.is_folder
    if named is not None and not folder:
        stated = unnamed_format(named, source.path, container.format)
        plan = replace(plan, notes=(*plan.notes, *([Note(stated)] if stated else ())))
    output = _target(job, source, plan, container)
    if output is not None:
        require_other_place(source.path, output, folder=folder)
    if not job.dry_run:
        _require_device(job.device)
    if job.dry_run or not plan.changes:  # the real run checks them in the transform
        from resize_pos.planning.geometry.value_checks import require_sound_values

        require_sound_values(plan, lambda name: _bytes_of(container, name), container.path.name)
    inside = SizesInside()
    if not container.holds_graph:
        inside = _sizes_inside(container, plan, edit=job.edit_sizes)
    report = Report(
        job.source,
        output,
        Status.CONVERTED if only_converts else Status.UNCHANGED,
        plan,
        tuple(TableReport(step) for step in plan.steps),
        Copied(len(container.tensors) - len(plan.changes), 0),
        seconds=0.0,
        holds_graph=container.holds_graph,
        config_advice=()
        if container.holds_graph
        else (
            *advise(plan.steps, plan.request, around.files, edited=bool(configs)),
            *inside.left,
        ),
        size_edits=inside.edits,
        config_library=configs_library(documents),
        architecture=architecture(documents),
        known_model=None if folder else _known_model(container),
        wrapper=container.wrapper,
        left_out=container.left_out if plan.changes else (),
        copies=container.copies,
        conversion=container.conversion,
    )
    if job.dry_run:
        if changes or only_converts:
            report = replace(report, status=Status.PLANNED)
        if output is not None:
            require_writable(_existing(output.parent) if job.into_folder else output.parent)
            # Whatever --force does not help with is refused here, too.
            exists = require_absent(output, force=True, folder=folder)
            shapes = {step.name: step.target_shape for step in plan.changes}
            report = replace(
                report,
                output_bytes=container.output_bytes(shapes),
                needs_force=exists and not job.force,
            )
    elif output is not None and changes:
        _make_folder(output, job)
        edited_files = _edited(configs, plan.config_edits)
        container = container.with_configs(edited_files, link=job.link)
        done = _convert(container, plan, output, job, around, inside)
        report = replace(
            report,
            status=Status.RESIZED,
            tables=done.tables,
            copied=done.copied,
            sha256=done.sha256,
        )
    elif output is not None:
        _make_folder(output, job)
        done = _copy_whole(container.with_configs({}, link=job.link), output, job)
        report = replace(report, copied=done.copied, sha256=done.sha256)
    return replace(report, seconds=time.perf_counter() - started, traffic=metered.used())


def _known_model(container: Container) -> KnownModel | None:
    """Name the model of a file of weights; those of a training checkpoint lie in an entry."""
    if container.wrapper is None:
        return None
    prefix = f"{container.wrapper}." if container.wrapper else ""
    names = (name for name in container.tensors if name.startswith(prefix))
    return timm_model({name.removeprefix(prefix): container.tensors[name] for name in names})


def _sizes_inside(container: Container, plan: Plan, *, edit: bool) -> SizesInside:
    settings = container.settings
    fixed = container.fixed_settings if settings else {}
    return sizes_inside(plan.steps, plan.request, settings, fixed, edit=edit)


def _require_device(device: str) -> None:
    """Refuse a device that torch does not have, even if no table would be computed on it."""
    if device != CPU:
        from resize_pos.transforms.device import resolve_device

        resolve_device(device)


def _with_optimizers(plan: Plan, container: Container) -> Plan:
    """Plan what happens to the optimizer state in a training checkpoint."""
    if not container.optimizers:
        return plan
    from resize_pos.planning.rules.optimizer import optimizer_notes, optimizer_steps

    states = optimizer_steps(plan.steps, container.tensors, container.optimizers, plan.request)
    notes = plan.notes + optimizer_notes(plan.steps)
    return replace(plan, steps=plan.steps + states, notes=notes)


def _goes_into_folder(job: Job, source: Container) -> bool:
    """Return whether a file goes into a folder: `-o out/`, or one that exists."""
    if job.output is None or source.is_folder or job.many:  # a batch names every file itself
        return False
    if isinstance(job.output, RemotePath):  # stores have no folders; a slash says that one is meant
        return job.into_folder
    return job.into_folder or job.output.is_dir()


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    if isinstance(folder, RemotePath):
        return folder
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _make_folder(output: Path, job: Job) -> None:
    if job.into_folder:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise output_error(output.parent, error) from error


def _target(job: Job, source: Source, plan: Plan, container: Container) -> Path | None:
    """Return the target path; None if nothing changes and no target was named."""
    if job.output is not None and not job.into_folder:
        return job.output
    idle = not (plan.changes or plan.config_edits or container.conversion)
    if job.output is None and idle:
        return None
    tag = job.select or (container.output_tag if plan.changes else "")
    suffix = "" if container.is_folder else suffix_by_content(source.path)
    names = source.names
    if container.is_folder and container.holds_graph:
        names = names.with_suffix("")  # a file; its data files make the output a folder
    named = default_output(names, plan, suffix, tag=tag)
    return named if job.output is None else job.output / named.name


def _edited(configs: Mapping[str, ConfigFile], edits: Sequence[ConfigEdit]) -> Mapping[str, str]:
    """Return the new text of every config file that changes."""
    if not edits:
        return {}
    from resize_pos.configs.edits import apply_edits

    return {
        file: apply_edits(configs[file].source, [edit for edit in edits if edit.file == file])
        for file in dict.fromkeys(edit.file for edit in edits)
    }


def _staged(output: Path, job: Job, *, folder: bool) -> AbstractContextManager[Path]:
    return staged(output, force=job.force, folder=folder, durable=job.durable)


def _convert(
    container: Container,
    plan: Plan,
    output: Path,
    job: Job,
    around: Surroundings,
    inside: SizesInside,
) -> _Written:
    """Write the target. Everything that can fail happens before the rename."""
    from resize_pos.core.background import Beside, Promise  # only in a real run

    if plan.drops:
        container = container.without(plan.drops)
    if inside.edits:
        container = container.with_settings(inside.values)
    shapes = {step.name: step.target_shape for step in plan.changes}
    with _staged(output, job, folder=container.is_folder) as stage:
        require_space(output.parent, container.output_bytes(shapes))
        data = {name: _bytes_of(container, name) for name in shapes}
        note = record(plan, container.tensors, data)
        tables: Promise[Tables] = Promise()

        def work() -> tuple[TableReport, ...]:
            from resize_pos.run.compute import (  # imports numpy: only in a real run
                measured,
                transformed,
            )

            arrays = tables.keep(lambda: transformed(container, plan, data, job.device))
            return measured(container, plan.steps, arrays, job.limits, draw=job.draw)

        # The kernel copies bytes while another thread computes the tables, then their measures.
        # Until the tables are computed, only that thread may import numpy.
        with Beside(work, feeds=[tables]) as reports:
            promised = Promised(shapes, lambda: tables.result().after, lambda: tables.failed)
            copied = container.write_early(stage, promised, note)
            from resize_pos.verify.output_check import check_output

            written = ConfigFiles(stage).documents() if plan.config_edits else None
            before = tables.result().before
            result = open_container(stage)
            result.check_with_reference()
            check_output(result, container, plan, before, around, written)
            if inside.edits:
                inside.require_written(result.settings)
            return _Written(copied, reports.result(), _hash_if_asked(stage, job))


def _bytes_of(container: Container, name: str) -> bytes:
    return container.peek(name, 0, container.tensors[name].nbytes)


def _copy_whole(container: Container, output: Path, job: Job) -> _Written:
    with _staged(output, job, folder=container.is_folder) as stage:
        require_space(output.parent, container.output_bytes({}))
        copied = container.write_unchanged(stage)
        open_container(stage).check_with_reference()
        return _Written(copied, sha256=_hash_if_asked(stage, job))


def _hash_if_asked(stage: Path, job: Job) -> str | None:
    # To hash an output in a store, all of its bytes would have to be downloaded.
    return _sha256(stage) if job.hash_output and not isinstance(stage, RemotePath) else None


def _sha256(path: Path) -> str:
    """Hash a file. For a folder, hash the `sha256sum` lines of its files, sorted by name."""
    import hashlib

    if path.is_dir():
        files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        lines = "".join(f"{_sha256(path / name)}  {name}\n" for name in files)
        return hashlib.sha256(lines.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
