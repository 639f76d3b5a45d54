"""Axis patterns: what they read off a shape, and that unfolding and folding are inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.errors import UsageError
from resize_pos.core.geometry import Grid

# pattern, the stored shape of a 3×5 grid with 2 prefix rows, 1 suffix row and 4 channels
FLAT = [
    ("1 (p h w s) d", (1, 18, 4)),
    ("(p h w s) d", (18, 4)),
    ("d (p h w s)", (4, 18)),
    ("n 1 (p h w s) d", (6, 1, 18, 4)),
]
STORED = [
    ("1 h w d", (1, 3, 5, 4)),
    ("h w d", (3, 5, 4)),
    ("1 d h w", (1, 4, 3, 5)),
    ("n h w", (4, 3, 5)),
]
BAD = {
    "1 (p h w s d": "not closed",
    "1 ((h w) d": "not closed",
    "1 (((h w) k=2) d)": "nest one level deep",
    "1 (p h w k s) d": "a group is one of rows",
    "1 h (w d)": "the same group",
    "1 h h w d": "appears twice",
    "1 d": "needs `h` and `w`",
    "1 (s h w) d": "a group is (h w)",
    "1 (h p w) d": "a group is (h w)",
    "1 (h w) (p s) d": "a group is",
    "p h w d": "belong inside",
    "1 rows d": "`rows` is not an axis",
    "h w l d": "needs `h` and `w`",
    "": "needs `h` and `w`",
}


@pytest.mark.parametrize(("pattern", "shape"), FLAT)
def test_a_flat_layout_counts_rows_and_leaves_the_grid_open(
    pattern: str, shape: tuple[int, ...]
) -> None:
    layout = Layout.parse(pattern)
    assert layout.mismatch(shape) is None
    assert layout.rows(shape) == 18
    assert layout.grid(shape) is None


@pytest.mark.parametrize(("pattern", "shape"), STORED)
def test_a_stored_grid_is_read_off_the_shape(pattern: str, shape: tuple[int, ...]) -> None:
    layout = Layout.parse(pattern)
    assert layout.mismatch(shape) is None
    assert layout.grid(shape) == Grid(3, 5)


@pytest.mark.parametrize(("pattern", "shape"), FLAT + STORED)
def test_folding_undoes_unfolding(pattern: str, shape: tuple[int, ...]) -> None:
    layout = Layout.parse(pattern)
    prefix, suffix = (2, 1) if "p" in pattern else (0, 0)
    array = np.random.default_rng(0).normal(size=shape)
    parts = layout.unfold(array, prefix, Grid(3, 5), suffix)
    assert parts.grid.shape[1:3] == (3, 5)
    assert parts.prefix.shape[1] == prefix
    np.testing.assert_array_equal(layout.fold(parts, shape), array)


def test_rows_are_read_in_row_major_order() -> None:
    array = np.arange(18.0).reshape(1, 18, 1)
    parts = Layout.parse("1 (p h w s) d").unfold(array, 2, Grid(3, 5), 1)
    np.testing.assert_array_equal(parts.prefix[0, :, 0], [0, 1])
    np.testing.assert_array_equal(parts.grid[0, 0, :, 0], [2, 3, 4, 5, 6])
    np.testing.assert_array_equal(parts.suffix[0, :, 0], [17])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
def test_a_folded_table_has_the_shape_that_was_promised(
    height: int, width: int, prefix: int, suffix: int
) -> None:
    layout, source, grid = Layout.parse("n (p h w s) d"), (2, 99, 4), Grid(height, width)
    parts = Unfolded(
        np.zeros((2, prefix, 4)), np.zeros((2, height, width, 4)), np.zeros((2, suffix, 4))
    )
    assert layout.fold(parts, source).shape == layout.shape(source, prefix, grid, suffix)


def test_channels_first_is_transposed_both_ways() -> None:
    array = np.arange(24.0).reshape(1, 2, 3, 4)
    layout = Layout.parse("1 d h w")
    parts = layout.unfold(array, 0, Grid(3, 4), 0)
    np.testing.assert_array_equal(parts.grid[0, 1, 2], array[0, :, 1, 2])


# pattern, stored shape, prefix, grid, suffix, frames: time, blocks, and lengths inside a group
NESTED = [
    ("1 (p t h w s) d", (1, 2 + 7 * 15, 4), 2, Grid(3, 5), 0, 7),
    ("1 t (h w) d", (1, 7, 15, 4), 0, Grid(3, 5), 0, 7),
    ("1 t h w d", (1, 7, 3, 5, 4), 0, Grid(3, 5), 0, 7),
    ("t d", (7, 4), 0, Grid(1, 1), 0, 7),
    ("1 (H W) (h w) d", (1, 4, 15, 4), 0, Grid(6, 10), 0, 1),
    ("1 (H=3 W=2) (h w) d", (1, 6, 15, 4), 0, Grid(9, 10), 0, 1),
    ("H W (p h w s) d", (3, 2, 17, 4), 1, Grid(9, 10), 1, 1),
    ("i (k=3 (p h w s) d=4)", (9, 3 * 16 * 4), 1, Grid(3, 5), 0, 1),
    ("d (h w c=2)", (4, 30), 0, Grid(3, 5), 0, 1),
    ("d (c=2 h w)", (4, 30), 0, Grid(3, 5), 0, 1),
]


@pytest.mark.parametrize(("pattern", "shape", "prefix", "grid", "suffix", "frames"), NESTED)
def test_time_blocks_and_groups_unfold_and_fold(
    pattern: str, shape: tuple[int, ...], prefix: int, grid: Grid, suffix: int, frames: int
) -> None:
    layout = Layout.parse(pattern)
    assert layout.mismatch(shape) is None
    assert layout.shape(shape, prefix, grid, suffix, frames) == shape
    array = np.random.default_rng(0).normal(size=shape)
    parts = layout.unfold(array, prefix, grid, suffix, frames)
    assert parts.grid.shape[1:3] == (grid.height, grid.width)
    assert parts.prefix.shape[1] == prefix
    assert parts.suffix.shape[1] == suffix
    np.testing.assert_array_equal(layout.fold(parts, shape), array)


@pytest.mark.parametrize(("pattern", "shape", "prefix", "grid", "suffix", "frames"), NESTED)
def test_a_finer_grid_and_more_frames_fold_to_the_promised_shape(
    pattern: str, shape: tuple[int, ...], prefix: int, grid: Grid, suffix: int, frames: int
) -> None:
    layout = Layout.parse(pattern)
    parts = layout.unfold(np.zeros(shape), prefix, grid, suffix, frames)
    longer = 2 if layout.has_time else 1
    up, across = (2, 3) if {"h", "w"} & layout.axes else (1, 1)
    bigger = parts.grid.repeat(longer, 0).repeat(up, 1).repeat(across, 2)
    folded = layout.fold(Unfolded(parts.prefix, bigger, parts.suffix), shape)
    target = Grid(grid.height * up, grid.width * across)
    assert folded.shape == layout.shape(shape, prefix, target, suffix, frames * longer)


def test_blocks_are_pieces_of_one_image() -> None:
    image = np.arange(24).reshape(4, 6)
    blocked = image.reshape(2, 2, 2, 3).transpose(0, 2, 1, 3).reshape(1, 4, 6, 1)
    parts = Layout.parse("1 (H W) (h w) d").unfold(blocked, 0, Grid(4, 6), 0)
    np.testing.assert_array_equal(parts.grid[0, :, :, 0], image)


def test_frames_come_before_rows_of_cells() -> None:
    film = np.arange(24).reshape(1, 24, 1)
    parts = Layout.parse("1 (p t h w s) d").unfold(film, 0, Grid(2, 3), 0, 4)
    np.testing.assert_array_equal(parts.grid[1, 0, :, 0], [6, 7, 8])


@pytest.mark.parametrize(
    ("pattern", "shape", "reason"),
    [
        ("i (k (p h w s) d)", (9, 24), "`k` in `i (k (p h w s) d)` is not known"),
        ("i (k=5 (p h w s) d=2)", (9, 24), "24 is no multiple of 10"),
        ("1 (H W) (h w) d", (1, 6, 4, 2), "6 blocks are no square"),
        ("k=2 l d", (3, 9, 4), "axis 0 is 3 where"),
    ],
)
def test_a_group_that_does_not_add_up_says_why(
    pattern: str, shape: tuple[int, ...], reason: str
) -> None:
    assert reason in str(Layout.parse(pattern).mismatch(shape))


@pytest.mark.parametrize("pattern", BAD)
def test_a_bad_pattern_says_what_is_wrong(pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        Layout.parse(pattern)
    assert BAD[pattern] in caught.value.message


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((197, 8), "2 axes"), ((2, 197, 8), "axis 0 is 2"), ((1, 0, 8), "axis 1 is empty")],
)
def test_a_shape_that_does_not_fit_says_why(shape: tuple[int, ...], reason: str) -> None:
    assert reason in str(Layout.parse("1 (p h w s) d").mismatch(shape))


def test_time_beside_rows_of_its_own_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match="write `n` instead of `t`"):
        Layout.parse("t (p h w s) d")
    array = np.arange(2 * 7 * 4).reshape(2, 7, 4)
    parts = Layout.parse("n (p h w s) d").unfold(array, 1, Grid(2, 3), 0)
    assert parts.grid.shape == (2, 2, 3, 4)
    assert parts.prefix.shape == (2, 1, 4)


def test_rows_beside_a_grid_that_is_stored_by_columns_stay() -> None:
    layout, grid = Layout.parse("1 (p w h s) d"), Grid(2, 3)
    table = np.arange(8.0).reshape(1, 8, 1)
    parts = layout.unfold(table, 1, grid, 1)
    np.testing.assert_array_equal(parts.grid[0, :, :, 0], [[1, 3, 5], [2, 4, 6]])
    np.testing.assert_array_equal(layout.fold(parts, table.shape), table)


def test_a_map_may_be_stored_by_columns() -> None:
    layout, grid = Layout.parse("1 d w h"), Grid(2, 3)
    table = np.arange(12.0).reshape(1, 2, 3, 2)
    assert (layout.grid(table.shape), layout.by_columns) == (grid, True)
    parts = layout.unfold(table, 0, grid, 0)
    np.testing.assert_array_equal(parts.grid[0, :, :, 0], [[0, 2, 4], [1, 3, 5]])
    np.testing.assert_array_equal(layout.fold(parts, table.shape), table)


def test_a_grid_may_be_stored_by_columns() -> None:
    layout, grid = Layout.parse("1 (w h) d"), Grid(2, 3)
    table = np.arange(6.0).reshape(1, 6, 1)
    parts = layout.unfold(table, 0, grid, 0)
    np.testing.assert_array_equal(parts.grid[0, :, :, 0], [[0, 2, 4], [1, 3, 5]])
    np.testing.assert_array_equal(layout.fold(parts, table.shape), table)
