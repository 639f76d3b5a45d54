"""Change values inside JSON text and leave every other character as it is.

A config that was parsed and dumped again comes back with other spaces, other number formats and
other escapes; its owner's diff would show all of that. So values are replaced where they stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from json.decoder import JSONDecoder
from typing import Any

from resize_pos.core.fast_dataclass import dataclass

KeyPath = tuple[str, ...]  # the keys that lead to a value
Document = Mapping[str, Any]  # a parsed JSON object

_decoder = JSONDecoder()
_MOST_DIGITS = 300
_SPACE = " \t\n\r"


@dataclass(frozen=True, slots=True)
class _Member:
    """One `key: value` of an object, or one element of an array (then `key` is its index)."""

    key: str | int
    begin: int  # where the key begins; for an element, the value
    value: int
    end: int


def parse(text: str | bytes) -> Any:
    """Read JSON text; a ValueError says what is wrong with it."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(text: str) -> int:
    """Refuse numbers that neither `float` nor `str` can convert."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"it holds a number with {len(text)} digits")
    return int(text)


def replace_value(text: str, path: KeyPath, value: Any) -> str:
    """Set the value at a path; keys that are missing are added at the end of their object."""
    begin = _skip(text, 0)
    for depth, key in enumerate(path):
        members = [m for m in _members(text, begin) if m.key == key]
        if not members:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _insert(text, begin, key, value)
        begin = members[-1].value  # of a repeated key, every reader takes the last
    return _replace(text, begin, value)


def _replace(text: str, begin: int, value: Any) -> str:
    old, end = _decoder.raw_decode(text, begin)
    parts: Sequence[tuple[str | int, Any]] | None = None
    if isinstance(old, list) and isinstance(value, list) and len(old) == len(value):
        parts = list(enumerate(value))
    elif isinstance(old, dict) and isinstance(value, dict) and list(old) == list(value):
        parts = list(value.items())
    if parts is None:
        return text[:begin] + _dump(value) + text[end:]
    # From the last to the first: what stands before keeps its place.
    places = {member.key: member.value for member in _members(text, begin)}
    current = dict(enumerate(old)) if isinstance(old, list) else old
    for key, part in reversed(parts):
        if type(current[key]) is not type(part) or current[key] != part:
            text = _replace(text, places[key], part)
    return text


def _insert(text: str, begin: int, key: str, value: Any) -> str:
    if text[begin] != "{":
        raise ValueError(f"{key!r} has no object to stand in")
    members = list(_members(text, begin))
    if not members:
        return f"{text[: begin + 1]}{_dump(key)}: {_dump(value)}{text[begin + 1 :]}"
    last = members[-1]
    before = last.begin
    while text[before - 1] in _SPACE:
        before -= 1
    gap = text[before : last.begin]
    _, key_end = _decoder.raw_decode(text, last.begin)
    colon = text[key_end : last.value]
    if "\n" not in gap:
        gap = " " if " " in colon else ""
    return f"{text[: last.end]},{gap}{_dump(key)}{colon}{_dump(value)}{text[last.end :]}"


def _members(text: str, begin: int) -> Iterator[_Member]:
    """Walk one object or array; the text is known to be JSON."""
    opening = text[begin]
    if opening not in "{[":
        return
    position, index = _skip(text, begin + 1), 0
    while text[position] not in "}]":
        key: str | int = index
        start = value = position
        if opening == "{":
            key, position = _decoder.raw_decode(text, position)
            value = _skip(text, _skip(text, position) + 1)
        _, end = _decoder.raw_decode(text, value)
        yield _Member(key, start, value, end)
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
        index += 1


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
