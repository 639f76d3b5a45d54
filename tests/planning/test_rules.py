"""Every role has its rule. The functions of a rule are named, and found when they are needed."""

from __future__ import annotations

import inspect

import pytest

from resize_pos.families.family import Role
from resize_pos.planning.rules import RULES


@pytest.mark.parametrize("role", RULES)
def test_the_functions_of_a_rule_exist(role: Role) -> None:
    rule = RULES[role]
    assert next(iter(inspect.signature(rule.plan).parameters)) == "table"
    if role is not Role.KERNEL:  # found through other tables
        assert next(iter(inspect.signature(rule.settle).parameters)) == "match"
    assert rule.settles is not None or role is Role.KERNEL
