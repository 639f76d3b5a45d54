"""A square of cells, or a token's row and a rectangle: every k² = 1 + (k − 1)·(k + 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.errors import GeometryError
from resize_pos.run.job import Job, run
from tests.outside.cases import request
from tests.outside.cases import smooth as waves
from tests.support.builders import raw_tensors, write_safetensors

D = 48
SIDES = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 19)


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


def model(table: NDArray[Any], name: str, *, token: bool = True) -> dict[str, NDArray[Any]]:
    own = {"cls_token": noise(1, 1, D)} if token else {}
    return {
        **own,
        name: table.astype(np.float32)[None],
        "patch_embed.proj.weight": noise(D, 3, 16, 16),
        "patch_embed.proj.bias": noise(D),
        "blocks.0.norm1.weight": np.ones(D, np.float32),
        "blocks.0.norm2.weight": np.ones(D, np.float32),
    }


def rows_after(folder: Path, tensors: dict[str, NDArray[Any]], name: str, flags: str) -> int:
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    run(Job(source, request(flags.split()), output=output, force=True))
    return len(raw_tensors(output)[0][name][1]) // (4 * D)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["pos_embed", "my_pos"])
def test_untrained_rows_are_not_read_as_a_square_beside_a_token(
    side: int, name: str, tmp_path: Path
) -> None:
    tensors = model(noise(side * side, D), name)
    with pytest.raises(GeometryError) as caught:
        rows_after(tmp_path, tensors, name, "--to 512x384")
    assert f"{side * side} = 1 + " in caught.value.message
    assert "--from SIZE" in (caught.value.hint or "")
    if name == "my_pos" and side < 5:  # so few rows of noise look smooth over some grid
        return
    own, height, width = " --from", 16 * (side - 1), 16 * (side + 1)
    flags = f"--to {2 * height}x{2 * width}{own} {height}x{width}"
    assert rows_after(tmp_path, tensors, name, flags) == 1 + 4 * (side * side - 1)
    whole = f"--to {32 * side}{own} {16 * side}"
    assert rows_after(tmp_path, tensors, name, whole) == 4 * side * side


@pytest.mark.parametrize("side", [side for side in SIDES if side < 17])  # larger ones may overlap
def test_without_a_token_the_square_is_taken(side: int, tmp_path: Path) -> None:
    tensors = model(noise(side * side, D), "pos_embed", token=False)
    assert rows_after(tmp_path, tensors, "pos_embed", f"--to {32 * side}") == 4 * side * side


def test_a_square_of_a_published_size_needs_no_row_for_its_token(tmp_path: Path) -> None:
    """Models with registers give their tokens no row: 14×14 patches of 16 are 224 pixels."""
    tensors = model(noise(196, D), "pos_embed")
    assert rows_after(tmp_path, tensors, "pos_embed", "--to 320x384") == 20 * 24


@pytest.mark.parametrize(("height", "width"), [(6, 8), (10, 12), (13, 15), (12, 10), (15, 17)])
def test_learned_values_tell(height: int, width: int, tmp_path: Path) -> None:
    field = waves(height, width, D) + 0.05 * noise(height * width, D)
    tensors = model(np.concatenate([noise(1, D), field]), "pos_embed")
    cells = height * width
    flags = f"--to {32 * height}x{32 * width}"
    try:
        assert rows_after(tmp_path, tensors, "pos_embed", flags) == 1 + 4 * cells
    except GeometryError as error:
        assert f"{height}×{width}" in error.message
        told = f"{flags} --from {16 * height}x{16 * width}"
        assert rows_after(tmp_path, tensors, "pos_embed", told) == 1 + 4 * cells
