"""The known families. Each is parsed from `families.toml` when a tensor name first needs it.

Parsing all of them takes longer than all other work of inspecting a checkpoint. So the text is
split into entries. An entry is parsed only if its key matches a tensor name. The key is compiled
only if the name contains a substring that every match of the key must contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from resize_pos.core.errors import UsageError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.families.family import SAME_DIGIT, Family, key_may_match, load_families

_ENTRY = "[[family]]\n"
_KEY = lazy_regex(r"^key = '([^']*)'$", re.MULTILINE)
_LITERAL = lazy_regex(r"(?:[\w/]|\\\.)+")  # a pattern that matches only itself
_INSIDE = r"(?:[^()\[\]]|\[[^\]]*\])*"  # text that contains no group
_OPTIONAL_GROUP = lazy_regex(rf"\({_INSIDE}\)[?*]")
_GROUP = lazy_regex(rf"\({_INSIDE}\)[?*+]?")
_LOOSE = lazy_regex(r"\[[^\]]*\][?*+]?|\\[dw][?*+]?|(?:\\.|.)[?*]|\.[+]?")
_GAP, _DOT = "\n", "\0"  # occur in no key


def needles(key: str) -> tuple[str, ...]:
    """Return texts of which every match of a key contains one; an empty text excludes nothing."""
    if _LITERAL.fullmatch(key):
        return (key.replace("\\.", "."),)
    without = key
    while (shorter := _OPTIONAL_GROUP.sub(_GAP, without)) != without:
        without = shorter
    outer = without
    while (shorter := _GROUP.sub(_GAP, outer)) != outer:
        outer = shorter
    if "|" in outer:
        return tuple(needle for part in _alternatives(without) for needle in needles(part))
    pieces = _LOOSE.sub(_GAP, outer.replace("\\.", _DOT)).replace(_DOT, ".").split(_GAP)
    best = max(pieces, key=len)
    if best:
        return (best,)
    whole = _GROUP.fullmatch(without)
    return needles(without[1:].rstrip("+")[:-1]) if whole else ("",)


def _alternatives(pattern: str) -> Iterator[str]:
    """Split at the bars outside of groups."""
    depth, start = 0, 0
    for place, letter in enumerate(pattern):
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            yield pattern[start:place]
            start = place + 1
    yield pattern[start:]


class Registry:
    """Families in order of precedence."""

    def __init__(self, text: str) -> None:
        _, *self._entries = text.split(_ENTRY)
        found = (_KEY.search(entry) for entry in self._entries)
        self._keys = [key[1] if key else ".*" for key in found]
        self._needles = [
            tuple(needle.translate(SAME_DIGIT) for needle in needles(key)) for key in self._keys
        ]
        self._families: dict[int, Family] = {}
        self._candidates: dict[str, tuple[int, ...]] = {}

    def candidates(self, name: str) -> Iterator[Family]:
        """Return the families whose key may match a tensor's name; all the others cannot."""
        # Names of blocks and layers differ only in their numbers: one lookup serves them all.
        alike = name.translate(SAME_DIGIT)
        found = self._candidates.get(alike)
        if found is None:
            found = tuple(
                number
                for number, wanted in enumerate(self._needles)
                if any(needle in alike for needle in wanted)
                and key_may_match(self._keys[number], alike)
            )
            self._candidates[alike] = found
        return map(self._family, found)

    def __iter__(self) -> Iterator[Family]:
        return map(self._family, range(len(self._entries)))

    def _family(self, number: int) -> Family:
        family = self._families.get(number)
        if family is None:
            (family,) = load_families(_ENTRY + self._entries[number])
            self._families[number] = family
        return family


@cache
def registry() -> Registry:
    """Return the families that come with the package."""
    return Registry(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))


def known_families() -> tuple[Family, ...]:
    """Read the whole registry, in order of precedence."""
    return tuple(registry())


def family_named(name: str) -> Family:
    """Look a family up, for `--family`."""
    for family in registry():
        if family.name == name:
            return family
    raise UsageError(
        f"no family is called {name!r}.", hint="`resize-pos families` lists every known one."
    )
