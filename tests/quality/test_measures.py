"""Measures against their definitions, on tables whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.tables import known_tables
from resize_pos.core.conventions import CONVENTIONS, Method, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.measures.attention import Weights, attentions, find_keys, measure_attention
from resize_pos.quality.measures.catalogue import MEASURES, Measured
from resize_pos.quality.measures.energy import prefix_change
from resize_pos.quality.measures.relative import asymmetry, measure_relative
from resize_pos.quality.measures.sampling import products, resample, spread
from resize_pos.quality.measures.spectrum import cosine_transform, inverse_cosine_transform
from resize_pos.quality.measures.table import measure_grid
from resize_pos.quality.verdict import WINDOW_PROMINENCE, judge
from resize_pos.transforms.absolute import resize_grid
from tests.support.builders import infos, smooth, vit

BICUBIC = CONVENTIONS["timm"].resampling


def measured(
    source: NDArray[np.float64], target: Grid, resampling: Resampling = BICUBIC, scale: float = 1.0
) -> dict[str, float]:
    resized = resize_grid(source, target, resampling) * scale
    return dict(measure_grid(source, resized, resampling).values)


@pytest.fixture
def table() -> NDArray[np.float64]:
    return smooth(9, 14, 32)[None].astype(np.float64)


@pytest.mark.parametrize("scale", [0.5, 0.8, 1.3])
def test_norm_ratios_follow_a_scaled_table(table: NDArray[np.float64], scale: float) -> None:
    plain, scaled = measured(table, Grid(12, 20)), measured(table, Grid(12, 20), scale=scale)
    for name in ("norm_ratio", "norm_ratio_p1", "norm_ratio_p99", "norm_ratio_edge"):
        assert scaled[name] == pytest.approx(plain[name] * scale)


def test_a_smooth_table_comes_back_from_a_round_trip(table: NDArray[np.float64]) -> None:
    assert measured(table, Grid(18, 30))["round_trip"] < 0.02
    rough = np.random.default_rng(0).normal(size=table.shape)
    assert measured(rough, Grid(5, 7))["round_trip"] > 0.5


def test_only_bicubic_overshoots(table: NDArray[np.float64]) -> None:
    step = np.zeros((1, 6, 9, 3))
    step[:, :, 4:] = 1
    assert measured(step, Grid(11, 17))["overshoot"] > 0.05
    for method in (Method.BILINEAR, Method.NEAREST):
        assert measured(step, Grid(11, 17), Resampling(method, antialias=False))["overshoot"] == 0


@pytest.mark.parametrize("target", [Grid(18, 28), Grid(13, 21), Grid(6, 9)])
def test_neighbours_are_compared_at_equal_distance(
    table: NDArray[np.float64], target: Grid
) -> None:
    found = measured(table, target)
    assert abs(found["neighbour_deficit"]) < 0.05
    assert found["neighbour_cosine_source"] - found["neighbour_cosine"] == pytest.approx(
        found["neighbour_deficit"]
    )


def test_shuffled_cells_lose_their_neighbours(table: NDArray[np.float64]) -> None:
    resized = resize_grid(table, Grid(12, 20), BICUBIC)
    cells = resized.reshape(1, -1, 32)
    shuffled = np.random.default_rng(0).permutation(cells, axis=1).reshape(resized.shape)
    measures = measure_grid(table, shuffled, BICUBIC)
    assert measures.values["neighbour_deficit"] > 0.5
    assert worst(judge(measures)) is Level.FAIL


def test_a_single_row_has_neighbours_in_one_direction_only() -> None:
    row = smooth(1, 16, 8)[None].astype(np.float64)
    assert abs(measured(row, Grid(1, 24))["neighbour_deficit"]) < 0.05
    single = smooth(1, 1, 8)[None].astype(np.float64)
    assert "neighbour_deficit" not in measured(single, Grid(1, 1))


def test_an_all_zero_table_is_measured_without_dividing_by_zero() -> None:
    found = measured(np.zeros((1, 3, 5, 4)), Grid(6, 4))
    assert found["norm_ratio"] == 1
    assert all(np.isfinite(value) for value in found.values())


def test_prefix_change_is_relative() -> None:
    rows = np.ones((1, 2, 4), np.float32)
    assert prefix_change(rows, rows) == 0
    assert prefix_change(rows, rows * 1.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("measures", "level"),
    [
        ({}, Level.OK),
        ({"norm_ratio": 0.95}, Level.OK),
        ({"norm_ratio": 0.75}, Level.WARN),
        ({"norm_ratio": 0.50}, Level.FAIL),
        ({"norm_ratio": 2.0}, Level.FAIL),
        ({"norm_ratio": 1.0, "neighbour_deficit": 0.3}, Level.WARN),
        ({"prefix_change": 0.01}, Level.WARN),
        ({"prefix_change": 0.5}, Level.FAIL),
    ],
)
def test_the_verdict_is_the_worst_check(measures: dict[str, float], level: Level) -> None:
    assert worst(judge(Measured(measures))) is level


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.parametrize("target", [Grid(12, 20), Grid(18, 28), Grid(7, 11)])
def test_every_honest_convention_is_ok_on_a_smooth_table(
    name: str, target: Grid, table: NDArray[np.float64]
) -> None:
    resampling = CONVENTIONS[name].resampling
    resized = resize_grid(table, target, resampling)
    checks = judge(measure_grid(table, resized, resampling), resampling=resampling)
    assert worst(checks) is Level.OK, checks


def test_every_measure_is_described_and_finite(table: NDArray[np.float64]) -> None:
    for target in (Grid(14, 9), Grid(5, 7), Grid(9, 14)):
        found = measured(table, target)
        assert set(found) <= set(MEASURES)
        assert all(np.isfinite(value) for value in found.values())


def test_a_sample_is_the_same_every_time_and_never_repeats() -> None:
    for count, limit in ((10, 20), (1000, 48), (4097, 320)):
        chosen = spread(count, limit)
        assert len(set(chosen.tolist())) == min(count, limit)
        assert chosen.tolist() == sorted(spread(count, limit).tolist())
        assert np.diff(chosen).max(initial=1) < 4 * count / limit + 2


def test_products_in_blocks_are_the_products() -> None:
    rng = np.random.default_rng(0)
    left = rng.normal(size=(45, 301)).astype(np.float32)
    right = rng.normal(size=(70, 301)).astype(np.float32)
    assert np.allclose(products(left, right), left @ right.T, atol=1e-4)


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.parametrize("target", [Grid(13, 20), Grid(4, 9)])
def test_the_quick_resampling_is_the_exact_one(
    name: str, target: Grid, table: NDArray[np.float64]
) -> None:
    resampling = CONVENTIONS[name].resampling
    assert np.allclose(
        resample(table, target, resampling), resize_grid(table, target, resampling), atol=1e-12
    )


def test_the_cosine_transform_keeps_energy_and_inverts(table: NDArray[np.float64]) -> None:
    spectrum = cosine_transform(cosine_transform(table, 1), 2)
    assert np.sum(spectrum**2) == pytest.approx(np.sum(table**2))
    back = inverse_cosine_transform(inverse_cosine_transform(spectrum, 1), 2)
    assert np.allclose(back, table)


def test_imaging_counts_what_the_source_cannot_hold() -> None:
    positions = (np.arange(30) + 0.5) / 30
    low = np.cos(np.pi * 3 * positions)[None, None, :, None] * np.ones((1, 8, 1, 2))
    high = np.cos(np.pi * 20 * positions)[None, None, :, None] * np.ones((1, 8, 1, 2))
    source = np.cos(np.pi * 3 * (np.arange(10) + 0.5) / 10)[None, None, :, None]
    source = source * np.ones((1, 8, 1, 2))
    assert measure_grid(source, low, None).values["imaging"] < 1e-9
    assert measure_grid(source, low + high, None).values["imaging"] == pytest.approx(0.5, abs=1e-6)


def test_antialiasing_folds_less() -> None:
    rough = np.random.default_rng(1).normal(size=(1, 18, 24, 40))
    plain = measured(rough, Grid(7, 9), CONVENTIONS["hf"].resampling)
    smoothed = measured(rough, Grid(7, 9), CONVENTIONS["timm"].resampling)
    assert smoothed["aliasing"] < 0.6 * plain["aliasing"]
    assert plain["beyond_target"] == smoothed["beyond_target"] > 0.7


def test_nothing_is_lost_for_good_when_enlarging(table: NDArray[np.float64]) -> None:
    rough = np.random.default_rng(2).normal(size=(1, 9, 14, 12))
    for name in ("timm", "hf", "siglip2", "torchvision"):
        grown = measured(rough, Grid(13, 21), CONVENTIONS[name].resampling)
        assert grown["round_trip_best"] < 1e-6 < grown["round_trip"]
        shrunk = measured(rough, Grid(6, 9), CONVENTIONS[name].resampling)
        assert 0.3 < shrunk["round_trip_best"] < shrunk["round_trip"]


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [("timm", 2, 2), ("hf", 2, 2), ("torchvision", 0, 0), ("jax", 0, 0)],
)
def test_clamped_rows_lie_beyond_the_outermost_centres(
    name: str, rows: int, columns: int, table: NDArray[np.float64]
) -> None:
    found = measured(table, Grid(16, 24), CONVENTIONS[name].resampling)
    assert (found["clamped_rows"], found["clamped_columns"]) == (rows, columns)


def test_a_repeating_window_is_found() -> None:
    rng = np.random.default_rng(3)
    window = rng.normal(size=(1, 8, 8, 64))
    tiled = np.tile(window, (1, 3, 4, 1)) + 0.2 * smooth(24, 32, 64)[None]
    found = measure_grid(tiled, resize_grid(tiled, Grid(30, 40), BICUBIC), BICUBIC)
    assert found.values["window_period"] == 8
    assert found.values["window_prominence"] > 0.5
    assert "repeats itself every 8 cells" in str(judge(found))
    plain = smooth(24, 32, 64)[None].astype(np.float64)
    assert measured(plain, Grid(30, 40))["window_prominence"] < WINDOW_PROMINENCE


def test_a_smooth_table_that_repeats_has_no_windows() -> None:
    """DINOv2's table repeats about every half of its grid, but nothing ends there."""
    angle = 2 * np.pi * np.arange(24) / 8
    waves = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    plain = np.concatenate(np.broadcast_arrays(waves[None, :, None], waves[None, None, :]), axis=-1)
    found = measured(np.ascontiguousarray(plain), Grid(30, 36))
    assert found["window_prominence"] < WINDOW_PROMINENCE


