"""What a third blind round showed: honest ways that were called damage, and damage that was ok."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import ndimage

from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known, known_tables, trained
from benchmarks.ways import unseen_later, unseen_third
from benchmarks.ways.proper import LINEAR, SMOOTH
from resize_pos.core.geometry import Grid
from resize_pos.families.family import custom_family
from resize_pos.families.tables import PositionTable
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.table_health import examine
from resize_pos.verify.against_source import TableVerification, explain
from tests.verify.made_by.test_values import sines

Cells = np.ndarray
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}


def field(height: int, width: int, channels: int = 64, *, rough: float = 0.15) -> Cells:
    """A smooth random field and some noise, as a trained table is."""
    rng = np.random.default_rng(11)
    smooth = ndimage.gaussian_filter(
        rng.normal(size=(height + 20, width + 20, channels)), [2, 2, 0]
    )
    made = smooth[10:-10, 10:-10] / smooth.std() + rough * rng.normal(
        size=(height, width, channels)
    )
    table: Cells = (0.1 * made).astype(np.float32)
    return table


def verified(source: Cells, made: Cells) -> TableVerification:
    grid, target = source.shape[:2], made.shape[:2]
    known = Known("", source.reshape(-1, source.shape[-1]), 0, grid, True, False, "")
    rows = made.reshape(-1, made.shape[-1]).astype(np.float32)
    return explain(step_for(known, target), known.rows, rows)


def is_ok(source: Cells, made: Cells) -> None:
    found = verified(source, made)
    assert worst(found.checks) is Level.OK, found.checks


def fails(source: Cells, made: Cells, name: str) -> None:
    found = verified(source, made)
    assert found.diagnosis is not None and found.diagnosis.name == name, found.checks
    assert worst(found.checks) is Level.FAIL


def with_dead_channels(source: Cells) -> Cells:
    made = source.copy()
    made[..., :20], made[..., 20:28] = 0, 0.3
    return made


@pytest.mark.parametrize("target", [(27, 25), (40, 44), (6, 9)])
def test_area_averaging_is_recognised_where_a_grid_grows(target: Shape) -> None:
    source = field(9, 21)
    made = unseen_third.HONEST["area of fractional cells"](source, target)
    found = verified(source, made)
    assert worst(found.checks) is Level.OK
    assert any("INTER_AREA" in check.detail for check in found.checks)


@pytest.mark.parametrize("how", ["residual of 3 %", "pseudo-inverse", "Gaussian process"])
@pytest.mark.parametrize("target", [(18, 42), (4, 10)])
def test_dead_channels_say_nothing_about_the_others(how: str, target: Shape) -> None:
    source = with_dead_channels(field(9, 21))
    is_ok(source, unseen_third.HONEST[how](source, target))


def test_channels_that_became_random_beside_dead_ones_fail_by_name() -> None:
    source = with_dead_channels(field(9, 21))
    made = SMOOTH(source, (13, 30))
    made[..., 40:50] = np.random.default_rng(3).normal(0, 0.1, made[..., 40:50].shape)
    fails(source, made, "channels lost")


@pytest.mark.parametrize("target", [(18, 12), (9, 5)])
def test_eight_bits_that_one_long_cell_stretches_have_dropped_nothing(target: Shape) -> None:
    source = field(12, 9)
    source[3, 4] *= 15
    is_ok(source, unseen_third.HONEST["eight bits for each channel"](source, target))


@pytest.mark.parametrize("how", ["stored as e4m3", "stored as e5m2"])
@pytest.mark.parametrize("target", [(18, 28), (7, 11), (30, 44)])
def test_slow_sines_in_eight_bits_are_not_lost(how: str, target: Shape) -> None:
    source = sines(12, 20)
    is_ok(source, unseen_later.HONEST[how](source, target))


@pytest.mark.parametrize("how", ["residual of 3 %", "smooth residual of 10 %"])
@pytest.mark.parametrize("target", [(18, 28), (7, 11)])
def test_noise_that_hides_slow_sines_is_no_loss_of_channels(how: str, target: Shape) -> None:
    source = sines(12, 20)
    is_ok(source, unseen_third.HONEST[how](source, target))


@pytest.mark.parametrize("how", ["Lanczos 5, antialias, jax", "raised cosine"])
def test_fast_sines_that_alias_differently_are_not_lost(how: str) -> None:
    source = sines(24, 20)
    is_ok(source, unseen_third.HONEST[how](source, (6, 5)))


@pytest.mark.parametrize("name", ["other_turn_5x9", "other_photo_9x9", "other_line_1x24"])
@pytest.mark.parametrize("factor", [1.5, 2.3])
def test_inverting_the_way_back_is_honest(name: str, factor: float) -> None:
    known = TABLES[name]
    height, width = known.grid
    target = (max(2, round(height * factor)), round(width * factor))
    cells = known.rows[known.prefix :].reshape(height, width, -1)
    is_ok(cells, unseen_later.HONEST["least squares"](cells, target))


MAPS: dict[str, Callable[[Cells, Shape], Cells]] = {
    "perspective": unseen_later.DAMAGE["seen in perspective"],
    "a row and a column lost": lambda c, t: SMOOTH(np.ascontiguousarray(c[1:, 1:]), t),
    "one row late": lambda c, t: unseen_third.DAMAGE["one row late"](
        c.reshape(-1, c.shape[-1]), 0, (c.shape[0], c.shape[1]), t
    ).reshape(*t, -1),
    "magnified": unseen_later.DAMAGE["magnified by 1.6"],
}


@pytest.mark.parametrize("how", MAPS)
@pytest.mark.parametrize("target", [(21, 17), (8, 7), (28, 30)])
def test_cells_that_were_read_elsewhere_fail(how: str, target: Shape) -> None:
    source = field(14, 15)
    found = verified(source, MAPS[how](source, target))
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None, found.checks


def test_a_real_table_in_perspective_fails_by_name() -> None:
    known = TABLES["vit_base_14x14"]
    cells = known.rows[known.prefix :].reshape(*known.grid, -1)
    found = verified(cells, MAPS["perspective"](cells, (21, 17)))
    assert found.diagnosis is not None and worst(found.checks) is Level.FAIL


@pytest.mark.parametrize("target", [(35, 38), (6, 7), (20, 9)])
def test_honest_rules_of_coordinates_displace_nothing(target: Shape) -> None:
    """Cubic at i·n/m, which no library's convention is and no kernel by name."""
    source = field(14, 15)
    made: Cells = source.astype(np.float64)
    for axis, length in enumerate(target):
        count = source.shape[axis]
        place = np.minimum(np.arange(length) * count / length, count - 1)
        apart = np.abs(np.arange(count)[None] - place[:, None]) / max(1, count / length)
        near = 1.5 * apart**3 - 2.5 * apart**2 + 1
        far = -0.5 * apart**3 + 2.5 * apart**2 - 4 * apart + 2
        weights = np.where(apart < 1, near, np.where(apart < 2, far, 0))
        weights /= weights.sum(1, keepdims=True)
        made = np.moveaxis(np.tensordot(weights, made, (1, axis)), 0, axis)
    is_ok(source, made)


