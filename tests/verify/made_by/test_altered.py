"""An honest resize that one operation altered fails by the name of the operation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import fft, ndimage

from benchmarks.verdict.count import made, step_for
from benchmarks.verdict.tables import known_tables
from resize_pos.core.geometry import Grid
from resize_pos.quality.checks import Level, worst
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.altered import find_altered
from resize_pos.verify.made_by.fitted import fit_nearby

Cells = NDArray[np.float64]
Change = Callable[[Cells], Cells]
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
# The mean of FacePhys's spreads is much longer than their differences; DINOv2 is smooth.
PAIRS: list[tuple[str, Shape]] = [
    ("pulse_spread_9x9", (14, 13)),
    ("vit_base_14x14", (9, 8)),
    ("pix2tex_12x42", (18, 59)),
    ("other_photo_14x11", (8, 6)),
]


def around(change: Callable[[Cells, Cells], Cells]) -> Change:
    """Change what a table has beside its mean; the second argument has the channels' deviations."""

    def changed(cells: Cells) -> Cells:
        mean = cells.mean((0, 1))
        return np.asarray(mean + change(cells - mean, cells.std((0, 1))))

    return changed


def slope(cells: Cells) -> Cells:
    across = np.linspace(-1, 1, cells.shape[1])[None, :, None]
    by = np.random.default_rng(1).normal(size=cells.shape[-1])
    return np.asarray(cells + 0.5 * (cells - cells.mean((0, 1))).std() * across * by)


def pattern(cells: Cells) -> Cells:
    random = np.random.default_rng(2)
    by = random.normal(size=(*cells.shape[:2], 1)) * random.normal(size=cells.shape[-1])
    return np.asarray(cells + 0.5 * (cells - cells.mean((0, 1))).std() * by)


def channels(varying: Cells, deviation: Cells) -> Cells:
    return np.asarray(varying * np.random.default_rng(3).uniform(0.5, 1.5, varying.shape[-1]))


def border(varying: Cells, deviation: Cells) -> Cells:
    factors = np.full((*varying.shape[:2], 1), 0.4)
    factors[1:-1, 1:-1] = 1.0
    return np.asarray(varying * factors)


def stripes(cells: Cells) -> Cells:
    signs = np.where(np.arange(len(cells)) % 2, 1.0, -1.0)[:, None, None]
    by = np.random.default_rng(4).choice([-1.0, 1.0], cells.shape[-1])
    return np.asarray(cells + 0.4 * (cells - cells.mean((0, 1))).std() * signs * by)


def vector(cells: Cells) -> Cells:
    by = np.random.default_rng(5).normal(size=cells.shape[-1])
    return np.asarray(cells + 0.3 * (cells - cells.mean((0, 1))).std() * by)


def slow(varying: Cells, deviation: Cells) -> Cells:
    waves = fft.dctn(varying, axes=(0, 1), norm="ortho")
    waves[:3, :3] *= 0.5
    return np.asarray(fft.idctn(waves, axes=(0, 1), norm="ortho"))


ALTERED: dict[str, tuple[Change, str]] = {
    "positions weaker": (around(lambda v, _: 0.7 * v), "scaled"),
    "positions stronger": (around(lambda v, _: 1.35 * v), "scaled"),
    "a vector added": (vector, "mean changed"),
    "a third of the mirror image": (around(lambda v, _: v + v[:, ::-1] / 3), "mirror image"),
    "a ghost": (around(lambda v, _: v + 0.35 * np.roll(v, 2, 0)), "mixed with itself"),
    "cut off at a deviation": (around(lambda v, d: np.clip(v, -d, d)), "bent"),
    "roots": (around(lambda v, d: np.sign(v) * np.sqrt(np.abs(v) * d)), "bent"),
    "ranks": (around(lambda v, d: np.tanh(1.5 * v / d) * d), "bent"),
    "four bits": (
        around(lambda v, d: np.round(v / (0.6 * d)) * (0.6 * d)),
        "bent",
    ),
    "a slope": (slope, "slope added"),
    "stripes": (stripes, "stripes added"),
    "slow waves weaker": (around(slow), "waves changed"),
    "channels scaled": (around(channels), "channels scaled"),
    "a dim border": (around(border), "cells scaled"),
    "a pattern": (pattern, "pattern added"),
}


def altered(
    name: str, target: Shape, how: str, noise: float, like: str = "timm"
) -> TableVerification:
    known = TABLES[name]
    table = made(known, target, like)[1].copy()
    cells = table[known.prefix :].reshape(*target, -1).astype(np.float64)
    size = float((cells - cells.mean((0, 1))).std())
    changed = ALTERED[how][0](cells)
    changed = changed + noise * size * np.random.default_rng(9).normal(size=cells.shape)
    table[known.prefix :] = changed.reshape(len(table) - known.prefix, -1)
    return explain(step_for(known, target), known.rows, table)


@pytest.mark.parametrize("how", ALTERED)
@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_an_operation_fails_by_its_name(name: str, target: Shape, how: str) -> None:
    found = altered(name, target, how, 0.0)
    assert worst(found.checks) is Level.FAIL, found.checks
    assert found.diagnosis is not None


@pytest.mark.parametrize("like", ["hf", "PIL lanczos", "torch area"])
@pytest.mark.parametrize("how", ALTERED)
def test_the_name_is_that_of_the_operation_whatever_the_kernel(how: str, like: str) -> None:
    found = altered("pulse_spread_9x9", (14, 13), how, 0.0, like)
    assert found.diagnosis is not None
    assert found.diagnosis.name == ALTERED[how][1], found.diagnosis


@pytest.mark.parametrize("how", ALTERED)
def test_a_little_noise_hides_nothing(how: str) -> None:
    found = altered("vit_base_14x14", (9, 8), how, 0.03)
    least = Level.WARN if how == "four bits" else Level.FAIL  # rounded values and noise are noise
    assert worst(found.checks) is least, found.checks


HONEST = (
    "PCHIP",
    "Gaussian process",
    "thin plate",
    "mean kept",
    "mean and deviation kept",
    "Akima",
)


@pytest.mark.parametrize("how", HONEST)
@pytest.mark.parametrize(("name", "target"), PAIRS[:3])
def test_no_honest_method_is_an_operation(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    table = made(known, target, how)[1][known.prefix :].astype(np.float64)
    source = known.rows[known.prefix :].reshape(1, *known.grid, -1).astype(np.float64)
    rest = fit_nearby(source, table, Grid(*target))
    plain = table - rest
    left = float(np.linalg.norm(rest) / np.linalg.norm(plain - plain.mean(0)))
    assert find_altered(source, table, left, Grid(*target)) is None


def test_smooth_noise_is_no_operation() -> None:
    known = TABLES["vit_base_14x14"]
    table = made(known, (9, 8), "timm")[1][known.prefix :].astype(np.float64)
    random = np.random.default_rng(6).normal(size=(9, 8, table.shape[1]))
    smooth = ndimage.gaussian_filter(random, (1.5, 1.5, 0)).reshape(table.shape)
    table += 0.1 * (table - table.mean(0)).std() * smooth / smooth.std()
    source = known.rows[known.prefix :].reshape(1, *known.grid, -1).astype(np.float64)
    assert find_altered(source, table, 0.1, Grid(9, 8)) is None
