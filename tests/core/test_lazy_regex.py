"""Expressions that are compiled on first use do what compiled ones do."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import resize_pos
from resize_pos.core.lazy_regex import lazy_regex

PATTERN, TEXT = r"(?P<stem>[a-z]+)_(\d+)", "blocks_12 and Blocks_3"


@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
def test_they_do_what_compiled_ones_do(flags: int) -> None:
    lazy, compiled = lazy_regex(PATTERN, flags), re.compile(PATTERN, flags)
    for _ in range(2):  # the first use compiles it
        assert lazy.findall(TEXT) == compiled.findall(TEXT)
        assert lazy.sub("x", TEXT) == compiled.sub("x", TEXT)
        found = lazy.search(TEXT)
        assert found is not None
        assert found["stem"] == "blocks"
    assert (lazy.pattern, lazy.groups, lazy.flags) == (PATTERN, 2, compiled.flags)


def test_only_the_first_use_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = re.compile

    def counting(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return original(pattern, flags)

    monkeypatch.setattr(re, "compile", counting)
    lazy = lazy_regex(r"a+b")
    assert compiled == []
    assert lazy.search("caab")
    assert lazy.search("b") is None
    assert compiled == ["a+b"]


def test_every_expression_of_the_package_is_one() -> None:
    """A mistake in a pattern would otherwise be seen by the first user who needs it."""
    kind = type(lazy_regex(""))
    seen = 0
    for module in pkgutil.walk_packages(resize_pos.__path__, "resize_pos."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:  # needs a library that is not installed here
            continue
        for value in vars(loaded).values():
            if isinstance(value, kind):
                assert re.compile(value.pattern, value.flags)
                seen += 1
    assert seen > 50
