"""Frames beside cells, three tables for three axes, two branches: the printed command works."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.errors import ResizePosError
from resize_pos.run.job import Job, run
from tests.outside.cases import pasted_flags, request
from tests.outside.cases import smooth as waves
from tests.support.builders import raw_tensors, write_safetensors

D = 48
T, H, W = 4, 6, 10  # frames, and cells of 16×16 pixels
Tensors = dict[str, NDArray[Any]]


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


def model(tables: Mapping[str, NDArray[Any]], *, tube: int = 0, tokens: int = 1) -> Tensors:
    own = {"cls_token": noise(1, 1, D)} if tokens else {}
    extent = (tube, 16, 16) if tube else (16, 16)
    return {
        **own,
        **{name: table.astype(np.float32) for name, table in tables.items()},
        "patch_embed.proj.weight": noise(D, 3, *extent),
        "patch_embed.proj.bias": noise(D),
        "blocks.0.norm1.weight": np.ones(D, np.float32),
        "blocks.0.norm2.weight": np.ones(D, np.float32),
    }


def film(rows: int = 0, *, height: int = H, width: int = W) -> NDArray[np.float64]:
    """Give the same field in every frame, each time a little stronger, after rows of tokens."""
    plane = waves(height, width, D)
    cells = np.stack([plane * (1 + 0.2 * frame) for frame in range(T)])
    return np.concatenate([noise(T, rows, D), cells], axis=1)


def followed(folder: Path, tensors: Tensors, size: str) -> dict[str, NDArray[np.float32]]:
    """Convert to twice the size, pasting what is printed."""
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    flags = ["--to", size]
    for _ in range(3):
        try:
            run(Job(source, request(flags), output=output, force=True))
        except ResizePosError as error:
            hint = (error.hint or "").replace("--from SIZE", "--from 96x160")
            flags = [*flags, *pasted_flags(hint)]
            continue
        found = raw_tensors(output)[0].items()
        return {
            name: np.frombuffer(data, np.float32).reshape(entry["shape"])
            for name, (entry, data) in found
        }
    raise AssertionError(flags)


@pytest.mark.parametrize("name", ["pos_embed", "my_pos", "grid"])
@pytest.mark.parametrize("tube", [0, 2])
@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("shape", [(T, H, W, D), (1, T, H * W, D), (T, H * W, D)])
def test_frames_of_cells(
    name: str, tube: int, tokens: int, shape: tuple[int, ...], tmp_path: Path
) -> None:
    tensors = model({name: film().reshape(shape)}, tube=tube, tokens=tokens)
    table = followed(tmp_path, tensors, "192x320")[name].reshape(T, 4 * H * W, D)
    wanted = film(height=2 * H, width=2 * W)
    assert np.corrcoef(table.ravel(), wanted.ravel())[0, 1] > 0.98


@pytest.mark.parametrize("tube", [0, 2])
@pytest.mark.parametrize("tokens", [0, 1])
def test_frames_with_a_row_of_their_own_are_not_read_as_a_strip(
    tube: int, tokens: int, tmp_path: Path
) -> None:
    """[1, 4, 61, d] is four times 1 + 6×10, not a grid of 4×61 cells."""
    tensors = model({"my_pos": film(1)[None]}, tube=tube, tokens=tokens)
    table = followed(tmp_path, tensors, "192x320")["my_pos"]
    assert table.shape == (1, T, 1 + 4 * H * W, D)
    assert np.array_equal(table[0, :, 0], tensors["my_pos"][0, :, 0])


@pytest.mark.parametrize("names", [("pos_t", "pos_h", "pos_w"), ("pos.0", "pos.1", "pos.2")])
@pytest.mark.parametrize("axes", [2, 5])
@pytest.mark.parametrize("tube", [0, 2])
def test_three_tables_for_three_axes(
    names: tuple[str, str, str], axes: int, tube: int, tmp_path: Path
) -> None:
    tables = {}
    for place, (name, length) in enumerate(zip(names, (T, H, W), strict=True), start=1):
        shape = [1, 1, 1, 1, D] if axes == 5 else [length, D]
        if axes == 5:
            shape[place] = length
        tables[name] = waves(1, length, D).reshape(shape)
    after = followed(tmp_path, model(tables, tube=tube), "192x320")
    rows = [after[name].size // D for name in names]
    assert rows == [T, 2 * H, 2 * W]


def test_a_stated_layout_that_does_not_fit_is_not_ignored(tmp_path: Path) -> None:
    source = tmp_path / "model.safetensors"
    write_safetensors(source, model({"my_pos": film()[None]}))
    flags = "--to 192x320 --from 96x160 --pattern my_pos --axes"
    with pytest.raises(ResizePosError, match="matches no tensor"):
        stated = [*flags.split(), "1 (p t h w s) d"]
        run(Job(source, request(stated), output=tmp_path / "out.safetensors"))


def test_branches_of_one_image_are_converted_one_after_the_other(tmp_path: Path) -> None:
    """CrossViT under other names: 20×20 cells of 12 pixels, 14×14 cells of 16 pixels."""
    tensors: Tensors = {}
    for branch, side, patch, width in (("a", 20, 12, 48), ("b", 14, 16, 96)):
        rows = np.concatenate([noise(1, width), waves(side, side, width)])
        tensors |= {
            f"pos_{branch}": rows[None].astype(np.float32),
            f"cls_{branch}": noise(1, 1, width),
            f"stem_{branch}.weight": noise(width, 3, patch, patch),
            f"stem_{branch}.bias": noise(width),
            f"norm_{branch}.weight": np.ones(width, np.float32),
        }
    source, first = tmp_path / "model.safetensors", tmp_path / "first.safetensors"
    second = tmp_path / "second.safetensors"
    write_safetensors(source, tensors)
    with pytest.raises(ResizePosError, match="different sizes") as caught:
        run(Job(source, request(["--to", "480"]), output=first))
    hint = caught.value.hint or ""
    assert "--tower pos_a --to 480, then convert the output with --tower pos_b --to 448" in hint
    run(Job(source, request(["--tower", "pos_a", "--to", "480"]), output=first))
    run(Job(first, request(["--tower", "pos_b", "--to", "448"]), output=second))
    found = raw_tensors(second)[0]
    shapes = [found[f"pos_{branch}"][0]["shape"] for branch in "ab"]
    assert shapes == [[1, 1 + 40 * 40, 48], [1, 1 + 28 * 28, 96]]
