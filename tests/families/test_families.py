"""The registry: strict to read, and every entry points at its source."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.families.family import Role, custom_family, load_families
from resize_pos.families.registry import Registry, family_named, known_families, needles

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


def text() -> str:
    return files("resize_pos.families").joinpath("families.toml").read_text(encoding="utf-8")


def test_entries_read_one_by_one_are_the_registry_read_as_a_whole() -> None:
    assert known_families() == load_families(text())


KEYS = sorted({family.key for family in known_families()})


@settings(max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_a_key_matches_holds_one_of_its_needles(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    name = data.draw(st.from_regex(re.compile(key, re.ASCII), fullmatch=True))
    assert any(needle in name for needle in needles(key))


@pytest.mark.parametrize(
    ("key", "expected"),
    {
        r"pos_embed": ("pos_embed",),
        r"a\.b/c": ("a.b/c",),
        r"blocks\.\d+\.attn": ("blocks.",),
        r"colou?rs": ("colo",),
        r"ab*cde": ("cde",),
        r"(left|right)_row": ("_row",),
        r"(left|right)": ("left", "right"),
        r"(left|up(per)?)|down": ("left", "up", "down"),
        r"(left|right)?(up)*": ("",),
        r"((a)(b))(c|[de])": ("",),
        r"((left|right)_)?rows": ("rows",),
        r"[\w.]*weight": ("weight",),
        r"MixerBlock_\d+/x": ("MixerBlock_",),
    }.items(),
)
def test_needles_are_what_a_key_cannot_do_without(key: str, expected: tuple[str, ...]) -> None:
    assert needles(key) == expected


def test_a_name_asks_only_the_families_that_may_know_it() -> None:
    fresh, name = Registry(text()), "model.relative_position_high_index"
    asked = {family.name for family in fresh.candidates(name)}
    assert {family.name for family in known_families() if family.stem(name) is not None} <= asked
    assert len(asked) <= len(fresh._families) < len(known_families()) / 10


NAMES = [
    "model.{}.blocks.{}.attn.relative_position_bias_table",
    "levels.{}.pos_embed",
    "pos_embed{}",
    "stage{}.pos_embed_{}",
    "encoder.patch_embeddings.{}.position_embeddings",
    "blocks.{}.mlp_tokens.fc{}.weight",
    "pos_embed.{}.weight",
    "encoder.pos_conv_embed.conv.parametrizations.weight.original{}",
    "MixerBlock_{}/token_mixing/Dense_{}/kernel",
    "blocks.{}.layers.{}.layers.grid_attention.attn_layer.{}.relative_position_bias_table",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_with_other_numbers_asks_the_families_that_match_it(name: str) -> None:
    """One lookup serves all names that differ in their digits alone; none may miss its family."""
    fresh, known = Registry(text()), known_families()
    for number in [0, 1, 2, 3, 4, 9, 10, 23, 31]:
        numbered = name.replace("{}", str(number))
        matching = [family.name for family in known if family.stem(numbered) is not None]
        asked = [family.name for family in fresh.candidates(numbered)]
        assert [found for found in asked if found in matching] == matching
