"""Row counts, cubes, frames and splits: what the solver lists, settles and refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid
from resize_pos.families.family import Owner
from resize_pos.planning.geometry.grid_solver import (
    Hypothesis,
    Judge,
    Opinion,
    Reading,
    RowCount,
    candidates,
    settle,
)

NONE, ONE = RowCount(0, "none"), RowCount(1, "cls")


def chooses(frames: int, grid: Grid, *, prefix: int = 0) -> Judge:
    """Make values that support one reading, if it is among those that are offered."""

    def judge(readings: Sequence[Reading]) -> Opinion:
        assert all(reading.prefix.count >= 0 for reading in readings)
        wanted = (frames, grid, prefix)
        found = [r for r in readings if (r.frames, r.grid, r.prefix.count) == wanted]
        return Opinion(found[0] if found else None, f"{len(found)} of {len(readings)}")

    return judge


def test_rows_without_a_token_and_no_rows_are_said_so() -> None:
    owners = [Owner(0, ()), Owner(2, ())]
    found = candidates(owners, "", {}, None, "--prefix")
    reasons = {each.count: each.reason for each in found}
    assert reasons == {0: "no such rows", 2: "2 rows without a token"}


def test_the_only_cube_is_taken_unless_the_values_support_another_volume() -> None:
    """216 = 6×6×6, or 4×6×9 and others."""
    plain = settle("t", 216, [NONE], [NONE], [], None, timed=True, volume=True)
    assert (plain.frames, plain.grid) == (6, Grid(6, 6))
    same = chooses(6, Grid(6, 6))
    assert settle("t", 216, [NONE], [NONE], [], None, timed=True, volume=True, judge=same) == plain
    other = chooses(4, Grid(6, 9))
    with pytest.raises(GeometryError, match=r"frames × height × width"):
        settle("t", 216, [NONE], [NONE], [], None, timed=True, volume=True, judge=other)


def test_a_volume_has_at_least_two_cells_along_each_side() -> None:
    """61 = 1 + 3×4×5 is read by its values; 1×6×10 is a grid, and no volume."""
    offered: list[Reading] = []

    def judge(readings: Sequence[Reading]) -> Opinion:
        offered.extend(readings)
        return chooses(3, Grid(4, 5), prefix=1)(readings)

    found = settle("t", 61, [ONE], [NONE], [], None, timed=True, volume=True, judge=judge)
    assert (found.prefix, found.frames, found.grid) == (1, 3, Grid(4, 5))
    sides = {(r.frames, r.grid.height, r.grid.width) for r in offered}
    assert (5, 6, 2) in sides and min(map(min, sides)) == 2


def test_frames_of_two_by_two_cells_are_offered() -> None:
    """12 rows are three frames of 2×2 cells, and no other number of squares."""
    found = settle("t", 12, [NONE], [NONE], [], None, timed=True, judge=chooses(3, Grid(2, 2)))
    assert (found.frames, found.grid) == (3, Grid(2, 2))


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_rows_beside_a_stated_grid_are_split_by_the_values(before: int) -> None:
    stated = [Hypothesis(Grid(7, 11), "--from-grid 7x11", binding=True)]
    judge = chooses(1, Grid(7, 11), prefix=before)
    with pytest.raises(GeometryError) as caught:
        settle("t", 80, [ONE], [NONE], stated, None, judge=judge)
    after = f" --suffix {3 - before}" if before < 3 else ""
    assert f"pass --prefix {before}{after}." in str(caught.value.hint)
