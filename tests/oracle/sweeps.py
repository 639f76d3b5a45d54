"""What the sweeps over whole model zoos share: a plan from shapes and a config, held to shapes."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from resize_pos.configs.model_types import config_models
from resize_pos.configs.read import config_sizes
from resize_pos.core.errors import ResizePosError
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.rules.base import Surroundings

Shapes = Mapping[str, tuple[int, ...]]
Pair = tuple[int, int]

# Initialisation on the meta device takes most of the time, and nobody looks at values here.
_IN_PLACE = ("erfinv_", "uniform_", "normal_", "clamp_", "mul_", "add_", "div_", "fill_", "zero_")


# Words of warnings about a size or a layer that is only assumed: never of a known model.
_DOUBTS = ("was assumed", "were assumed", "outputs, as many as")


@dataclass
class Tally:
    """How a sweep went: models by outcome, and whatever was predicted wrongly."""

    right: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)
    alike: list[str] = field(default_factory=list)  # the same shapes as one that was looked at
    suspects: dict[str, str] = field(default_factory=dict)  # what is falsely taken for a table
    kept: list[str] = field(default_factory=list)  # reference grids: left alone with the reason

    def __str__(self) -> str:
        passed = len(self.right) + len(self.unchanged)
        total = passed + len(self.kept) + self.refused.total() + len(self.wrong)
        lines = [
            f"{passed} of {total} models predicted ({passed / max(total, 1):.1%}): "
            f"{len(self.right)} with tables that change, {len(self.unchanged)} with nothing to do; "
            f"{len(self.alike)} more are like one of these {total}; {len(self.kept)} keep a "
            f"reference grid, {self.refused.total()} are refused, {len(self.wrong)} wrong"
        ]
        lines += [f"  reference grids left alone: {', '.join(self.kept)}"] if self.kept else []
        lines += [f"  refused {n}: {reason}" for reason, n in self.refused.most_common()]
        lines += [f"  SUSPECT {model}: {what}" for model, what in self.suspects.items()]
        lines += [f"  WRONG {model}: {what}" for model, what in self.wrong.items()]
        return "\n".join(lines)

    def record(
        self,
        model: str,
        source: Shapes,
        target: Shapes,
        to: Pair,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Plan from the source's shapes and config, and hold the result against the target's."""
        changed = {n for n in source.keys() | target.keys() if source.get(n) != target.get(n)}
        try:
            plan = plan_for(source, to, config)
        except ResizePosError as error:
            self.refused[generic(error.message)] += 1
            return
        if plan.looks_like:
            self.suspects[model] = plan.looks_like[0].reason
        for note in plan.notes:
            if note.warning and any(word in note.text for word in _DOUBTS):
                self.suspects[model] = note.text
        planned = {step.table.name: step.target_shape for step in plan.changes}
        kept = {step.table.name for step in plan.steps if step.table.role is Role.REFERENCE}
        missed = {n for n in changed | planned.keys() if planned.get(n) != target.get(n)}
        if not missed:
            (self.right if changed else self.unchanged).append(model)
        elif missed <= kept:
            self.kept.append(model)
        else:
            name = min(missed)
            self.wrong[model] = (
                f"{name} {source.get(name)} → {planned.get(name)}, not {target.get(name)}"
            )

    def unexplained(self, reasons: Sequence[str]) -> list[str]:
        """List the refusals that give none of these reasons."""
        return [text for text in self.refused if not any(reason in text for reason in reasons)]


def plan_for(source: Shapes, to: Pair, config: Mapping[str, Any] | None) -> Plan:
    """Plan from names and shapes, and from the config where the model has one in its folder."""
    infos = {name: TensorInfo(name, shape, "F32") for name, shape in source.items()}
    request = Request.make(to=to)
    document = {} if config is None else json.loads(json.dumps(config, default=str))
    documents = {"config.json": document} if document else {}
    around = Surroundings(
        infos, request, configs=config_sizes(documents), models=config_models(documents)
    )
    return make_plan(locate_tables(around), request)


def shapes_of(build: Callable[[], torch.nn.Module]) -> Shapes:
    """Build a model without weights and give the shapes of all that it would store."""
    same: dict[str, Any] = {name: lambda tensor, *_, **__: tensor for name in _IN_PLACE}
    with torch.device("meta"), warnings.catch_warnings(), mock.patch.multiple(torch.Tensor, **same):
        warnings.simplefilter("ignore")
        model = build()
    return {key: tuple(value.shape) for key, value in model.state_dict().items()}


def generic(text: str) -> str:
    """Leave the numbers out, so that alike reasons count together."""
    return re.sub(r"\d+", "N", text)


def whole_patches(size: int, patch: object) -> int:
    """Round a size down to whole patches: 384 px at patch 14 are 378 that the model looks at."""
    return size - size % patch if isinstance(patch, int) and 0 < patch <= size else size