def test_training_displaces_nothing() -> None:
    for key, table in trained().items():
        name, grid, _ = key.split(" ", 2)
        height, width = (int(side) for side in grid.split("x"))
        found = explain(step_for(TABLES[name], (height, width)), TABLES[name].rows, table)
        assert found.diagnosis is None, (key, found.diagnosis)


def added(cells: Cells) -> Cells:
    """Keep what rows and columns have by themselves."""
    made: Cells = cells.mean(0, keepdims=True) + cells.mean(1, keepdims=True) - cells.mean((0, 1))
    return made


def test_rows_and_columns_that_were_added_fail_by_name() -> None:
    source = field(14, 9)
    fails(source, added(SMOOTH(source, (19, 15))), "rows and columns added")


@pytest.mark.parametrize("how", ["Mitchell", "Hermite, antialias", "eight bits for each channel"])
def test_a_source_of_rows_and_columns_stays_one(how: str) -> None:
    source = added(field(14, 9))
    is_ok(source, unseen_third.HONEST[how](source, (19, 15)))


@pytest.mark.parametrize("how", ["zeros outside", "border of zeros"])
def test_a_border_that_was_mixed_with_zeros_fails(how: str) -> None:
    source = field(11, 16)
    rows = source.reshape(-1, source.shape[-1])
    made = unseen_third.DAMAGE[how](rows, 0, (11, 16), (22, 32)).reshape(22, 32, -1)
    found = verified(source, made)
    assert found.diagnosis is not None and worst(found.checks) is Level.FAIL


