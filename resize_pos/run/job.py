"""The one verb that runs the pipeline: locate, plan, transform, write, check, measure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.configs.advice import advise
from resize_pos.configs.read import parse_texts, read_config_sizes, read_texts
from resize_pos.configs.text_read import read_config_texts
from resize_pos.configs.values import ConfigEdit, config_files
from resize_pos.containers.base import (
    Container,
    Copied,
    EarlyWriter,
    PartialReader,
    Promised,
    TrainingCheckpoint,
)
from resize_pos.containers.detect import open_container, writes_folder
from resize_pos.containers.io.atomic_output import (
    require_absent,
    require_space,
    require_writable,
    staged,
)
from resize_pos.containers.io.splice import CopyRange, write_spliced
from resize_pos.containers.reformat import Converted, converted
from resize_pos.containers.sources import (
    Source,
    copies,
    left_out,
    model_folder_of,
    require_convertible,
    require_other_place,
    resolve_source,
)
from resize_pos.core.background import Beside, Promise
from resize_pos.core.errors import ContainerError, ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.request import Request
from resize_pos.families.tables import Located
from resize_pos.planning.locate import locate_tables, require_one_geometry
from resize_pos.planning.plan import Plan, default_output, make_plan
from resize_pos.planning.provenance import record, recorded_geometry
from resize_pos.planning.rules.base import Surroundings
from resize_pos.quality.measures.catalogue import Limit
from resize_pos.report.report import Report, Status, TableReport

if TYPE_CHECKING:
    from resize_pos.run.compute import Tables


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint to transfer, and where to."""

    source: Path
    request: Request
    output: Path | None = None  # None: beside the source, named after the target
    force: bool = False
    dry_run: bool = False
    device: str = "cpu"
    hash_output: bool = False
    limits: tuple[Limit, ...] = ()  # what the user will not have a measure exceed
    edit_configs: bool = True  # of a folder; else they are carried over as they are
    copy: bool = False  # files that do not change are copied, not hard-linked
    drop_extras: bool = False  # what the output's format cannot hold is left out
    draw: bool = False  # what a page would show is computed, too


def locate(container: Container, request: Request) -> Located:
    """Find the tables of an opened checkpoint, with every evidence that lies around it."""
    return locate_tables(
        Surroundings(
            container.tensors,
            request,
            read_config_sizes(_folder(container)),
            recorded_geometry(container.metadata),
            container.read,
            container.peek if isinstance(container, PartialReader) else None,
            read_config_texts(_folder(container)),
        )
    )


def run(job: Job) -> Report:
    """Carry a job out, or plan it; the target appears whole or not at all."""
    started = time.perf_counter()
    source = resolve_source(job.source)
    opened = open_container(source.path)
    if not opened.tensors:
        raise ContainerError(f"{source.name}: holds no tensors that could be transferred.")
    container = converted(opened, job.output, drop_extras=job.drop_extras)
    try:
        located = locate(container, job.request)
        require_one_geometry(copies(container), located)
        texts = _texts(container, located) if job.edit_configs else {}
        plan = make_plan(located, job.request, parse_texts(texts))
        require_convertible(container, [step.table.name for step in plan.changes])
        plan = _with_optimizers(plan, container)
    except ResizePosError as error:
        error.message = f"{source.name}: {error.message}"
        raise
    folder = writes_folder(container)
    output = _target(job, source, plan, folder)
    if output is not None:
        require_other_place(source.path, output, folder=folder)
        require_writable(output.parent)
        require_absent(output, force=job.force, folder=folder)
    status = Status.UNCHANGED
    tables = tuple(TableReport(step) for step in plan.steps)
    copied = Copied(len(container.tensors) - len(plan.changes), 0)
    sha256 = None
    if job.dry_run:
        status = Status.PLANNED if plan.changes or plan.config_edits else Status.UNCHANGED
    elif output is not None:
        container = _prepare(container, texts, plan.config_edits, copy=job.copy)
        if plan.changes or plan.config_edits:
            tables, copied = _convert(container, plan, output, job)
            status = Status.RESIZED
        else:
            copied = _copy_whole(container, output, job.force)
        sha256 = _sha256(output) if job.hash_output else None
    seconds = time.perf_counter() - started
    return Report(
        Path(job.source),
        output,
        status,
        plan,
        tables,
        copied,
        seconds,
        sha256,
        config_advice=advise(plan.steps, plan.request, container, edited=bool(texts)),
        left_out=left_out(container) if plan.changes else (),
        copies=copies(container),
        conversion=container.conversion if isinstance(container, Converted) else None,
    )


