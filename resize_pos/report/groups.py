"""Group tables that are treated alike, such as one per block: shown once, with their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from resize_pos.core.conventions import CONVENTIONS, LIBRARIES, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.measures.catalogue import Peer

_ORDER = (Level.OK, Level.WARN, Level.FAIL)


class Judged(Protocol):
    """One table with what was measured and judged: of a run, or of a verification."""

    @property
    def step(self) -> Step:
        """What was done to it, or should have been."""

    @property
    def measures(self) -> Mapping[str, float]:
        """Numbers by name."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Judged numbers."""

    @property
    def peers(self) -> tuple[Peer, ...]:
        """What other libraries would have made of it."""


Table = TypeVar("Table", bound=Judged)


@dataclass(frozen=True, slots=True)
class Group(Generic[Table]):
    """Tables of one kind, one geometry and one treatment."""

    tables: tuple[Table, ...]

    @property
    def shown(self) -> Table:
        """The representative of the group: the first table with the worst verdict."""
        return max(self.tables, key=lambda table: _ORDER.index(worst(table.checks)))

    @property
    def step(self) -> Step:
        """What happens to each of them."""
        return self.tables[0].step

    @property
    def name(self) -> str:
        """The name of the first table, and the number of the others."""
        return and_alike(self.step.name, len(self.tables))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name."""
        return tuple(table.step.name for table in self.tables)

    @property
    def changes(self) -> bool:
        """Whether the tables are changed."""
        return self.step.action is not Action.KEEP

    @property
    def sample(self) -> str:
        """Say how many tables were measured; empty if all were."""
        measured = sum(bool(table.measures) for table in self.tables)
        return f"{measured} of {len(self.tables)}" if 0 < measured < len(self.tables) else ""

    def reasons(self) -> tuple[Check, ...]:
        """Give each check that is not ok once, by its worst table, with how many others have it."""
        found: dict[str, list[Check]] = {}
        for table in self.tables:
            for check in table.checks:
                if check.level is not Level.OK:
                    found.setdefault(check.name, []).append(check)
        reasons = []
        for checks in found.values():
            first = max(checks, key=lambda check: _ORDER.index(check.level))
            more = "" if len(checks) == 1 else f" (and {len(checks) - 1} alike)"
            reasons.append(Check(first.name, first.level, first.detail + more))
        return tuple(reasons)

    def spread(self, measure: str) -> tuple[float, float] | None:
        """Return the lowest and the highest value of a measure; None if it was not measured."""
        values = [table.measures[measure] for table in self.tables if measure in table.measures]
        return (min(values), max(values)) if values else None


def grouped(tables: Iterable[Table]) -> tuple[Group[Table], ...]:
    """Group the tables that are treated alike."""
    groups: dict[tuple[object, ...], list[Table]] = {}
    for table in tables:
        groups.setdefault(_key(table.step), []).append(table)
    return tuple(Group(tuple(members)) for members in groups.values())


def _key(step: Step) -> tuple[object, ...]:
    return (
        step.kind,
        step.tensor.dtype,
        *group_key(step.table),
        _turned(step.target),
        step.action,
        str(step.operation),
        step.own_convention,
        step.reason if step.operation is None else "",
    )


def own_library_words(step: Step, *, planned: bool = False) -> str | None:
    """Say what the model's own library would have done, where that differs; None if it does not."""
    own, done = step.own_convention, None if step.operation is None else step.operation.resampling
    if own is None or own not in CONVENTIONS or not isinstance(done, Resampling):
        return None
    library = LIBRARIES.get(own, own)
    used = "would use" if planned else "used"
    return (
        f"{library} would use {CONVENTIONS[own].resampling.in_words}; this run {used} "
        f"{done.in_words}; add --like {own} to match."
    )


def group_key(table: PositionTable) -> tuple[object, ...]:
    """Return a key that is equal for tables of the same kind and geometry."""
    return (
        table.role,
        table.family.source,  # a vertical and a horizontal table are two families of one source
        table.prefix,
        table.suffix,
        table.patch,
        table.tensor.dtype,
        _turned(table.grid),
    )


def _turned(grid: Grid) -> Grid:
    """Return the grid turned so that offsets along either axis compare equal."""
    return Grid(1, grid.height) if grid.width == 1 else grid


def and_alike(name: str, count: int) -> str:
    """Return a name for several tables: the first, and the number of the others."""
    return name if count == 1 else f"{name} and {count - 1} alike"


def change_words(step: Step) -> str:
    """Return the old and the new extent in words."""
    if step.operation is None:
        return extent_words(step.table)
    if step.table.role is Role.SEQUENCE:
        return f"{step.table.length} → {step.target.cells}"
    if step.table.layout.has_time or step.table.role is Role.QUERY:
        return step.reason
    return f"{step.table.grid} → {step.target}"


def extent_words(table: PositionTable) -> str:
    """Say what a table covers."""
    if table.role is Role.SEQUENCE:
        return f"length {table.grid.width}"
    if table.role is Role.RELATIVE:
        grid = replace(table.grid, depth=table.frames if table.layout.has_time else 0)
        return f"offsets of {grid}"
    return f"{table.frames} × {table.grid}" if table.layout.has_time else str(table.grid)


def kept_rows(table: PositionTable) -> list[str]:
    """Say which rows beside the grid stay as they are."""
    kinds = ((table.prefix, "prefix"), (table.suffix, "suffix"))
    return [f"{n} {kind} row{'s' if n > 1 else ''} kept" for n, kind in kinds if n]


def treatment_words(step: Step) -> str:
    """Say what happens to a table."""
    if step.operation is None:
        verb = "dropped" if step.action is Action.DROP else "kept"
        return f"{verb}: {step.reason}"
    return ", ".join([*kept_rows(step.table), str(step.operation)])


def reasons_in_words(groups: Sequence[Group[Table]]) -> tuple[Check, ...]:
    """Explain the verdict in as few lines as possible.

    Every check that is not ok is listed, with its tables. If all are ok, a single table lists all
    its checks, and several tables only the range of the norms.
    """
    judged = [group for group in groups if any(table.checks for table in group.tables)]
    bad = [
        Check(check.name, check.level, _of(group, judged, check.detail))
        for group in judged
        for check in group.reasons()
    ]
    if bad:
        return tuple(sorted(bad, key=lambda check: -_ORDER.index(check.level)))
    if len(judged) == 1 and len(judged[0].tables) == 1:
        return judged[0].tables[0].checks
    count = sum(len(group.tables) for group in judged)
    if not count:
        return ()
    found = [Check("all", Level.OK, f"{count} tables pass every check")]
    spreads = [spread for group in judged if (spread := group.spread("norm_ratio"))]
    if spreads:
        low, high = min(low for low, _ in spreads) - 1, max(high for _, high in spreads) - 1
        shown = dict.fromkeys(map(_signed, (low, high)))
        found.append(Check("norms", Level.OK, f"norms change by {' to '.join(shown)}"))
    return tuple(found)


def _of(group: Group[Table], judged: Sequence[Group[Table]], detail: str) -> str:
    return f"{group.step.name}: {detail}" if len(judged) > 1 else detail


def _signed(change: float) -> str:
    words = f"{change:+.1%}"
    return "0.0%" if words[1:] == "0.0%" else words.replace("-", "−")
