"""Private models that were wrong once: stems of several steps, names that mislead, row numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from resize_pos.core.errors import ResizePosError
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
from tests.planning.test_neutral_names import GRID, leave, noise, transformer

TO = "--to 192x288"


def with_stem(*kernels: tuple[int, ...]) -> Tensors:
    """Make a ViT with the names of timm, whose patch embedding has several convolutions."""
    tensors = transformer("pos_embed", np.concatenate([token()[0], GRID])[None], kernel=False)
    tensors["cls_token"] = token()
    names = ("patch_embed.stem.weight", "patch_embed.proj.weight")
    return tensors | {n: noise(np.empty(k)) for n, k in zip(names, kernels, strict=True)}


@pytest.mark.parametrize("hidden", [24, 32, 64])
def test_the_patch_is_the_product_of_two_kernels(hidden: int, tmp_path: Path) -> None:
    tensors = with_stem((hidden, 3, 4, 4), (D, hidden, 4, 4))
    _, output = convert(tmp_path, tensors, TO)
    new = result(output, "pos_embed")
    assert new.shape == (1, 1 + 12 * 18, D)
    assert likeness(new[0, 1:], 12, 18) > 0.97


@pytest.mark.parametrize("hidden", [24, 32, 64])
def test_the_second_of_two_kernels_is_not_the_patch(hidden: int, tmp_path: Path) -> None:
    """The step of a 7×7 kernel is not in the file."""
    check_that_size_is_asked_for(with_stem((hidden, 3, 7, 7), (D, hidden, 8, 8)), tmp_path)


def check_that_size_is_asked_for(tensors: Tensors, tmp_path: Path) -> None:
    error = refused(tmp_path, tensors, TO)
    assert "the patch size is not in the file" in error.message
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, tensors, [*TO.split(), *flags])
    assert result(output, "pos_embed").shape == (1, 1 + 12 * 18, D)


def test_channels_of_an_image_are_no_features(tmp_path: Path) -> None:
    """A satellite's 12 bands are read by the patch, although another kernel makes 12 of 4."""
    tensors = with_stem((12, 4, 3, 3), (D, 12, 16, 16))
    _, output = convert(tmp_path, tensors, TO)
    assert result(output, "pos_embed").shape == (1, 1 + 12 * 18, D)


@pytest.mark.parametrize("name", ["pixel_pos", "inner_pos"])
def test_only_beside_positions_of_patches_is_it_inside_one_patch(name: str, tmp_path: Path) -> None:
    _, output = convert(tmp_path, transformer(name, GRID[None]), TO)
    assert result(output, name).shape == (1, 12 * 18, D)


MISLEADING = (
    "query_pos",
    "relative_pos",
    "visual_prompt",
    "token_bias",
    "anchors",
    "memory",
    "temporal_pos_embed",
    "token_embed.weight",
)


@pytest.mark.parametrize("name", MISLEADING)
def test_values_speak_louder_than_a_name(name: str, tmp_path: Path) -> None:
    flat = name.endswith("weight")
    tensors = transformer(name, GRID if flat else GRID[None])
    error = refused(tmp_path, tensors, TO)
    assert "its name says something else" in error.message
    _, output = convert_with(tmp_path, tensors, [*TO.split(), *pasted_flags(error.hint or "")])
    assert likeness(result(output, name).reshape(-1, D), 12, 18) > 0.97
    report, _ = convert_with(tmp_path, tensors, [*TO.split(), *leave(error.hint)])
    assert not report.plan.changes


@pytest.mark.parametrize("name", ["query_pos", "anchors", "token_embed.weight", "memory"])
def test_queries_and_frames_are_no_suspects(name: str, tmp_path: Path) -> None:
    """Values without a grid, or with one axis only: 100 = 10×10 rows."""
    line = rows(1, 100).reshape(100, D)
    for values in (noise(np.empty((100, D))), line):
        report, _ = convert(tmp_path, transformer(name, values), TO)
        assert not report.plan.changes


def with_table(name: str = "pos_embed") -> Tensors:
    tensors = transformer(name, GRID[None])
    tensors["patch_embed.proj.weight"] = tensors.pop("cut.weight")
    return tensors


