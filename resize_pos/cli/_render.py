"""Plain words and tables for a terminal; readable without colour and at 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from resize_pos.api import Inspection
from resize_pos.cli._render_folder import show_configs
from resize_pos.containers.converted import Conversion
from resize_pos.families import Family, Role
from resize_pos.report.value import Report, Status
from resize_pos.tables import Action, LeftAlone, PositionTable, Step
from resize_pos.verdict import Check, Level

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
_STATUS_WORDS = {
    Status.PLANNED: "would write",
    Status.RESIZED: "wrote",
    Status.UNCHANGED: "copied to",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the one place that ends the program; rich would exit with 1 from here."""
        raise BrokenPipeError


def console_for_results() -> Console:
    """Give the console that writes results to standard output."""
    return _Console(highlight=False, soft_wrap=False)


def show_report(report: Report, *, verbose: bool) -> None:
    """Print what was done, or would be: verdict first."""
    console = console_for_results()
    changes = [t for t in report.tables if t.step.action is not Action.KEEP]
    if report.status is Status.RESIZED:
        print_line(
            console, Text.assemble("verdict: ", level_word(report.verdict), _reasons(report.checks))
        )
    elif report.status is Status.UNCHANGED:
        print_line(console, f"nothing to do for {report.source.name}: {_why_nothing(report)}.")
    else:
        print_line(console, f"plan for {report.source.name}; nothing is written.")
    _show_steps(console, [t.step for t in report.tables])
    _show_left_alone(console, report.plan.left_alone)
    for table in changes:
        step = table.step
        if step.own_convention is not None:
            print_line(
                console,
                f"  note: {step.table.family.name} models resize with the {step.own_convention} "
                f"convention; --like {step.own_convention} does the same here.",
            )
        if verbose:
            _show_detail(console, step.table, table.measures)
    if changes:
        count = report.copied.tensors
        size = f" ({human_bytes(report.copied.bytes)})" if report.copied.bytes else ""
        verb = "are" if report.status is Status.PLANNED else "were"
        print_line(console, f"{count} other tensors{size} {verb} copied byte for byte.")
    if report.conversion is not None:
        _show_conversion(console, report.conversion)
    show_configs(console, report)
    if report.output is not None:
        print_line(
            console, Text.assemble(f"{_STATUS_WORDS[report.status]} ", (str(report.output), "bold"))
        )


def _show_conversion(console: Console, conversion: Conversion) -> None:
    if conversion.wrapper is not None:
        print_line(
            console, f"the tensors of {conversion.wrapper} make up the {conversion.format} file."
        )
    if conversion.dropped:
        print_line(console, f"left out: {', '.join(conversion.dropped)}")
    for name, kept in conversion.aliases.items():
        print_line(console, f"left out: {name}, the same tensor as {kept}")


def _why_nothing(report: Report) -> str:
    tables = [table.step.table for table in report.tables]
    if tables and all(table.family.kept for table in tables):
        return "no table of it holds a length"
    if report.plan.depends or any(table.role is Role.SEQUENCE for table in tables):
        return "it is already at the target"
    if tables:
        return "the library handles its tables itself, for every size"
    return "nothing in this file depends on the resolution"


