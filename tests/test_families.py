"""The registry: strict to read, and every entry points at its source."""

from __future__ import annotations

import pytest

from resize_pos.errors import ResizePosError, UsageError
from resize_pos.families import Role, custom_family, family_named, known_families, load_families

GOOD = """
[[family]]
name = "x"
title = "X"
role = "absolute"
key = 'pos'
axes = ["1 (p h w s) d"]
prefix = [0, "cls_token + reg_token"]
convention = "timm"
source = "x.py:1"
"""
SPOILED = {
    "unknown key": (GOOD + "colour = 1\n", "unknown keys ['colour']"),
    "missing key": (GOOD.replace('source = "x.py:1"\n', ""), "lacks ['source']"),
    "unknown role": (GOOD.replace('"absolute"', '"abs"'), "'abs' is not a valid Role"),
    "unknown convention": (GOOD.replace('"timm"', '"tim"'), "no convention 'tim'"),
    "bad pattern": (GOOD.replace("'pos'", "'po('"), "missing )"),
    "bad axes": (GOOD.replace("(p h w s)", "(p s)"), "needs `h`"),
    "bad owner": (GOOD.replace("[0, ", "[-1, "), "-1 is neither"),
    "defined twice": (GOOD + GOOD, "'x' is defined twice"),
    "stray table": (GOOD + "[other]\n", "expected only [[family]]"),
}


def test_a_good_entry_is_read() -> None:
    (family,) = load_families(GOOD)
    assert family.stem("a.b.pos") == "a.b."
    assert family.stem("a/pos") == "a/"
    assert family.stem("xpos") is None
    assert [owner.siblings for owner in family.prefix] == [(), ("cls_token", "reg_token")]


@pytest.mark.parametrize("case", SPOILED)
def test_a_spoiled_entry_is_refused_with_the_reason(case: str) -> None:
    text, reason = SPOILED[case]
    with pytest.raises(ResizePosError) as caught:
        load_families(text)
    assert reason in caught.value.message


def test_every_family_has_a_title_and_a_source_with_a_place() -> None:
    for family in known_families():
        assert family.title
        placed = any(mark in family.source for mark in ".:")
        assert placed or family.name.endswith("-unknown"), family.name


def test_resized_families_name_their_own_convention() -> None:
    for family in known_families():
        if family.role in (Role.ABSOLUTE, Role.RELATIVE, Role.DISTANCE) and not family.derived:
            assert family.convention is not None, family.name


def test_an_unknown_family_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        family_named("nobody")


def test_a_malformed_pattern_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        custom_family("(", "1 (p h w s) d")
