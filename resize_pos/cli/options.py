"""Flags that several commands share; those of a conversion come from `core/options.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from resize_pos.containers.io.remote_path import place, redacted
from resize_pos.core.errors import UsageError
from resize_pos.core.option_values import choice_of
from resize_pos.core.options import (
    JOB_OPTION_BY_NAME,
    JOB_OPTIONS,
    OPTION_BY_NAME,
    Kind,
    Option,
    Section,
    request_options,
)
from resize_pos.core.request import Request, job_fields
from resize_pos.quality.measures.catalogue import Limit
from resize_pos.run.job import Job

_Command = TypeVar("_Command", bound=Callable[..., Any])
Decorator = Callable[[_Command], _Command]


def stack(*options: Decorator[_Command]) -> Decorator[_Command]:
    """Apply decorators so that the help lists them in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


if TYPE_CHECKING:
    _BaseChoice = click.Choice[str]
else:
    _BaseChoice = click.Choice  # generic since click 8.2 only


class _Choice(_BaseChoice):
    """One of the words of an option, or another word for it; the help lists only the former."""

    def __init__(self, option: Option) -> None:
        super().__init__(option.choices)
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word that the option's table has."""
        return super().convert(choice_of(self._option, value), param, ctx)


class Count(click.IntRange):
    """A whole number; click calls it a range."""

    name = "whole number"


def _once(ctx: click.Context, param: click.Parameter, given: tuple[Any, ...]) -> Any:
    """Refuse two values for one option: which of them was meant cannot be known."""
    del ctx
    different = list(dict.fromkeys(given))
    if len(different) > 1:
        raise UsageError(
            f"{param.opts[-1]} is given twice: {different[0]} and {different[1]}.",
            hint="pass it once.",
        )
    return different[0] if different else None


# Settings of an option with one value. click would take the last one without a word.
ONCE: Mapping[str, Any] = {"multiple": True, "callback": _once}


def flag_of(option: Option, help: str | None = None) -> Decorator[Any]:
    """Make the flag of one option."""
    settings: dict[str, Any] = {"help": help or option.help, "metavar": option.metavar or None}
    flags = list(option.flags)
    if option.kind is Kind.COUNT:
        settings |= {"type": Count(min=option.least), **ONCE}
    elif option.kind is Kind.TEXTS:
        settings |= {"multiple": True, "callback": _given}
    elif option.kind is Kind.CHOICE:
        settings |= {"type": _Choice(option), **ONCE}
    elif option.kind is Kind.FLAG:
        settings |= {"is_flag": True, "default": False}
    elif option.on_by_default:
        settings |= {"is_flag": True, "flag_value": False, "default": True}
    elif option.kind is Kind.SWITCH:
        flags = [f"{option.long_flag}/--no-{option.long_flag.removeprefix('--')}"]
        settings["default"] = None
    else:
        settings |= ONCE
    return click.option(*flags, option.name, **settings)


def flags_of(*sections: Section, options: Iterable[Option] | None = None) -> Decorator[Any]:
    """Make the flags of whole sections of the table, in the table's order."""
    table = (*request_options(), *JOB_OPTIONS) if options is None else tuple(options)
    return stack(
        *(flag_of(option) for section in sections for option in table if option.section is section)
    )


def _given(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
    del ctx, param
    return texts or None


def _limits(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
    del ctx, param
    return tuple(Limit.parse(text) for text in texts)


class _Place(click.Path):
    """A path, or the URL of an object in a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        del param, ctx
        return place(value)


PLACE = _Place()

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
REPORT_OPTION = click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also write a report (.html, .md, .json); repeatable.",
)
STRICT_OPTION = click.option("--strict", is_flag=True, help="Exit with 3 on a warning, too.")
SOURCE_OPTIONS = flags_of(Section.SOURCE)

# The flags that `resize` and `batch` have in common: every option of the table, and how to print.
CONVERSION_OPTIONS = stack(
    flags_of(*Section),
    REPORT_OPTION,
    click.option(
        "--max",
        "limits",
        multiple=True,
        callback=_limits,
        metavar="MEASURE=LIMIT",
        help="Exit with 3 if a measure exceeds this limit; repeatable.",
    ),
    STRICT_OPTION,
    JSON_OPTION,
    FORMAT_OPTION,
    click.option("-q", "--quiet", is_flag=True, help="Print only the paths of what was written."),
)


def make_job(source: Path, options: Mapping[str, Any], **more: Any) -> Job:
    """Split the options between the job and its request."""
    known = OPTION_BY_NAME.keys() | JOB_OPTION_BY_NAME.keys()
    others = {name: value for name, value in options.items() if name not in known}
    request = Request.make(**for_request(options))
    return Job(source, request, **job_fields(options), **others, **more)


def for_request(options: Mapping[str, Any]) -> Any:
    """Return the options that were given and that belong to the request."""
    return {name: v for name, v in options.items() if name in OPTION_BY_NAME and v is not None}


def command_line(ctx: click.Context) -> str | None:
    """Return the words that were typed, for a report; None if nobody typed any."""
    words = ctx.find_object(list)
    if words is None:
        return None
    import shlex  # only a report needs it

    return shlex.join(["resize-pos", *map(redacted, words)])
