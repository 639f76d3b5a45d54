"""A section of a model card about a conversion, and how it is put into an existing card.

A card is edited as text: its metadata and its words stay as they are, byte for byte, except
`base_model` and our own section.
"""

from __future__ import annotations

import re

from resize_pos._version import __version__
from resize_pos.report.markdown import code, fenced, table, text
from resize_pos.report.page import resize_page
from resize_pos.report.report import Report

_BEGIN, _END = "<!-- resize-pos: begin -->", "<!-- resize-pos: end -->"
_SECTION = re.compile(rf"^{_BEGIN}\r?$.*?^{_END}\r?$\n?", re.DOTALL | re.MULTILINE)
_HEAD = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE
)
_TITLE = re.compile(r"\A\s*#[ \t]+[^\n]*\n?")
# A key at the left edge, with the lines of its value: indented ones, and items of a list.
_BASE = re.compile(r"^base_model[ \t]*:[^\n]*\n(?:(?:[ \t]+|-)[^\n]*\n)*", re.MULTILINE)


def card_section(report: Report, base: str | None, command: str | None) -> str:
    """Write the section: base model, sizes, tables, verdict and command."""
    page = resize_page(report, command)
    plan = report.plan
    sizes = (
        f" from {plan.from_size} to {plan.to_size} px" if plan.from_size and plan.to_size else ""
    )
    made = f"[{base}](https://huggingface.co/{base})" if base else "a checkpoint"
    lines = [
        _BEGIN,
        f"## Resized{sizes}",
        "",
        f"This model is {made} with its position embeddings transferred to another input size by "
        f"resize-pos {__version__}. Every other weight has the same bytes.",
        "",
    ]
    rows = [
        (
            code(row.name) + (f" and {len(row.more)} alike" if row.more else ""),
            text(row.extent),
            text(row.words),
        )
        for row in page.plan
    ]
    lines += [*table(("table", "grid", "how"), rows), ""]
    if page.label:
        lines += [f"Verdict: **{page.verdict}**. {text(page.headline)}", ""]
        lines += [f"- {text(check.detail)}" for check in page.reasons]
        lines += ["", f"*{page.label}*", ""]
    if command:
        lines += fenced(command)
    return "\n".join([*lines, _END, ""])


def merged_card(card: str, section: str, base: str | None, *, keep_base: bool) -> str:
    """Put the section into a card, and the base model into its metadata.

    An earlier section is replaced. `keep_base`: a base model that the card states stays.
    """
    line_end = "\r\n" if "\r\n" in card else "\n"
    section = section.replace("\n", line_end)
    head = _HEAD.match(card)
    start = "" if head is None else card[: head.end()]
    rest = card[len(start) :]
    if base is not None:
        start = _with_base(start, base, line_end, keep=keep_base)
    if _SECTION.search(rest):
        return start + _SECTION.sub(lambda _: section, rest, count=1)
    title = _TITLE.match(rest)
    before = "" if title is None else title[0]
    if before and not before.endswith("\n"):
        before += line_end
    after = rest[len(before) :].lstrip("\r\n") if title is not None else rest.lstrip("\r\n")
    parts = [part for part in (before, section, after) if part]
    return start + line_end.join(parts)


def _with_base(start: str, base: str, line_end: str, *, keep: bool) -> str:
    line = f"base_model: {base}{line_end}"
    if not start:
        return f"---{line_end}{line}---{line_end}{line_end}"
    head = _HEAD.match(start)
    assert head is not None
    metadata = head["yaml"]
    if _BASE.search(metadata):
        if keep:
            return start
        metadata = _BASE.sub(lambda _: line, metadata, count=1)
    else:
        metadata += line
    return start[: head.start("yaml")] + metadata + start[head.end("yaml") :]
