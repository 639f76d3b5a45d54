"""What every function of the Python API shares: checked arguments, and errors that speak Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.core.option_values import options_help
from resize_pos.core.options import Option
from resize_pos.core.printable import quoted

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OR_NONE = " | None"


def public(*options: Option) -> Callable[[_Function], _Function]:
    """Make a function of the API: list its options, check what it is given, translate errors.

    An argument is checked by its annotation, if that is one of `_EXPECTED`. Options have a table of
    their own, by which `Request` checks them.
    """

    def make(function: _Function) -> _Function:
        code = function.__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        names = {*own, *(option.name for option in options)}
        rest = code.co_varnames[len(own)] if code.co_flags & _TAKES_MORE else None

        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            for name in keywords.keys() - names:
                raise TypeError(_unexpected(function.__name__, name, names))
            if type(keywords.get("device")).__name__ == "device":  # torch's own
                keywords["device"] = str(keywords["device"])
            positional = own[: code.co_argcount]
            named = {**dict(zip(positional, arguments, strict=False)), **keywords}
            more = [(rest, value) for value in arguments[len(positional) :]] if rest else []
            try:
                for name, value in (*named.items(), *more):
                    _check(name, value, function.__annotations__.get(name, ""))
                return function(*arguments, **keywords)
            except ResizePosError as error:
                _speak_python(error)
                raise

        if options and call.__doc__ is not None:  # python -OO has none
            from resize_pos.core.python_words import in_python

            lines = in_python(options_help(options)).replace("\n", "\n        ")
            call.__doc__ += f"\n    Options:\n        {lines}\n    "
        return cast("_Function", call)

    return make


_TAKES_MORE = 4  # CO_VARARGS


def paths(name: str, given: object) -> list[str]:
    """Read one path or several."""
    several: list[Any] = (
        list(given) if isinstance(given, Iterable) and not _is_text(given) else [given]
    )
    for value in several:
        _check(name, value, "PathLike")
    return list(map(os.fspath, several))


def _is_text(value: object) -> bool:
    return isinstance(value, str | bytes)


def _is_path(value: object) -> bool:
    return (
        isinstance(value, str | os.PathLike)
        and isinstance(text := os.fspath(value), str)
        and (text != "")
    )


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


# The annotation of an argument → what it accepts, and what that is called.
_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "PathLike": (_is_path, "a path"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "str": (lambda value: isinstance(value, str), "text"),
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "float": (_is_number, "a number"),
}


def _check(name: str, value: object, annotation: str) -> None:
    expected = _EXPECTED.get(annotation.removesuffix(_OR_NONE))
    if expected is None or (value is None and annotation.endswith(_OR_NONE)):
        return
    accepts, words = expected
    if not accepts(value):
        in_memory = name == "path" and isinstance(value, Mapping)
        raise UsageError(
            f"{name} is {shown(value)}; expected {words}.",
            hint="for tensors in memory, use resize_state_dict(state_dict, to=…)."
            if in_memory
            else None,
        )


def shown(value: object) -> str:
    """Show a wrong argument: a short value as it is, anything else by its type."""
    text = "" if hasattr(value, "__dict__") else quoted(value)
    return text if 0 < len(text) <= _LONGEST else f"of type {type(value).__name__}"


_LONGEST = 60


def _unexpected(function: str, name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches  # only a mistyped name needs it

    from resize_pos.core.other_words import OTHER_WORDS

    known = sorted(names)
    meant = [OTHER_WORDS[name]] if OTHER_WORDS.get(name) in known else []
    near = meant or get_close_matches(name, known, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"{function}() got an unexpected keyword argument {name!r}.{guess}"


def _speak_python(error: ResizePosError) -> None:
    """Name keyword arguments instead of flags, and add the hint to the traceback."""
    from resize_pos.core.python_words import in_python

    error.message = in_python(error.message)
    error.args = (error.message,)
    if error.hint is not None:
        error.hint = in_python(error.hint)
        error.add_note(f"hint: {error.hint}")
