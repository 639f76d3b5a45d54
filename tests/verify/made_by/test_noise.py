"""Noise fails, however it is spread; training, rounding and unlisted kernels are not noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import fewer_channels, made, step_for
from benchmarks.verdict.tables import Known, known_tables, trained, tuned
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain

Table = NDArray[np.float32]
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
NOISY: dict[str, Shape] = {
    "dinov2_vits_37x37": (22, 20),
    "vit_base_14x14": (21, 17),
    "sam2_background_7x7": (10, 9),
    "pulse_mean_9x9": (14, 13),
    "other_shapes_31x17": (19, 9),
}


def verified(known: Known, target: Shape, table: Table) -> TableVerification:
    return explain(step_for(known, target), known.rows, table)


def noise(kind: str, target: Shape, channels: int) -> NDArray[np.float64]:
    """Give noise of one deviation."""
    random = np.random.default_rng(11)
    cells = random.normal(size=(*target, channels))
    if kind == "smooth":
        for axis in (0, 1):
            cells = cells + np.roll(cells, 1, axis)
    if kind == "even":
        cells = random.uniform(-1, 1, cells.shape)
    if kind == "Laplace":
        cells = random.laplace(size=cells.shape)
    if kind == "signs":
        cells = random.choice([-1.0, 1.0], cells.shape)
    rows = cells.reshape(-1, channels)
    scaled: NDArray[np.float64] = rows / rows.std()
    return scaled


def with_noise(name: str, kind: str, size: float) -> TableVerification:
    known, target = TABLES[name], NOISY[name]
    table = made(known, target, "timm")[1].copy()
    grid = table[known.prefix :]
    by = size * float((grid - grid.mean(axis=0)).std())
    grid += (by * noise(kind, target, grid.shape[1])).astype(np.float32)
    return verified(known, target, table)


@pytest.mark.parametrize("kind", ["normal", "even", "Laplace", "signs", "smooth"])
@pytest.mark.parametrize("name", NOISY)
def test_noise_of_half_the_deviation_fails_and_is_named(name: str, kind: str) -> None:
    found = with_noise(name, kind, 0.5)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None
    assert found.diagnosis.name == "noisy"
    assert "0.5 times as large as positions differ" in found.checks[0].detail


@pytest.mark.parametrize("name", NOISY)
def test_a_little_noise_passes(name: str) -> None:
    assert worst(with_noise(name, "normal", 0.1).checks) is Level.OK


def test_no_trained_table_is_taken_for_noise() -> None:
    for key, one in tuned().items():
        name, grid, _ = key.split(" ", 2)
        height, width = grid.split("x")
        if one.is_honest:
            few, target = fewer_channels(TABLES[name]), (int(height), int(width))
            found = verified(few, target, one.rows + made(few, target, one.start)[1])
            assert found.diagnosis is None, (key, found.diagnosis)


def test_no_small_trained_table_is_in_doubt() -> None:
    for key, table in trained().items():
        name, grid, _ = key.split(" ", 2)
        height, width = grid.split("x")
        target = (int(height), int(width))
        if 9 <= target[0] * target[1] < 16:
            found = verified(TABLES[name], target, table)
            assert worst(found.checks) is Level.OK, (key, found.checks)


@pytest.mark.parametrize("how", ["stored as e4m3", "stored as e5m2", "cubic triangles", "PCHIP"])
@pytest.mark.parametrize("name", ["dinov2_vits_37x37", "vit_base_14x14", "pulse_mean_9x9"])
def test_rounding_and_other_kernels_are_not_noise(name: str, how: str) -> None:
    known, target = TABLES[name], NOISY[name]
    found = verified(known, target, made(known, target, how)[1])
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize(
    ("name", "target", "how"),
    [
        ("dinov2_vits_37x37", (3, 4), "noise of half its deviation"),
        ("sam2_background_7x7", (5, 3), "seen in perspective"),
        ("opera_v1_4x4", (3, 4), "turned by 20°"),
        ("pulse_mean_18x18", (3, 4), "whitened"),
    ],
)
def test_on_few_cells_what_comes_from_elsewhere_is_in_doubt(
    name: str, target: Shape, how: str
) -> None:
    known = TABLES[name]
    found = verified(known, target, made(known, target, how)[1])
    assert worst(found.checks) is Level.WARN, found.checks
    assert "hard training, or damage" in found.checks[0].detail


@pytest.mark.parametrize("name", ["dinov2_vits_37x37", "sam2_background_7x7", "opera_v1_4x4"])
def test_on_few_cells_unlisted_kernels_are_not_in_doubt(name: str) -> None:
    known, target = TABLES[name], (3, 4)
    for how in ("PCHIP", "cubic triangles", "mean and deviation kept", "Gaussian process"):
        found = verified(known, target, made(known, target, how)[1])
        assert worst(found.checks) is Level.OK, (how, found.checks)
