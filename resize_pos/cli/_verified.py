"""Plain words for `verify` and `compare`; readable without colour and at 80 columns."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from resize_pos.cli._render import console_for_results, level_word, print_line
from resize_pos.comparison import Comparison
from resize_pos.report.verified import Verified
from resize_pos.verdict import LABEL, Level
from resize_pos.verification import TableVerification


def show_verified(verified: Verified, *, verbose: bool) -> None:
    """Print what was found, verdict first."""
    console = console_for_results()
    held = verified.against
    if held is not None:
        print_line(console, Text.assemble("verdict: ", level_word(verified.verdict)))
        for check in (*held.untouched.checks, *held.configs):
            print_line(console, Text.assemble("  ", level_word(check.level), f" {check.detail}"))
        for table in held.tables:
            _show_table(table, verbose=verbose)
        if not held.tables:
            print_line(console, "  no table should have changed: the grids are the same.")
        print_line(console, Text(f"({LABEL})", style="dim"))
    if verified.model is not None:
        ran = verified.model
        print_line(
            console,
            f"{ran.model} loads it strictly at {ran.size} px and gives {list(ran.shape)}.",
        )
    if verified.probe is not None:
        from resize_pos.probe import describe

        for line in describe(verified.probe):
            print_line(console, line)


_COLUMNS = {  # of the comparison: measure and its short name
    "norm_ratio": "norms",
    "displacement": "place",
    "neighbour_deficit": "rough",
    "round_trip": "return",
    "aliasing": "alias",
    "attention_drift": "attn",
}


def show_comparison(comparison: Comparison) -> None:
    """Print one line per version, and how far the versions are from the first."""
    console = console_for_results()
    if comparison.source is not None:
        print_line(console, f"source: {comparison.source.name}")
    for table in comparison.tables:
        grids = f"{table.grid}"
        if table.source_grid is not None:
            grids = f"{table.source_grid} → {table.grid}"
        print_line(console, Text.assemble((table.name, "bold"), f"  {grids}"))
        shown = [name for name in _COLUMNS if any(name in side.measures for side in table.sides)]
        listing = Table(box=None, padding=(0, 1, 0, 1), pad_edge=True)
        listing.add_column("version", overflow="fold")
        listing.add_column("verdict" if table.source_grid is not None else "values")
        for name in shown:
            listing.add_column(_COLUMNS[name], justify="right")
        listing.add_column("from 1st", justify="right")
        for side, row in zip(table.sides, table.distances[0], strict=True):
            state = (
                Text.assemble(level_word(side.verdict))
                if table.source_grid is not None
                else Text(side.health.kind.value)
            )
            numbers = [f"{side.measures[n]:.3f}" if n in side.measures else "–" for n in shown]
            listing.add_row(side.label, state, *numbers, f"{row:.2%}")
        console.print(listing)
        for side in table.sides:
            worst = [check.detail for check in side.checks if check.level is not Level.OK]
            signs = [sign.detail for sign in side.health.signs]
            for words in dict.fromkeys([*worst, *signs]):
                print_line(console, f"  {side.label}: {words}")
    if comparison.source is not None:
        print_line(console, Text(f"({LABEL})", style="dim"))
        print_line(
            console,
            Text(
                "norms: after ÷ before; place: displacement; rough: neighbour deficit; "
                "return: round trip; alias: aliased share; attn: block-0 attention drift.",
                style="dim",
            ),
        )


def _show_table(table: TableVerification, *, verbose: bool) -> None:
    console = console_for_results()
    step = table.step
    print_line(
        console,
        Text.assemble("  ", (step.table.name, "bold"), f"  {step.table.grid} → {step.target}"),
    )
    for check in table.checks:
        if verbose or check.level is not Level.OK or check.name == "origin":
            print_line(console, Text.assemble("    ", level_word(check.level), f" {check.detail}"))
    if not verbose:
        return
    for match in table.matches:
        print_line(console, f"    {match.error:9.2e}  from {match}")
    if table.health is not None:
        print_line(console, f"    values: {table.health.detail}")
        for sign in table.health.signs:
            print_line(console, f"    sign: {sign.detail}")
    listing = Table(box=None, padding=(0, 1, 0, 4), show_header=False)
    for name, value in table.measures.items():
        listing.add_row(name, f"{value:.4g}")
    console.print(listing)
