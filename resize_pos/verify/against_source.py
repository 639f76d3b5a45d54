"""Compare an output with its source: what was copied, how each table was made, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resize_pos.configs.read import ConfigFiles
from resize_pos.containers.base import Container
from resize_pos.core.conventions import DEFAULT
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.operations import (
    Lengthen,
    Operation,
    Rebuild,
    Resample,
    ResampleMixing,
    ResampleTiled,
    SinCos,
)
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, Step, stored_grid
from resize_pos.planning.plan import Plan
from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.measures.catalogue import Peer
from resize_pos.quality.measures.direct import measure_direct
from resize_pos.quality.measures.table import Neighbours, measure_table, resampling_of, unfold
from resize_pos.quality.table_health import Health, HealthKind, examine
from resize_pos.quality.verdict import judge, nothing_to_preserve
from resize_pos.verify.made_by.diagnosis import Diagnosis
from resize_pos.verify.made_by.length import find_recipe, is_close
from resize_pos.verify.made_by.methods import (
    ConventionMatch,
    find_changed_channels,
    match_conventions,
    matched_frames,
    recognise_proper,
)
from resize_pos.verify.made_by.offsets import origin_of
from resize_pos.verify.made_by.origin import allow_training, offset_checks
from resize_pos.verify.made_by.pair import make_pair
from resize_pos.verify.made_by.unmatched import (
    explain_unmatched,
    find_mistake_of_offsets,
    recognised,
)
from resize_pos.verify.output_plan import look_swapped, plan_between
from resize_pos.verify.prefix_rows import describe_prefix
from resize_pos.verify.row_counts import TableRows, in_words
from resize_pos.verify.same_names import entry_notes, with_same_names
from resize_pos.verify.scaled_queries import find_scaled
from resize_pos.verify.trained_prefix import accept_trained_prefix, moved_with_tokens
from resize_pos.verify.trained_weights import explain_trained, is_recast
from resize_pos.verify.unstated_grid import plan_despite_doubt
from resize_pos.verify.untouched import Untouched, compare_untouched

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TableVerification:
    """One table of the output: how it was made, what it looks like, and what is wrong with it."""

    step: Step
    checks: tuple[Check, ...]
    matches: tuple[ConventionMatch, ...] = ()  # nearest first
    diagnosis: Diagnosis | None = None
    health: Health | None = None  # of the output's table
    measures: Mapping[str, float] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()

    @property
    def made_by(self) -> ConventionMatch | None:
        """The convention that made it, if one did."""
        return self.matches[0] if self.matches and self.matches[0].exact else None


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of comparing an output with its source."""

    output: Path
    source: Path
    untouched: Untouched
    tables: tuple[TableVerification, ...]
    configs: tuple[Check, ...] = ()

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks."""
        of_tables = tuple(check for table in self.tables for check in table.checks)
        return (*self.untouched.checks, *self.configs, *of_tables)

    @property
    def verdict(self) -> Level:
        """The most severe check."""
        return worst(self.checks)


def verify_output(
    output: Container, source: Container, request: Request, *, trained: bool = False
) -> Verification:
    """Compare what should be equal, and explain every table that should not.

    `request` states what is known: `from_…` about the source, `to_…` about the output. `trained`:
    the output was trained on, so its other tensors may differ.
    """
    output, source = with_same_names(output, source)
    doubts: tuple[Check, ...] = ()
    try:
        plan = plan_between(source, output, request)
    except GeometryError as error:
        fails_with = partial(_fails_with, source=source, output=output)
        plan, doubt = plan_despite_doubt(source, output, request, error, fails_with)
        doubts = (doubt,)
    changed = {step.table.name for step in plan.changes}
    untouched = compare_untouched(output, source, changed)
    scaled, notes = find_scaled(output, source, plan, untouched.differing)
    differing = tuple(name for name in untouched.differing if name not in scaled)
    untouched = replace(untouched, differing=differing, notes=notes)
    if source.optimizers:
        from resize_pos.verify.optimizer_state import explain_states  # only training checkpoints

        untouched = explain_states(untouched, output, source, plan)
    if trained:
        untouched = explain_trained(untouched, output, source, changed)
    tables = []
    for step in plan.changes:
        name = step.table.name
        if name not in output.tensors:
            continue  # reported as missing
        info = output.tensors[name]
        expected = replace(step.table.tensor, shape=step.target_shape)
        recast = info.dtype != expected.dtype and is_recast(expected, info)
        if not recast and (info.shape, info.dtype) != (expected.shape, expected.dtype):
            wrong = _wrong_shape(step, info, source, output)
            tables.append(TableVerification(step, (wrong,)))
            continue
        before, after = source.read(name), output.read(name)
        if recast:
            before = before.astype(after.dtype)  # rounding is no change
        moved = moved_with_tokens(step, (before, after), source, output)
        around = Neighbours.of(source)
        found = explain(step, before, after, around, trained=trained, moved=moved)
        if recast and not trained:
            found = replace(found, checks=(_other_precision(expected, info), *found.checks))
        tables.append(found)
    about_files = (*entry_notes((output, source)), *_order(output, source))
    configs = (*doubts, *_configs(output.path, plan.to_size), *about_files)
    return Verification(output.path, source.path, untouched, tuple(tables), configs)


def _order(output: Container, source: Container) -> Iterator[Check]:
    """Warn of exchanged files. A fixed table may be equal in both, so this is no refusal."""
    if look_swapped(output, source):
        words = f"the record in {source.path.name} says that it was made from {output.path.name}"
        yield Check("order", Level.WARN, f"{words}: write verify OUTPUT --against SOURCE")


def _configs(path: Path, size: Size | None) -> Iterator[Check]:
    """Compare a folder's configs with its tables; beside a lone file they may be another's."""
    if size is None or not path.is_dir():
        return
    for config in ConfigFiles(path).sizes():
        words = f"{config.file} says {config.key} {config.size}"
        if config.size == size:
            yield Check("config", Level.OK, words)
        else:
            yield Check("config", Level.WARN, f"{words}, but the tables are for {size} px")


def explain(
    step: Step,
    before: NDArray[Any],
    after: NDArray[Any],
    around: Neighbours | None = None,
    *,
    trained: bool = False,
    moved: bool = False,
) -> TableVerification:
    """Find out how a table was made from its source, and judge it.

    `trained`: the user says that it was trained on. `moved`: its prefix rows moved as their tokens
    did.
    """
    table, stretchable = step.table, isinstance(step.operation, Resample)
    for array, owner in ((before, "the source's "), (after, "")):
        finite = _finite(table, array, owner)
        if finite is not None:
            return TableVerification(step, (finite,))
    if isinstance(step.operation, Lengthen | SinCos | ResampleMixing | ResampleTiled):
        operation, distance = find_recipe(step, before, after)
        close = is_close(distance, after.dtype)
        if close or isinstance(step.operation, Lengthen | ResampleMixing):
            return _explain_recipe(replace(step, operation=operation), before, after, distance)
        # A fixed table, or one that repeats, that was interpolated, as most libraries do.
        step = replace(step, operation=Resample(DEFAULT.resampling))
    origin = origin_of(step, before, after)
    if origin is not None and isinstance(step.operation, Rebuild):
        return TableVerification(step, (origin.check,))
    plain = table.role is Role.ABSOLUTE and step.frames == table.frames and table.grid.cells > 1
    if table.layout.has_time and not plain:
        made = None if origin is None else origin.check
        return _explain_frames(step, before, after, around, made)
    old, new = unfold(step, before, after)
    grids = stored_grid(table.role, table.grid), stored_grid(table.role, step.target)
    pair = make_pair(old, new, *grids)
    matches = match_conventions(pair, after.dtype) if resampling_of(step) is not None else ()
    made_by = matches[0] if matches and matches[0].exact else None
    resampling = None if made_by is None else made_by.resampling
    measured = measure_table(step, before, after, around, resampling)
    source_health = examine(table, before)
    health = examine(replace(table, grid=step.target, frames=step.frames), after)
    stretched, image = resampling_of(step) is not None, table.role is Role.ABSOLUTE
    # A mistake shows in random numbers, too. The learned part may just be smaller than they are.
    random = image and source_health.kind is HealthKind.UNTRAINED
    checks = judge(
        measured,
        None if random else source_health,
        resampling=resampling,
        stretched=stretched,
        image=image,
    )
    if random:
        checks = (*checks, nothing_to_preserve(source_health))
    checks = describe_prefix(checks, step, (before, after))
    if moved:
        checks = accept_trained_prefix(checks)
    # What is true of the source as well says nothing about how the table was made.
    told = None if health.kind is source_health.kind else health
    found = None
    if made_by is None and matches and (random or not source_health.is_empty):
        method, found = recognise_proper(pair, after.dtype)
        if method is not None:
            checks = recognised(method, found, checks)
        else:
            checks, found = explain_unmatched(pair, matches, told, measured, checks, stretchable)
    elif made_by is not None:
        if trained:  # so little that rounding hides it
            checks = allow_training(checks, made_by.error, measured)
        found = find_changed_channels(old, new, pair.target, made_by, after.dtype)
        if found is None:
            checks = recognised(f"{made_by} (differs by {made_by.error:.0e})", None, checks)
        else:
            matches = (replace(made_by, exact=False), *matches[1:])
            checks = recognised(str(made_by), found, checks)
    elif origin is not None:
        if not origin.exact and not source_health.is_empty:
            found = find_mistake_of_offsets(pair, origin.check.level)
        checks = offset_checks(origin, found, checks)
    return TableVerification(step, checks, matches, found, health, measured.values, measured.peers)


def _explain_frames(
    step: Step,
    before: NDArray[Any],
    after: NDArray[Any],
    around: Neighbours | None,
    origin: Check | None,
) -> TableVerification:
    """Judge a table with another number of frames or slices: recompute it."""
    found: tuple[ConventionMatch, ...] = ()
    if origin is None and step.table.role is Role.ABSOLUTE:
        found = matched_frames(step, before, after)
        level, words = Level.OK, f"made by {found[0]} (differs by {found[0].error:.0e})"
        if not found[0].exact:
            level = Level.WARN
            words = f"matches no convention; the nearest is {found[0]}, {found[0].error:.1%} away"
        origin = Check("origin", level, words)
    elif origin is None:
        operation, distance = find_recipe(step, before, after)
        origin = _origin(operation, distance, after)
    if step.table.grid.cells == 1:
        return TableVerification(step, (origin,), found)  # a time axis has no neighbouring cells
    resampling = found[0].resampling if found and found[0].exact else None
    measured = measure_table(step, before, after, around, resampling)
    health = examine(step.table, before)
    image = step.table.role is Role.ABSOLUTE
    checks = (origin, *judge(measured, health, resampling=resampling, image=image))
    return TableVerification(step, checks, found, health=health, measures=measured.values)


def _origin(operation: Operation, distance: float, after: NDArray[Any]) -> Check:
    if is_close(distance, after.dtype):
        return Check("origin", Level.OK, f"made by {operation} (differs by {distance:.0e})")
    near = f"matches no known method; the nearest is {operation}, {distance:.1%} away"
    return Check("origin", Level.WARN, f"{near}: trained on, or made in another way")


def _explain_recipe(
    step: Step, before: NDArray[Any], after: NDArray[Any], distance: float
) -> TableVerification:
    """Judge a text by its recipe and a fixed table by its formula."""
    measured = measure_direct(step, before, after)
    assert step.operation is not None
    origin = _origin(step.operation, distance, after)
    return TableVerification(step, (origin, *judge(measured)), measures=measured.values)


def _finite(table: PositionTable, array: NDArray[Any], owner: str) -> Check | None:
    bad = int(np.count_nonzero(~np.isfinite(array.astype(np.float64))))
    if not bad:
        return None
    words = f"{owner}{table.name} holds {bad} values that are NaN or infinite"
    return Check("finite", Level.FAIL, words)


def _fails_with(plan: Plan, name: str, *, source: Container, output: Container) -> tuple[bool, str]:
    """Whether a table fails with a plan, and its mistake; one that the plan keeps does not fail."""
    step = next((step for step in plan.changes if step.table.name == name), None)
    if step is None or output.info(name).shape != step.target_shape:
        return False, ""
    found = explain(step, source.read(name), output.read(name))
    known = found.diagnosis if found.diagnosis and found.diagnosis.certain else None
    return worst(found.checks) is Level.FAIL, known.name if known else ""


def _other_precision(expected: TensorInfo, info: TensorInfo) -> Check:
    words = "with --trained that is no failure"
    detail = (
        f"{info.name} is stored as {info.dtype}, the source's table as {expected.dtype}; {words}"
    )
    return Check("shape", Level.FAIL, detail)


def _wrong_shape(step: Step, info: TensorInfo, source: Container, output: Container) -> Check:
    table = step.table
    expected = f"{table.tensor.dtype} {list(step.target_shape)}"
    detail = f"{table.name} is {info.dtype} {list(info.shape)}, not {expected} for {step.target}"
    rows = TableRows.of(table, source.read(table.name), output.read(table.name))
    words = "" if rows is None else in_words(step, rows)
    if not words and table.prefix + table.suffix and table.layout.mismatch(info.shape) is None:
        missing = table.layout.rows(step.target_shape) - table.layout.rows(info.shape)
        if missing == table.prefix + table.suffix:
            words = "the prefix rows are gone"
    return Check("shape", Level.FAIL, f"{detail}: {words}" if words else detail)
