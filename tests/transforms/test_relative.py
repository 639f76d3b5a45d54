"""Relative tables: laws of the resampling, of what windows follow, and of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.axes import Layout
from resize_pos.core.conventions import RELATIVE_CONVENTIONS
from resize_pos.core.errors import ResizePosError
from resize_pos.core.geometry import Grid
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import Action
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.rules.base import Surroundings
from resize_pos.transforms.progression import common_ratio, source_offsets
from resize_pos.transforms.relative import offset_operator, resize_relative, zero_offset

FLAT, THREE_D, DISTANCES = (Layout.parse(axes) for axes in ("(h w s) d", "n h w", "n (h w)"))
WINDOWS = [(Grid(4, 6), Grid(7, 9)), (Grid(7, 5), Grid(3, 4)), (Grid(5, 4), Grid(5, 8))]
KEEPS_ZERO = [name for name in RELATIVE_CONVENTIONS if name != "tinyvit"]


def stored(window: Grid) -> Grid:
    return Grid(2 * window.height - 1, 2 * window.width - 1)


def flat_table(window: Grid, extra: int = 0, heads: int = 3) -> NDArray[np.float32]:
    rng = np.random.default_rng(window.height * 31 + window.width)
    return rng.normal(size=(stored(window).cells + extra, heads)).astype(np.float32)


@pytest.mark.parametrize("name", KEEPS_ZERO)
@pytest.mark.parametrize(("source", "target"), WINDOWS, ids=str)
def test_offset_zero_keeps_its_value(name: str, source: Grid, target: Grid) -> None:
    table, how = flat_table(source, 3), RELATIVE_CONVENTIONS[name].resampling
    result = resize_relative(table, FLAT, stored(source), 3, stored(target), how)
    before = zero_offset(table, FLAT, stored(source), 3, signed=True)
    after = zero_offset(result, FLAT, stored(target), 3, signed=True)
    assert np.array_equal(before, after)


@pytest.mark.parametrize("name", KEEPS_ZERO)
@pytest.mark.parametrize(("source", "target"), WINDOWS, ids=str)
def test_distance_zero_keeps_its_value(name: str, source: Grid, target: Grid) -> None:
    table = flat_table(Grid(source.height, source.width))[: source.cells].T.copy()
    how = RELATIVE_CONVENTIONS[name].resampling
    result = resize_relative(table, DISTANCES, source, 0, target, how, signed=False)
    assert np.array_equal(table[:, 0], result[:, 0])


def test_the_tinyvit_convention_moves_distance_zero_and_the_plan_says_so() -> None:
    plan = planned({"stages.1.blocks.0.attn.attention_biases": (4, 49)}, to_window=12)
    assert "shifts distance zero" in plan.steps[0].reason
    table = flat_table(Grid(4, 6))[:24].T.copy()
    how = RELATIVE_CONVENTIONS["tinyvit"].resampling
    result = resize_relative(table, DISTANCES, Grid(4, 6), 0, Grid(7, 9), how, signed=False)
    assert not np.allclose(table[:, 0], result[:, 0])


@pytest.mark.parametrize("name", RELATIVE_CONVENTIONS)
@pytest.mark.parametrize(("source", "target"), WINDOWS, ids=str)
def test_rows_for_the_class_token_are_kept_bit_for_bit(
    name: str, source: Grid, target: Grid
) -> None:
    table, how = flat_table(source, 3), RELATIVE_CONVENTIONS[name].resampling
    result = resize_relative(table, FLAT, stored(source), 3, stored(target), how)
    assert result.shape == (stored(target).cells + 3, 3)
    assert result[-3:].tobytes() == table[-3:].tobytes()


@pytest.mark.parametrize("name", RELATIVE_CONVENTIONS)
@pytest.mark.parametrize(("source", "target"), WINDOWS, ids=str)
def test_a_constant_table_stays_constant(name: str, source: Grid, target: Grid) -> None:
    table, how = np.full_like(flat_table(source), 0.7), RELATIVE_CONVENTIONS[name].resampling
    result = resize_relative(table, FLAT, stored(source), 0, stored(target), how)
    assert np.allclose(result, 0.7, atol=1e-6)


@pytest.mark.parametrize("name", RELATIVE_CONVENTIONS)
@pytest.mark.parametrize(("source", "target"), WINDOWS, ids=str)
def test_a_flat_table_and_a_3d_one_give_the_same(name: str, source: Grid, target: Grid) -> None:
    table, how = flat_table(source), RELATIVE_CONVENTIONS[name].resampling
    cube = table.T.reshape(3, stored(source).height, stored(source).width).copy()
    flat = resize_relative(table, FLAT, stored(source), 0, stored(target), how)
    whole = resize_relative(cube, THREE_D, stored(source), 0, stored(target), how)
    assert np.array_equal(whole.reshape(3, -1).T, flat)


@pytest.mark.parametrize("name", RELATIVE_CONVENTIONS)
def test_height_and_width_are_not_confused(name: str) -> None:
    source, target, how = Grid(4, 6), Grid(7, 9), RELATIVE_CONVENTIONS[name].resampling
    table = flat_table(source)
    turned = table.reshape(7, 11, 3).transpose(1, 0, 2).reshape(-1, 3).copy()
    straight = resize_relative(table, FLAT, stored(source), 0, stored(target), how)
    across = resize_relative(turned, FLAT, Grid(11, 7), 0, Grid(17, 13), how)
    assert np.allclose(straight.reshape(13, 17, 3), across.reshape(17, 13, 3).transpose(1, 0, 2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_the_stored_dtype_is_kept(dtype: str) -> None:
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    table, how = flat_table(Grid(4, 6)).astype(kind), RELATIVE_CONVENTIONS["timm"].resampling
    result = resize_relative(table, FLAT, Grid(7, 11), 0, Grid(13, 17), how)
    assert result.dtype == table.dtype


@pytest.mark.parametrize(("source", "target"), [(27, 47), (13, 127), (27, 13), (5, 9), (9, 9)])
@pytest.mark.parametrize("other", [(15, 21), (7, 5)])
def test_the_spline_is_that_of_fitpack(source: int, target: int, other: tuple[int, int]) -> None:
    from scipy.interpolate import RectBivariateSpline

    values = np.random.default_rng(3).normal(size=(source, other[0]))
    sites = [source_offsets(source, target), source_offsets(*other)]
    places = [np.arange(-(n // 2), n // 2 + 1.0) for n in (target, other[1])]
    expected = RectBivariateSpline(*sites, values, kx=3, ky=3, s=0)(*places)
    how = RELATIVE_CONVENTIONS["beit"].resampling
    rows, columns = offset_operator(source, target, how), offset_operator(*other, how)
    assert np.allclose(rows.matrix @ values @ columns.matrix.T, expected, atol=1e-12)


@pytest.mark.parametrize(("source", "target"), [(27, 47), (31, 15), (9, 63)])
def test_the_eva_spline_goes_on_outside_as_interp1d_does(source: int, target: int) -> None:
    from scipy.interpolate import interp1d

    values = np.random.default_rng(4).normal(size=(source, 2))
    sites = source_offsets(source, target, 1.0903078)
    places = np.arange(-(target // 2), target // 2 + 1.0)
    expected = interp1d(sites, values, kind="cubic", axis=0, fill_value="extrapolate")(places)
    matrix = offset_operator(source, target, RELATIVE_CONVENTIONS["eva"].resampling).matrix
    assert np.allclose(matrix @ values, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_the_ratio_stays_between_its_bounds() -> None:
    assert common_ratio(13, 23) == pytest.approx(1.0903, abs=1e-4)
    assert common_ratio(13, 6) == pytest.approx(1.01, abs=1e-5)
    assert common_ratio(6, 400) == pytest.approx(1.5, abs=1e-5)


def planned(shapes: Mapping[str, tuple[int, ...]], **options: Any) -> Plan:
    tensors = {name: TensorInfo(name, shape, "F32") for name, shape in shapes.items()}
    request = Request.make(**options)
    return make_plan(locate_tables(Surroundings(tensors, request)), request)


def targets(plan: Plan) -> dict[str, Grid]:
    return {step.table.name: step.target for step in plan.steps}


BEIT = {"patch_embed.proj.weight": (8, 3, 16, 16)}
BEIT_TABLE = "blocks.0.attn.relative_position_bias_table"


def test_a_shrinking_geometric_table_says_that_it_is_cropped() -> None:
    plan = planned(BEIT | {BEIT_TABLE: (27 * 27 + 3, 4)}, to=112)
    assert "crops" in plan.steps[0].reason and "--relative-like swin" in plan.steps[0].reason
    other = planned(BEIT | {BEIT_TABLE: (27 * 27 + 3, 4)}, to=112, relative_like="swin")
    assert "crops" not in other.steps[0].reason
    assert other.steps[0].own_convention == "timm"


def test_cropping_keeps_the_middle_and_stretching_keeps_the_edge() -> None:
    table = np.repeat(np.arange(-13.0, 14), 27)[:, None].astype(np.float32)
    small, large = stored(Grid(7, 7)), stored(Grid(14, 14))
    kept = {
        name: resize_relative(table, FLAT, large, 0, small, RELATIVE_CONVENTIONS[name].resampling)
        for name in ("beit", "swin")
    }
    assert kept["beit"][0, 0] == pytest.approx(-5.9, abs=0.1)  # not −13: the rest is lost
    assert kept["swin"][0, 0] < -12


def test_a_grid_without_an_absolute_table_is_read_off_the_offsets() -> None:
    plan = planned(BEIT | {BEIT_TABLE: (7 * 7 + 3, 4)}, to=(96, 160))
    assert plan.steps[0].table.grid == Grid(4, 4) and plan.steps[0].target == Grid(6, 10)
    assert plan.steps[0].target_shape == (11 * 19 + 3, 4)


def test_offsets_of_a_rectangle_need_a_word_and_the_word_settles_them() -> None:
    shapes = BEIT | {BEIT_TABLE: (7 * 15 + 3, 4)}
    with pytest.raises(ResizePosError, match="4×8") as caught:
        planned(shapes, to=128)
    assert "--from-grid" in str(caught.value.hint)
    for options in ({"from_": (64, 128)}, {"from_grid": (4, 8)}):
        plan = planned(shapes, to=128, **options)
        assert plan.steps[0].table.grid == Grid(4, 8)
        assert plan.steps[0].target == Grid(8, 8)


def test_equal_counts_are_not_equal_grids() -> None:
    shapes = BEIT | {BEIT_TABLE: (9 * 25 + 3, 4)}  # 225 = 15²: also an 8×8 window
    plan = planned(shapes, to=128, from_=(80, 208))
    assert plan.steps[0].table.grid == Grid(5, 13)
    assert plan.steps[0].action is Action.RESIZE and plan.steps[0].target == Grid(8, 8)


def test_from_is_checked_against_the_offsets() -> None:
    with pytest.raises(ResizePosError, match="would need 729"):
        planned(BEIT | {BEIT_TABLE: (7 * 7 + 3, 4)}, to=384, from_=224)


def test_a_relative_and_an_absolute_table_that_disagree_are_refused() -> None:
    shapes = BEIT | {BEIT_TABLE: (9 * 9 + 3, 4), "pos_embed": (1, 17, 8), "cls_token": (1, 1, 8)}
    with pytest.raises(ResizePosError, match="they should be the same"):
        planned(shapes, to=128)


SWIN = {"patch_embed.proj.weight": (8, 3, 4, 4)}


def swin(*windows: int) -> dict[str, tuple[int, ...]]:
    return SWIN | {
        f"layers.{stage}.blocks.0.attn.relative_position_bias_table": ((2 * w - 1) ** 2, 2)
        for stage, w in enumerate(windows)
    }


@pytest.mark.parametrize(
    ("windows", "options", "expected"),
    [
        ((7, 7, 7, 7), {"to": 448}, (7, 7, 7, 7)),
        ((7, 7, 7, 7), {"to": 112}, (7, 7, 7, 3)),
        ((7, 7, 7, 3), {"to": 224}, (7, 7, 7, 7)),
        ((7, 7, 7, 7), {"to": 384, "to_window": 12}, (12, 12, 12, 12)),
        ((7, 7, 7, 7), {"to_window": 5}, (5, 5, 5, 5)),
        ((7, 7, 7, 3), {"to_window": 5}, (5, 5, 5, 3)),
        ((7, 7, 7, 7), {"from_": 224, "to_window": 12}, (12, 12, 12, 7)),
    ],
)
def test_timm_swin_windows_are_no_larger_than_their_stage(
    windows: tuple[int, ...], options: Mapping[str, Any], expected: tuple[int, ...]
) -> None:
    got = targets(planned(swin(*windows), **options))
    assert [grid.height for grid in got.values()] == list(expected)


def test_a_window_that_may_have_been_cut_down_is_not_guessed() -> None:
    with pytest.raises(ResizePosError, match="reduced to fit a small image") as caught:
        planned(swin(6, 3, 1), to=224)
    assert "--to-window" in str(caught.value.hint)
    assert set(targets(planned(swin(6, 3, 1), to=224, to_window=7)).values()) == {Grid(7, 7)}


def test_a_larger_window_needs_the_image_size() -> None:
    with pytest.raises(ResizePosError, match="image size is not known"):
        planned(swin(7, 7, 7, 7), to_window=12)


def test_to_window_is_refused_where_nothing_follows_a_window() -> None:
    with pytest.raises(ResizePosError, match="no table in this file follows a window"):
        planned(BEIT | {BEIT_TABLE: (7 * 7 + 3, 4)}, to_window=12)


def sam(**lengths: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"patch_embed.proj.weight": (8, 3, 16, 16)}
    for block, (height, width) in lengths.items():
        shapes[f"blocks.{block[1:]}.attn.rel_pos_h"] = (2 * height - 1, 8)
        shapes[f"blocks.{block[1:]}.attn.rel_pos_w"] = (2 * width - 1, 8)
    return shapes


def test_global_blocks_change_and_windowed_ones_stay() -> None:
    shapes = sam(b0=(5, 5), b1=(8, 12)) | {"pos_embed": (1, 8, 12, 8)}
    got = targets(planned(shapes, to=(96, 160)))
    assert got["blocks.0.attn.rel_pos_h"] == Grid(5, 1)
    assert got["blocks.1.attn.rel_pos_h"] == Grid(6, 1)
    assert got["blocks.1.attn.rel_pos_w"] == Grid(1, 10)


def test_one_equal_axis_does_not_make_a_window_global() -> None:
    shapes = sam(b0=(5, 5), b1=(5, 12)) | {"pos_embed": (1, 5, 12, 8)}
    got = targets(planned(shapes, to=160))
    assert got["blocks.0.attn.rel_pos_h"] == Grid(5, 1)
    assert got["blocks.1.attn.rel_pos_h"] == Grid(10, 1)


def test_windows_as_large_as_the_image_are_refused_unless_told_apart() -> None:
    shapes = sam(b0=(5, 5), b1=(5, 5)) | {"pos_embed": (1, 5, 5, 8)}
    with pytest.raises(ResizePosError, match="cannot be told from global ones"):
        planned(shapes, to=160)
    got = targets(planned(shapes, to=160, from_window=14))
    assert got["blocks.0.attn.rel_pos_h"] == Grid(10, 1)


def test_a_flat_pretraining_table_does_not_decide_which_blocks_are_global() -> None:
    shapes = sam(b0=(14, 14), b1=(32, 32)) | {"pos_embed": (1, 197, 8), "cls_token": (1, 1, 8)}
    got = targets(planned(shapes, to=1024))
    assert got["blocks.0.attn.rel_pos_h"] == Grid(14, 1)
    assert got["blocks.1.attn.rel_pos_h"] == Grid(64, 1)


def test_stages_that_no_image_explains_are_refused() -> None:
    shapes = {
        "stages.2.blocks.0.attn.rel_pos.relative_position_bias_table": (27 * 27, 2),
        "stages.3.blocks.0.attn.rel_pos.relative_position_bias_table": (27 * 27, 2),
    }
    with pytest.raises(ResizePosError, match="no image size gives both"):
        planned(shapes, to=256)


def test_a_relative_table_of_an_unknown_model_is_refused() -> None:
    shapes = {"pos_embed": (1, 17, 8), "cls_token": (1, 1, 8), **BEIT}
    planned(shapes, to=128)
    with pytest.raises(ResizePosError, match="no family knows"):
        planned(shapes | {"decoder.foo.relative_position_bias_table": (49, 2)}, to=128)


def test_a_size_that_the_windows_cannot_divide_is_refused_with_the_nearest() -> None:
    name = "stages.0.blocks.0.attn_block.attn.rel_pos.relative_position_bias_table"
    with pytest.raises(ResizePosError, match="multiple of 32") as caught:
        planned({name: (169, 2)}, to=240)
    assert "224 px or 256 px" in str(caught.value.hint)


Shapes = dict[str, tuple[int, ...]]
OWN_WINDOWS: Mapping[str, tuple[str, Shapes, tuple[int, ...]]] = {
    # Where small stages are padded, nothing is ever cut down, so no stage has another's window.
    "Swin in detectron2": (
        "layers.{}.blocks.0.attn.relative_position_bias_table",
        {"layers.0.blocks.0.attn.relative_position_index": (196, 196)},
        (14, 14, 12, 7),
    ),
    "Swin in mmdetection": (
        "stages.{}.blocks.0.attn.w_msa.relative_position_bias_table",
        {},
        (7, 7, 14, 7),
    ),
    "Swin-S3 in timm": (
        "layers.{}.blocks.0.attn.relative_position_bias_table",
        {"patch_embed.proj.weight": (8, 3, 4, 4)},
        (14, 14, 14, 7),
    ),
}


@pytest.mark.parametrize("name", OWN_WINDOWS)
def test_windows_that_are_each_stage_s_own_stay_with_a_larger_image(name: str) -> None:
    key, others, windows = OWN_WINDOWS[name]
    tables = {key.format(n): ((2 * w - 1) ** 2, 3) for n, w in enumerate(windows)}
    plan = planned({**tables, **others}, to=(448, 512))
    assert not plan.changes
    assert {step.table.grid.height for step in plan.steps if "table" in step.table.name} == {
        *windows
    }


def test_a_tinyvit_whose_windows_are_all_alike_keeps_them() -> None:
    """Its third stage usually has a window of twice the size; seven is no such thing."""
    name = "stages.{}.blocks.0.attn.attention_biases"
    shapes = {name.format(n): (3, 49) for n in (1, 2, 3)}
    assert not planned(shapes, to=512).changes
    changed = targets(planned(shapes, to_window=9))
    assert set(changed.values()) == {Grid(9, 9)}
