"""Height and width exchanged, by the user or by the model: the values notice, or the run asks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.outside.cases import pasted_flags
from tests.planning.test_by_value import (
    D,
    Tensors,
    convert,
    convert_with,
    likeness,
    refused,
    result,
    rows,
    token,
)
from tests.planning.test_neutral_names import noise, transformer, with_row

FIELD = rows(10, 14).reshape(10, 14, D)
BY_ROWS = with_row(FIELD.reshape(-1, D))[None]
BY_COLUMNS = with_row(np.ascontiguousarray(FIELD.transpose(1, 0, 2)).reshape(-1, D))[None]
MAP_BY_COLUMNS = np.ascontiguousarray(FIELD.transpose(2, 1, 0))[None]


def timm(table: NDArray[np.float32], kernel: tuple[int, ...] = (D, 3, 16, 16)) -> Tensors:
    """Make a ViT with the names of timm."""
    tensors = transformer("pos_embed", table, kernel=False)
    tensors["patch_embed.proj.weight"] = noise(np.empty(kernel))
    tensors["patch_embed.proj.bias"] = np.zeros(kernel[0], np.float32)
    return tensors | {"cls_token": token()}


def flags_after(words: str, hint: str | None) -> list[str]:
    """Return the flags that a hint names after some words."""
    _, found, rest = (hint or "").partition(words)
    assert found, hint
    return pasted_flags(re.split(r"; | if ", rest)[0])


@pytest.mark.parametrize("flags", ["--from 224x160", "--from-grid 14x10"])
@pytest.mark.parametrize("pattern", ["", " --prefix 1 --pattern ^pos_embed$"])
def test_exchanged_sides_are_refused_with_the_right_ones(
    flags: str, pattern: str, tmp_path: Path
) -> None:
    error = refused(tmp_path, timm(BY_ROWS), f"{flags}{pattern} --to 192x288")
    assert "a grid of 14×10 (height × width), but its values vary smoothly over 10×14" in str(error)
    right = pasted_flags((error.hint or "").partition(" instead")[0])
    assert right in (["--from", "160x224"], ["--from-grid", "10x14"])
    _, output = convert_with(tmp_path, timm(BY_ROWS), [*right, "--to", "192x288"])
    assert likeness(result(output, "pos_embed")[0, 1:], 12, 18) > 0.97


def test_who_states_everything_is_believed(tmp_path: Path) -> None:
    error = refused(tmp_path, timm(BY_ROWS), "--from 224x160 --to 288x192")
    anyway = flags_after("if the values mislead, ", error.hint)
    report, _ = convert_with(tmp_path, timm(BY_ROWS), [*anyway, "--to", "288x192"])
    assert str(report.plan.steps[0].table.grid) == "14×10"


def test_untrained_values_contradict_nothing(tmp_path: Path) -> None:
    _, output = convert(tmp_path, timm(noise(BY_ROWS)), "--from 224x160 --to 288x192")
    assert result(output, "pos_embed").shape == (1, 1 + 18 * 12, D)


@pytest.mark.parametrize("table", [BY_COLUMNS, MAP_BY_COLUMNS])
def test_a_grid_that_is_stored_by_columns_is_converted_by_the_printed_command(
    table: NDArray[np.float32], tmp_path: Path
) -> None:
    flags = ["--from", "160x224", "--to", "192x288"]
    error = refused(tmp_path, timm(table), " ".join(flags))
    more = flags_after("one column of cells after the other, ", error.hint)
    _, output = convert_with(tmp_path, timm(table), [*flags, *more])
    new = result(output, "pos_embed")
    field = new[0].transpose(2, 1, 0) if new.ndim == 4 else new[0, 1:].reshape(18, 12, D)
    if new.ndim == 3:
        field = field.transpose(1, 0, 2)
        assert np.array_equal(new[0, 0], token()[0, 0])
    assert field.shape == (12, 18, D)
    assert likeness(np.ascontiguousarray(field).reshape(-1, D), 12, 18) > 0.97


def test_values_show_the_grid_of_columns_without_a_size(tmp_path: Path) -> None:
    flags = ["--pattern", "^pos_embed$", "--axes", "1 (p w h s) d", "--to", "192x288"]
    report, _ = convert_with(tmp_path, timm(BY_COLUMNS), flags)
    assert str(report.plan.steps[0].table.grid) == "10×14"
