"""What the user asks for, parsed and checked once; used by the command line and by the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from resize_pos.core.conventions import ALIASES, CONVENTIONS, DEFAULT, Method, Resampling
from resize_pos.core.errors import UsageError
from resize_pos.core.geometry import LARGEST, Grid, Size
from resize_pos.core.operations import Lengthen
from resize_pos.core.option_values import choice_of
from resize_pos.core.options import JOB_OPTION_BY_NAME, OPTION_BY_NAME, Kind, Option
from resize_pos.core.printable import quoted
from resize_pos.core.request_fields import GridLike, RequestFields, RequestOptions, SizeLike

__all__ = [
    "GridLike",
    "Request",
    "SizeLike",
    "as_lengths",
    "choose_resampling",
    "job_fields",
    "read_option",
]


class Request(RequestFields):
    """A transfer: where to, what is stated about the source, and how to resample."""

    __slots__ = ()

    @property
    def to_image(self) -> bool:
        """Whether a target for the image tables is given."""
        return self.to_size is not None or self.to_grid is not None

    @classmethod
    def make(cls, **options: Unpack[RequestOptions]) -> Request:
        """Read loosely typed options; refuse what is malformed or contradicts itself."""
        given: dict[str, Any] = {name: v for name, v in options.items() if v is not None}
        for one, other in _EXCLUSIVE:
            _exclusive((one, given.get(one)), (other, given.get(other)))
        if "fill" in given and "length_method" not in given:
            raise UsageError("--fill needs --length-method keep.")
        values = {name: read_option(_known(name), value) for name, value in given.items()}
        _require_pairs(values.get("pattern"), values.get("axes"))
        fields: dict[str, Any] = {}
        for name, value in values.items():
            option = OPTION_BY_NAME[name]
            if option.field_name is not None:
                fields[option.field_name] = value
        fields["resampling"] = choose_resampling(
            values.get("method"), values.get("antialias"), values.get("like")
        )
        if "length_method" in values:
            fields["lengthen"] = Lengthen.parse(values["length_method"], values.get("fill"))
        return cls(**fields)


def job_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options that say how a conversion is run; return the fields of its `Job`."""
    return {
        str(option.field_name): read_option(option, options[name])
        for name, option in JOB_OPTION_BY_NAME.items()
        if options.get(name) is not None
    }


# What may have a depth.
_VOLUMES = frozenset({"to", "to_grid", "from_", "from_grid", "to_window", "from_window"})
_EXCLUSIVE = (
    ("to", "to_grid"),
    ("from_", "from_grid"),
    ("family", "pattern"),
    *(("to", side) for side in ("to_time", "to_mel")),
    *(("to_grid", side) for side in ("to_time", "to_mel")),
    ("to_length", "to_time"),
)


def read_option(option: Option, value: Any) -> Any:
    """Check one value and return what `Request` or `Job` holds of it."""
    flag, kind = option.long_flag, option.kind
    if kind in (Kind.SIZE, Kind.GRID):
        sides = (Size if kind is Kind.SIZE else Grid).parse(value, flag)
        if sides.depth and option.name not in _VOLUMES:
            raise UsageError(
                f"{flag} {quoted(value)} has three sides; expected one, or HEIGHTxWIDTH."
            )
        return sides
    if kind is Kind.COUNT:
        return _read_count(flag, option.least, value)
    if kind in (Kind.SWITCH, Kind.FLAG):
        if not isinstance(value, bool):
            raise UsageError(f"{option.name} is {quoted(value)}; expected True or False.")
        return value
    if kind is Kind.TEXTS:
        texts = tuple(value) if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{flag} is {quoted(value)}; expected text.")
        return texts or None
    if not isinstance(value, str):
        raise UsageError(f"{flag} is {quoted(value)}; expected text.")
    value = choice_of(option, value)
    if option.choices and value not in option.choices:
        raise UsageError(
            f"{flag} {quoted(value)} is not known.",
            hint=f"use one of {', '.join(option.choices)}.",
        )
    return value if option.parse is None else option.parse(value)


def _require_pairs(pattern: tuple[str, ...] | None, axes: tuple[str, ...] | None) -> None:
    """Refuse layouts that cannot be matched to the names: one is for all, several are in order."""
    wanted, given = len(pattern or ()), len(axes or ())
    if given > 1 and given != wanted:
        raise UsageError(
            f"--axes is given {given} times and --pattern {wanted} times.",
            hint="give one --axes for all patterns, or one for each, in the same order.",
        )


def _read_count(flag: str, least: int, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{flag} is {quoted(value)}; expected a whole number.")
    if not least <= value <= LARGEST:
        raise UsageError(f"{flag} {quoted(value)} must be between {least} and {LARGEST}.")
    return value


def _known(name: str) -> Option:
    try:
        return OPTION_BY_NAME[name]
    except KeyError:
        raise TypeError(f"{name!r} is not an option of resize-pos") from None


def as_lengths(request: Request) -> Request:
    """Read `--from` and `--to` as lengths, for a checkpoint whose tables are all 1-D."""
    if request.to_grid is not None or request.from_grid is not None:
        raise UsageError(
            "every table of this file is 1-D (text): it has a length, not a grid.",
            hint="pass --to N, or --to-length N.",
        )
    for flag, size in (("--to", request.to_size), ("--from", request.from_size)):
        if size is not None and (size.height != size.width or size.depth):
            raise UsageError(
                f"{flag} {size}: every table of this file is 1-D (text): it has a length, not a "
                "height and a width.",
                hint=f"write one number, for example {flag} {size.width}.",
            )
    _exclusive(("to", request.to_size), ("to_length", request.to_length))
    _exclusive(("from_", request.from_size), ("from_length", request.from_length))
    to_length = request.to_size.width if request.to_size else request.to_length
    from_length = request.from_size.width if request.from_size else request.from_length
    return replace(
        request, to_size=None, from_size=None, to_length=to_length, from_length=from_length
    )


def choose_resampling(
    method: str | None = None, antialias: bool | None = None, like: str | None = None
) -> Resampling:
    """Combine `--method`, `--antialias` and `--like`; the default is bicubic with antialias."""
    if like is not None:
        like = ALIASES.get(like, like)
        if method is not None or antialias is not None:
            raise UsageError(
                "--like fixes the method and the antialiasing; pass it without options for these.",
            )
        if like not in CONVENTIONS:
            raise UsageError(
                f"--like {quoted(like)} is not a known convention.",
                hint=f"known ones: {', '.join(CONVENTIONS)}.",
            )
        return CONVENTIONS[like].resampling
    try:
        chosen = Method(method) if method is not None else DEFAULT.resampling.method
    except ValueError:
        raise UsageError(
            f"--method {quoted(method)} is not known.", hint=f"use one of {', '.join(Method)}."
        ) from None
    if chosen is Method.NEAREST:
        if antialias:
            raise UsageError("--antialias has no meaning with --method nearest.")
        return Resampling(chosen, antialias=False)
    return Resampling(chosen, antialias=True if antialias is None else antialias)


def _exclusive(*options: tuple[str, object]) -> None:
    given = [OPTION_BY_NAME[name].long_flag for name, value in options if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; pass one of them.")
