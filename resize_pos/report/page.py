"""The content of a report as a value, shared by HTML and Markdown, by a run and `verify`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resize_pos._version import __version__
from resize_pos.configs.advice import ConfigAdvice
from resize_pos.containers.sources import source_name
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, Step
from resize_pos.quality.checks import LABEL, Check
from resize_pos.quality.measures.catalogue import MEASURES, Peer
from resize_pos.report.fine_tuning import PUBLISHED, Published
from resize_pos.report.groups import (
    Group,
    Judged,
    Table,
    change_words,
    extent_words,
    grouped,
    own_library_words,
    reasons_in_words,
    treatment_words,
)
from resize_pos.report.kept_grid import Choice
from resize_pos.report.report import Report, Status
from resize_pos.report.to_do import ToDo, tasks

PLANNED, UNCHANGED = "planned", "unchanged"  # beside ok, warn and fail


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the plan."""

    name: str
    more: tuple[str, ...]  # tables that are treated alike
    extent: str
    words: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Number:
    """One measure with its meaning; for a group, its lowest and highest value."""

    name: str
    value: float
    meaning: str
    spread: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class LibraryDistance:
    """How far the result is from what some libraries would have made."""

    libraries: tuple[str, ...]
    method: str
    distance: float
    norm_ratio: float | None
    own: bool  # whether it is the method that was used


