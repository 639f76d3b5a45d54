"""Prefix rows that moved as their tokens did were trained, whatever the optimizer is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.tables import known_tables
from benchmarks.ways.damage import honest
from resize_pos.api import verify_checkpoint
from resize_pos.quality.checks import Level
from resize_pos.report.verify_report import Verified
from tests.support.builders import write_safetensors

TARGET = (14, 17)
Tensors = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def source() -> Tensors:
    """A model with the table of a trained network, a class token and the norm of its width."""
    known = next(table for table in known_tables(None) if table.name == "fashion_plain_9x13")
    random = np.random.default_rng(1)
    width = known.rows.shape[1]
    return {
        "pos_embed": known.rows[None],
        "cls_token": random.normal(0, 0.1, (1, 1, width)).astype(np.float32),
        "patch_embed.proj.weight": random.normal(0, 0.1, (width, 3, 4, 4)).astype(np.float32),
        "norm.weight": np.ones(width, np.float32),
    }


def resized(source: Tensors, grid_moved: float = 0.02) -> Tensors:
    """Resize the table, and move its grid a little."""
    made = honest(source["pos_embed"][0], 1, (9, 13), TARGET)[None]
    size = grid_moved * float(made[:, 1:].std())
    made[:, 1:] += np.random.default_rng(2).uniform(-size, size, made[:, 1:].shape)
    return {**source, "pos_embed": made.astype(np.float32)}


def verify(folder: Path, source: Tensors, output: Tensors, *, trained: bool = True) -> Verified:
    return verify_checkpoint(
        write_safetensors(folder / "output.safetensors", output),
        write_safetensors(folder / "source.safetensors", source),
        from_grid="9x13",
        to_grid="14x17",
        trained=trained,
    )


def step(source: Tensors, length: float) -> NDArray[np.float32]:
    """Return a movement that is so many times as long as the class row."""
    row = source["pos_embed"][0, 0]
    moved = np.random.default_rng(3).normal(size=row.shape)
    made: NDArray[np.float32] = moved * length * np.linalg.norm(row) / np.linalg.norm(moved)
    return made.astype(np.float32)


@pytest.mark.parametrize("length", [0.3, 1.5, 4.0])
def test_a_row_that_moved_with_its_token_was_trained(
    length: float, source: Tensors, tmp_path: Path
) -> None:
    moved = step(source, length)
    output = resized(source)
    output["pos_embed"][0, 0] += moved
    alone = verify(tmp_path, source, output)
    output["cls_token"] = source["cls_token"] + np.float32(0.98) * moved
    together = verify(tmp_path, source, output)
    assert together.verdict is Level.OK, str(together)
    assert together.against is not None
    (check,) = (c for c in together.against.tables[0].checks if c.name == "prefix")
    assert "as the tokens did" in check.detail
    assert (alone.verdict is Level.OK) == (length < 0.7)


@pytest.mark.parametrize("factor", [0.0, 0.5, -1.0])
def test_a_row_that_was_damaged_and_then_trained_is_found(
    factor: float, source: Tensors, tmp_path: Path
) -> None:
    moved = step(source, 0.1)
    output = resized(source)
    output["pos_embed"][0, 0] = factor * source["pos_embed"][0, 0] + moved
    output["cls_token"] = source["cls_token"] + moved
    found = verify(tmp_path, source, output)
    assert found.against is not None
    (check,) = (c for c in found.against.tables[0].checks if c.name == "prefix")
    assert "as the tokens did" not in check.detail


def test_training_below_the_precision_is_accepted(source: Tensors, tmp_path: Path) -> None:
    output = resized(source, grid_moved=0.001)
    output["pos_embed"][0, 0] += step(source, 0.004)
    half = {name: array.astype(ml_dtypes.bfloat16) for name, array in output.items()}
    assert verify(tmp_path, source, half).verdict is Level.OK
    same = {name: array.astype(ml_dtypes.bfloat16) for name, array in source.items()}
    assert verify(tmp_path, same, half, trained=False).verdict is not Level.OK
