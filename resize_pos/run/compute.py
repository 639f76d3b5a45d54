"""What a conversion computes: the new tables, and their measures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.containers.base import Container
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.operations import (
    Lengthen,
    Rebuild,
    ResampleKernel,
    ResampleMixing,
    ResampleTiled,
    ScaleQueries,
    SetLength,
    SinCos,
)
from resize_pos.core.tensors import numpy_dtype
from resize_pos.families.family import Role
from resize_pos.families.tables import Step
from resize_pos.planning.geometry.value_checks import (
    misplaced_rows,
    require_finite,
    require_plausible,
    tables_assumed_square,
    unshown_square,
)
from resize_pos.planning.plan import Plan
from resize_pos.planning.unknown_names.commands import is_by_value
from resize_pos.quality.checks import Check, Level
from resize_pos.quality.measures.catalogue import Limit, Measured
from resize_pos.quality.measures.direct import measure_direct
from resize_pos.quality.measures.sampling import spread
from resize_pos.quality.measures.table import Neighbours, measure_table, resampling_of
from resize_pos.quality.table_health import examine
from resize_pos.quality.verdict import judge, judge_limits
from resize_pos.report.groups import grouped
from resize_pos.report.report import TableReport
from resize_pos.transforms.execute import transform_all

MOST_MEASURED = 32  # per group of similar tables; no published model has larger groups
_LARGEST_DRAWN = 1e100  # the norm of larger values overflows


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The arrays of a conversion, by name."""

    before: Mapping[str, NDArray[Any]]
    after: Mapping[str, NDArray[Any]]


def transformed(container: Container, plan: Plan, data: Mapping[str, bytes], device: str) -> Tables:
    """Carry out every step on the bytes that were read for it."""
    before: dict[str, NDArray[Any]] = {}
    for step in plan.changes:
        name = step.name
        info = container.tensors[name]
        before[name] = np.frombuffer(data[name], numpy_dtype(info.dtype)).reshape(info.shape)
        require_finite(name, before[name], container.path.name)
    for table in tables_assumed_square(plan):
        values = before[table.name] if table.name in before else container.read(table.name)
        require_plausible(table, values)
    return Tables(before, transform_all(plan.changes, before, device))


def measured(
    container: Container,
    steps: Sequence[Step],
    tables: Tables,
    limits: tuple[Limit, ...],
    *,
    draw: bool,
) -> tuple[TableReport, ...]:
    """Measure and judge the interpolated tables. Of a very large group, measure a sample."""
    around, chosen = Neighbours.of(container), _chosen(steps)
    reports = [
        _measured_or_missing(step, tables.before[name], tables.after[name], around, limits)
        if (name := step.name) in chosen
        else TableReport(step)
        for step in steps
    ]
    reports = [_warned(report) for report in reports]
    return tuple(_drawn(reports, tables) if draw else reports)


def _warned(report: TableReport) -> TableReport:
    """Warn about a table that was found by its values, until the user confirms it."""
    table = report.step.table
    if report.step.operation is None or report.step.state is not None or not is_by_value(table):
        return report
    detail = (
        f"{table.name} was found by its shape and values, not by a name that is known "
        f"({'; '.join(table.evidence)}); --yes-by-value confirms it"
    )
    return replace(report, checks=(*report.checks, Check("by-value", Level.WARN, detail)))


def _chosen(steps: Iterable[Step]) -> set[str]:
    # Optimizer state and computed buffers are not measured: they have no interpolation artifacts.
    interpolated = [
        TableReport(step)
        for step in steps
        if step.operation is not None
        and step.state is None
        and not isinstance(step.operation, Rebuild)
    ]
    return {
        group.tables[index].step.name
        for group in grouped(interpolated)
        for index in spread(len(group.tables), MOST_MEASURED)
    }


def _drawn(reports: list[TableReport], tables: Tables) -> list[TableReport]:
    """Add pictures to measured tables, one table per group of similar ones."""
    shown = {group.shown.step.name for group in grouped(reports) if _is_drawn(group.shown)}
    return [
        _with_pictures(report, tables) if report.step.name in shown else report
        for report in reports
    ]


def _is_drawn(report: TableReport) -> bool:
    """Return whether a table has maps: it was measured, and is no layer over patches."""
    return bool(report.measures) and report.step.table.role is not Role.MIXING


def _with_pictures(report: TableReport, tables: Tables) -> TableReport:
    from resize_pos.quality.pictures import picture_step

    before, after = tables.before[report.step.name], tables.after[report.step.name]
    if max(float(np.max(np.abs(array))) for array in (before, after)) > _LARGEST_DRAWN:
        return report
    try:
        with np.errstate(all="ignore"):
            return replace(report, pictures=picture_step(report.step, before, after))
    except Exception as error:
        return replace(report, checks=(*report.checks, _missing("pictures", error)))


def _measured_or_missing(
    step: Step,
    before: NDArray[Any],
    after: NDArray[Any],
    around: Neighbours,
    limits: tuple[Limit, ...],
) -> TableReport:
    """Measure and judge. If a measure fails, report it as missing; the run continues."""
    try:
        with np.errstate(all="ignore"):
            return _judged(step, before, after, around, limits)
    except Exception as error:  # the new table itself is checked elsewhere and is valid
        return TableReport(step, checks=(_missing("measures", error),))


def _missing(name: str, error: Exception) -> Check:
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Check(name, Level.WARN, f"could not be computed ({words}); this table is not judged")


def _finite(measured: Measured) -> Measured:
    """Leave out numbers that are not finite: they mean nothing, and JSON cannot store them."""
    values = {name: value for name, value in measured.values.items() if math.isfinite(value)}
    peers = (p for p in measured.peers if math.isfinite(p.distance) and math.isfinite(p.norm_ratio))
    return Measured(values, tuple(peers))


def _judged(
    step: Step,
    before: NDArray[Any],
    after: NDArray[Any],
    around: Neighbours,
    limits: tuple[Limit, ...],
) -> TableReport:
    if isinstance(step.operation, Lengthen | SinCos | ResampleMixing | ResampleTiled):
        measured = _finite(measure_direct(step, before, after))
        return TableReport(
            step, measured.values, (*judge(measured), *judge_limits(measured, limits))
        )
    unmeasured = ResampleKernel | SetLength | ScaleQueries
    if isinstance(step.operation, unmeasured) or step.table.grid.cells == 1:
        return TableReport(step)  # a kernel, or a time axis alone, has no neighbouring cells
    resampling = resampling_of(step)
    measured = _finite(measure_table(step, before, after, around, resampling))
    health = examine(step.table, before)
    checks = judge(
        measured,
        health,
        resampling=resampling,
        stretched=resampling is not None,
        image=step.table.role is Role.ABSOLUTE,
    )
    words = unshown_square(step.table, before)
    checks += (Check("grid", Level.WARN, words),) if words else ()
    checks += (*_prefix_check(step, before), *judge_limits(measured, limits))
    return TableReport(step, measured.values, checks, measured.peers)


def _prefix_check(step: Step, before: NDArray[Any]) -> tuple[Check, ...]:
    """Fail a table whose rows beside the grid are not where they were assumed to be."""
    opinion = misplaced_rows(step.table, before) if step.table.role is Role.ABSOLUTE else None
    if opinion is None or opinion.choice is None:
        return ()
    count, best = step.table.prefix + step.table.suffix, opinion.choice
    detail = (
        f"the source's {count} row(s) beside the grid seem to lie elsewhere: {opinion.words}; pass "
        f"--prefix {best.prefix.count} --suffix {best.suffix.count}"
    )
    return (Check("prefix-place", Level.FAIL, detail),)
