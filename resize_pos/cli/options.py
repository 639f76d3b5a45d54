"""Options that several commands share, each written once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from resize_pos.core.conventions import CONVENTIONS, RELATIVE_CONVENTIONS, Method
from resize_pos.core.operations import Fill, SinCosMode
from resize_pos.core.request import Request
from resize_pos.quality.measures.catalogue import Limit
from resize_pos.run.job import Job

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _stack(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


TO_OPTIONS = _stack(
    click.option(
        "--to",
        metavar="SIZE",
        help="Target image size: 384, or 384x512 (height × width); for a text model its length.",
    ),
    click.option("--to-grid", metavar="HxW", help="Target grid in patches, instead of --to."),
    click.option(
        "--to-window",
        metavar="N|HxW",
        help="Target attention window of models such as Swin, in cells.",
    ),
)

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

TARGET_OPTIONS = _stack(
    click.option(
        "--to-patch",
        metavar="N|HxW",
        help="Change the patch size, too: the patch embedding is resized by pseudo-inverse.",
    ),
    click.option(
        "--to-frames",
        type=click.IntRange(min=1),
        metavar="N",
        help="Frames of a video model; time is kept otherwise.",
    ),
    click.option(
        "--to-rows",
        type=click.IntRange(min=1),
        metavar="N",
        help="Extend or cut tables that are looked up by row number.",
    ),
    click.option(
        "--reference-grids",
        type=click.Choice(["keep", "resize"]),
        default=None,
        help="Grids that the library resamples while it runs [default: keep].",
    ),
    click.option(
        "--force-interpolate",
        is_flag=True,
        help="Interpolate tables for which that is known to be wrong, too.",
    ),
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
FORMAT_OPTION = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="How to print; github: workflow annotations, and the report to the step summary.",
)


def _limits(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
    del ctx, param
    return tuple(Limit.parse(text) for text in texts)


# How a conversion is run and what is said about it; the same for one checkpoint and for many.
RUN_OPTIONS = _stack(
    click.option("-f", "--force", is_flag=True, help="Replace an existing target."),
    click.option(
        "--no-config",
        "edit_configs",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Of a folder, convert the weights alone.",
    ),
    click.option(
        "--copy", is_flag=True, help="Copy unchanged files; else large ones are hard-linked."
    ),
    click.option(
        "--drop-extras",
        is_flag=True,
        help="Leave out what the output's format cannot hold (-o NAME.safetensors).",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(["resize", "drop"]),
        help="Optimizer state of a resized table [default: resize it where the match is certain].",
    ),
    click.option("-n", "--dry-run", is_flag=True, help="Show the plan and write nothing."),
    click.option(
        "--report",
        "reports",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Also write a report (.html, .md, .json); repeatable.",
    ),
    click.option(
        "--max",
        "limits",
        multiple=True,
        callback=_limits,
        metavar="MEASURE=LIMIT",
        help="Exit with 3 when a measure exceeds this; repeatable.",
    ),
    click.option("--strict", is_flag=True, help="Exit with 3 on a warning, too."),
    JSON_OPTION,
    FORMAT_OPTION,
    click.option("-q", "--quiet", is_flag=True, help="Print only the paths of what was written."),
)


def make_job(source: Path, options: Mapping[str, Any], **more: Any) -> Job:
    """Split the options between the job and its request."""
    own = {field.name for field in fields(Job)}
    for_job = {name: value for name, value in options.items() if name in own}
    return Job(source, Request.make(**request_options(options)), **for_job, **more)


def request_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Pick what was said about the request."""
    own = {field.name for field in fields(Job)}
    return given(**{name: value for name, value in options.items() if name not in own})


def given(**options: Any) -> dict[str, Any]:
    """Leave out the options that were not given."""
    return {name: value for name, value in options.items() if value is not None}


def command_line(ctx: click.Context) -> str | None:
    """Give the words that were typed, for a report; None where nobody typed any."""
    words = ctx.find_object(list)
    return None if words is None else shlex.join(["resize-pos", *words])
