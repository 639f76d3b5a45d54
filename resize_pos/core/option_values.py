"""Options as others see them: the words that mean a choice, plain data, and documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from resize_pos.core.options import OPTIONS, Joined, Option, request_options


def request_values(request: object, table: Iterable[Option | Joined] = OPTIONS) -> dict[str, Any]:
    """Return a request as plain data, one key per option; an option that was not given is None."""
    return {option.key: _plain(request, _path(option)) for option in request_options(table)}


def choice_of(option: Option, word: str) -> str:
    """Return the choice that a word means: in any case of letters, or by another name."""
    known = {**dict(option.aliases), **{choice.lower(): choice for choice in option.choices}}
    return known.get(word.lower(), word)


def options_help(options: Iterable[Option]) -> str:
    """Describe options as keyword arguments, one per line."""
    return "\n".join(f"{option.name}: {_help(option)}" for option in options)


def _help(option: Option) -> str:
    words = f"False: {option.help}" if option.on_by_default else option.help
    return f"{words} One of {', '.join(option.choices)}." if option.choices else words


def _path(option: Option) -> str:
    return option.shown or str(option.field_name)


def _plain(request: object, path: str) -> object:
    value = request
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    if hasattr(value, "height") and hasattr(value, "width"):
        depth = getattr(value, "depth", 0)
        return [*([depth] if depth else []), value.height, value.width]
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    return str(value) if isinstance(value, str) else value
