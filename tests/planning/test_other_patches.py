"""Cells that are larger or closer than their kernel says: right by --from, else asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from resize_pos.quality.checks import Level
from tests.outside.cases import pasted_flags
from tests.planning.test_by_value import (
    D,
    Tensors,
    convert,
    convert_with,
    likeness,
    private,
    refused,
    result,
    rows,
    with_class,
)
from tests.planning.test_neutral_names import noise, with_row
from tests.planning.test_stated_grid import timm

TO = "--to 192x288"
FROM = "--from 160x224"
ROWS = with_row(rows(10, 14))[None]


def check(output: Path, name: str, height: int, width: int) -> None:
    new = result(output, name)
    assert new.shape == (1, 1 + height * width, D)
    assert likeness(new[0, 1:], height, width) > 0.95


def with_kernel(*shape: int) -> Mapping[str, Tensors]:
    """Make a ViT with names of timm, and one with names of its own."""
    own = private(ROWS) | {"stem_conv.weight": noise(np.empty(shape))}
    return {"pos_embed": timm(ROWS, shape), "my_pos": own}


FOLDED = [(D, 12, 8, 8), (D, 48, 4, 4)]
LATENTS = [(D, 4, 2, 2), (D, 16, 2, 2)]


@pytest.mark.parametrize("kernel", [*FOLDED, *LATENTS], ids=str)
@pytest.mark.parametrize("name", ["pos_embed", "my_pos"])
def test_channels_that_are_pixels_or_latents_are_read_by_the_size(
    name: str, kernel: tuple[int, ...], tmp_path: Path
) -> None:
    tensors = with_kernel(*kernel)[name]
    _, output = convert(tmp_path, tensors, f"{FROM} {TO}")
    check(output, name, 12, 18)
    own = 10 * kernel[2], 14 * kernel[2]
    new = f"{12 * kernel[2]}x{18 * kernel[2]}"
    _, output = convert(tmp_path, tensors, f"--from {own[0]}x{own[1]} --to {new}")
    check(output, name, 12, 18)


@pytest.mark.parametrize("kernel", [FOLDED[1], *LATENTS], ids=str)
def test_without_a_size_the_likelier_one_is_asked_for(
    kernel: tuple[int, ...], tmp_path: Path
) -> None:
    error = refused(tmp_path, timm(ROWS, kernel), TO)
    assert f"the {kernel[1]} channels of patch_embed.proj.weight may be" in error.message
    flags = pasted_flags((error.hint or "").partition(" or ")[0])
    assert flags == FROM.split()
    _, output = convert_with(tmp_path, timm(ROWS, kernel), [*TO.split(), *flags])
    check(output, "pos_embed", 12, 18)


def test_twelve_channels_may_be_bands_so_both_sizes_are_named(tmp_path: Path) -> None:
    error = refused(tmp_path, timm(ROWS, FOLDED[0]), TO)
    assert "pass --from 80x112 or --from 160x224" in str(error.hint)
    _, output = convert(tmp_path, timm(ROWS, FOLDED[0]), f"--from 80x112 {TO}")
    check(output, "pos_embed", 24, 36)
    _, output = convert(tmp_path, timm(ROWS, FOLDED[0]), f"--from 160x224 {TO}")
    check(output, "pos_embed", 12, 18)
    square = timm(with_row(rows(14, 14))[None], FOLDED[0])
    other = tmp_path / "other"
    other.mkdir()
    assert "--from 224 or --from 112" in str(refused(other, square, "--to 288").hint)
    error = refused(other, with_kernel(*FOLDED[0])["my_pos"], TO)
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, with_kernel(*FOLDED[0])["my_pos"], [*TO.split(), *flags])
    check(output, "my_pos", 12, 18)


def test_twelve_bands_at_a_usual_size_need_no_flag(tmp_path: Path) -> None:
    tensors = timm(with_row(rows(14, 14))[None], (D, 12, 16, 16))
    report, _ = convert(tmp_path, tensors, "--to 192x288")
    assert not any(note.warning for note in report.plan.notes)


MERGES = {"merge.reduction.weight": (D, 4 * D), "down.weight": (D, D, 2, 2)}


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("name", ["pos_embed", "my_pos"])
def test_a_merge_in_another_module_is_not_passed_over(
    name: str, merge: str, tmp_path: Path
) -> None:
    tensors = with_kernel(D, 3, 8, 8)[name] | {merge: noise(np.empty(MERGES[merge]))}
    error = refused(tmp_path, tensors, TO)
    assert f"{merge} may merge 2×2 cells into one" in error.message
    flags = pasted_flags((error.hint or "").partition(" or ")[0].replace("SIZE", "160x224"))
    _, output = convert_with(tmp_path, tensors, [*TO.split(), *flags])
    check(output, name, 12, 18)


@pytest.mark.parametrize("name", ["neck.up.weight", "blk.0.f2b.weight", "blk.1.f2b.weight"])
def test_layers_of_blocks_and_of_necks_merge_nothing(name: str, tmp_path: Path) -> None:
    both = ("blk.0.f2b.weight", "blk.1.f2b.weight")
    more = {each: noise(np.empty((D, 4 * D))) for each in (both if name in both else (name,))}
    report, _ = convert(tmp_path, timm(ROWS, (D, 3, 8, 8)) | more, "--from-grid 10x14 " + TO)
    assert not any("merge" in note.text for note in report.plan.notes)


def overlapping(step: int) -> tuple[int, int]:
    return (160 - 16) // step + 1, (224 - 16) // step + 1


@pytest.mark.parametrize("step", [8, 10, 12])
def test_the_step_of_overlapping_patches_follows_from_the_size(step: int, tmp_path: Path) -> None:
    grid, new = overlapping(step), ((192 - 16) // step + 1, (288 - 16) // step + 1)
    tensors = timm(with_row(rows(*grid))[None])
    error = refused(tmp_path, tensors, f"{FROM} {TO}")
    flags = pasted_flags((error.hint or "").partition(" as well")[0])
    assert flags == ["--patch", str(step)]
    _, output = convert_with(tmp_path, tensors, [*FROM.split(), *TO.split(), *flags])
    check(output, "pos_embed", *new)
    _, output = convert(tmp_path, private(with_class(rows(*grid))), f"{FROM} {TO}")
    check(output, "my_pos", *new)


def pasted_ways(hint: str) -> list[list[str]]:
    """Take the flags of each way that a hint names."""
    return [flags for way in hint.split(", or ") if (flags := pasted_flags(way))]


@pytest.mark.parametrize("step", [8, 10, 11, 12])
@pytest.mark.parametrize("size", [(224, 224), (256, 128)], ids=str)
def test_patches_that_may_overlap_are_refused_with_both_commands(
    size: tuple[int, int], step: int, tmp_path: Path
) -> None:
    grid = (size[0] - 16) // step + 1, (size[1] - 16) // step + 1
    tensors = timm(with_row(rows(*grid))[None])
    error = refused(tmp_path, tensors, "--to 384x192")
    assert f"with one patch every {step} px" in error.message
    overlap, beside = pasted_ways(error.hint or "")[:2]
    assert overlap[2:] == ["--patch", str(step)]
    _, output = convert_with(tmp_path, tensors, ["--to", "384x192", *overlap])
    check(output, "pos_embed", (384 - 16) // step + 1, (192 - 16) // step + 1)
    _, output = convert_with(tmp_path, tensors, ["--to", "384x192", *beside])
    check(output, "pos_embed", 24, 12)


@pytest.mark.parametrize(("frames", "step"), [(512, 10), (1024, 8), (301, 11)])
def test_spectrograms_in_patches_that_may_overlap_are_refused(
    frames: int, step: int, tmp_path: Path
) -> None:
    grid = (128 - 16) // step + 1, (frames - 16) // step + 1
    tensors = timm(with_row(rows(*grid))[None], (D, 1, 16, 16))
    error = refused(tmp_path, tensors, "--to 128x640")
    assert f"with one patch every {step} px" in error.message
    overlap, beside = pasted_ways(error.hint or "")[:2]
    _, output = convert_with(tmp_path, tensors, ["--to", "128x640", *overlap])
    check(output, "pos_embed", grid[0], (640 - 16) // step + 1)
    _, output = convert_with(tmp_path, tensors, ["--to", "128x640", *beside])
    check(output, "pos_embed", 8, 40)


def test_spectrograms_in_patches_side_by_side_are_not_asked_about(tmp_path: Path) -> None:
    tensors = timm(with_row(rows(8, 30))[None], (D, 1, 16, 16))
    _, output = convert(tmp_path, tensors, "--to 128x640")
    check(output, "pos_embed", 8, 40)


def test_a_rectangle_that_nothing_states_is_a_warning(tmp_path: Path) -> None:
    report, _ = convert(tmp_path, timm(with_row(rows(13, 18))[None]), TO)
    assert report.verdict is Level.WARN
    words = " ".join(note.text for note in report.plan.notes if note.warning)
    assert "nothing states the size of the image" in words


@pytest.mark.parametrize("to", ["192x288", "288x192"])
def test_a_target_that_lies_the_other_way_is_refused_with_both_commands(
    to: str, tmp_path: Path
) -> None:
    """By values, runs of 14 cells are seen; whether they are rows or columns is not."""
    height, width = (int(side) // 16 for side in to.split("x"))
    across = (10, 14) if height > width else (14, 10)
    tensors = timm(with_row(rows(*across))[None])
    error = refused(tmp_path, tensors, f"--to {to}")
    assert "lie the other way" in error.message
    as_rows, as_columns = pasted_ways(error.hint or "")
    _, output = convert_with(tmp_path, tensors, ["--to", to, *as_rows])
    check(output, "pos_embed", height, width)
    _, output = convert_with(tmp_path, tensors, ["--to", to, *as_columns])
    turned = result(output, "pos_embed")
    assert likeness(turned[0, 1:], width, height) > 0.95
    assert np.array_equal(turned[0, 0], tensors["pos_embed"][0, 0])


@pytest.mark.parametrize("name", ["pos_embed", "my_pos"])
def test_a_wrong_size_is_not_explained_by_overlapping_patches(name: str, tmp_path: Path) -> None:
    """24×24 cells are 384 px at patch 16; 224 px would be one patch every 9 px."""
    table = with_row(rows(24, 24))[None]
    tensors = timm(table) if name == "pos_embed" else private(table)
    error = refused(tmp_path, tensors, "--from 224 --to 512")
    assert "is a 384 px / patch 16 checkpoint; drop --from, or correct it" in str(error.hint)


def test_a_usual_model_is_not_warned_about(tmp_path: Path) -> None:
    usual = [((D, 3, 16, 16), 14), ((D, 3, 16, 16), 24), ((D, 3, 14, 14), 37), ((D, 3, 14, 14), 18)]
    for kernel, side in usual:
        tensors = timm(with_row(rows(side, side))[None], kernel)
        report, _ = convert(tmp_path, tensors, "--to 448x672")
        assert not any(note.warning for note in report.plan.notes)
