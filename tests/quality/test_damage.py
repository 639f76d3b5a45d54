"""Planted damage: every known way to botch a resize is caught, and every honest one passes.

Run with `-s` to see the confusion table.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.damage import DAMAGE, honest
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.verdict import Level, worst
from resize_pos.verify.against_source import TableVerification, explain
from tests.support.builders import flat

Table = NDArray[np.float32]
Shape = tuple[int, int]
ROOT = Path(__file__).parents[2]

# source table, its grid, and the grids it is resized to
CASES: dict[str, tuple[Shape, tuple[Shape, ...]]] = {
    "digits": ((14, 14), ((24, 24), (10, 10), (16, 21), (18, 12))),
    "digits, wide": ((9, 16), ((12, 24), (7, 11))),
    "clothes": ((12, 16), ((18, 24), (9, 12), (14, 14))),
    "smooth": ((10, 15), ((16, 24), (7, 11))),
}

# On this rough table, shrunk, antialiased bilinear costs 16 % of the norms, and noise of its own
# size hides among what is rough already: both warn, and say so.
ROUGH = {("clothes", (9, 12), "siglip2"), ("clothes", (9, 12), "noisy")}

# What the verdict has to say; any of the words will do.
NAMES: dict[str, tuple[str, ...]] = {
    "one_d": ("1-D",),
    "one_d_linear": ("1-D",),
    "swapped": ("swapped",),
    "transposed": ("swapped",),
    "mirrored": ("mirrored",),
    "truncated": ("cut off",),
    "padded": ("cut off",),
    "cropped": ("cropped",),
    "tiled": ("tiled", "cropped"),
    "reinitialised": ("re-initialised",),
    "reinitialised_whole": ("re-initialised",),
    "zeros": ("all zero",),
    "constant": ("constant",),
    "halved": ("multiplied by 0.5",),
    "doubled": ("multiplied by 2",),
    "prefix_last": ("prefix rows stand behind",),
    "prefix_as_cell": ("prefix rows were taken for cells",),
    "prefix_dropped": ("prefix or suffix rows changed",),
    "off_by_one": ("shifted 1 cell",),
    "noisy": ("Noise was added",),
    "shuffled": ("shuffled",),
}


@cache
def source_table(name: str) -> Table:
    from safetensors.numpy import load_file

    if name == "smooth":
        smooth: Table = flat(10, 15, 64)[0]
        return smooth
    if name == "clothes":
        path = ROOT / "benchmarks" / "clothes_vit_96x128.safetensors"
    else:
        path = ROOT / "sample_checkpoints" / "digits_vit_224.safetensors"
    table: Table = load_file(path)["pos_embed"][0]
    return honest(table, 1, (14, 14), (9, 16)) if name == "digits, wide" else table


def step(table: Table, source: Shape, target: Shape) -> Step:
    family = custom_family("pos", "(p h w s) d")
    info = TensorInfo("pos", table.shape, "F32")
    position = PositionTable(info, family, "", family.axes[0], Grid(*source), prefix=1)
    shape = (1 + target[0] * target[1], table.shape[1])
    operation = Resample(CONVENTIONS["timm"].resampling)
    return Step(position, Action.RESIZE, Grid(*target), shape, operation, "")


@cache
def explained(name: str, target: Shape, how: str) -> TableVerification:
    table, source = source_table(name), CASES[name][0]
    if how in CONVENTIONS:
        made = honest(table, 1, source, target, how)
    else:
        made = DAMAGE[how](table, 1, source, target)
    return explain(step(table, source, target), table, made)


def words(found: TableVerification) -> str:
    return " | ".join(check.detail for check in found.checks if check.level is not Level.OK)


PAIRS = [(name, target) for name, (_, targets) in CASES.items() for target in targets]


@pytest.mark.parametrize(("name", "target"), PAIRS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_fails_and_is_named(name: str, target: Shape, damage: str) -> None:
    found = explained(name, target, damage)
    expected = Level.WARN if (name, target, damage) in ROUGH else Level.FAIL
    assert worst(found.checks) is expected, words(found)
    assert any(name in words(found) for name in NAMES[damage]), words(found)
    assert found.made_by is None or damage == "prefix_dropped"


@pytest.mark.parametrize(("name", "target"), PAIRS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_convention_at_moderate_scale_is_ok_and_recognised(
    name: str, target: Shape, convention: str
) -> None:
    found = explained(name, target, convention)
    if (name, target, convention) in ROUGH:
        assert worst(found.checks) is Level.WARN
        assert "norms fall by 16.1%: expect to fine-tune; bicubic" in words(found)
        assert "would keep" in words(found)
    else:
        assert worst(found.checks) is Level.OK, words(found)
    assert found.made_by is not None
    made = CONVENTIONS[convention].resampling
    same = convention in found.made_by.names
    # Antialiasing changes nothing for bilinear where both axes grow.
    twin = made.method == found.made_by.resampling.method
    assert same or (twin and found.made_by.error < 1e-6)


def test_nearest_is_recognised_though_it_is_nobody_s_peer() -> None:
    table, source = source_table("digits"), (14, 14)
    from resize_pos.api import resize_table

    made = resize_table(table, source, (20, 17), axes="(p h w s) d", prefix=1, method="nearest")
    found = explain(step(table, source, (20, 17)), table, made)
    assert found.made_by is not None
    assert found.made_by.names == ("timesformer",)
    assert "nearest" in str(found.made_by)


def test_the_confusion_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Every convention ok, every damage fail: over all tables and grids."""
    rows: dict[str, Counter[str]] = {}
    for name, target in PAIRS:
        for how in [*CONVENTIONS, *DAMAGE]:
            level = worst(explained(name, target, how).checks)
            rows.setdefault(how, Counter())[level.value] += 1
    lines = [f"{'':22s} ok  warn  fail"]
    for how, counts in rows.items():
        lines.append(f"{how:22s} {counts['ok']:2d}  {counts['warn']:4d}  {counts['fail']:4d}")
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
    for how, counts in rows.items():
        expected = "ok" if how in CONVENTIONS else "fail"
        warned = sum(how == rough for _, _, rough in ROUGH)
        assert counts[expected] == len(PAIRS) - warned, (how, counts)
        assert counts["warn"] == warned, (how, counts)


@pytest.mark.parametrize("kind", ["zeros", "noise", "constant"])
def test_a_source_without_content_warns_and_never_fails(kind: str) -> None:
    rng = np.random.default_rng(0)
    rows = {
        "zeros": np.zeros((1 + 8 * 12, 48), np.float32),
        "noise": rng.normal(0, 0.02, (1 + 8 * 12, 48)).astype(np.float32),
        "constant": np.ones((1 + 8 * 12, 48), np.float32),
    }[kind]
    for target in ((13, 20), (5, 7)):
        made = honest(rows, 1, (8, 12), target)
        found = explain(step(rows, (8, 12), target), rows, made)
        assert worst(found.checks) is Level.WARN
        assert "nothing to preserve" in words(found)
