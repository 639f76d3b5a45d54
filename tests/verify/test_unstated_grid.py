"""`verify` of outputs whose rows do not tell the grid: too many, too few, or in another order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.ways.damage import honest
from resize_pos.api import verify_checkpoint
from resize_pos.core.errors import GeometryError
from resize_pos.quality.checks import Level
from resize_pos.report.verify_report import Verified
from tests.quality.test_damage import source_table
from tests.support.builders import vit, write_safetensors

Table = NDArray[np.float32]
SOURCE, TARGET = (9, 16), (12, 20)


@pytest.fixture(scope="module")
def tensors() -> dict[str, NDArray[Any]]:
    return {**vit(*SOURCE, channels=48), "pos_embed": source_table("digits, wide")[None]}


def verify(
    folder: Path, tensors: dict[str, NDArray[Any]], made: Table, to_grid: str | None = None
) -> Verified:
    source = write_safetensors(folder / "source.safetensors", tensors)
    output = write_safetensors(folder / "output.safetensors", {**tensors, "pos_embed": made[None]})
    return verify_checkpoint(output, source, from_grid="9x16", to_grid=to_grid)


def said(found: Verified) -> str:
    assert found.against is not None
    (table,) = found.against.tables
    return " | ".join(check.detail for check in table.checks if check.level is Level.FAIL)


def _zeros(made: Table, count: int) -> Table:
    return np.concatenate([made, np.zeros((count, made.shape[1]), np.float32)])


# What was done to an honest result, and what has to be said of it.
ROW_COUNTS: dict[str, tuple[Callable[[Table], Table], str]] = {
    "class row twice": (lambda m: np.concatenate([m[:1], m]), "2 rows before the grid, not 1"),
    "zeros first": (
        lambda m: np.concatenate([m[:3] * 0, m]),
        "4 rows before the grid, not 1",
    ),
    "padded": (lambda m: _zeros(m, 23), "23 rows (all zero) behind the grid, not 0"),
    "no class row": (lambda m: m[1:], "the prefix rows are gone"),
}


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("how", ROW_COUNTS)
def test_rows_too_many_or_too_few_are_counted(
    how: str, stated: bool, tensors: dict[str, NDArray[Any]], tmp_path: Path
) -> None:
    change, words = ROW_COUNTS[how]
    made = change(honest(tensors["pos_embed"][0], 1, SOURCE, TARGET, "hf"))
    found = verify(tmp_path, tensors, made, "12x20" if stated else None)
    assert found.verdict is Level.FAIL
    assert words in said(found), said(found)
    assert "(bicubic" in said(found)


def test_missing_cells_are_counted(tensors: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    made = honest(tensors["pos_embed"][0], 1, SOURCE, TARGET)[:-7]
    found = verify(tmp_path, tensors, made, to_grid="12x20")
    assert "the last 7 cells are missing" in said(found)


def test_rows_of_another_model_are_not_explained(
    tensors: dict[str, NDArray[Any]], tmp_path: Path
) -> None:
    noise = np.random.default_rng(1).normal(size=(243, 48)).astype(np.float32)
    found = verify(tmp_path, tensors, noise, to_grid="12x20")
    assert said(found).endswith("not F32 [1, 241, 48] for 12×20")


def test_damage_that_hides_the_grid_fails(tensors: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    made = honest(tensors["pos_embed"][0], 1, SOURCE, (18, 31), "hf")
    made[1:] = made[1:].T.reshape(made[1:].shape)
    found = verify(tmp_path, tensors, made)
    assert found.verdict is Level.FAIL
    assert "rows × channels were read as channels × rows after the resize" in said(found)
    assert found.against is not None
    (note,) = (check for check in found.against.configs if check.name == "geometry")
    assert "no flag states how its 559 rows are read; it fails with 18×31 and" in note.detail


def test_an_honest_table_is_not_accepted_without_its_grid(
    tensors: dict[str, NDArray[Any]], tmp_path: Path
) -> None:
    made = honest(tensors["pos_embed"][0], 1, SOURCE, (18, 32))
    with pytest.raises(GeometryError) as caught:
        verify(tmp_path, tensors, made)
    assert caught.value.hint is not None
    assert 'to_grid="18x32"' in caught.value.hint
    assert verify(tmp_path, tensors, made, to_grid="18x32").verdict is Level.OK


def test_a_trained_table_is_not_accepted_without_its_grid(
    tensors: dict[str, NDArray[Any]], tmp_path: Path
) -> None:
    made = honest(tensors["pos_embed"][0], 1, SOURCE, (18, 32))
    random = np.random.default_rng(2)
    made[1:] += 0.1 * made[1:].std() * random.uniform(-1, 1, made[1:].shape).astype(np.float32)
    assert verify(tmp_path, tensors, made, to_grid="18x32").verdict is Level.OK
    with pytest.raises(GeometryError):
        verify(tmp_path, tensors, made)
