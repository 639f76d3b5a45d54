"""What `compare` found, as a page, and its writers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from resize_pos._version import __version__
from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.table_health import HealthKind
from resize_pos.report.compare_report import comparison_document
from resize_pos.report.files import write_files
from resize_pos.report.json import json_text
from resize_pos.report.kept_grid import choice_of
from resize_pos.report.page import DistanceTable, Page, PlanRow
from resize_pos.verify.compare import Comparison, Side, TableComparison


def write_comparison(comparison: Comparison, paths: Iterable[Path], command: str | None) -> None:
    """Write every requested report of a comparison."""
    page = comparison_page(comparison, command)

    def html() -> str:
        from resize_pos.report.html import page_html  # imports jinja2, which only a page needs

        return page_html(page, {})

    def markdown() -> str:
        from resize_pos.report.markdown import page_markdown

        return page_markdown(page)

    document = comparison_document(comparison)
    write_files({".json": lambda: json_text(document), ".html": html, ".md": markdown}, paths)


def comparison_page(comparison: Comparison, command: str | None = None) -> Page:
    """Lay out every version of every table: how it was judged, and how far apart they are."""
    tables = comparison.tables
    checks = tuple(_reasons(tables))
    shown = ", ".join(comparison.labels)
    source = comparison.source
    title = shown if source is None else f"{source.name} in {len(comparison.labels)} versions"
    return Page(
        title=title,
        verdict=worst(checks).value,
        headline=f"{len(comparison.labels)} versions of {_count(len(tables))}, side by side."
        if tables
        else "No table differs.",
        reasons=checks,
        heading="The versions",
        of_plan="version",
        plan=tuple(_row(table, side, len(tables)) for table in tables for side in table.sides),
        notes=(),
        sections=(),
        settings=(),
        advice=None,
        provenance=(
            ("compared", shown),
            ("compared by", f"resize-pos {__version__}"),
        ),
        command=command,
        distances=tuple(map(_distances, tables)),
        choice=None if comparison.kept_grid is None else choice_of(comparison.kept_grid),
    )


def _reasons(tables: Iterable[TableComparison]) -> Iterator[Check]:
    for table in tables:
        for side in table.sides:
            for check in side.checks:
                if check.level is not Level.OK:
                    yield Check(check.name, check.level, f"{side.label}: {check.detail}")


def _row(table: TableComparison, side: Side, tables: int) -> PlanRow:
    source = f"{table.source_grid} → " if table.source_grid is not None else ""
    parts = [side.verdict.value] if side.checks else []
    # A convention is made by itself; only of a file it is news who made it.
    origin = (side.origin or "").removeprefix(f"made by {side.label}: ")
    parts += [origin] if origin else []
    parts += [side.health.detail] if side.health.kind is not HealthKind.LEARNED else []
    name = side.label if tables == 1 else f"{side.label}, {table.name}"
    return PlanRow(name, (), f"{source}{table.grid}", "; ".join(parts), changed=True)


def _count(tables: int) -> str:
    return "one table" if tables == 1 else f"{tables} tables"


def _distances(table: TableComparison) -> DistanceTable:
    """Say how far every two versions are apart, relative to their size."""
    rows = tuple(
        tuple(f"{distance:.2%}" for distance in table.distances[row][:row])
        for row in range(len(table.sides))
    )
    return DistanceTable(table.name, tuple(side.label for side in table.sides), rows)
