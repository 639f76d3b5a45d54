"""Sin-cos tables that an earlier transfer computed in rescaled coordinates are known again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos import inspect_checkpoint, resize_checkpoint
from resize_pos.core.axes import Layout
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import SinCos, SinCosMode, SinCosTable
from resize_pos.families.tables import Action
from resize_pos.transforms.sincos import FORMULAS, recognise, regenerate
from tests.planning.test_sincos import CHANNELS, GRID, cells, mae, stored
from tests.support.builders import raw_tensors, write_safetensors

TARGETS = (Grid(13, 9), Grid(5, 21), Grid(3, 4))
RESCALABLE = [name for name, formula in FORMULAS.items() if formula.dimensions > 1]


def rescaled(name: str, target: Grid, dtype: str) -> NDArray[Any]:
    formula, frames = FORMULAS[name], 3 if FORMULAS[name].dimensions == 3 else 1
    layout = Layout.parse("1 (p t h w s) d")
    source = stored(cells(name, GRID), dtype).reshape(1, -1, CHANNELS)
    how = SinCos(SinCosTable(name, formula.dimensions), SinCosMode.RESCALED)
    table = regenerate(source, layout, (0, 0), GRID, target, how, (frames, frames))
    return table.reshape(frames, target.height, target.width, CHANNELS)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("name", RESCALABLE)
def test_the_formula_and_the_places_are_found_by_value(name: str, target: Grid, dtype: str) -> None:
    table = rescaled(name, target, dtype)
    found = recognise(table)
    assert found is not None
    places = (len(table), GRID.height, GRID.width)
    assert found.table == SinCosTable(name, FORMULAS[name].dimensions, 0, places)
    assert f"in the places of {'3×' if len(table) > 1 else ''}7×12" in found.evidence


def test_a_line_that_was_stretched_is_found_by_value() -> None:
    table = cells("whisper", Grid(1, 40)).reshape(1, 40, CHANNELS)
    how = SinCos(SinCosTable("whisper", 1), SinCosMode.RESCALED)
    layout = Layout.parse("1 (p h w s) d")
    longer = regenerate(table, layout, (0, 0), Grid(1, 40), Grid(1, 64), how)
    found = recognise(longer.reshape(1, 1, 64, CHANNELS))
    assert found is not None
    assert found.table == SinCosTable("whisper", 1, 0, (1, 1, 40))


def test_places_that_no_grid_has_are_not_recognised() -> None:
    table = rescaled("mae", Grid(13, 9), "float32")
    assert recognise(table[:, 1:]) is None
    assert recognise(np.ascontiguousarray(table[..., ::-1])) is None


def grid_of(path: Path) -> NDArray[Any]:
    return np.frombuffer(raw_tensors(path)[0]["pos_embed"][1], np.float32).reshape(-1, CHANNELS)


def test_two_transfers_are_one(tmp_path: Path) -> None:
    """The second goes on in the places of the first source, so nothing is lost on the way."""
    source = write_safetensors(tmp_path / "mae.safetensors", mae(Grid(6, 8)))
    first = resize_checkpoint(source, from_="96x128", to="160x112").output
    assert first is not None
    (table,) = inspect_checkpoint(first).located.tables
    assert table.fixed == SinCosTable("mae", 2, 0, (1, 6, 8))
    again = resize_checkpoint(first, to="128x256")
    assert [step.action for step in again.plan.steps] == [Action.REGENERATE]
    direct = resize_checkpoint(source, from_="96x128", to="128x256").output
    assert again.output is not None and direct is not None
    np.testing.assert_array_equal(grid_of(again.output), grid_of(direct))
    back = resize_checkpoint(first, to="96x128", output=tmp_path / "back.safetensors").output
    assert back is not None
    np.testing.assert_allclose(grid_of(back), grid_of(source), rtol=0, atol=1e-7)
    own = resize_checkpoint(
        first, to="128x256", sincos="absolute", output=tmp_path / "abs.safetensors"
    )
    assert own.output is not None
    plain = cells("mae", Grid(8, 16)).reshape(-1, CHANNELS)
    np.testing.assert_allclose(grid_of(own.output)[1:], plain, rtol=0, atol=1e-7)