@dataclass(frozen=True, slots=True)
class PageSection:
    """One table, or several alike, with all details."""

    name: str
    more: tuple[str, ...]
    shown: str  # the table whose numbers and pictures these are
    extent: str
    words: str
    facts: tuple[tuple[str, str], ...]
    checks: tuple[Check, ...]
    numbers: tuple[Number, ...]
    library_distances: tuple[LibraryDistance, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in a config: already changed, or still to be changed by the user."""

    file: str
    key: str
    before: str
    after: str
    done: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do next, and what others have done."""

    suggestion: str
    parameters: tuple[str, ...]
    published: tuple[Published, ...]


@dataclass(frozen=True, slots=True)
class DistanceTable:
    """How far every two versions of one table are apart; one row a version, in words."""

    name: str
    labels: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # a row holds the distances to the versions before it


@dataclass(frozen=True, slots=True)
class Page:
    """Everything on one page, in its order."""

    title: str
    verdict: str  # ok, warn, fail, planned, unchanged
    headline: str
    reasons: tuple[Check, ...]
    heading: str  # of the tables' list
    plan: tuple[PlanRow, ...]
    notes: tuple[str, ...]
    sections: tuple[PageSection, ...]
    settings: tuple[Setting, ...]
    advice: Advice | None
    provenance: tuple[tuple[str, str], ...]
    command: str | None = None
    label: str = LABEL  # what the verdict covers and what not; empty without a verdict
    to_do: tuple[ToDo, ...] = ()  # what is left to the user
    distances: tuple[DistanceTable, ...] = ()
    choice: Choice | None = None  # another way to the same image size
    of_plan: str = "table"  # what the rows of the plan are


_HEADLINES = {
    "ok": "The resize did what a resize should do.",
    "warn": "The resize is done; read its warnings.",
    "fail": "Something is wrong with the result.",
    PLANNED: "A plan: nothing has been written or measured yet.",
    UNCHANGED: "Nothing to do: the checkpoint is already at the target.",
}


def resize_page(report: Report, command: str | None = None) -> Page:
    """Lay out what a run did, or would do."""
    groups = grouped(report.tables)
    verdict = {Status.PLANNED: PLANNED, Status.UNCHANGED: UNCHANGED}.get(
        report.status, report.verdict.value
    )
    judged = bool(report.checks)
    return Page(
        title=_title(report),
        verdict=verdict,
        headline=_HEADLINES[verdict] if judged else _headline_without_checks(report),
        reasons=(*report.warnings, *reasons_in_words(groups)),
        heading="The plan" if report.status is Status.PLANNED else "What was done",
        plan=plan_rows(groups),
        notes=tuple(_notes(report, groups)),
        sections=tuple(section(group) for group in groups if group.shown.measures),
        settings=_settings(report),
        advice=_advice(report),
        provenance=tuple(_provenance(report)),
        command=command,
        label=LABEL if judged else "",
        to_do=tasks(report),
    )


def _headline_without_checks(report: Report) -> str:
    if report.status is Status.RESIZED:
        return "Done. There was nothing in it that the weights alone could judge."
    if report.status is Status.PLANNED:
        return _HEADLINES[PLANNED]
    if report.status is Status.CONVERTED:
        return "Converted to another file; no table has changed."
    if report.notes:
        return "Nothing was changed; the notes say why."
    if all(table.step.table.family.kept for table in report.tables):
        return "Nothing to do: no table of the checkpoint holds a size."
    return _HEADLINES[UNCHANGED]


def _title(report: Report) -> str:
    plan = report.plan
    name = source_name(report.source).rstrip("/").rpartition("/")[2] or str(report.source)
    if plan.from_size is not None and plan.to_size is not None and plan.from_size != plan.to_size:
        return f"{name}, {plan.from_size} → {plan.to_size} px"
    changes = plan.changes
    return f"{name}, {change_words(changes[0])}" if changes else name


def plan_rows(groups: Iterable[Group[Table]]) -> tuple[PlanRow, ...]:
    """Return what happens to each table; changed tables first."""
    rows = [
        PlanRow(
            group.names[0],
            group.names[1:],
            change_words(group.step) if group.changes else extent_words(group.step.table),
            treatment_words(group.step) if group.changes else f"kept: {group.step.reason}",
            group.changes,
        )
        for group in groups
    ]
    return tuple(sorted(rows, key=lambda row: not row.changed))


def section(
    group: Group[Table],
    words: str | None = None,
    library_distances: tuple[LibraryDistance, ...] | None = None,
) -> PageSection:
    """Lay out one table, or one representative of several alike."""
    table = group.shown
    step = table.step
    return PageSection(
        group.names[0],
        group.names[1:],
        step.name,
        change_words(step),
        treatment_words(step) if words is None else words,
        (*_facts(step), *((("measured", f"{group.sample} alike"),) if group.sample else ())),
        _checks(group, table),
        _numbers(group, table),
        peers_as_distances(table.peers, step) if library_distances is None else library_distances,
    )


def _checks(group: Group[Table], table: Judged) -> tuple[Check, ...]:
    """Every check of the shown table, and further checks that are not ok in its group."""
    reasons = {check.name: check for check in group.reasons()}
    own = tuple(reasons.pop(check.name, check) for check in table.checks)
    return (*own, *reasons.values())


def _numbers(group: Group[Table], table: Judged) -> tuple[Number, ...]:
    several = len(group.tables) > 1
    return tuple(
        Number(name, value, MEASURES.get(name, ""), group.spread(name) if several else None)
        for name, value in table.measures.items()
    )


def _facts(step: Step) -> Iterable[tuple[str, str]]:
    table = step.table
    yield (
        "stored as",
        f"{table.tensor.dtype} {list(table.tensor.shape)} → {list(step.target_shape)}",
    )
    yield "family", f"{table.family.name}: {table.family.title}"
    if table.family.source:
        yield "layout read in", table.family.source
    if table.evidence:
        yield "geometry from", "; ".join(table.evidence)
    own = own_library_words(step)
    if own is not None:
        yield "its own library", own


def peers_as_distances(peers: Sequence[Peer], step: Step) -> tuple[LibraryDistance, ...]:
    """Group the libraries that share a convention; nearest first."""
    resampling = getattr(step.operation, "resampling", None)
    found: dict[str, list[Peer]] = {}
    for peer in peers:
        found.setdefault(str(peer.resampling), []).append(peer)
    return tuple(
        LibraryDistance(
            tuple(peer.convention for peer in same),
            method,
            same[0].distance,
            same[0].norm_ratio,
            same[0].resampling == resampling,
        )
        for method, same in sorted(found.items(), key=lambda item: item[1][0].distance)
    )


def _notes(report: Report, groups: Sequence[Group[Table]]) -> Iterable[str]:
    copied = report.copied
    if any(group.changes for group in groups):
        verb = "are" if report.status is Status.PLANNED else "were"
        size = f" ({copied.bytes:,} bytes)" if copied.bytes else ""
        yield f"{copied.tensors} other tensors{size} {verb} copied byte for byte."
    if report.conversion is not None:
        yield f"The output is a {report.conversion.format} file."
        left = [*report.conversion.dropped, *report.conversion.aliases]
        if left:
            yield f"Left out, because that format cannot store it: {', '.join(left)}."
    for note in report.notes:
        if not note.warning:  # a warning is among the reasons
            yield note.text[:1].upper() + note.text[1:]
    for entry in report.left_out:
        yield f"{entry.name} is left out: {entry.reason}"
    if copied.linked:
        yield f"{copied.linked} unchanged files are hard links to the source's."


def _settings(report: Report) -> tuple[Setting, ...]:
    edits = [
        Setting(edit.file, edit.key, _value(edit.before), _value(edit.after), done=True)
        for edit in report.config_edits
    ]
    left = [
        Setting(f"{a.library} {a.file}", a.key, _value(a.before), _left(a), done=False)
        for a in report.config_advice
    ]
    return (*edits, *left)


def _left(advice: ConfigAdvice) -> str:
    value = _value(advice.after)
    return f"{value} ({advice.reason})" if advice.reason else value


def _value(value: object) -> str:
    return "(not set)" if value is None else str(value)


def _advice(report: Report) -> Advice | None:
    if report.status is not Status.RESIZED:
        return None
    found = report.fine_tune
    published = tuple(entry for entry in PUBLISHED if str(entry) in found.references)
    return Advice(found.suggestion, found.parameters, published)


def _provenance(report: Report) -> Iterable[tuple[str, str]]:
    yield "source", source_name(report.source)
    if report.output is not None:
        yield "output", str(report.output)
    if report.sha256 is not None:
        yield "sha256 of the output", report.sha256
    steps = [t.step for t in report.tables if t.step.action is Action.RESIZE]
    yield from _methods(steps).items()
    yield "made by", f"resize-pos {__version__} in {report.seconds:.2f} s"


def _methods(steps: Iterable[Step]) -> Mapping[str, str]:
    """Return where the libraries that resample in the same way document it."""
    found = {}
    for step in steps:
        if step.table.role is Role.SEQUENCE:
            continue  # lengths are changed by recipes, not by conventions of libraries
        resampling = getattr(step.operation, "resampling", None)
        same = [c for c in CONVENTIONS.values() if c.resampling == resampling]
        own = step.table.family.convention
        if not same and own is not None and own.resampling == resampling:
            found[str(resampling)] = f"as {own.name}: {own.source}"
        elif same:
            found[str(resampling)] = "; ".join(f"as {c.name}: {c.source}" for c in same)
    return found
