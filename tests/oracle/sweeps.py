"""What the sweeps over whole model zoos share: a plan from shapes alone, held against shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from resize_pos.errors import ResizePosError
from resize_pos.families import Role
from resize_pos.locate import locate_tables
from resize_pos.plan import Plan, make_plan
from resize_pos.request import Request
from resize_pos.rules.base import Surroundings
from resize_pos.tensors import TensorInfo

Shapes = Mapping[str, tuple[int, ...]]
Pair = tuple[int, int]


@dataclass
class Tally:
    """How a sweep went: models by outcome, and whatever was predicted wrongly."""

    right: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    pending: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)
    alike: list[str] = field(default_factory=list)  # the same shapes as one that was looked at
    kept: list[str] = field(default_factory=list)  # reference grids: left alone with the reason

    def __str__(self) -> str:
        passed = len(self.right) + len(self.unchanged)
        missed = self.refused.total() + self.pending.total() + len(self.wrong)
        total = passed + len(self.kept) + missed
        lines = [
            f"{passed} of {total} models predicted ({passed / max(total, 1):.1%}): "
            f"{len(self.right)} with tables that change, {len(self.unchanged)} with nothing to do, "
            f"{len(self.alike)} more like one of them"
        ]
        lines += [f"  reference grids left alone: {', '.join(self.kept)}"] if self.kept else []
        lines += [f"  refused {n}: {reason}" for reason, n in self.refused.most_common()]
        lines += [f"  pending {n}: {reason}" for reason, n in self.pending.most_common()]
        lines += [f"  WRONG {model}: {what}" for model, what in self.wrong.items()]
        return "\n".join(lines)

    def record(
        self,
        model: str,
        source: Shapes,
        target: Shapes,
        to: Pair,
        pending: str,
        stated: Pair | None = None,
    ) -> None:
        """Plan from the source's shapes and hold the result against the target's."""
        changed = {n for n in source.keys() | target.keys() if source.get(n) != target.get(n)}
        try:
            plan = plan_for(source, to, stated)
        except ResizePosError as error:
            if changed and all(re.search(pending, name) for name in changed):
                self.pending[generic(min(changed))] += 1
            else:
                self.refused[generic(error.message)] += 1
            return
        planned = {step.table.name: step.target_shape for step in plan.changes}
        kept = {step.table.name for step in plan.steps if step.table.role is Role.REFERENCE}
        missed = {n for n in changed | planned.keys() if planned.get(n) != target.get(n)}
        if not missed:
            (self.right if changed else self.unchanged).append(model)
        elif missed <= kept:
            self.kept.append(model)
        elif all(re.search(pending, name) for name in missed):
            self.pending[generic(min(missed))] += 1
        else:
            name = min(name for name in missed if not re.search(pending, name))
            self.wrong[model] = (
                f"{name} {source.get(name)} → {planned.get(name)}, not {target.get(name)}"
            )


def plan_for(source: Shapes, to: Pair, stated: Pair | None) -> Plan:
    """Plan from names and shapes alone."""
    infos = {name: TensorInfo(name, shape, "F32") for name, shape in source.items()}
    request = Request.make(to=to, from_=stated)
    return make_plan(locate_tables(Surroundings(infos, request)), request)


def generic(text: str) -> str:
    """Leave the numbers out, so that alike reasons count together."""
    return re.sub(r"\d+", "N", text)