def _with_optimizers(plan: Plan, container: Container) -> Plan:
    """Plan what becomes of the optimizer state that a training checkpoint holds."""
    if not isinstance(container, TrainingCheckpoint):
        return plan
    from resize_pos.planning.rules.optimizer import optimizer_steps

    states = optimizer_steps(plan.steps, container.tensors, container.optimizers, plan.request)
    return replace(plan, steps=plan.steps + states)


def _folder(container: Container) -> Path:
    return container.path if container.path.is_dir() else container.path.parent


def _texts(container: Container, located: Located) -> Mapping[str, str]:
    """Read the configs that belong to the checkpoint; those beside a lone file are not its own."""
    if not container.path.is_dir():
        return {}
    return read_texts(container.path, config_files(located), strict=True)


def _target(job: Job, source: Source, plan: Plan, folder: bool) -> Path | None:
    """A run that has nothing to do writes nothing, unless a target was asked for by name."""
    if job.output is not None:
        return job.output
    if not (plan.changes or plan.config_edits):
        return None
    return default_output(source.names, plan, folder=folder)


def _prepare(
    container: Container,
    texts: Mapping[str, str],
    edits: Sequence[ConfigEdit],
    *,
    copy: bool,
) -> Container:
    """Set a folder up to be written with its configs edited."""
    if not writes_folder(container):
        return container
    from resize_pos.configs.edits import apply_edits
    from resize_pos.containers.dcp.checkpoint import DistributedCheckpoint
    from resize_pos.containers.sharded import ShardedCheckpoint

    if isinstance(container, ShardedCheckpoint | DistributedCheckpoint):
        return container.copying(copy)
    folder = model_folder_of(container)
    if folder is None:
        return container
    new = {}
    for file in dict.fromkeys(edit.file for edit in edits):
        new[file] = apply_edits(texts[file], [edit for edit in edits if edit.file == file])
    return folder.edited(new, copy=copy)


def _convert(
    container: Container, plan: Plan, output: Path, job: Job
) -> tuple[tuple[TableReport, ...], Copied]:
    if plan.drops and isinstance(container, TrainingCheckpoint):
        container = container.without(plan.drops)
    shapes = {step.table.name: step.target_shape for step in plan.changes}
    require_space(output.parent, container.output_bytes(shapes))
    tables: Promise[Tables] = Promise()

    def work() -> tuple[TableReport, ...]:
        from resize_pos.run.compute import (  # numpy: only a real run pays for it
            measured,
            transformed,
        )

        arrays = tables.keep(lambda: transformed(container, plan.changes, job.device))
        return measured(container, plan.steps, arrays, job.limits, draw=job.draw)

    note = record(plan, container)
    # The kernel copies bytes while this process computes the tables, and then their measures. Only
    # that thread may import numpy, until its tables are there.
    with (
        staged(output, force=job.force, folder=writes_folder(container)) as stage,
        Beside(work) as reports,
    ):
        if isinstance(container, EarlyWriter):
            promised = Promised(shapes, lambda: tables.result().after, lambda: tables.failed)
            copied = container.write_early(stage, promised, note)
        else:
            copied = container.write(stage, tables.result().after, note)
        from resize_pos.verify.output_check import check_output

        written = parse_texts(read_texts(stage)) if plan.config_edits else None
        check_output(open_container(stage), container, plan, tables.result().before, written)
    return reports.result(), copied


def _copy_whole(container: Container, output: Path, force: bool) -> Copied:
    folder, changes_format = writes_folder(container), isinstance(container, Converted)
    anew = folder or changes_format
    size = container.output_bytes({}) if anew else container.path.stat().st_size
    require_space(output.parent, size)
    with staged(output, force=force, folder=folder) as stage:
        if anew:
            return container.write(stage, {}, {})
        write_spliced(container.path, stage, [CopyRange(0, size)])
    return Copied(len(container.tensors), sum(info.nbytes for info in container.tensors.values()))


def _sha256(path: Path) -> str:
    """Hash a file; of a folder, the lines that `sha256sum` prints for its files, sorted by name."""
    import hashlib

    if path.is_dir():
        files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        lines = "".join(f"{_sha256(path / name)}  {name}\n" for name in files)
        return hashlib.sha256(lines.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
