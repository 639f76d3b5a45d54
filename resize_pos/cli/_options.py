"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from resize_pos.conventions import CONVENTIONS, RELATIVE_CONVENTIONS, Method
from resize_pos.operations import Fill, SinCosMode

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _stack(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


SOURCE_OPTIONS = _stack(
    click.option(
        "--from",
        "from_",
        metavar="SIZE",
        help="Image size of the checkpoint; optional, cross-checked.",
    ),
    click.option("--from-grid", metavar="HxW", help="Grid of the checkpoint, in patches."),
    click.option(
        "--from-window",
        metavar="N|HxW",
        help="Attention window of the checkpoint, where the file leaves it open.",
    ),
    click.option(
        "--patch", metavar="N|HxW", help="Patch size in pixels; read from the file if it is there."
    ),
    click.option(
        "--prefix",
        type=click.IntRange(min=0),
        metavar="N",
        help="Rows before the grid (cls, registers …).",
    ),
    click.option("--suffix", type=click.IntRange(min=0), metavar="N", help="Rows after the grid."),
    click.option(
        "--family", metavar="NAME", help="Take the table for this family's (see `families`)."
    ),
    click.option(
        "--pattern", metavar="REGEX", help="Name of a table that no family knows; with --axes."
    ),
    click.option("--axes", metavar="PATTERN", help='Its layout, such as "1 (p h w s) d".'),
)

METHOD_OPTIONS = _stack(
    click.option(
        "--method",
        type=click.Choice([m.value for m in Method]),
        help="Interpolation [default: bicubic].",
    ),
    click.option(
        "--antialias/--no-antialias",
        default=None,
        help="Widen the kernel when shrinking [default: yes].",
    ),
    click.option(
        "--like", type=click.Choice(list(CONVENTIONS)), help="Do exactly what this library does."
    ),
    click.option(
        "--relative-like",
        type=click.Choice(list(RELATIVE_CONVENTIONS)),
        help="Resample relative tables as this library does [default: the family's own].",
    ),
    click.option(
        "--device",
        default="cpu",
        show_default=True,
        metavar="DEVICE",
        help="cpu, cuda, cuda:N or mps.",
    ),
)

LENGTH_OPTIONS = _stack(
    click.option(
        "--to-length", type=click.IntRange(min=1), metavar="N", help="Target length of text tables."
    ),
    click.option(
        "--from-length",
        type=click.IntRange(min=1),
        metavar="N",
        help="Length of the text tables to change; optional, cross-checked.",
    ),
    click.option(
        "--length-method",
        metavar="METHOD",
        help="linear, cubic, nearest, tile, keep or stretch:K; required to make a text longer.",
    ),
    click.option(
        "--fill",
        type=click.Choice([fill.value for fill in Fill]),
        help="What --length-method keep puts into new positions.",
    ),
    click.option(
        "--sincos",
        type=click.Choice([mode.value for mode in SinCosMode]),
        help="How fixed sin-cos tables change [default: rescaled; absolute for 1-D ones].",
    ),
)

DEBUG_OPTION = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show a traceback with an error."
)
JSON_OPTION = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)


def given(**options: Any) -> dict[str, Any]:
    """Leave out the options that were not given."""
    return {name: value for name, value in options.items() if value is not None}
