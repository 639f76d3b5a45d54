"""What comes from no source cell around its place is not believed, whatever the damage is."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import interpolate, ndimage

from benchmarks.verdict.count import made, step_for
from benchmarks.verdict.tables import Known, known_tables, trained
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain

Cells = NDArray[np.float64]
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
PAIRS: list[tuple[str, Shape]] = [
    ("pulse_spread_9x9", (14, 13)),
    ("pulse_mean_18x18", (27, 25)),
    ("vit_base_14x14", (21, 18)),
    ("pix2tex_12x42", (7, 23)),
    ("dinov2_vits_37x37", (22, 20)),
]


def changed(name: str, target: Shape, by: Cells, size: float) -> TableVerification:
    """Add something to an honest resize, of this size beside how much positions differ."""
    known = TABLES[name]
    table = made(known, target, "timm")[1].copy()
    cells = table[known.prefix :]
    deviation = float((cells - cells.mean(axis=0)).std())
    cells += (size * deviation * by / by.std()).reshape(cells.shape).astype(np.float32)
    return explain(step_for(known, target), known.rows, table)


def another(name: str, target: Shape, reach: float) -> Cells:
    """A table without any relation to the source; `reach`: how smooth it is."""
    shape = (*target, TABLES[name].rows.shape[1])
    random = np.random.default_rng(7).normal(size=shape)
    return np.asarray(ndimage.gaussian_filter(random, (reach * target[0], reach * target[1], 0)))


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_quarter_of_another_table_fails(name: str, target: Shape) -> None:
    found = changed(name, target, another(name, target, 0.1), 0.4)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_little_of_another_table_is_in_doubt(name: str, target: Shape) -> None:
    found = changed(name, target, another(name, target, 0.1), 0.22)
    assert worst(found.checks) is Level.WARN, found.checks
    assert "hard training, or damage" in found.checks[0].detail


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_trace_of_another_table_passes(name: str, target: Shape) -> None:
    found = changed(name, target, another(name, target, 0.1), 0.05)
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_some_cells_of_a_smooth_table_may_not_be_copies_of_others(name: str, target: Shape) -> None:
    known = TABLES[name]
    table = made(known, target, "timm")[1].copy()
    cells = table[known.prefix :].reshape(*target, -1)
    cells[: target[0] // 2, : target[1] // 2] = cells[target[0] // 4, target[1] // 4]
    found = explain(step_for(known, target), known.rows, table)
    assert worst(found.checks) is Level.FAIL, found.checks


def test_a_table_that_is_too_large_to_read_whole_is_judged_by_many_channels() -> None:
    random = np.random.default_rng(8).normal(size=(40, 36, 1024))
    source = ndimage.gaussian_filter(random, (4, 4, 0)).astype(np.float32).reshape(-1, 1024)
    known = Known("large", source, 0, (40, 36), False, False, "made here")
    table = made(known, (96, 90), "hf")[1]
    step = step_for(known, (96, 90))
    assert worst(explain(step, source, table).checks) is Level.OK
    mirrored = table.reshape(96, 90, -1)[:, ::-1].reshape(table.shape)
    found = explain(step, source, (0.75 * table + 0.25 * mirrored).astype(np.float32))
    assert found.diagnosis is not None and found.diagnosis.name == "mirror image"


@pytest.mark.parametrize("how", ["Lanczos, lengths bilinear", "mean norm kept"])
@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_norms_may_be_restored_by_any_kernel(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    found = explain(step_for(known, target), known.rows, made(known, target, how)[1])
    assert worst(found.checks) is Level.OK, found.checks


def window(apart: Cells) -> Cells:
    """Give the weights of a kernel that no library uses without antialiasing."""
    inside = np.sinc(apart) * (0.54 + 0.46 * np.cos(np.pi * apart))
    return np.asarray(np.where(apart < 1, inside, 0.0))


@pytest.mark.parametrize(
    ("how", "zoom", "level", "words"),
    [
        ("linear", 1.08, Level.FAIL, "It is zoomed out"),  # a known kernel shows where it read
        ("Hamming", 1.07, Level.WARN, "too wide or too narrow"),
        ("Hamming", 1.15, Level.FAIL, "It is displaced"),
    ],
)
def test_a_grid_that_was_read_too_wide_does_not_pass(
    how: str, zoom: float, level: Level, words: str
) -> None:
    known, target = TABLES["pulse_spread_9x9"], (14, 13)
    cells = known.rows.reshape(*known.grid, -1)
    for axis, new in enumerate(target):
        old = known.grid[axis]
        places = (old - 1) / 2 + zoom * ((np.arange(new) + 0.5) * old / new - old / 2)
        apart = np.abs(np.arange(old) - places.clip(0, old - 1)[:, None])
        weights = np.maximum(1 - apart, 0) if how == "linear" else window(apart)
        weights = weights / weights.sum(axis=1, keepdims=True)
        cells = np.moveaxis(np.tensordot(weights, cells, (1, axis)), 0, axis)
    table = cells.reshape(-1, cells.shape[-1]).astype(np.float32)
    found = explain(step_for(known, target), known.rows, table)
    assert worst(found.checks) is level, found.checks
    assert words in found.checks[0].detail


@pytest.mark.parametrize("how", ["Lanczos down, area across", "average of corners and centres"])
@pytest.mark.parametrize(
    ("name", "target"), [("pulse_spread_9x9", (14, 13)), ("vit_base_14x14", (21, 18))]
)
def test_kernels_that_lean_are_not_in_doubt(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    found = explain(step_for(known, target), known.rows, made(known, target, how)[1])
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize("how", ["deviation kept by one factor", "mean and deviation kept"])
@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_deviations_may_be_restored(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    found = explain(step_for(known, target), known.rows, made(known, target, how)[1])
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize(
    ("name", "target"), [("other_place_16x10", (24, 14)), ("other_depth_7x12", (10, 17))]
)
def test_its_own_cells_in_other_places_are_no_training(name: str, target: Shape) -> None:
    # The changes are spread as evenly as those of training, but in the directions of positions.
    known = TABLES[name]
    table = made(known, target, "its own cells shuffled on top")[1]
    found = explain(step_for(known, target), known.rows, table)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None


@pytest.mark.parametrize(("name", "target"), PAIRS[:3])
def test_cells_may_be_interpolated_in_triangles(name: str, target: Shape) -> None:
    known = TABLES[name]
    height, width = known.grid
    places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1)
    wanted = np.meshgrid(
        *(
            np.clip((np.arange(t) + 0.5) * s / t - 0.5, 0, s - 1)
            for s, t in zip(known.grid, target, strict=True)
        ),
        indexing="ij",
    )
    rows = known.rows[known.prefix :]
    cells = interpolate.griddata(places.reshape(-1, 2), rows, np.stack(wanted, -1), "linear")
    prefix = known.rows[: known.prefix]
    table = np.concatenate([prefix, cells.reshape(-1, rows.shape[1])]).astype(np.float32)
    found = explain(step_for(known, target), known.rows, table)
    assert worst(found.checks) is Level.OK, found.checks


def test_averages_along_the_sequence_fail_by_name() -> None:
    known, target = TABLES["pulse_spread_9x9"], (14, 13)
    table = made(known, target, "averaged along the sequence")[1]
    found = explain(step_for(known, target), known.rows, table)
    assert found.diagnosis is not None
    assert found.diagnosis.name == "mixed along the sequence"


@pytest.mark.parametrize(
    ("name", "target", "how", "words"),
    [
        ("opera_year_4x4", (6, 6), "each quarter half centred", "of how much positions differ is"),
        ("opera_fine_4x4", (2, 2), "contrast of 0.6", "of how much positions differ is left"),
        ("opera_fine_4x4", (2, 2), "30 % of its transpose", "comes from no cell of the source"),
        ("opera_fine_4x4", (2, 2), "its own cells shuffled on top", "from other places"),
        ("dinov2_vits_37x37", (22, 20), "half a cell off and weaker", "from other places"),
        ("dinov2_vits_37x37", (22, 20), "difference of two kernels tenfold", "from other places"),
        ("pulse_mean_18x18", (27, 25), "each quarter half centred", "comes from no cell of the"),
        ("other_depth_7x12", (4, 7), "some channels centred", "One vector was added to some"),
    ],
)
def test_what_is_too_little_to_fail_is_in_doubt(
    name: str, target: Shape, how: str, words: str
) -> None:
    known = TABLES[name]
    found = explain(step_for(known, target), known.rows, made(known, target, how)[1])
    assert worst(found.checks) is Level.WARN, found.checks
    assert words in found.checks[0].detail


def test_lengths_of_a_few_cells_explain_little() -> None:
    # Norms may be restored, but four lengths and a kernel would explain nearly any four cells.
    known = TABLES["opera_fine_4x4"]
    table = made(known, (2, 2), "hf")[1]
    gains = np.array([[1.25], [0.75], [0.75], [1.25]], np.float32)
    found = explain(step_for(known, (2, 2)), known.rows, table * gains)
    assert worst(found.checks) is Level.WARN, found.checks
    assert "comes from no cell of the source" in found.checks[0].detail


def test_matrices_that_make_something_unlike_any_resize_are_no_kernel() -> None:
    # On a few lines, matrices that exchange two waves look like those of a kernel.
    known = TABLES["opera_fine_4x4"]
    table = made(known, (6, 6), "two waves exchanged")[1]
    found = explain(step_for(known, (6, 6)), known.rows, table)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None


@pytest.mark.parametrize("name", ["digits_3x4", "digits_4x4"])
def test_training_of_four_cells_passes(name: str) -> None:
    known, table = TABLES[name], trained()[f"{name} 2x2 300 steps at 0.0003"]
    found = explain(step_for(known, (2, 2)), known.rows, table)
    assert worst(found.checks) is Level.OK, found.checks