@pytest.mark.parametrize("name", ["pos_embed", "my_pos"])
def test_row_numbers_follow_the_table_that_has_as_many_rows(name: str, tmp_path: Path) -> None:
    tensors = with_table(name) | {"position_ids": np.arange(140, dtype=np.int64)[None]}
    _, output = convert(tmp_path, tensors, TO + " --from 160x224")
    assert np.array_equal(whole_numbers(output, "position_ids"), np.arange(12 * 18)[None])


def whole_numbers(output: Path, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    from tests.support.builders import raw_tensors

    info, data = raw_tensors(output)[0][name]
    return np.frombuffer(data, "<i8").reshape(info["shape"])


BUFFERS = {
    "order": np.arange(140, dtype=np.int64)[::-1].copy(),
    "ids": np.arange(140, dtype=np.int64)[None],
    "border": np.ones((1, 140), np.bool_),
    "pooled_by": np.ones(140, np.float32),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_one_number_per_cell_stops_half_a_conversion(name: str, tmp_path: Path) -> None:
    error = refused(tmp_path, with_table() | {name: BUFFERS[name]}, TO + " --from 160x224")
    assert "has an axis of 140, as pos_embed has" in error.message


@pytest.mark.parametrize("shape", [(160, 224), (1, 1, 160, 224), (1, 10, 40, 56)])
def test_a_map_over_the_image_stops_half_a_conversion(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    tensors = with_table() | {"prior": noise(np.empty(shape))}
    error = refused(tmp_path, tensors, TO + " --from 160x224")
    assert "is a map over the image of pos_embed" in error.message
    tensors = with_table() | {"mixed.weight": noise(np.empty(shape))}
    report, _ = convert(tmp_path, tensors, TO + " --from 160x224")
    assert report.plan.changes, "a layer may be as large by chance"


def cube(kernel: tuple[int, ...]) -> Tensors:
    """Make a model of volumes: 6×6×6 patches."""
    places = np.indices((6, 6, 6)).reshape(3, -1).T / 6
    random = np.random.default_rng(4)
    field = np.cos(3 * places @ random.standard_normal((3, D)) + random.standard_normal(D))
    tensors = transformer("where", field.astype(np.float32)[None], kernel=False)
    return tensors | {
        "tok.weight": noise(np.empty(kernel)),
        "tok.bias": np.zeros(D, np.float32),
    }


@pytest.mark.parametrize("kernel", [(D, 1, 16, 16, 16), (D, 4096)])
def test_one_number_is_not_the_size_of_a_cube(kernel: tuple[int, ...], tmp_path: Path) -> None:
    """It may mean all three sides, or height and width at the old depth."""
    flags = ["--pattern", "^where$", "--axes", "1 (p t h w s) d", "--from", "96x96x96", "--to"]
    with pytest.raises(ResizePosError, match="needs three sides"):
        convert_with(tmp_path, cube(kernel), [*flags, "128"])
    if len(kernel) == 2:
        with pytest.raises(ResizePosError, match="no kernel states the depth of a patch"):
            convert_with(tmp_path, cube(kernel), [*flags, "64x96x128"])
    else:
        _, output = convert_with(tmp_path, cube(kernel), [*flags, "64x96x128"])
        assert result(output, "where").shape == (1, 4 * 6 * 8, D)


def test_a_layer_that_makes_tokens_is_no_vocabulary(tmp_path: Path) -> None:
    error = refused(tmp_path, cube((D, 768)), "--to 96")
    assert "word or frame" not in error.message
    assert "'1 l d'" not in (error.hint or "")


def test_a_filter_over_frequencies_is_not_passed_over(tmp_path: Path) -> None:
    """GFNet's filters under a private name."""
    tensors = transformer("blk.0.spectral", noise(np.empty((10, 8, D, 2))))
    error = refused(tmp_path, tensors, TO)
    assert "may be a filter over 10×8 frequencies" in error.message
    report, _ = convert_with(tmp_path, tensors, [*TO.split(), *leave(error.hint)])
    assert not report.plan.changes


@pytest.mark.parametrize("kernels", [((D, 3, 4, 4), (D, D, 4, 4)), ((D, 3, 8, 8), (D, D, 2, 2))])
def test_a_second_kernel_of_equal_width_is_part_of_the_patch(
    kernels: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    check_that_size_is_asked_for(with_stem(*kernels), tmp_path)
