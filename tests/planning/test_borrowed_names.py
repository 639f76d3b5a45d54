"""Another geometry under the names of a known family: the family is not trusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.outside.cases import pasted_flags
from tests.planning.test_by_value import D, Tensors, convert, convert_with, refused, result, rows
from tests.planning.test_neutral_names import noise, transformer, with_row

TO = ["--to", "192x288"]
GRID = rows(10, 14)
MAP = np.ascontiguousarray(GRID.T).reshape(1, D, 10, 14)


def volo(stem: int = 7) -> Tensors:
    """Make what VOLO has before its blocks: one cell is four times the kernel of proj."""
    tensors = transformer("pos_embed", GRID.reshape(1, 10, 14, D), kernel=False)
    shapes = {
        "patch_embed.conv.0": (16, 3, stem, stem),
        "patch_embed.conv.3": (16, 16, 3, 3),
        "patch_embed.proj": (24, 16, 4, 4),
        "network.1.proj": (D, 24, 2, 2),
    }
    return tensors | {f"{n}.weight": noise(np.empty(shape)) for n, shape in shapes.items()}


def test_volo_itself_needs_no_size(tmp_path: Path) -> None:
    _, output = convert(tmp_path, volo(), " ".join(TO))
    assert result(output, "pos_embed").shape == (1, 12, 18, D)


def test_another_stem_under_the_names_of_volo_is_asked_about(tmp_path: Path) -> None:
    without = volo()
    del without["network.1.proj.weight"]
    without["patch_embed.proj.weight"] = noise(np.empty((D, 16, 4, 4)))
    for number, (tensors, size, grid) in enumerate(
        [(volo(3), "160x224", (12, 18)), (without, "80x112", (24, 36))]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        error = refused(folder, tensors, " ".join(TO))
        assert "the patch size is not in the file" in error.message
        flags = pasted_flags((error.hint or "").replace("SIZE", size))
        _, output = convert_with(folder, tensors, [*TO, *flags])
        assert result(output, "pos_embed").shape == (1, *grid, D)


BORROWED = {
    "patch_pos": with_row(GRID)[None],  # TNT: 16 pixels
    "outer_pos": with_row(GRID)[None],
    "pos_embed1": MAP,  # Visformer: 8 pixels
    "attnpool.positional_embedding": with_row(GRID),  # CLIP's ResNets: 32 pixels
    "pos_encoding.spatial_pos": GRID,  # MViT: 4 pixels
}


@pytest.mark.parametrize("side", [8, 14])
@pytest.mark.parametrize("name", BORROWED)
def test_the_kernel_counts_more_than_a_number_of_the_family(
    name: str, side: int, tmp_path: Path
) -> None:
    tensors = transformer(name, BORROWED[name], kernel=False)
    tensors |= {"cls_token": noise(np.empty((1, 1, D)))}
    tensors |= {"stem.weight": noise(np.empty((D, 3, side, side)))}
    report, _ = convert(tmp_path, tensors, f"--to {12 * side}x{18 * side}")
    assert str(report.plan.changes[0].target) == "12×18"


def test_an_odd_kernel_is_not_taken_for_the_patch(tmp_path: Path) -> None:
    """As in Hiera: 7×7 pixels, one cell every 4; here without Hiera's stages."""
    tensors = transformer("pos_embed", rows(28, 40)[None], kernel=False)
    tensors["patch_embed.proj.weight"] = noise(np.empty((D, 3, 7, 7)))
    error = refused(tmp_path, tensors, " ".join(TO))
    flags = pasted_flags((error.hint or "").partition(" or ")[0])
    assert flags == ["--from", "112x160"]
    _, output = convert_with(tmp_path, tensors, [*TO, *flags])
    assert result(output, "pos_embed").shape == (1, 48 * 72, D)
    _, output = convert(tmp_path, tensors, "--from 196x280 --to 224x308")
    assert result(output, "pos_embed").shape == (1, 32 * 44, D)
