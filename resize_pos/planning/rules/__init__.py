"""One rule per role: how a table's geometry is determined, and what a request changes in it."""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.families.family import Role
from resize_pos.planning.rules.base import Rule

# The rules are applied in this order: a relative table may need an absolute one, and a derived
# buffer may need any of them. A module is imported when a table of its role is found.
RULES: Mapping[Role, Rule] = {
    Role.ABSOLUTE: Rule("absolute.settle_table", "target.plan_step"),
    Role.MIXING: Rule("mixing.settle_table", "mixing.plan_step"),
    Role.REFERENCE: Rule("absolute.settle_reference", "target.plan_reference"),
    Role.INDEX: Rule("index.settle_table", "index.plan_step"),
    Role.SEQUENCE: Rule("sequence.settle_table", "sequence.plan_step"),
    Role.RELATIVE: Rule("relative.settle_table", "window_target.plan_step"),
    Role.DISTANCE: Rule("relative.settle_table", "window_target.plan_step"),
    Role.DERIVED: Rule("derived.settle_table", "derived.plan_step"),
    # No such table is matched by its name: it is found through other tables.
    Role.KERNEL: Rule(None, "patch_kernel.plan_step"),
}