@pytest.mark.parametrize(("height", "width"), [(24, 32), (64, 40)])
def test_the_windows_of_sam_2_are_found(height: int, width: int) -> None:
    """Its windows have no jump at their borders: within them, neighbours differ as much."""
    known = {table.name: table.rows for table in known_tables()}
    window = known["sam2_window_8x8"].reshape(1, 8, 8, -1).astype(np.float64)
    background = known["sam2_background_7x7"].reshape(1, 7, 7, -1).astype(np.float64)
    slow = resize_grid(background, Grid(height, width), BICUBIC)
    found = measured(slow + np.tile(window, (1, height // 8, width // 8, 1)), Grid(30, 36))
    assert found["window_period"] == 8
    assert found["window_prominence"] > 0.8
    assert measured(slow, Grid(30, 36))["window_prominence"] == 0


def test_the_affine_fit_reads_shift_and_scale() -> None:
    table = smooth(20, 30, 128)[None].astype(np.float64)
    fine = resize_grid(table, Grid(40, 60), BICUBIC)
    whole = measure_grid(table, fine, None).values
    assert whole["affine_scale_h"] == pytest.approx(1, abs=0.03)
    assert whole["affine_scale_w"] == pytest.approx(1, abs=0.03)
    part = measure_grid(table, np.ascontiguousarray(fine[:, :20, 15:45]), None).values
    assert part["affine_scale_h"] == pytest.approx(0.5, abs=0.03)
    assert part["affine_scale_w"] == pytest.approx(0.5, abs=0.03)
    assert part["affine_shift_h"] == pytest.approx(-5, abs=0.3)
    assert part["affine_shift_w"] == pytest.approx(0, abs=0.3)


def test_relative_tables_keep_offset_zero_and_symmetry() -> None:
    offsets = np.abs(np.arange(-6, 7))[:, None] + np.abs(np.arange(-9, 10))[None, :]
    table = np.exp(-offsets / 4.0)[None, ..., None] * np.array([1.0, 2.0, -1.0])
    assert asymmetry(table) == pytest.approx(0)
    bicubic = CONVENTIONS["hf"].resampling
    found = measure_relative(table, resize_grid(table, Grid(17, 27), bicubic))
    assert found["zero_offset_change"] < 1e-9
    assert found["asymmetry_after"] < 1e-9
    assert found["decay_drift"] < 0.2 < found["decay_drift_cells"]
    shifted = measure_relative(table, np.roll(resize_grid(table, Grid(17, 27), bicubic), 2, axis=2))
    assert shifted["zero_offset_change"] > 0.2
    assert shifted["asymmetry_after"] > 0.1
    assert worst(judge(Measured(shifted))) is not Level.OK
    assert worst(judge(Measured(found))) is Level.OK


def test_attention_compares_the_same_places(table: NDArray[np.float64]) -> None:
    rng = np.random.default_rng(4)
    weights = Weights(
        np.ones(32, np.float32),
        [rng.normal(0, 0.25, (32, 32)).astype(np.float32)],
        [rng.normal(0, 0.25, (32, 32)).astype(np.float32)],
    )
    fine = resize_grid(table, Grid(18, 28), BICUBIC)
    honest = measure_attention(table, fine, weights)
    turned = measure_attention(table, np.ascontiguousarray(fine[:, ::-1]), weights)
    assert honest["attention_drift"] < 0.1 < turned["attention_drift"]
    assert 0 < honest["attention_entropy_before"] < 1
    (maps,) = attentions([table.reshape(-1, 32)], weights)
    assert np.allclose(maps.sum(axis=-1), 1)


ATTENTION_LAYOUTS = {
    "pos_embed": ["blocks.0.norm1.weight", "blocks.0.attn.qkv.weight"],
    "encoder.pos_embed": ["encoder.blocks.0.norm1.weight", "encoder.blocks.0.attn.qkv.weight"],
    "visual.positional_embedding": [
        "visual.transformer.resblocks.0.ln_1.weight",
        "visual.transformer.resblocks.0.attn.in_proj_weight",
    ],
    "vit.embeddings.position_embeddings": [
        "vit.encoder.layer.0.layernorm_before.weight",
        "vit.encoder.layer.0.attention.attention.query.weight",
        "vit.encoder.layer.0.attention.attention.key.weight",
    ],
    "vision_model.embeddings.position_embedding.weight": [
        "vision_model.encoder.layers.0.layer_norm1.weight",
        "vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "vision_model.encoder.layers.0.self_attn.k_proj.weight",
    ],
}


@pytest.mark.parametrize("table", ATTENTION_LAYOUTS)
def test_block_zero_is_found_beside_its_own_table(table: str) -> None:
    arrays = {name: np.zeros((6, 2), np.float32) for name in ATTENTION_LAYOUTS[table]}
    keys = find_keys(table, infos(arrays), 2)
    assert keys is not None
    assert keys.norm == ATTENTION_LAYOUTS[table][0]
    assert find_keys(table, infos(arrays), 3) is None
    assert find_keys("other." + table, {}, 2) is None
    assert find_keys("pos_embed", infos(vit()), 8) is None  # it has no norm1
