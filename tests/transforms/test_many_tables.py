"""Thousands of small tables: done together to the same bits, and no table looks at all others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos import resize_checkpoint
from resize_pos.core.errors import TableError
from resize_pos.core.request import Request
from resize_pos.families.family import Family
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.rules import relative
from resize_pos.planning.rules.base import Surroundings
from resize_pos.report.groups import grouped
from resize_pos.report.page import section
from resize_pos.run.compute import MOST_MEASURED
from resize_pos.transforms.execute import transform, transform_all
from tests.support.builders import Tensors, flat, infos, write_safetensors

RNG = np.random.default_rng(0)


def swin(blocks: int) -> Tensors:
    """Four stages with window 7, and as many heads as published ones have in proportion."""
    tensors = {"patch_embed.proj.weight": np.zeros((8, 3, 4, 4), np.float32)}
    for stage in range(4):
        for block in range(blocks):
            stem = f"layers.{stage}.blocks.{block}.attn"
            table = RNG.normal(size=(169, 2 << stage)).astype(np.float32)
            tensors[f"{stem}.relative_position_bias_table"] = table
    return tensors


def several_vits(copies: int) -> Tensors:
    """The same model several times, such as a student with many teachers."""
    tensors: dict[str, Any] = {}
    for copy in range(copies):
        tensors[f"m{copy}.patch_embed.proj.weight"] = np.zeros((8, 3, 16, 16), np.float32)
        tensors[f"m{copy}.cls_token"] = np.zeros((1, 1, 8), np.float32)
        tensors[f"m{copy}.pos_embed"] = flat(6, 8, 8, prefix=1, seed=copy)
    return tensors


CASES: dict[str, tuple[Tensors, dict[str, Any]]] = {
    "relative": (swin(3), {"to": "384x512", "to_window": "12x16"}),
    "absolute": (several_vits(9), {"to": "144x160", "from_": "96x128"}),
    "both": ({**swin(2), **several_vits(5)}, {"to": "144x160", "from_": "96x128", "to_window": 9}),
    "few": (several_vits(2), {"to": "144x160", "from_": "96x128"}),
}


def plan_for(tensors: Tensors, options: dict[str, Any]) -> Plan:
    request = Request.make(**options)
    return make_plan(locate_tables(Surroundings(infos(tensors), request)), request)


@pytest.mark.parametrize("case", CASES)
def test_together_they_become_what_each_becomes_alone(case: str) -> None:
    tensors, options = CASES[case]
    changes = plan_for(tensors, options).changes
    assert changes
    new = transform_all(changes, tensors)
    assert list(new) and set(new) == {step.table.name for step in changes}
    for step in changes:
        alone = transform(step, tensors[step.table.name])
        assert alone.shape == step.target_shape
        assert np.ascontiguousarray(new[step.table.name]).tobytes() == alone.tobytes()


def test_a_table_that_fails_is_named_with_its_own_numbers() -> None:
    tensors = {n: a.astype(np.float16) for n, a in several_vits(6).items()}
    spoiled = tensors["m3.pos_embed"]
    spoiled[:, 1:] = np.where(np.arange(48)[:, None] % 2, 65504, -65504)
    changes = plan_for(tensors, CASES["absolute"][1]).changes
    with pytest.raises(TableError) as together:
        transform_all(changes, tensors)
    (step,) = [step for step in changes if step.table.name == "m3.pos_embed"]
    with pytest.raises(TableError) as alone:
        transform(step, spoiled)
    assert together.value.message == alone.value.message


@pytest.mark.parametrize("where", ["settling", "matching"])
def test_the_work_grows_with_the_number_of_tables_not_with_its_square(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    owner, name = {"settling": (relative, "read_window"), "matching": (Family, "objection")}[where]
    real: Any = getattr(owner, name)

    def counted(*words: Any) -> Any:
        calls[where] += 1
        return real(*words)

    monkeypatch.setattr(owner, name, counted)
    counts = []
    for blocks in (10, 40):
        calls.clear()
        plan_for(swin(blocks), CASES["relative"][1])
        counts.append(calls[where])
    assert counts[1] <= 4.5 * counts[0]


def test_of_very_many_alike_some_are_measured_and_all_are_resized(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "swin.safetensors", swin(12))
    report = resize_checkpoint(path, to="384x512", to_window="12x16")
    (group,) = grouped(report.tables)
    assert len(group.tables) == 48
    assert all(table.step.target_shape[0] == 23 * 31 for table in group.tables)
    assert sum(bool(table.measures) for table in group.tables) == MOST_MEASURED < 48
    assert group.sample == "32 of 48"
    assert ("measured", "32 of 48 alike") in section(group).facts
