"""A table judged by its values alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.tables import known_tables
from benchmarks.ways.damage import DAMAGE, honest
from resize_pos.api import inspect_checkpoint
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import PositionTable
from resize_pos.quality.measures import lone
from resize_pos.quality.table_health import Health, HealthKind, examine
from tests.quality.test_damage import CASES, source_table
from tests.support.builders import flat, smooth, vit, write_safetensors

Table = NDArray[np.float32]


def health(table: Table, grid: tuple[int, int], prefix: int = 1) -> Health:
    family = custom_family("pos", "(p h w s) d")
    info = TensorInfo("pos", table.shape, "F32")
    return examine(PositionTable(info, family, "", family.axes[0], Grid(*grid), prefix), table)


def sincos(height: int, width: int, channels: int) -> Table:
    rates = 1 / 10000 ** (np.arange(channels // 4) / (channels // 4))
    rows, columns = np.mgrid[:height, :width].reshape(2, -1, 1) * rates
    parts = [np.sin(columns), np.cos(columns), np.sin(rows), np.cos(rows)]
    return np.concatenate(parts, axis=1).astype(np.float32)


def normal(*shape: int) -> Table:
    return np.random.default_rng(0).normal(0, 0.02, shape).astype(np.float32)


KINDS: dict[HealthKind, Callable[[], Table]] = {
    HealthKind.ZERO: lambda: np.zeros((9 * 14, 32), np.float32),
    HealthKind.CONSTANT: lambda: np.repeat(normal(1, 32), 9 * 14, axis=0),
    HealthKind.UNTRAINED: lambda: normal(9 * 14, 32),
    HealthKind.SHUFFLED: lambda: np.random.default_rng(1).permutation(
        smooth(9, 14, 32).reshape(-1, 32), axis=0
    ),
    HealthKind.SINCOS: lambda: sincos(9, 14, 32),
    HealthKind.LEARNED: lambda: smooth(9, 14, 32).reshape(-1, 32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_told_from_the_others(kind: HealthKind) -> None:
    assert health(KINDS[kind](), (9, 14), prefix=0).kind is kind


@pytest.mark.parametrize("name", ["digits", "digits, wide", "clothes"])
def test_trained_tables_are_learned_and_bear_no_sign(name: str) -> None:
    table, grid = source_table(name), CASES[name][0]
    found = health(table, grid)
    assert found.kind is HealthKind.LEARNED
    assert found.signs == ()
    assert found.numbers["participation"] < 0.3
    assert found.numbers["lag1_z"] > 15


# What shows without the source. A transpose, a mirror, a crop or a scale cannot: such a table is a
# good table of another image.
ALONE = {
    "one_d": {"1-D", "swapped"},
    "one_d_linear": {"1-D", "swapped"},
    "truncated": {"1-D", "swapped", "truncated"},
    "padded": {"1-D", "swapped", "truncated"},
    "prefix_last": {"shifted"},
    "prefix_as_cell": {"shifted"},
    "off_by_one": {"shifted"},
}


@pytest.mark.parametrize("damage", ALONE)
@pytest.mark.parametrize("name", ["digits", "digits, wide", "clothes"])
def test_a_botched_resize_shows_on_a_lone_table(name: str, damage: str) -> None:
    table, (source, targets) = source_table(name), CASES[name]
    if name == "clothes" and ALONE[damage] == {"shifted"}:
        return  # a rough table hardly shows where its rows end
    for target in targets:
        found = health(DAMAGE[damage](table, 1, source, target), target)
        assert {sign.name for sign in found.signs} & ALONE[damage], (target, found.signs)


@pytest.mark.parametrize("like", ["timm", "hf", "dinov2", "torchvision", "jax", "siglip2"])
@pytest.mark.parametrize("name", CASES)
def test_an_honest_resize_bears_no_sign(name: str, like: str) -> None:
    table, (source, targets) = source_table(name), CASES[name]
    for target in targets:
        assert health(honest(table, 1, source, target, like), target).signs == ()


def test_tiny_tables_are_looked_at_without_complaint() -> None:
    for height, width in ((1, 1), (1, 3), (2, 2), (3, 5)):
        assert health(flat(height, width, 4)[0], (height, width)).signs == ()


def test_inspect_reads_values_only_when_asked(vit_file: Path) -> None:
    assert inspect_checkpoint(vit_file).health == {}
    found = inspect_checkpoint(vit_file, health=True).health
    assert found["pos_embed"].kind is HealthKind.SMALL
    assert "fewer than 64 cells" in found["pos_embed"].detail


def test_no_alarm_on_trained_tables() -> None:
    for known in known_tables():
        found = health(known.rows, known.grid, prefix=known.prefix)
        assert found.kind in (HealthKind.LEARNED, HealthKind.SMALL), known.name
        assert found.signs == (), (known.name, found.signs)


def test_a_fixed_table_names_its_formula(tmp_path: Path) -> None:
    tensors = vit(6, 9, channels=32)
    rows = np.concatenate([np.zeros((1, 32), np.float32), sincos(6, 9, 32)])
    path = write_safetensors(tmp_path / "mae.safetensors", {**tensors, "pos_embed": rows[None]})
    found = inspect_checkpoint(path, health=True, from_grid="6x9").health["pos_embed"]
    assert found.kind is HealthKind.SINCOS
    assert "by the mae formula" in found.detail


@pytest.mark.parametrize("rows", [1, 2, 7, 62])
def test_a_large_table_is_looked_at_in_parts_and_found_the_same(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = smooth(7, 9, 12).reshape(63, 12)
    table[20:24] = table[20]  # repeats across the border between two parts
    table[41] = 0
    whole = health(table, (7, 9), prefix=0)
    assert whole.numbers["repeated_rows"] == 3 / 62
    monkeypatch.setattr(lone, "_BLOCK", rows * 12)
    parts = health(table, (7, 9), prefix=0)
    assert parts.kind is whole.kind
    assert parts.numbers == pytest.approx(whole.numbers, rel=1e-12)


@pytest.mark.parametrize(("window", "read_as"), [((7, 7), "7×7"), ((3, 5), "1×23")])
def test_windows_that_nothing_explains_are_looked_at(
    window: tuple[int, int], read_as: str, tmp_path: Path
) -> None:
    """As in a Swin UNETR for flat images: tables and index buffers, and the patches far above."""
    cells, block = window[0] * window[1], "swinViT.layers1.0.blocks.0.attn."
    name = f"{block}relative_position_bias_table"
    offsets = (2 * window[0] - 1, 2 * window[1] - 1)
    path = write_safetensors(
        tmp_path / "unetr.safetensors",
        {
            "swinViT.patch_embed.proj.weight": normal(24, 3, 2, 2),
            f"{block}qkv.weight": normal(72, 24),
            name: smooth(*offsets, 3).reshape(-1, 3),
            f"{block}relative_position_index": np.zeros((cells, cells), np.int64),
        },
    )
    found = inspect_checkpoint(path, health=True)
    table = next(table for table in found.located.tables if table.name == name)
    assert str(table.grid) == read_as
    assert name in found.health
