"""`verify --trained`: the other tensors may have changed, but only as training changes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.ways.damage import DAMAGE, honest
from resize_pos.api import verify_checkpoint
from resize_pos.core.errors import UsageError
from resize_pos.quality.checks import Check, Level
from tests.cli.test_cli import Outcome, run
from tests.support.builders import vit, write_safetensors

__all__ = ["run"]  # the fixture is used by its name
SOURCE, TARGET = (9, 14), (12, 21)
RATE = 1e-3
Tensors = dict[str, NDArray[Any]]


@pytest.fixture
def source(tmp_path: Path) -> Tensors:
    """A model with an index and a counter, stored as `source.safetensors`."""
    tensors: Tensors = vit(*SOURCE, patch=8, channels=48)
    tensors["window_index"] = np.arange(12, dtype=np.int64)
    tensors["norm.num_batches_tracked"] = np.array(7, dtype=np.int64)
    write_safetensors(tmp_path / "source.safetensors", tensors, {"format": "pt"})
    return tensors


def trained(source: Tensors) -> Tensors:
    """Resize the table, and move every value a little, as a few steps of Adam do."""
    random = np.random.default_rng(5)
    made = {**source, "pos_embed": honest(source["pos_embed"][0], 1, SOURCE, TARGET)[None]}
    for name, array in made.items():
        if array.dtype.kind == "f":
            made[name] = array + RATE * random.uniform(-1, 1, array.shape).astype(array.dtype)
    made["norm.num_batches_tracked"] = np.array(40, dtype=np.int64)
    return made


def checks_of(folder: Path, tensors: Tensors) -> dict[Level, list[str]]:
    """Verify an output as trained, and return what each level says of the other tensors."""
    output = write_safetensors(folder / "output.safetensors", tensors)
    found = verify_checkpoint(
        output,
        folder / "source.safetensors",
        from_grid="9x14",
        to_grid="12x21",
        trained=True,
    )
    assert found.against is not None
    said: tuple[Check, ...] = found.against.untouched.checks
    return {level: [c.detail for c in said if c.level is level] for level in Level}


def verify(run: Any, folder: Path, tensors: Tensors, *words: str) -> Outcome:
    output = write_safetensors(folder / "output.safetensors", tensors)
    grids = ("--from-grid", "9x14", "--to-grid", "12x21")
    source = str(folder / "source.safetensors")
    done: Outcome = run("verify", str(output), "--against", source, *grids, *words)
    return done


def test_a_trained_model_is_sound_if_the_user_says_so(
    source: Tensors, tmp_path: Path, run: Any
) -> None:
    made = trained(source)
    changed = sum(not np.array_equal(made[name], source[name]) for name in source) - 1
    done = verify(run, tmp_path, made, "--trained")
    assert done.code == 0, done.out
    assert f"{changed} other tensors were trained on" in done.out
    silent = verify(run, tmp_path, made)
    assert silent.code == 3
    assert "--trained" in silent.out


@pytest.mark.parametrize("name", DAMAGE)
def test_a_botched_table_fails_all_the_same(
    name: str, source: Tensors, tmp_path: Path, run: Any
) -> None:
    made = trained(source)
    made["pos_embed"] = DAMAGE[name](source["pos_embed"][0], 1, SOURCE, TARGET)[None]
    done = verify(run, tmp_path, made, "--trained")
    assert done.code == 3, done.out


def test_another_precision_is_compared_by_value(source: Tensors, tmp_path: Path) -> None:
    made = trained(source)
    for name, array in made.items():
        if array.dtype.kind == "f":
            made[name] = array.astype(ml_dtypes.bfloat16)
    said = checks_of(tmp_path, made)
    assert not said[Level.WARN] + said[Level.FAIL]


def test_a_new_head_is_a_warning(source: Tensors, tmp_path: Path) -> None:
    made = trained(source)
    made["head.bias"] = np.ones(37, np.float32)
    made["head.weight"] = np.ones((37, 48), np.float32)
    del made["norm.bias"]
    said = checks_of(tmp_path, made)
    assert not said[Level.FAIL]
    assert [words.split(":")[0] for words in said[Level.WARN]] == [
        "norm.bias",
        "head.weight",
        "head.bias",
    ]


def test_weights_of_another_model_are_a_warning(source: Tensors, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    made = trained(source)
    stem = made["patch_embed.proj.weight"]
    made["patch_embed.proj.weight"] = random.normal(0, stem.std(), stem.shape).astype(np.float32)
    (warning,) = checks_of(tmp_path, made)[Level.WARN]
    assert "patch_embed.proj.weight: nothing of the source's is left" in warning


def test_values_that_are_not_finite_fail(source: Tensors, tmp_path: Path) -> None:
    made = trained(source)
    made["norm.bias"][3] = np.nan
    (failure,) = checks_of(tmp_path, made)[Level.FAIL]
    assert "norm.bias: NaN or infinite" in failure


def test_training_changes_no_index(source: Tensors, tmp_path: Path) -> None:
    made = trained(source)
    made["window_index"] = made["window_index"][::-1].copy()
    (failure,) = checks_of(tmp_path, made)[Level.FAIL]
    assert "window_index: whole numbers" in failure


def test_a_missing_table_fails(source: Tensors, tmp_path: Path) -> None:
    second = {**source, "decoder.pos_embed": source["pos_embed"]}
    write_safetensors(tmp_path / "source.safetensors", second, {"format": "pt"})
    (failure,) = checks_of(tmp_path, trained(source))[Level.FAIL]
    assert "decoder.pos_embed: missing from the output" in failure


def test_the_state_of_an_optimizer_is_not_compared(source: Tensors, tmp_path: Path) -> None:
    import torch

    weights = {name: torch.from_numpy(array) for name, array in trained(source).items()}
    parameters = [torch.nn.Parameter(w) for w in weights.values() if w.is_floating_point()]
    optimizer = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    whole = {**weights, "optimizer": optimizer.state_dict()}
    torch.save(whole, tmp_path / "output.pth")
    found = verify_checkpoint(
        tmp_path / "output.pth",
        tmp_path / "source.safetensors",
        from_grid="9x14",
        to_grid="12x21",
        trained=True,
    )
    assert found.verdict is Level.OK, str(found)


def test_a_source_is_needed(tmp_path: Path, source: Tensors) -> None:
    output = tmp_path / "source.safetensors"
    with pytest.raises(UsageError, match="no source is stated"):
        verify_checkpoint(output, model="timm:vit_tiny_patch16_224", trained=True)


def test_a_table_of_another_precision_is_explained_all_the_same(
    run: Any, tmp_path: Path, source: Tensors
) -> None:
    made = {**source, "pos_embed": honest(source["pos_embed"][0], 1, SOURCE, TARGET)[None]}
    half = {n: a.astype(np.float16) if a.dtype.kind == "f" else a for n, a in made.items()}
    done = verify(run, tmp_path, half)
    assert done.code == 3
    words = " ".join(done.out.split())
    assert "pos_embed is stored as F16, the source's table as F32; with --trained" in words
    assert "made by timm" in words
    assert verify(run, tmp_path, half, "--trained").code == 0
