"""One table for both axes of the image: never read as a grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.outside.cases import pasted_flags
from tests.planning.test_by_value import D, convert, convert_with, refused, result, rows
from tests.planning.test_neutral_names import leave, noise, transformer

NAMES = ["pos_embed", "pos", "axis_pos", "foo.weight", "emb.weight"]


@pytest.mark.parametrize("told", ["", " --from SIDE"])
@pytest.mark.parametrize("side", [14, 16, 36])
@pytest.mark.parametrize("name", NAMES)
def test_a_line_is_converted_by_the_printed_command(
    name: str, side: int, told: str, tmp_path: Path
) -> None:
    line = rows(1, side).reshape(side, D)
    tensors = transformer(name, line if name.endswith("weight") else line[None])
    size, new = 16 * side, side + 4
    flags = f"--to {16 * new}{told}".replace("SIDE", str(size))
    error = refused(tmp_path, tensors, flags)
    assert f"one table for both axes of a square image of {side}×{side} cells" in error.message
    pasted = pasted_flags((error.hint or "").replace("SIZE", str(size)))
    _, output = convert_with(tmp_path, tensors, [*flags.split(), *pasted])
    found = result(output, name).reshape(-1, D)
    assert found.shape == (new, D)
    places = (np.arange(new) + 0.5) / new * side - 0.5
    wanted = np.stack([np.interp(places, np.arange(side), line[:, d]) for d in range(D)], axis=1)
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.97
    if name != "pos_embed":  # a name of timm
        report, _ = convert_with(tmp_path, tensors, [*flags.split(), *leave(error.hint)])
        assert not report.plan.changes


def test_a_small_grid_is_no_line(tmp_path: Path) -> None:
    tensors = transformer("pos_embed", rows(6, 6)[None])
    report, _ = convert(tmp_path, tensors, "--to 128x192")
    assert str(report.plan.changes[0].target) == "8×12"


@pytest.mark.parametrize("name", ["foo.weight", "level_embed.weight", "type.weight"])
def test_a_few_rows_without_a_line_are_no_suspects(name: str, tmp_path: Path) -> None:
    report, _ = convert(tmp_path, transformer(name, noise(np.empty((14, D)))), "--to 288")
    assert not report.plan.changes
