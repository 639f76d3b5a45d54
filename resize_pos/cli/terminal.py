"""Plain text for a terminal: colour only where it is wanted, lines that fit, columns that align.

Names and paths come from files that nobody has checked, so control characters in them are shown,
not obeyed. `say` never breaks a line, so that names and paths stay copyable; `tell` breaks prose.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

from resize_pos.core.errors import OutputError
from resize_pos.core.printable import printable, printable_line
from resize_pos.core.system_errors import cause

Part = str | tuple[str, str]  # plain words, or words with a style

_NARROWEST, _USUAL, _WIDEST = 40, 80, 100
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "bold": {"bold": True},
    "dim": {"dim": True},
    "green": {"fg": "green"},
    "yellow": {"fg": "yellow"},
    "red": {"fg": "red", "bold": True},
}


def wants_colour() -> bool | None:
    """Decide by the environment; None leaves it to the stream: a terminal yes, a pipe no."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def say(*parts: Part, err: bool = False) -> None:
    """Print one line, which a narrow terminal must not break.

    Every line that this program prints comes through here.
    """
    plain = "".join(part if isinstance(part, str) else part[0] for part in parts)
    is_command = plain.lstrip().startswith("::")  # a workflow runner would obey it
    _echo(printable_line(plain) if is_command else "".join(map(painted, parts)), err=err)


def say_json(document: Any, *, indent: int | None = 2) -> None:
    """Print a JSON document."""
    from resize_pos.report.json import json_text

    _echo(json_text(document, indent=indent))


def say_page(text: str) -> None:
    """Print a text of our own that has many lines, such as a page of the documentation."""
    _echo(text.rstrip("\n"))


def say_command(command: str) -> None:
    """Print a workflow command, which `cli/github.py` has escaped."""
    _echo(command)


def say_drawing(line: str) -> None:
    """Print one line of a drawing: characters and colours of our own, no names."""
    _echo(line)


def _echo(text: str, *, err: bool = False) -> None:
    try:
        click.echo(text, err=err, color=wants_colour())
    except BrokenPipeError:
        raise
    except OSError as error:
        if err:
            return  # there is nowhere left to say it
        raise unwritable_stdout(error) from error


def unwritable_stdout(error: OSError) -> OutputError:
    """Say why stdout cannot be written."""
    words, _ = cause(error)
    return OutputError(f"standard output: cannot be written: {words}.")


def tell(
    text: str, *, indent: int = 0, hang: int = 2, lead: Sequence[Part] = (), style: str = ""
) -> None:
    """Print prose in lines that fit; `lead` stands before it, later lines are indented more."""
    begin = " " * indent
    label = begin + "".join(printable(part if isinstance(part, str) else part[0]) for part in lead)
    lines = textwrap.wrap(
        printable(text),
        width(),
        initial_indent=label,
        subsequent_indent=begin + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    first = lines[0][len(label) :] if lines else ""
    say(begin, *lead, (first, style))
    for line in lines[1:]:
        say((line, style))


def painted(part: Part) -> str:
    """Give words with their style's colour codes, and no codes of their own."""
    if isinstance(part, str):
        return printable(part)
    text, style = part
    return click.style(printable(text), **_STYLES[style]) if style and text else printable(text)


def width() -> int:
    """Give how many columns a line may have."""
    return max(_NARROWEST, min(_WIDEST, _columns()))


def _columns() -> int:
    """Do what `shutil.get_terminal_size` does, without the compression libraries it imports."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    try:
        stdout = sys.__stdout__
        return os.get_terminal_size(stdout.fileno() if stdout else -1).columns or _USUAL
    except (ValueError, OSError):  # no stdout, a closed one, or no terminal
        return _USUAL


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Pad cells to the width of their column; columns in `right` are set flush right."""
    if not rows:
        return []
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(size) if at in right else cell.ljust(size)
            for at, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
