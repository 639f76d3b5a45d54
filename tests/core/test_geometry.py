"""Sizes, grids and the division of one by the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.core.geometry import LARGEST, Grid, Size, Tiling, grid_of

SIDES = st.integers(1, 4096)


@given(SIDES, SIDES)
def test_a_size_reads_back_what_it_prints(height: int, width: int) -> None:
    size = Size(height, width)
    assert Size.parse(str(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("384", (384, 384)), ("384x512", (384, 512)), ("384×512", (384, 512)), (" 8X64 ", (8, 64))],
)
def test_height_comes_before_width(text: str, size: tuple[int, int]) -> None:
    assert Size.parse(text) == Size(*size)


@pytest.mark.parametrize("text", ["", "0", "-3", "12x", "x12", "12x0", "3.5", "a", "1x2x3x4", "٣"])
def test_a_malformed_size_is_a_usage_error_that_quotes_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Size.parse(text, "--to")
    assert "--to" in caught.value.message
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("pair", [(0, 4), (4, -1)])
def test_a_pair_below_one_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(UsageError):
        Grid.parse(pair)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 32), st.integers(1, 32))
def test_a_grid_and_its_pixels_are_inverse(height: int, width: int, ph: int, pw: int) -> None:
    grid, patch = Grid(height, width), Size(ph, pw)
    assert grid_of(grid.pixels(patch), patch) == grid


def test_a_size_that_does_not_divide_names_the_two_nearest() -> None:
    with pytest.raises(GeometryError) as caught:
        grid_of(Size(384, 400), Size(14, 14))
    assert caught.value.hint == "the nearest sizes that fit are 378x392 px or 392x406 px."


def test_a_size_below_one_patch_names_only_the_next() -> None:
    with pytest.raises(GeometryError) as caught:
        grid_of(Size(10, 20), Size(16, 16))
    assert caught.value.hint == "the nearest sizes that fit are 16x32 px."


def test_equal_counts_are_not_equal_grids() -> None:
    assert Grid(2, 8).cells == Grid(4, 4).cells
    assert Grid(2, 8) != Grid(4, 4)


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        (Size(16, 32), Grid(1, 3)),  # exactly one window high
        (Size(24, 40), Grid(2, 4)),
        (Size(31, 47), Grid(2, 4)),  # what is left is smaller than a step
        (Size(224, 384), Grid(27, 47)),
    ],
)
def test_overlapping_windows_are_counted_as_a_convolution_counts(size: Size, grid: Grid) -> None:
    tiling = Tiling(Size(8, 8), Size(16, 16))
    assert tiling.grid(size) == grid
    smallest = tiling.pixels(grid)
    assert tiling.grid(smallest) == grid
    assert smallest.height <= size.height and smallest.width <= size.width


@pytest.mark.parametrize("size", [Size(15, 32), Size(32, 15)])
def test_an_image_smaller_than_a_window_is_refused(size: Size) -> None:
    with pytest.raises(GeometryError, match="smaller than one patch of 16"):
        Tiling(Size(8, 8), Size(16, 16)).grid(size)


def test_the_largest_size_is_accepted_and_the_next_is_not() -> None:
    assert Size.parse(f"{LARGEST}x7") == Size(LARGEST, 7)
    with pytest.raises(UsageError, match="must be between 1 and"):
        Size.parse(f"{LARGEST + 1}x7")
