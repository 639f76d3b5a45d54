"""A page as GitHub-flavoured Markdown: for a step summary, a pull request or a model card.

All text from files is escaped, so that a name can neither end a table cell nor act as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.printable import printable
from resize_pos.quality.checks import NEUTRAL, Check
from resize_pos.report.page import DistanceTable, Page, PageSection

_SPECIAL = lazy_regex(r"([\\`*_{}\[\]<>#~$]|:(?=//)|(?<=www)\.)")
_MARKS = {"ok": "✅", "warn": "⚠️", "fail": "❌", "planned": "📝", "unchanged": "✅"}
_MOST_NAMED = 12
BAR = "\\|"  # a bar that does not end a cell


def page_markdown(page: Page) -> str:
    """Write a page."""
    lines = [f"## {_MARKS[page.verdict]} {page.verdict}: {text(page.title)}", "", page.headline, ""]
    lines += [_check(check) for check in page.reasons]
    lines += ["", f"*{page.label}*", ""] if page.label else [""]
    if page.to_do:
        lines += ["### Still to do", ""]
    for task in page.to_do:
        lines += [text(task.words), "", *_fenced_block(task.code, "python")]
    if page.plan:
        lines += [f"### {page.heading}", ""]
        rows = [(_names(row.name, row.more), row.extent, text(row.words)) for row in page.plan]
        lines += [*table((page.of_plan, "grid", "how"), rows), ""]
    for note in page.notes:
        lines += [text(note), ""]
    for apart in page.distances:
        lines += [f"### How far apart: {code(apart.name)}", ""]
        lines += [*table(("version", *map(text, apart.labels[:-1])), _padded(apart)), ""]
    lines += _choice(page)
    for section in page.sections:
        lines += _section(section, page)
    if page.settings:
        settings = [
            (
                text(setting.file),
                code(setting.key),
                text(setting.before),
                text(setting.after),
                "changed along" if setting.done else "**still to change**",
            )
            for setting in page.settings
        ]
        lines += ["### Configs", ""]
        lines += [*table(("where", "key", "before", "after", ""), settings), ""]
    lines += _advice(page)
    lines += ["### Provenance", ""]
    if page.command:
        lines += fenced(page.command)
    lines += table(("", ""), [(text(name), text(value)) for name, value in page.provenance])
    return "\n".join(lines)


def _padded(apart: DistanceTable) -> list[tuple[str, ...]]:
    """Fill the rows of the triangle, because every row of a table has the same length."""
    width = len(apart.labels)
    rows = zip(apart.labels, apart.rows, strict=True)
    return [(text(label), *row, *[""] * (width - 1 - len(row))) for label, row in rows][1:]


def _check(check: Check) -> str:
    """Write a check with its mark; a fact that judges nothing has none."""
    mark = "" if check.name in NEUTRAL else f"{_MARKS[check.level.value]} "
    return f"- {mark}{text(check.detail)}"


def _choice(page: Page) -> Iterator[str]:
    """Write the other way to the same image size."""
    choice = page.choice
    if choice is None:
        return
    yield f"### {text(choice.heading[:1].upper() + choice.heading[1:])}"
    yield ""
    for words in choice.words:
        yield from (text(words[:1].upper() + words[1:]), "")
    if choice.command:
        yield from fenced(choice.command)


def _section(section: PageSection, page: Page) -> Iterator[str]:
    yield f"### {_names(section.name, section.more)}, {section.extent}"
    yield ""
    yield text(section.words)
    yield ""
    if section.checks != page.reasons:
        for check in section.checks:
            yield _check(check)
        yield ""
    if section.library_distances:
        rows = [
            (
                ", ".join(like.libraries) or "–",
                like.method + (" (this one)" if like.own else ""),
                f"{like.distance:.2%}",
                "" if like.norm_ratio is None else f"{like.norm_ratio:.1%}",
            )
            for like in section.library_distances
        ]
        head = ("library's own resize", "convention", "distance from this", "its norms")
        yield from table(head, rows, right={2, 3})
        yield ""
    yield "<details><summary>Every measure, with its meaning</summary>"
    yield ""
    if section.more:
        yield f"Numbers of {code(section.shown)}."
        yield ""
    numbers = [(code(n.name), f"{n.value:.4g}", text(n.meaning)) for n in section.numbers]
    yield from table(("measure", "value", "meaning"), numbers, right={1})
    yield ""
    yield from table(("", ""), [(text(name), text(value)) for name, value in section.facts])
    yield ""
    yield "</details>"
    yield ""


def _advice(page: Page) -> Iterator[str]:
    advice = page.advice
    if advice is None:
        return
    yield "### Fine-tuning"
    yield ""
    yield advice.suggestion[:1].upper() + advice.suggestion[1:]
    yield ""
    if advice.parameters:
        names = ", ".join(map(code, advice.parameters[:_MOST_NAMED]))
        more = len(advice.parameters) - _MOST_NAMED
        yield f"Interpolated: {names}{f' and {more} more' if more > 0 else ''}."
        yield ""
    if advice.published:
        yield "Settings that others have published; citations, not claims of ours:"
        yield ""
        for entry in advice.published:
            cited = f"[{text(entry.source)}]({entry.link})"
            yield f"- {text(entry.work)}: {text(entry.settings)}. {cited}"
        yield ""


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: AbstractSet[int] = frozenset(),
) -> Iterator[str]:
    """Write a table from cells that are already escaped."""
    yield _row(head)
    yield _row(["--:" if at in right else "---" for at in range(len(head))])
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def text(words: str) -> str:
    """Escape words so that they are shown as they are, on one line."""
    line = printable(" ".join(words.split())).replace("&", "&amp;")
    # The empty comment keeps `@name` from notifying somebody.
    return _SPECIAL.sub(r"\\\1", line).replace("@", "@<!-- -->")


def code(words: str) -> str:
    """Set a name as code; it may hold backticks."""
    line = printable(" ".join(words.split())) or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _names(first: str, more: Sequence[str]) -> str:
    return code(first) + (f" and {len(more)} alike" if more else "")


def fenced(command: str) -> list[str]:
    """Set a command as a block of code."""
    return _fenced_block(f"$ {printable(command)}", "console")


def _fenced_block(code: str, language: str) -> list[str]:
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *map(printable, code.splitlines()), fence, ""]
