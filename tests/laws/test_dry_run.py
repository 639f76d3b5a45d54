"""A dry run ends as the real run does: the same exit code, the same plan, the same message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos import inspect_checkpoint, resize_checkpoint
from resize_pos.core.errors import ResizePosError
from resize_pos.core.tensors import TensorInfo, numpy_dtype
from resize_pos.planning.plan import Plan
from tests.planning.test_plan import CASES, read_case
from tests.support.builders import flat, vit, write_safetensors

# Values say nothing about the geometry, as for the header that a golden plan is made from.
NOISE = np.random.default_rng(5)


def values(info: TensorInfo) -> NDArray[Any]:
    """Make a tensor; an integer one counts its positions, as `position_ids` does."""
    dtype = numpy_dtype(info.dtype)
    if dtype.kind == "i":
        return np.arange(info.elements).astype(dtype).reshape(info.shape)
    return NOISE.normal(size=info.shape).astype(dtype)


def outcome(source: Path, output: Path, *, dry_run: bool, **options: Any) -> tuple[int, Any]:
    """Run, and give the exit code with the plan or the message."""
    try:
        report = resize_checkpoint(source, output=output, dry_run=dry_run, **options)
    except ResizePosError as error:
        assert not output.exists()
        return error.exit_code, error.message
    assert output.exists() != dry_run
    return report.exit_code(), report.plan


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_every_golden_case_ends_alike_with_and_without_dry_run(path: Path, tmp_path: Path) -> None:
    case, infos = read_case(path)
    tensors = {name: values(info) for name, info in infos.items()}
    source, output = tmp_path / "source.safetensors", tmp_path / "output.safetensors"
    write_safetensors(source, tensors)
    planned = outcome(source, output, dry_run=True, **case["request"])
    done = outcome(source, output, dry_run=False, **case["request"])
    assert planned == done
    assert isinstance(planned[1], Plan) == ("plan" in case)


def test_a_text_table_beside_the_config_of_an_image_model(tmp_path: Path) -> None:
    """The check of the output reads the same configs as the plan (ALIGN: images by convolution)."""
    rows = NOISE.normal(size=(64, 6)).astype(np.float32)
    words = np.zeros((10, 6), np.float32)
    table = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": rows,
    }
    source, output = tmp_path / "source.safetensors", tmp_path / "output.safetensors"
    write_safetensors(source, table)
    (tmp_path / "config.json").write_text(json.dumps({"image_size": 224, "model_type": "align"}))
    options = {"to": 96, "to_length": 96, "length_method": "linear"}
    planned = outcome(source, output, dry_run=True, **options)
    assert planned[0] == 0
    assert outcome(source, output, dry_run=False, **options) == planned


@pytest.mark.parametrize("to", ["256x512", "512x512"])
def test_values_that_contradict_the_only_square(to: str, tmp_path: Path) -> None:
    """1024 rows that are 16×64 by their values are refused, also where 32×32 is the target."""
    tensors = {**vit(channels=24), "pos_embed": flat(16, 64, channels=24)}
    source, output = tmp_path / "source.safetensors", tmp_path / "output.safetensors"
    write_safetensors(source, tensors)
    planned = outcome(source, output, dry_run=True, to=to)
    assert planned[0] == 1 and "vary smoothly over 16×64 instead" in planned[1]
    assert outcome(source, output, dry_run=False, to=to) == planned
    (unsettled,) = inspect_checkpoint(source).located.unsettled
    assert "vary smoothly over 16×64 instead" in unsettled.error.message
    stated = {"from_grid": "16x64", "to": "256x512"}
    assert outcome(source, output, dry_run=True, **stated)[0] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"])
def test_tables_that_are_not_finite(dtype: str, bad: float, tmp_path: Path) -> None:
    table = flat(4, 6).astype(numpy_dtype(dtype))
    table[0, 7, 3] = bad
    if np.isfinite(table).all():
        pytest.skip(f"{dtype} has no such value")
    source, output = tmp_path / "source.safetensors", tmp_path / "output.safetensors"
    write_safetensors(source, {**vit(4, 6), "pos_embed": table})
    options = {"from_": "64x96", "to": "96x64"}
    planned = outcome(source, output, dry_run=True, **options)
    assert planned == outcome(source, output, dry_run=False, **options)
    assert planned[0] == 1 and "1 values that are NaN or Inf, the first at [0, 7, 3]" in planned[1]


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"])
def test_the_largest_finite_values_are_planned(dtype: str, tmp_path: Path) -> None:
    table = flat(4, 6).astype(numpy_dtype(dtype))
    table[...] = ml_dtypes.finfo(table.dtype).max
    source = write_safetensors(tmp_path / "source.safetensors", {**vit(4, 6), "pos_embed": table})
    planned = outcome(source, tmp_path / "o", dry_run=True, from_="64x96", to="96x64")
    assert planned[0] == 0


def test_a_buffer_that_its_formula_does_not_give(tmp_path: Path) -> None:
    case, infos = read_case(next(path for path in CASES if path.stem == "videoprism_text"))
    tensors = {name: values(info) for name, info in infos.items()}
    (buffer,) = (name for name, array in tensors.items() if array.dtype.kind == "i")
    tensors[buffer] = tensors[buffer] + 1
    source, output = tmp_path / "source.safetensors", tmp_path / "output.safetensors"
    write_safetensors(source, tensors)
    planned = outcome(source, output, dry_run=True, **case["request"])
    assert planned[0] == 1 and buffer in planned[1]
    assert outcome(source, output, dry_run=False, **case["request"]) == planned
