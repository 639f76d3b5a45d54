"""Planted damage: every known way to botch a resize is caught, and every honest one passes.

Run with `-s` to see the confusion table.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import known_tables
from benchmarks.ways import proper, unseen
from benchmarks.ways.damage import DAMAGE, honest, resized_by
from benchmarks.ways.damage_more import honest_results, is_damage, plant
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.measures import proper as kernels
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
    "noisy": ("Noise was added", "It is noisy"),
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
    assert worst(found.checks) is Level.FAIL, words(found)
    assert any(name in words(found) for name in NAMES[damage]), words(found)
    assert found.made_by is None or damage == "prefix_dropped"


@pytest.mark.parametrize(("name", "target"), PAIRS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_convention_at_moderate_scale_is_ok_and_recognised(
    name: str, target: Shape, convention: str
) -> None:
    found = explained(name, target, convention)
    assert worst(found.checks) is Level.OK, words(found)
    assert found.made_by is not None
    made = CONVENTIONS[convention].resampling
    same = convention in found.made_by.names
    # Antialiasing changes nothing for bilinear where both axes grow.
    twin = made.method == found.made_by.resampling.method
    assert same or (twin and found.made_by.error < 1e-6)


def test_what_is_said_of_norms_does_not_contradict_itself() -> None:
    """A share inside of the honest range is no reason; then the values behind it are."""
    reasons: Counter[str] = Counter()
    for (name, target), kind in product(PAIRS[::3], DAMAGE):
        for check in explained(name, target, kind).checks:
            if check.name != "norms" or check.level is Level.OK:
                continue
            said = re.match(r"norms (fall|grow) by (.+?)%, .* give (\d+)% to (\d+)%", check.detail)
            if said is None:
                assert re.search("but only .* of an honest resize|times$", check.detail)
                reasons["values"] += 1
                continue
            share = 100 + float(said[2]) * (-1 if said[1] == "fall" else 1)
            assert not int(said[3]) + 1 < share < int(said[4]) - 1, check.detail
            reasons["range"] += 1
    assert min(reasons["values"], reasons["range"]) > 0


def test_a_rough_table_loses_norms_and_hears_what_would_keep_them() -> None:
    found = explained("clothes", (9, 12), "siglip2")
    norms = next(check for check in found.checks if check.name == "norms")
    assert norms.level is Level.OK
    assert "norms fall by 16.1%, as averaging does to a rough table; bicubic" in norms.detail
    assert "would keep" in norms.detail
    assert norms.detail.endswith(", --restore-norms all of them")


# Kinds that name themselves; `benchmarks/verdict.py` tries all 97 on more tables.
MORE_NAMES = {
    "permute_forgotten_first": "permute forgotten",
    "permute_forgotten_last": "permute forgotten",
    "permute_forgotten_both": "permute forgotten",
    "channels_permuted": "channels are in another order",
    "channels_reversed": "channels are in reverse order",
    "channels_rolled": "channels are rolled by 1",
    "channels_half_negated": "24 of 48 channels have the opposite sign",
    "negated": "multiplied by -1",
    "channels_half_zero": "24 of 48 channels are all zero",
    "another_checkpoint": "another checkpoint's table",
    "last_tenth_zero": "are all zero, the rest is honest",
    "last_quarter_random": "are random numbers, the rest is honest",
    "every_second_row_zero": "of the grid are all zero",
    "prefix_row_too_many": "prefix row too many",
    "rolled_flat_three": "every cell stands 3 too late",
    "rotated_180": "turned by 180°",
    "rotated_90": "turned by 90°",
    "mean_removed": "without its mean vector",
    "target_swapped": "height and width are swapped",
    "column_order": "swapped",
    "rows_only": "one direction is lost",
    "quantised_two_bits": "different values",
    "top_half": "the top half of the source",
}


@pytest.mark.parametrize("like", ["timm", "hf", "jax"])
@pytest.mark.parametrize("target", [(16, 21), (10, 9)])
@pytest.mark.parametrize("how", MORE_NAMES)
def test_further_damage_fails_by_name(how: str, target: Shape, like: str) -> None:
    table = source_table("digits")
    with resized_by(partial(honest, like=like)):
        made = plant(how, table, 1, (14, 14), target)
    assert made is not None
    found = explain(step(table, (14, 14), target), table, made)
    assert worst(found.checks) is Level.FAIL, words(found)
    assert MORE_NAMES[how] in words(found), words(found)


def test_what_gives_an_honest_result_is_no_damage() -> None:
    """Along the width alone, a 1-D resampling of each row is bilinear."""
    table = source_table("clothes")
    made = honest(table, 1, (12, 16), (12, 24), "dpt")
    fair = honest_results(table, 1, (12, 16), (12, 24))
    assert not is_damage(made, fair)
    assert is_damage(made * np.float32(1.1), fair)


PROPER = {
    "torch area": "area averaging",
    "PIL lanczos": "Lanczos",
    "PIL hamming": "Hamming",
    "TensorFlow bicubic": "TensorFlow",
    "scipy zoom cubic": "cubic spline, aligned corners",
    "FITPACK spline": "not-a-knot",
    "bicubic antialias, norm restored": "bicubic, antialias, norms restored",
    "two hops bicubic": "two resizes, by way of",
}


@pytest.mark.parametrize("how", PROPER)
def test_other_honest_kernels_pass_by_name(how: str) -> None:
    table, target = source_table("clothes"), (9, 11)
    cells = proper.OTHERS[how](table[1:].reshape(12, 16, -1), target).reshape(99, -1)
    made = np.concatenate([table[:1], cells])
    found = explain(step(table, (12, 16), target), table, made)
    origin = found.checks[0]
    assert worst(found.checks) is Level.OK, words(found)
    assert PROPER[how] in origin.detail, origin.detail


def test_a_table_trained_after_an_honest_resize_passes() -> None:
    table, target = source_table("clothes"), (14, 11)
    made = honest(table, 1, (12, 16), target)
    cells = made[1:].reshape(*target, -1)
    moved = flat(14, 11, cells.shape[-1])[0, 1:].reshape(cells.shape)
    trained = cells + 0.08 * float(cells.std()) / float(moved.std()) * moved
    whole = np.concatenate([made[:1], trained.reshape(-1, cells.shape[-1])]).astype(np.float32)
    found = explain(step(table, (12, 16), target), table, whole)
    assert worst(found.checks) is Level.OK, words(found)
    assert "an honest resize followed by training" in found.checks[0].detail


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
        assert counts[expected] == len(PAIRS), (how, counts)


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


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("target", [(13, 20), (5, 7)])
def test_damage_to_random_numbers_fails(how: str, target: Shape) -> None:
    """A table may have learned less than the random numbers that it began with."""
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.5, (1 + 8 * 12, 48)).astype(np.float32)
    found = explain(step(rows, (8, 12), target), rows, DAMAGE[how](rows, 1, (8, 12), target))
    assert worst(found.checks) is Level.FAIL, found.checks


def test_random_numbers_that_were_trained_are_not_called_damaged() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.5, (1 + 8 * 12, 48)).astype(np.float32)
    for target in ((13, 20), (5, 7)):
        made = honest(rows, 1, (8, 12), target)
        made += 0.01 * rng.uniform(-1, 1, made.shape).astype(np.float32)
        found = explain(step(rows, (8, 12), target), rows, made)
        assert worst(found.checks) is Level.WARN, found.checks
        (check,) = (check for check in found.checks if check.level is Level.WARN)
        assert "looks untrained" in check.detail


@pytest.mark.parametrize("target", [(12, 48), (24, 96), (16, 48), (8, 16)])
@pytest.mark.parametrize("like", ["timm", "hf", "torchvision", "jax", "siglip2"])
def test_a_wide_table_whose_waves_repeat_is_not_warned_about(target: Shape, like: str) -> None:
    """A learned 16×64 table with waves of 20 cells is smooth where they end: it has no windows."""
    rng = np.random.default_rng(4)
    down, across = np.mgrid[:16, :64, :1][:2]
    rate, slope = np.pi / 10 * rng.choice([0.5, 1, 2], 64), rng.uniform(-3, 3, 64)
    cells = np.sin(rate * across + slope * down / 16 + rng.uniform(0, 6, 64))
    cells += 0.1 * rng.normal(size=cells.shape)
    rows = np.concatenate([rng.normal(size=(1, 64)), cells.reshape(-1, 64)]).astype(np.float32)
    made = honest(rows, 1, (16, 64), target, like)
    found = explain(step(rows, (16, 64), target), rows, made)
    assert worst(found.checks) is Level.OK, found.checks
    assert found.health is not None and found.health.signs == ()


SMALL_GRIDS = [((6, 5), (4, 3)), ((5, 4), (3, 3)), ((4, 4), (2, 3))]


def small_table(grid: Shape) -> Table:
    """A rough learned table of a few cells, cut from the one of the digits."""
    cells = source_table("digits")[1:].reshape(14, 14, -1)[::2, ::2][: grid[0], : grid[1]]
    return np.concatenate([source_table("digits")[:1], cells.reshape(-1, cells.shape[-1])])


@pytest.mark.parametrize(("source", "target"), SMALL_GRIDS)
@pytest.mark.parametrize("how", [*unseen.HONEST, *proper.OTHERS])
def test_honest_kernels_pass_on_a_few_cells(how: str, source: Shape, target: Shape) -> None:
    table = small_table(source)
    cells = {**unseen.HONEST, **proper.OTHERS}[how](table[1:].reshape(*source, -1), target)
    made = np.concatenate([table[:1], cells.reshape(-1, cells.shape[-1])])
    found = explain(step(table, source, target), table, made)
    assert worst(found.checks) is Level.OK, words(found)


# A crop of a few cells can be exactly what nearest gives in two steps; it is a crop all the same.
@pytest.mark.parametrize(("source", "target"), SMALL_GRIDS)
@pytest.mark.parametrize(
    "how",
    [
        "reinitialised",
        "random_same_size",
        "cut_top_left",
        "channels_reversed",
        "standardised",
        "noise_twice",
        "last_half_zero",
        "quadrupled",
        "another_checkpoint",
    ],
)
def test_damage_is_seen_on_a_few_cells(how: str, source: Shape, target: Shape) -> None:
    table = small_table(source)
    made = plant(how, table, 1, source, target)
    assert made is not None
    found = explain(step(table, source, target), table, made)
    assert worst(found.checks) is not Level.OK, found.checks


def test_prefix_rows_may_be_trained_together_with_the_grid() -> None:
    table, source, target = source_table("clothes"), (12, 16), (14, 11)
    made = honest(table, 1, source, target)
    moved = flat(14, 11, made.shape[-1])[0]
    trained = (made + 0.08 * made.std() / moved.std() * moved).astype(np.float32)
    found = explain(step(table, source, target), table, trained)
    assert worst(found.checks) is Level.OK, words(found)
    assert "as training does" in " ".join(check.detail for check in found.checks)
    made[:1] = trained[:1]  # an untrained grid with other prefix rows was not trained
    assert worst(explain(step(table, source, target), table, made).checks) is not Level.OK
    trained[:1] = 0
    assert worst(explain(step(table, source, target), table, trained).checks) is Level.FAIL


def test_a_kernel_that_meets_another_in_some_columns_is_not_patched() -> None:
    """From 42 to 13 columns with aligned corners, some columns are those of `nearest`."""
    known = next(table for table in known_tables() if table.name == "pix2tex_12x42")
    target = (12, 13)
    cells = proper.OTHERS["scipy zoom quintic"](known.rows[1:].reshape(12, 42, -1), target)
    made = np.concatenate([known.rows[:1], cells.reshape(156, -1)])
    found = explain(step_for(known, target), known.rows, made)
    assert found.diagnosis is None and worst(found.checks) is Level.OK
    patched = honest(known.rows, 1, known.grid, target, "torchvision")
    patched[1:5] = 0
    zeroed = explain(step_for(known, target), known.rows, patched)
    assert zeroed.diagnosis is not None and "first 4 cells" in zeroed.diagnosis.detail


@pytest.mark.parametrize("target", [(18, 59), (7, 23)])
def test_zeros_are_seen_where_the_source_is_almost_zero(target: Shape) -> None:
    """The last rows of this table were hardly trained: zeros in their place differ by 1 %."""
    known = next(table for table in known_tables() if table.name == "pix2tex_12x42")
    made = plant("last_quarter_zero", known.rows, 1, known.grid, target)
    assert made is not None
    found = explain(step_for(known, target), known.rows, made)
    assert found.diagnosis is not None and "are all zero" in found.diagnosis.detail
    assert worst(found.checks) is Level.FAIL


def test_box_averaging_is_pillow_s_at_every_size() -> None:
    """Centres on the border of two cells go where PIL's own rounding puts them."""
    for source in range(2, 48):
        for target in range(1, source):
            wanted = [
                np.asarray(Image.fromarray(row[None]).resize((target, 1), Image.Resampling.BOX))[0]
                for row in np.eye(source, dtype=np.float32)
            ]
            made = kernels.matrix(kernels.BOX, source, target)
            assert np.allclose(made, np.stack(wanted, axis=1), atol=1e-6), (source, target)
