"""Words for `verify` and `compare`; readable without colour and at 80 columns."""

from __future__ import annotations

from resize_pos.cli.render import LEVEL_STYLES, level_word, show_check, show_measures, show_traffic
from resize_pos.cli.terminal import aligned, say, tell, width
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.quality.checks import LABEL, Level
from resize_pos.report.groups import Group, change_words, grouped
from resize_pos.report.kept_grid import choice_of
from resize_pos.report.verify_report import Verified
from resize_pos.verify.against_source import TableVerification
from resize_pos.verify.compare import Comparison, Side, TableComparison
from resize_pos.verify.kept_grid import KeptGrid


def show_verified(verified: Verified, *, verbose: bool) -> None:
    """Print what was found, verdict first."""
    held = verified.against
    if held is not None:
        say("verdict: ", level_word(verified.verdict))
        for check in (*held.untouched.checks, *held.configs):
            show_check(check, indent=2)
        for group in grouped(held.tables):
            _show_group(group, verbose=verbose)
        if not held.tables:
            say("  no table should have changed: the grids are the same.")
        if verified.probe is None:
            tell(f"({LABEL})", style="dim")
    if verified.model is not None:
        ran = verified.model
        tell(f"{ran.model} loads it strictly at {ran.size} px and gives {list(ran.shape)}.")
    if verified.probe is not None:
        from resize_pos.verify.images import describe

        for line in describe(verified.probe):
            tell(line)
    show_traffic(verified.traffic)


def _show_group(group: Group[TableVerification], *, verbose: bool) -> None:
    table = group.shown
    say("  ", (group.name, "bold"), f"  {change_words(group.step)}")
    if verbose and len(group.tables) > 1:
        tell(f"the numbers below are of {table.step.table.name}", indent=4, style="dim")
    shown = table.checks if verbose else [c for c in table.checks if c.name == "origin"]
    rest = [check for check in group.reasons() if check.name not in {c.name for c in shown}]
    for check in (*shown, *rest):
        show_check(check, indent=4)
    if not verbose:
        return
    if table.matches:
        say("    distance to what each convention makes of the source:")
    for match in table.matches:
        say(f"    {match.error:9.2e}  {match}")
    if table.health is not None:
        tell(table.health.detail, indent=4, lead=["values: "])
        for sign in table.health.signs:
            tell(sign.detail, indent=4, lead=["sign: "])
    show_measures(table.measures)


_COLUMNS = {  # of the comparison: measure, its short name, and what that means
    "norm_ratio": ("norms", "mean norm after ÷ before; 1 is right"),
    "displacement": ("place", "how far cells are from where they belong; 0 is right"),
    "neighbour_deficit": ("rough", "how much less alike neighbours are; below 0.15 is fine"),
    "round_trip": ("return", "error after the way back"),
    "aliasing": ("alias", "share of variance folded by shrinking"),
    "attention_drift": ("attn", "change of block 0's attention by position"),
}


def show_comparison(comparison: Comparison) -> None:
    """Print one line per version, and how far the versions are from the first."""
    if comparison.source is not None:
        say(f"source: {comparison.source.name}")
    shown = set()
    for table in comparison.tables:
        shown |= _show_versions(table)
        for side in table.sides:
            for words in _remarks(side):
                tell(words, indent=2, lead=[f"{_short(side.label)}: "])
    if comparison.kept_grid is not None:
        _show_kept_grid(comparison.kept_grid)
    same = [label for label in comparison.labels if label != _short(label)]
    if same:
        tell(f"the same convention: {'; '.join(same)}", style="dim")
    for name, (short, meaning) in _COLUMNS.items():
        if name in shown:
            tell(meaning, hang=8, lead=[f"{short:<6}  "], style="dim")
    if comparison.source is not None:
        tell(f"({LABEL})", style="dim")
    show_traffic(comparison.traffic)


def _show_kept_grid(kept: KeptGrid) -> None:
    """Print the other choice: the same image size with the old grid and another patch."""
    choice = choice_of(kept)
    first, *others = choice.words
    tell(first, lead=[(f"{choice.heading}: ", "bold")])
    for words in (*others, *([choice.command] if choice.command else [])):
        tell(words, indent=2)


def _show_versions(table: TableComparison) -> set[str]:
    judged = table.source_grid is not None
    grids = f"{table.source_grid} → {table.grid}" if judged else str(table.grid)
    say((table.name, "bold"), f"  {grids}")
    measures = [name for name in _COLUMNS if any(name in side.measures for side in table.sides)]
    head = ["verdict" if judged else "values", *(_COLUMNS[name][0] for name in measures)]
    rows = [[*head, "from 1st"]]
    for side, distance in zip(table.sides, table.distances[0], strict=True):
        state = side.verdict.value if judged else side.health.kind.value
        numbers = [f"{side.measures[n]:.3f}" if n in side.measures else "–" for n in measures]
        rows.append([state, *numbers, f"{distance:.2%}"])
    first, *lines = aligned(rows, right=frozenset(range(1, len(head) + 1)))
    labels = ["version", *(_short(side.label) for side in table.sides)]
    room = max(map(len, labels))
    beside = room + 4 + len(first) <= width()  # else each name stands above its numbers
    say("  ", (f"{labels[0]:<{room}}  {first}" if beside else first, "dim"))
    for side, label, line in zip(table.sides, labels[1:], lines, strict=True):
        style = LEVEL_STYLES[side.verdict] if judged and side.verdict is not Level.OK else ""
        if not beside:
            say(f"  {label}:")
        say("  ", (f"{label:<{room}}  {line}" if beside else line, style))
    return set(measures)


def _short(label: str) -> str:
    """Let one library stand for all that have its convention."""
    names = label.split(" = ")
    return names[0] if all(name in CONVENTIONS for name in names) else label


def _remarks(side: Side) -> list[str]:
    worst = [check.detail for check in side.checks if check.level is not Level.OK]
    return list(dict.fromkeys([*worst, *(sign.detail for sign in side.health.signs)]))