def faint_border(source: Cells) -> Cells:
    """Outermost columns that a model never learned."""
    made = source.copy()
    noise = np.random.default_rng(9).normal(0, 0.005, source.shape)
    made[:, [0, -1]] = noise[:, [0, -1]]
    return made


@pytest.mark.parametrize("how", ["bicubic, border reflected", "Lanczos 5, jax"])
@pytest.mark.parametrize("target", [(14, 27), (8, 19)])
def test_a_border_that_was_never_learned_is_not_dim(how: str, target: Shape) -> None:
    source = faint_border(field(7, 13))
    is_ok(source, unseen_third.HONEST[how](source, target))


def examined(cells: Cells) -> list[str]:
    from resize_pos.core.tensors import TensorInfo

    rows = cells.reshape(-1, cells.shape[-1])
    family = custom_family("pos_embed", "(p h w s) d")
    info = TensorInfo("pos_embed", rows.shape, "F32")
    grid = Grid(cells.shape[0], cells.shape[1])
    table = PositionTable(info, family, "", family.axes[0], grid, prefix=0)
    return [sign.name for sign in examine(table, rows).signs]


def test_a_border_that_was_never_learned_is_no_end_of_a_row() -> None:
    assert not examined(faint_border(field(7, 13)))


def test_rows_that_end_in_another_column_are_still_seen() -> None:
    source = field(9, 13)
    rolled = np.roll(source.reshape(-1, source.shape[-1]), 2, 0).reshape(source.shape)
    assert "shifted" in examined(rolled)


def test_a_corner_on_the_border_of_two_lines_may_be_rounded_down() -> None:
    """18 rows of 14: row 9 lies at 7.0, and OpenCV takes row 6."""
    source = field(14, 22)
    rows, columns = (np.arange(m) * n // m for m, n in ((18, 14), (15, 22)))
    rows[9] = 6
    is_ok(source, source[rows][:, columns])


def test_a_part_of_the_source_is_not_nearest() -> None:
    source = field(8, 10)
    for part in (source[:4, :5], source[2:6, 3:8]):
        assert worst(verified(source, part).checks) is Level.FAIL
    few = source[:4, :4]
    assert worst(verified(few, few[1:3, 1:3]).checks) is Level.FAIL


@pytest.mark.parametrize("target", [(13, 18), (5, 7)])
def test_values_are_compared_with_the_nearest_honest_result_alone(target: Shape) -> None:
    source = (0.1 * field(9, 12)).astype(np.float32)
    is_ok(source, unseen_third.HONEST["bilinear, stored as e4m3"](source, target))


def test_an_average_of_kernels_stays_ok_on_a_smooth_table() -> None:
    source = field(9, 12)
    is_ok(source, (LINEAR(source, (13, 18)) + SMOOTH(source, (13, 18))) / 2)


@pytest.mark.parametrize("target", [(6, 6), (11, 7), (3, 3)])
@pytest.mark.parametrize("antialias", [False, True])
def test_borders_that_read_the_opposite_side_are_named(target: Shape, antialias: bool) -> None:
    source = field(4, 5)
    image = torch.from_numpy(np.tile(source, (3, 3, 1))).permute(2, 0, 1)[None]
    size = (3 * target[0], 3 * target[1])
    made = torch.nn.functional.interpolate(image, size, mode="bicubic", antialias=antialias)
    middle = made[0].permute(1, 2, 0).numpy()[target[0] : 2 * target[0], target[1] : 2 * target[1]]
    fails(source, middle, "wrapped round")


def test_the_inverse_on_two_lines_is_not_called_wrapped() -> None:
    known = TABLES["opera_year_4x4"]
    cells = known.rows[known.prefix :].reshape(*known.grid, -1)
    is_ok(cells, unseen_third.HONEST["pseudo-inverse"](cells, (2, 2)))
