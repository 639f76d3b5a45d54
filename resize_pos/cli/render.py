"""Words for a terminal: what was done, what a checkpoint holds, what is known.

Readable without colour and at 80 columns; rich is not imported for any of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resize_pos.cli.render_folder import show_configs, show_to_do
from resize_pos.cli.terminal import Part, aligned, say, tell, width
from resize_pos.containers.reformat import Conversion
from resize_pos.core.printable import human_size
from resize_pos.families.family import Family, Role
from resize_pos.quality.checks import Check, Level
from resize_pos.quality.measures.catalogue import MEASURES
from resize_pos.report.groups import (
    Group,
    change_words,
    extent_words,
    grouped,
    own_library_words,
    reasons_in_words,
    treatment_words,
)
from resize_pos.report.inspection import Inspection, TextLine, inspection_lines, left_alone_lines
from resize_pos.report.report import HubUpload, Report, Status, TableReport

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic

_STATUS_WORDS = {
    Status.PLANNED: "would write",
    Status.RESIZED: "wrote",
    Status.UNCHANGED: "copied to",
    Status.CONVERTED: "wrote",
}
LEVEL_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}
_MEANING_WIDTH = 24  # columns below which a measure's meaning goes to a line of its own


def show_report(report: Report, *, verbose: bool) -> None:
    """Print what was done, or would be: the verdict first, then what is left to the user."""
    groups = grouped(report.tables)
    changes = [group for group in groups if group.changes]
    if report.status is Status.RESIZED:
        show_verdict(report.verdict, (*report.warnings, *reasons_in_words(groups)))
    elif report.status is Status.UNCHANGED:
        say(f"nothing to do for {report.source.name}: {_why_nothing(report)}.")
    elif report.status is Status.CONVERTED:
        say(f"converted {report.source.name}: no table changes.")
    else:
        say(f"plan for {report.source.name}; nothing is written.")
    show_to_do(report)
    _show_steps(groups)
    for line in left_alone_lines(report.plan.left_alone):
        _show_line(line)
    for group in changes:
        _show_note(group, planned=report.status is Status.PLANNED)
        if verbose:
            _show_detail(group)
    _show_notes(report)
    if report.plan.config_edits and not changes:
        tell("no table changes with the size; the configs do.")
    if changes:
        count = report.copied.tensors
        size = f" ({human_size(report.copied.bytes)})" if report.copied.bytes else ""
        verb = "are" if report.status is Status.PLANNED else "were"
        tell(f"{count} other tensors{size} {verb} copied byte for byte.")
    if report.conversion is not None:
        _show_conversion(report.conversion)
    show_configs(report)
    if report.output is not None:
        say(f"{_STATUS_WORDS[report.status]} ", (str(report.output), "bold"), _at_most(report))
    if report.needs_force:
        tell(
            "it exists; pass --force to replace it, or another name with -o.",
            lead=[("note: ", "yellow")],
        )
    show_traffic(report.traffic)
    if report.upload is not None:
        _show_upload(report, report.upload)


def _show_upload(report: Report, upload: HubUpload) -> None:
    """Print what was uploaded to the hub, or would be, or why nothing was."""
    what = "a pull request" if upload.pull_request else "a commit"
    kind = "a new private repository" if upload.is_new else what
    if upload.url is not None:
        tell(f"{len(upload.files)} files as {kind}", lead=["uploaded: "])
        say(upload.url)
    elif report.status is Status.PLANNED and report.output is not None:
        name = report.output.name
        words = f"{name}{_at_most(report)} and a section of the model card, as {kind}"
        tell(f"{words}, to {upload.address}", lead=["would upload: "])
    else:
        tell(f"nothing was uploaded, because {upload.reason}", lead=[("note: ", "yellow")])


def _at_most(report: Report) -> str:
    return "" if report.output_bytes is None else f" (at most {report.output_bytes:,} bytes)"


def show_traffic(used: Traffic | None) -> None:
    """Print how many requests were made, and how many bytes were moved."""
    if used is None:
        return
    from resize_pos.report.traffic_words import traffic_words

    tell(traffic_words(used), lead=["traffic: "])
    for note in used.notes:
        tell(note, lead=["note: "])


def _why_nothing(report: Report) -> str:
    tables = [table.step.table for table in report.tables]
    if tables and all(table.family.kept for table in tables):
        return "none of its tables has a length"
    if any(table.reach is not None and table.reach.nominal for table in tables):
        return "its windows do not follow the image"
    if report.plan.depends or any(table.role is Role.SEQUENCE for table in tables):
        return "it is already at the target"
    if tables:
        return "the library handles its tables itself, for every size"
    return "nothing in this file depends on the resolution"


def _show_notes(report: Report) -> None:
    """Print every note; where a verdict is shown, the warnings are part of it."""
    for note in report.notes:
        if not note.warning:
            tell(note.text, lead=["note: "])
        elif report.status is not Status.RESIZED:
            tell(note.text, lead=[("warning", "yellow"), ": "])


def _show_conversion(conversion: Conversion) -> None:
    if conversion.wrapper is not None:
        tell(f"the tensors of {conversion.wrapper} make up the {conversion.format} file.")
    if conversion.dropped:
        tell(", ".join(conversion.dropped), lead=["left out: "])
    for name, kept in conversion.aliases.items():
        tell(f"{name}, the same tensor as {kept}", lead=["left out: "])


def show_verdict(verdict: Level, reasons: Sequence[Check]) -> None:
    """Print the verdict with its reasons: in one breath if all is well, else line by line."""
    if verdict is Level.OK and reasons:
        details = "; ".join(dict.fromkeys(check.detail for check in reasons))
        tell(f"({details})", lead=["verdict: ", level_word(verdict), " "])
        return
    say("verdict: ", level_word(verdict))
    for check in reasons:
        show_check(check, indent=2)


def level_word(level: Level) -> Part:
    """Give a level with its colour."""
    return level.value, LEVEL_STYLES[level]


def show_check(check: Check, *, indent: int) -> None:
    """Print one judged measure, its level first."""
    tell(check.detail, indent=indent, hang=6, lead=[level_word(check.level), ": "])


def _show_steps(groups: Sequence[Group[TableReport]]) -> None:
    """Print what becomes of each table: in columns where that fits, else on two lines each."""
    changes = [group for group in groups if group.changes]
    rows = [(g.name, change_words(g.step), treatment_words(g.step)) for g in changes]
    lines = aligned(rows)
    for (name, extent, words), line in zip(rows, lines, strict=True):
        if all(len(line) + 2 <= width() for line in lines):
            say("  ", line)
        else:
            say("  ", name)
            tell(f"{extent}, {words}", indent=4)
    for group in groups:
        if not group.changes:
            where = extent_words(group.step.table)
            words = f"{group.name}, {where}: {group.step.reason}"
            tell(words, indent=2, lead=[("kept: ", "dim")], style="dim")


def _show_note(group: Group[TableReport], *, planned: bool) -> None:
    words = own_library_words(group.step, planned=planned)
    if words is not None:
        tell(words, indent=2, lead=["note: "])


def _show_detail(group: Group[TableReport]) -> None:
    """Print the evidence, every check and every measure of the table that stands for its group."""
    table = group.shown
    say("  ", (table.step.name, "bold"))
    for line in table.step.evidence:
        tell(line, indent=4, lead=["evidence: "])
    for check in table.checks:
        show_check(check, indent=4)
    if group.sample:
        say(f"    measured: {group.sample} alike")
    show_measures(table.measures)


def show_measures(measures: Mapping[str, float], *, indent: int = 4) -> None:
    """Print numbers with their names and meanings, aligned."""
    rows = [(name, f"{value:.4g}") for name, value in measures.items()]
    for (name, _), line in zip(rows, aligned(rows, right=frozenset({1})), strict=True):
        begin = f"{line}  "
        hang = len(begin) if width() - indent - len(begin) >= _MEANING_WIDTH else 4
        tell(MEASURES.get(name, ""), indent=indent, hang=hang, lead=[begin], style="dim")


def show_inspection(inspection: Inspection, *, verbose: bool) -> None:
    """Print the tables of a checkpoint, the evidence, and what came near."""
    for line in inspection_lines(inspection, verbose=verbose):
        _show_line(line)
        if line.ends in inspection.pictures:
            from resize_pos.cli.show_map import show_pictures

            show_pictures(inspection.pictures[line.ends])
    show_traffic(inspection.traffic)


def _show_line(line: TextLine) -> None:
    if line.breaks:
        tell(line.text, indent=line.indent, lead=[line.lead], style=line.style)
    else:
        say(" " * line.indent, line.lead, (line.text, line.style))


def show_families(families: Iterable[Family]) -> None:
    """Print the registry."""
    for family in families:
        say((family.name, "bold"), f"  {family.role.value}")
        tell(family.title, indent=2)
        say(f"  …{family.key}   {' | '.join(map(str, family.axes))}")
        for note in (family.why, family.refuse and f"refused: {family.refuse}"):
            if note:
                tell(note, indent=2)
        if family.convention is not None:
            own = family.convention
            tell(f"its library resizes it {own.name}-like: {own.resampling}", indent=2)
        tell(family.source, indent=2, style="dim")
