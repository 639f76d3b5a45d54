"""What `verify` found, as a page, and its writers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from resize_pos._version import __version__
from resize_pos.containers.detect import open_container
from resize_pos.quality.checks import Level
from resize_pos.quality.pictures import picture_step
from resize_pos.report.figures import Figure, draw
from resize_pos.report.files import write_files
from resize_pos.report.groups import Group, change_words, grouped, reasons_in_words
from resize_pos.report.html import page_html
from resize_pos.report.json import json_text
from resize_pos.report.markdown import page_markdown
from resize_pos.report.page import LibraryDistance, Page, PlanRow, section
from resize_pos.report.verify_report import Verified, verified_document
from resize_pos.verify.against_source import TableVerification, Verification
from resize_pos.verify.images import describe
from resize_pos.verify.same_names import with_same_names

_HEADLINES = {
    "ok": "The checkpoint is what its source should have become.",
    "warn": "The checkpoint may be what its source should have become; read its warnings.",
    "fail": "The checkpoint is not what its source should have become.",
}
_SOUND_AND_TRAINED = "The checkpoint is what training makes of a sound resize."


def write_verified(verified: Verified, paths: Iterable[Path], command: str | None) -> None:
    """Write every requested report of a verification."""
    page = verified_page(verified, command)
    write_files(
        {
            ".json": lambda: json_text(verified_document(verified)),
            ".html": lambda: page_html(page, _figures(verified.against)),
            ".md": lambda: page_markdown(page),
        },
        paths,
    )


def verified_page(verified: Verified, command: str | None = None) -> Page:
    """Lay out what a verification found."""
    held = verified.against
    groups = () if held is None else grouped(held.tables)
    checks = () if held is None else (*held.untouched.checks, *held.configs)
    title = verified.output.name
    return Page(
        title=title if held is None else f"{title}, compared with {held.source.name}",
        verdict=verified.verdict.value,
        headline=_headline(verified),
        reasons=(*checks, *reasons_in_words(groups)),
        heading="The tables",
        plan=tuple(map(_row, groups)),
        notes=tuple(_notes(verified)),
        sections=tuple(
            section(group, _made_words(group.shown), _library_distances(group.shown))
            for group in groups
            if group.shown.measures
        ),
        settings=(),
        advice=None,
        provenance=tuple(_provenance(verified)),
        command=command,
    )


def _headline(verified: Verified) -> str:
    if verified.against is None:
        return "The model runs."
    if verified.verdict is Level.OK and verified.against.untouched.trained:
        return _SOUND_AND_TRAINED
    return _HEADLINES[verified.verdict.value]


def _row(group: Group[TableVerification]) -> PlanRow:
    words = _made_words(group.shown)
    return PlanRow(group.names[0], group.names[1:], change_words(group.step), words, changed=True)


def _made_words(table: TableVerification) -> str:
    """Return how a table was made, as far as known."""
    if table.made_by is not None:
        return f"made by {table.made_by}"
    if table.diagnosis is not None:
        verb = "is" if table.diagnosis.certain else "looks"
        return f"{verb} {table.diagnosis.name}: {table.diagnosis.detail}"
    for check in table.checks:
        if check.name == "origin" and check.level is Level.OK:
            return check.detail
    return "made by no known convention" if table.matches else "no convention to compare with"


def _library_distances(table: TableVerification) -> tuple[LibraryDistance, ...]:
    """The distance of the table to the result of every convention, nearest first."""
    norms = {str(peer.resampling): peer.norm_ratio for peer in table.peers}
    return tuple(
        LibraryDistance(
            match.names,
            str(match.resampling),
            match.error,
            norms.get(str(match.resampling)),
            own=match.exact,
        )
        for match in table.matches
    )


def _notes(verified: Verified) -> Iterator[str]:
    if verified.model is not None:
        ran = verified.model
        yield f"{ran.model} loads it strictly at {ran.size} px and gives {list(ran.shape)}."
    if verified.probe is not None:
        yield from describe(verified.probe)
    if verified.against is not None and not verified.against.tables:
        yield "No table should have changed: the grids are the same."


def _provenance(verified: Verified) -> Iterator[tuple[str, str]]:
    yield "checkpoint", str(verified.output)
    if verified.against is not None:
        yield "source", str(verified.against.source)
    yield "verified by", f"resize-pos {__version__}"


def _figures(held: Verification | None) -> dict[str, tuple[Figure, ...]]:
    """Read the shown tables again, and draw them."""
    if held is None:
        return {}
    output, source = with_same_names(open_container(held.output), open_container(held.source))
    figures = {}
    for group in grouped(held.tables):
        table = group.shown
        if table.measures:
            name = table.step.table.name
            pictures = picture_step(table.step, source.read(name), output.read(name))
            figures[name] = draw(pictures, table.step.table.role)
    return figures
