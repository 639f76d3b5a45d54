"""Several versions of one table side by side: by convention, or as others have resized them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resize_pos.containers.base import Container
from resize_pos.core.conventions import PEERS, Resampling
from resize_pos.core.errors import GeometryError, TableError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Located, Step
from resize_pos.planning.locate import locate_in
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.measures.sampling import ratio, size
from resize_pos.quality.measures.table import Neighbours
from resize_pos.quality.table_health import Health, examine
from resize_pos.transforms.execute import transform
from resize_pos.verify.against_source import explain
from resize_pos.verify.kept_grid import KeptGrid, keep_the_grid
from resize_pos.verify.output_plan import of_output, plan_between
from resize_pos.verify.same_names import with_same_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.remote.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Side:
    """One version of a table."""

    label: str  # a convention's libraries, or a file's name
    health: Health
    origin: str | None = None  # what made it, in words; None: not asked, or not known
    measures: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def verdict(self) -> Level:
        """The most severe check."""
        return worst(self.checks)


@dataclass(frozen=True, slots=True)
class TableComparison:
    """All versions of one table."""

    name: str
    source_grid: Grid | None  # None: there is no common source among the files
    grid: Grid
    sides: tuple[Side, ...]
    distances: tuple[tuple[float, ...], ...]  # relative L2 between sides, by their order


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every table that differs, all its versions side by side."""

    source: Path | None
    labels: tuple[str, ...]
    tables: tuple[TableComparison, ...]
    kept_grid: KeptGrid | None = None  # the same image size with the old grid and another patch
    traffic: Traffic | None = None  # requests and bytes, if a store was used


def compare_conventions(source: Container, request: Request) -> Comparison:
    """Resize one source as each library would, in memory."""
    plan = make_plan(locate_in(source, request), request)
    methods = _methods()
    tables = []
    for step in plan.changes:
        if step.table.role is Role.RELATIVE or not isinstance(step.operation, Resample):
            continue  # only its family's convention applies
        before = source.read(step.table.name)
        around = Neighbours.of(source)
        versions = {
            label: transform(replace(step, operation=Resample(resampling)), before)
            for label, resampling in methods.items()
        }
        tables.append(_against(step, before, versions, around))
    if not tables:
        raise TableError(f"{source.path.name}: no table changes at that target.")
    return Comparison(source.path, tuple(methods), tuple(tables), keep_the_grid(source, plan))


def compare_files(containers: Sequence[Container], request: Request) -> Comparison:
    """Compare files; the first is the source of the others if its grid differs from theirs."""
    if len(containers) < 2:
        raise UsageError(
            "one file alone can only be compared by convention.",
            hint="pass --to SIZE, or the files to compare.",
        )
    first, *others = containers
    first = with_same_names(others[0], first)[1]
    others = [with_same_names(other, first)[0] for other in others]
    plans = [plan_between(first, other, request) for other in others]
    changing = [bool(plan.changes) for plan in plans]
    labels = _labels([container.path for container in containers])
    if all(changing):
        tables = _files_against(first, others, plans, labels[1:])
        return Comparison(first.path, labels[1:], tables)
    if any(changing):
        odd = labels[1 + changing.index(True)]
        raise GeometryError(
            f"{labels[0]} and {odd} have different grids, and other files agree with {labels[0]}.",
            hint="name the source first, then files of one resolution.",
        )
    located = locate_in(first, of_output(request))
    return Comparison(None, labels, _side_by_side(containers, located, labels))


def _methods() -> dict[str, Resampling]:
    named: dict[Resampling, list[str]] = {}
    for convention in PEERS:
        named.setdefault(convention.resampling, []).append(convention.name)
    return {" = ".join(names): resampling for resampling, names in named.items()}


def _labels(paths: Sequence[Path]) -> tuple[str, ...]:
    names = [path.name for path in paths]
    return tuple(names) if len(set(names)) == len(names) else tuple(map(str, paths))


def _against(
    step: Step,
    before: NDArray[Any],
    versions: Mapping[str, NDArray[Any]],
    around: Neighbours,
) -> TableComparison:
    sides = []
    for label, after in versions.items():
        found = explain(step, before, after, around)
        table = replace(step.table, grid=step.target)
        origin = next((check.detail for check in found.checks if check.name == "origin"), None)
        health = found.health if found.health is not None else examine(table, after)
        sides.append(Side(label, health, origin, found.measures, found.checks))
    return TableComparison(
        step.table.name, step.table.grid, step.target, tuple(sides), distances(versions.values())
    )


def _files_against(
    source: Container, others: Sequence[Container], plans: Sequence[Plan], labels: Sequence[str]
) -> tuple[TableComparison, ...]:
    tables = []
    for step in plans[0].changes:
        name = step.table.name
        versions = {}
        for other, plan, label in zip(others, plans, labels, strict=True):
            same = next((s for s in plan.changes if s.table.name == name), None)
            info = other.tensors.get(name)
            if same is None or same.target != step.target or info is None:
                raise GeometryError(
                    f"{label}: {name} has another grid than in {labels[0]}.",
                    hint="compare files of one resolution.",
                )
            if info.shape != step.target_shape:
                raise GeometryError(
                    f"{label}: {name} is {list(info.shape)}, not {list(step.target_shape)}."
                )
            versions[label] = other.read(name)
        around = Neighbours.of(source)
        tables.append(_against(step, source.read(name), versions, around))
    return tuple(tables)


def _side_by_side(
    containers: Sequence[Container], located: Located, labels: Sequence[str]
) -> tuple[TableComparison, ...]:
    tables = []
    for table in located.tables:
        for container, label in zip(containers, labels, strict=True):
            info = container.tensors.get(table.name)
            if info is None or info.shape != table.tensor.shape:
                raise TableError(f"{label}: {table.name} is missing, or of another shape.")
        arrays = [container.read(table.name) for container in containers]
        sides = tuple(
            Side(label, examine(table, array)) for label, array in zip(labels, arrays, strict=True)
        )
        tables.append(TableComparison(table.name, None, table.grid, sides, distances(arrays)))
    return tuple(tables)


def distances(arrays: Iterable[NDArray[Any]]) -> tuple[tuple[float, ...], ...]:
    """Return the relative L2 distance of every version (columns) from every other (rows)."""
    wide = [array.astype(np.float64) for array in arrays]
    sizes = [size(array) for array in wide]
    return tuple(
        tuple(ratio(size(other - own), scale) if other is not own else 0.0 for other in wide)
        for own, scale in zip(wide, sizes, strict=True)
    )
