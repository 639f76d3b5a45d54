"""The Python API: the same transfer on tensors in memory, on arrays, and for an optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import resize_pos
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.core.errors import ResizePosError, TableError, UsageError
from tests.support.builders import flat, vit


def state_dict(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(array).to(dtype if array.dtype == np.float32 else None)
        for name, array in vit().items()
    }


def test_a_state_dict_equals_the_file(vit_file: Path) -> None:
    report = resize_pos.resize_checkpoint(vit_file, to="96x160")
    assert report.output is not None
    stored = SafetensorsFile.open(report.output)
    resized = resize_pos.resize_state_dict(state_dict(), to="96x160")
    assert list(resized) == list(stored.tensors)
    for name, tensor in resized.items():
        np.testing.assert_array_equal(tensor.numpy(), stored.read(name))


def test_untouched_tensors_are_the_same_objects() -> None:
    before = state_dict()
    after = resize_pos.resize_state_dict(before, to=96)
    assert [name for name in before if after[name] is not before[name]] == ["pos_embed"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    resized = resize_pos.resize_state_dict(state_dict(dtype), to="96x160")["pos_embed"]
    exact = resize_pos.resize_state_dict(
        {k: v.double() if k == "pos_embed" else v for k, v in state_dict(dtype).items()},
        to="96x160",
    )["pos_embed"]
    assert resized.dtype is dtype
    scale = torch.finfo(dtype).eps
    torch.testing.assert_close(resized.double(), exact, rtol=scale, atol=scale / 8)


def test_a_parameter_stays_trainable() -> None:
    tensors = state_dict()
    tensors["pos_embed"] = torch.nn.Parameter(tensors["pos_embed"])
    assert resize_pos.resize_state_dict(tensors, to=96)["pos_embed"].requires_grad


def test_what_is_no_tensor_is_passed_through() -> None:
    mixed: dict[str, Any] = {**state_dict(), "epoch": 3}
    assert resize_pos.resize_state_dict(mixed, to=96)["epoch"] is mixed["epoch"]


def test_a_table_is_resized_in_any_layout() -> None:
    table = flat(3, 5, channels=4, prefix=2)
    plain = resize_pos.resize_table(table, "3x5", (6, 4), prefix=2)
    assert plain.shape == (1, 26, 4)
    np.testing.assert_array_equal(plain[:, :2], table[:, :2])
    grid = table[:, 2:].reshape(1, 3, 5, 4)
    stored = resize_pos.resize_table(grid, "3x5", "6x4", axes="1 h w d")
    np.testing.assert_array_equal(stored.reshape(1, 24, 4), plain[:, 2:])


def test_a_table_that_is_not_as_stated_is_refused_with_the_numbers() -> None:
    with pytest.raises(TableError, match="17 rows where 0"):
        resize_pos.resize_table(flat(4, 4), "4x4", "6x6")
    with pytest.raises(UsageError):
        resize_pos.resize_table(flat(4, 4), "4x4", "6x6", prefix=1, like="nobody")


def test_an_inspection_needs_no_target(vit_file: Path) -> None:
    inspection = resize_pos.inspect_checkpoint(vit_file)
    (table,) = inspection.located.tables
    assert str(table.grid) == "4×4"
    assert inspection.format == "safetensors"


class Model(torch.nn.Module):
    """Only as much of a model as an optimizer sees."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = torch.nn.Parameter(torch.zeros(1, 37, 8))
        self.head = torch.nn.Linear(8, 5)
        self.frozen = torch.nn.Parameter(torch.zeros(1), requires_grad=False)


def test_resized_tables_get_a_learning_rate_of_their_own(vit_file: Path) -> None:
    report = resize_pos.resize_checkpoint(vit_file, to=96)
    model = Model()
    groups = resize_pos.param_groups(model, report, lr=1e-3, position_lr_scale=10)
    optimizer = torch.optim.AdamW(groups)
    others, positions = optimizer.param_groups
    assert [p is model.pos_embed for p in positions["params"]] == [True]
    assert positions["lr"] == pytest.approx(1e-2)
    assert positions["weight_decay"] == 0
    assert len(others["params"]) == 2


def test_a_model_without_the_table_is_refused(vit_file: Path) -> None:
    report = resize_pos.resize_checkpoint(vit_file, to=96)
    with pytest.raises(ResizePosError, match="no trainable parameter called pos_embed"):
        resize_pos.param_groups(torch.nn.Linear(2, 2), report, lr=1e-3)


def test_the_public_names_are_there_and_others_are_not() -> None:
    for name in resize_pos.__all__:
        assert getattr(resize_pos, name) is not None
    with pytest.raises(AttributeError):
        _ = resize_pos.nothing
