"""Text from files that nobody has checked, made safe to print.

Everything that reaches a terminal, a log, a page or a document passes through one of these: a name
must not move the cursor, change the direction of text, or act as a command of a workflow runner.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from resize_pos.core.lazy_regex import lazy_regex

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

# Runners of GitHub and Azure read this anywhere in a line.
_RUNNER_MARK = "##["

_LONGEST = 80  # characters of a value that is quoted in a message

_BEYOND_ASCII = lazy_regex(r"[^\x20-\x7e\n]")


def printable(text: str) -> str:
    """Write control and direction characters, and the marks of workflow commands, as escapes."""
    if not text.isprintable():
        text = "".join(repr(c)[1:-1] if unicodedata.category(c) in _HIDDEN else c for c in text)
    return text.replace(_RUNNER_MARK, r"#\x23[") if _RUNNER_MARK in text else text


def printable_line(text: str) -> str:
    """Make a whole line safe: one that begins with `::` is a command to a workflow runner."""
    line = printable(text)
    begin = len(line) - len(line.lstrip())
    return f"{line[:begin]}\\x3a{line[begin + 1 :]}" if line.startswith("::", begin) else line


def quoted(value: object) -> str:
    """Quote any value in a message: printable, on one line and not too long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with more digits than Python will write
        return f"a value of type {type(value).__name__} that is too large to show"
    text = printable(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def safe_json(text: str) -> str:
    """Escape what a terminal or a runner would act on; the JSON still means the same."""
    text = _BEYOND_ASCII.sub(_escaped, text)
    return text.replace(_RUNNER_MARK, r"#\u0023[") if _RUNNER_MARK in text else text


def _escaped(found: re.Match[str]) -> str:
    if unicodedata.category(found[0]) not in _HIDDEN:
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


def human_size(count: int) -> str:
    """Write a number of bytes for a person, with one decimal."""
    if count < 1000:
        return f"{count} bytes"
    size = float(count)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"