def _show_steps(console: Console, steps: Sequence[Step]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False, pad_edge=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column()
    for step, count in _grouped(steps):
        name = step.table.name if count == 1 else f"{step.table.name} and {count - 1} alike"
        if step.action is Action.KEEP:
            table.add_row(name, _extent(step.table), Text(f"kept: {step.reason}", style="dim"))
        elif step.action is Action.DROP:
            table.add_row(name, _extent(step.table), f"dropped: {step.reason}")
        else:
            words = ", ".join([*_kept_rows(step.table), str(step.operation)])
            table.add_row(name, _change(step), words)
    console.print(table)


def _show_left_alone(console: Console, entries: Sequence[LeftAlone]) -> None:
    families: dict[str, list[LeftAlone]] = {}
    for entry in entries:
        families.setdefault(entry.family.name, []).append(entry)
    for first, *more in families.values():
        name = first.tensor.name + (f" and {len(more)} alike" if more else "")
        print_line(console, Text(f"  {name}  kept: {first.family.why}", style="dim"))


def _grouped(steps: Iterable[Step]) -> list[tuple[Step, int]]:
    """Put together the tables that go through the same, such as one per block."""
    groups: dict[tuple[object, ...], tuple[Step, int]] = {}
    for step in steps:
        table = step.table
        key = (table.family.name, table.grid, step.action, step.target, table.prefix, step.reason)
        first, count = groups.get(key, (step, 0))
        groups[key] = (first, count + 1)
    return list(groups.values())


def _kept_rows(table: PositionTable) -> list[str]:
    kinds = ((table.prefix, "prefix"), (table.suffix, "suffix"))
    return [f"{n} {kind} row{'s' if n > 1 else ''} kept" for n, kind in kinds if n]


def _show_detail(console: Console, table: PositionTable, measures: object) -> None:
    for line in table.evidence:
        print_line(console, f"  evidence: {line}")
    assert isinstance(measures, dict)
    for name, value in measures.items():
        print_line(console, f"  {name}: {value:.4g}")


def _reasons(checks: Sequence[Check]) -> str:
    worst = [check for check in checks if check.level is not Level.OK] or checks
    details = list(dict.fromkeys(check.detail for check in worst))
    return f" ({'; '.join(details)})" if details else ""


def show_inspection(inspection: Inspection, *, verbose: bool) -> None:
    """Print the tables of a checkpoint, the evidence, and what came near."""
    console = console_for_results()
    tensors = inspection.tensors.values()
    size = human_bytes(sum(info.nbytes for info in tensors))
    print_line(
        console,
        f"{inspection.path.name}: {inspection.format}, {len(inspection.tensors)} tensors, {size}",
    )
    located = inspection.located
    for table in located.tables:
        info = table.tensor
        tiling = table.tiling
        pixels = f", {tiling.pixels(table.grid)} px at patch {tiling}" if tiling else ""
        rows = "".join(f", {words.removesuffix(' kept')}" for words in _kept_rows(table))
        print_line(
            console, Text.assemble((table.name, "bold"), f"  {info.dtype} {list(info.shape)}")
        )
        print_line(console, f"  {_extent(table)}{rows}{pixels}")
        print_line(console, f"  family {table.family.name}: {table.family.title}")
        for line in table.evidence:
            print_line(console, f"  evidence: {line}")
        if table.name in inspection.health:
            found = inspection.health[table.name]
            print_line(console, f"  health: {found.detail}")
            for sign in found.signs:
                print_line(console, Text(f"  warning: {sign.detail}", style="yellow"))
    for unsettled in located.unsettled:
        info = unsettled.tensor
        print_line(
            console, Text.assemble((info.name, "bold"), f"  {info.dtype} {list(info.shape)}")
        )
        print_line(console, f"  family {unsettled.family.name}: {unsettled.family.title}")
        print_line(console, Text(f"  not settled: {unsettled.error.message}", style="yellow"))
        print_line(console, f"  hint: {unsettled.error.hint}")
    _show_left_alone(console, located.left_alone)
    for miss in located.near_misses:
        print_line(console, Text(f"not a table: {miss.tensor}", style="dim"))
        print_line(console, Text(f"  {miss.reason}", style="dim"))
    if not (located.tables or located.unsettled):
        print_line(console, "no position table was found.")
    if verbose:
        for info in tensors:
            print_line(console, f"  {info}")


def show_families(families: Iterable[Family]) -> None:
    """Print the registry."""
    console = console_for_results()
    for family in families:
        print_line(console, Text.assemble((family.name, "bold"), f"  {family.role.value}"))
        print_line(console, f"  {family.title}")
        print_line(console, f"  …{family.key}   {' | '.join(map(str, family.axes))}")
        for note in (family.why, family.refuse and f"refused: {family.refuse}"):
            if note:
                print_line(console, f"  {note}")
        if family.convention is not None:
            own = family.convention
            print_line(console, f"  its library resizes it {own.name}-like: {own.resampling}")
        print_line(console, Text(f"  {family.source}", style="dim"))


def _change(step: Step) -> str:
    if step.table.role is Role.SEQUENCE:
        return f"{step.table.length} → {step.target.cells}"
    if step.table.layout.has_time:
        return step.reason
    return f"{step.table.grid} → {step.target}"


def _extent(table: PositionTable) -> str:
    if table.role is Role.SEQUENCE:
        return f"length {table.grid.width}"
    if table.role is Role.RELATIVE:
        return f"offsets of {table.grid}"
    return f"{table.frames} × {table.grid}" if table.layout.has_time else str(table.grid)


def level_word(level: Level) -> tuple[str, str]:
    """Give a level with its colour."""
    return level.value, _COLOURS[level]


def print_line(console: Console, text: str | Text) -> None:
    """Print a line that a narrow pipe must not break: paths and names stay copyable."""
    console.print(text, soft_wrap=True, markup=False)


def human_bytes(count: int) -> str:
    """Write a number of bytes for a person."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
