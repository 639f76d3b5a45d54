"""A kernel that nobody has listed is recognised by its weights; damage is not, however linear."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.verdict.count import made as benchmark_way
from benchmarks.verdict.count import step_for
from benchmarks.verdict.tables import Known, known_tables
from benchmarks.ways import proper as ways
from resize_pos.core.geometry import Grid
from resize_pos.quality.checks import Level, worst
from resize_pos.quality.measures import proper
from resize_pos.verify.against_source import TableVerification, explain
from resize_pos.verify.made_by.fitted import Fitted, fit_kernel

Wide = NDArray[np.float64]
Axis = Callable[[int, int], Wide]  # old and new length → (new, old) weights
Shape = tuple[int, int]
TABLES = {table.name: table for table in known_tables()}
ROUGH, LONG = "vit_base_14x14", "pix2tex_12x42"
PAIRS = [(ROUGH, (21, 18)), (ROUGH, (6, 8)), (LONG, (18, 59)), (LONG, (7, 23))]


def centres(old: int, new: int) -> Wide:
    return (np.arange(new) + 0.5) * old / new - 0.5


def bell(width: float) -> Axis:
    """A Gaussian of any width, around each centre."""

    def weights(old: int, new: int) -> Wide:
        apart = (np.arange(old) - centres(old, new)[:, None]) / max(1.0, old / new)
        made = np.exp(-0.5 * (apart / width) ** 2)
        return np.asarray(made / made.sum(axis=1, keepdims=True))

    return weights


def hops(old: int, new: int) -> Wide:
    """Three linear resizes in a row."""
    middle = [round(old ** (1 - share) * new**share) for share in (1 / 3, 2 / 3)]
    made = np.eye(old)
    for start, end in zip((old, *middle), (*middle, new), strict=True):
        kernel = next(k for k in proper.CONVENTIONAL if str(k) == "bilinear")
        made = proper.matrix(kernel, start, end) @ made
    return made


def inverse(old: int, new: int) -> Wide:
    """The damped inverse of the resize back."""
    back = bell(0.35)(new, old)
    rough = np.diff(np.eye(new), axis=0)
    made = np.linalg.solve(back.T @ back + 0.05 * rough.T @ rough, back.T)
    return np.asarray(made / made.sum(axis=1, keepdims=True))


def moved(old: int, new: int, *, by: float = 0.0, scale: float = 1.0) -> Wide:
    """Linear between neighbours, at places that are moved or magnified about the middle."""
    middle = (old - 1) / 2
    places = np.clip((centres(old, new) - middle) * scale + middle + by, 0, old - 1)
    return np.asarray(np.maximum(1 - np.abs(np.arange(old) - places[:, None]), 0.0))


def made(known: Known, target: Shape, axis: Axis) -> NDArray[np.float32]:
    grid = known.rows[known.prefix :].reshape(*known.grid, -1).astype(np.float64)
    down, across = axis(known.grid[0], target[0]), axis(known.grid[1], target[1])
    cells = np.einsum("ia,jb,abd->ijd", down, across, grid, optimize=True)
    rows = cells.reshape(target[0] * target[1], -1)
    return np.concatenate([known.rows[: known.prefix], rows]).astype(np.float32)


def fits(known: Known, target: Shape, table: NDArray[np.float32]) -> bool:
    grid = known.rows[known.prefix :].reshape(1, *known.grid, -1).astype(np.float64)
    made = fit_kernel(grid, table[known.prefix :].astype(np.float64), Grid(*target))
    return made.kind is Fitted.HONEST


def verified(known: Known, target: Shape, table: NDArray[np.float32]) -> TableVerification:
    return explain(step_for(known, target), known.rows, table)


HONEST: dict[str, Axis] = {
    "narrow bell": bell(0.42),
    "wide bell": bell(0.5),
    "inverse": inverse,
}


@pytest.mark.parametrize("how", HONEST)
@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_an_honest_kernel_needs_no_name(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    table = made(known, target, HONEST[how])
    assert fits(known, target, table)
    found = verified(known, target, table)
    assert worst(found.checks) is Level.OK, found.checks
    assert any("every cell is a mean of the source around" in c.detail for c in found.checks)


WRONG: dict[str, Axis] = {
    "half a line of the coarser grid late": lambda o, n: moved(o, n, by=0.55 * max(1.0, o / n)),
    "nine tenths of the image": lambda o, n: moved(o, n, scale=0.85),
    "more than the image": lambda o, n: moved(o, n, scale=1.2),
    "mirrored": lambda o, n: moved(o, n)[::-1],
    "two lines exchanged": lambda o, n: moved(o, n)[[1, 0, *range(2, n)]],
    "a wide blur": bell(1.0),
    "one factor": lambda o, n: 0.95 * moved(o, n),
    "one line is zero": lambda o, n: moved(o, n) * (np.arange(n) != 2)[:, None],
    "sharpened": lambda o, n: 2.2 * moved(o, n) - 1.2 * bell(1.0)(o, n),
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_linear_damage_is_no_kernel(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    assert not fits(known, target, made(known, target, WRONG[how]))


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_kernel_holds_for_every_channel_and_cell(name: str, target: Shape) -> None:
    known = TABLES[name]
    honest = made(known, target, bell(0.42))
    negated = honest * np.where(np.arange(honest.shape[1]) == 5, -1, 1).astype(np.float32)
    patched = honest.copy()
    patched[known.prefix + 9] = honest[known.prefix + 30]
    noisy = honest + np.float32(0.1 * honest.std()) * np.random.default_rng(0).normal(
        size=honest.shape
    ).astype(np.float32)
    assert fits(known, target, honest)
    assert not any(fits(known, target, table) for table in (negated, patched, noisy))


def test_a_mean_of_almost_nothing_may_be_rounded() -> None:
    known = TABLES["sam2_window_8x8"]
    assert np.abs(known.rows.mean(axis=0)).max() < 1e-6
    honest = made(known, (20, 18), proper_axis)
    rounded = (honest.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    found = verified(known, (20, 18), rounded)
    assert worst(found.checks) is Level.OK, found.checks
    shifted = honest + np.float32(0.5 * honest.std())
    found = verified(known, (20, 18), shifted)
    assert found.diagnosis is not None
    assert found.diagnosis.name == "mean changed"


def proper_axis(old: int, new: int) -> Wide:
    return proper.matrix(proper.CONVENTIONAL[0], old, new)


OPERA = TABLES["opera_v1_4x4"]


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("padded_edge_around", "padded"),
        ("old grid kept in the corner", "padded"),
    ],
)
def test_damage_of_a_few_smooth_cells_fails_by_name(how: str, name: str) -> None:
    found = verified(OPERA, (6, 6), benchmark_way(OPERA, (6, 6), how)[1])
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name == name


def test_a_blur_of_a_few_smooth_cells_warns() -> None:
    """Several resizes in a row do the same, so it is no failure."""
    found = verified(OPERA, (6, 6), benchmark_way(OPERA, (6, 6), "blurred")[1])
    assert worst(found.checks) is Level.WARN
    assert any("blurred, or resized several times" in check.detail for check in found.checks)
    rough = TABLES["digits_4x4"]
    found = verified(rough, (6, 6), benchmark_way(rough, (6, 6), "blurred")[1])
    assert worst(found.checks) is Level.FAIL


@pytest.mark.parametrize(
    ("name", "target", "how"),
    [
        ("dinov2_vits_37x37", (40, 31), "two hops bilinear"),
        (LONG, (11, 29), "cosine series"),
        (LONG, (6, 73), "least squares"),
    ],
)
def test_kernels_that_reach_far_are_no_mistake(name: str, target: Shape, how: str) -> None:
    known = TABLES[name]
    found = verified(known, target, benchmark_way(known, target, how)[1])
    assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize(("name", "target"), [(ROUGH, (21, 18)), (LONG, (18, 59))])
def test_many_resizes_in_a_row_are_in_doubt(name: str, target: Shape) -> None:
    known = TABLES[name]
    found = verified(known, target, made(known, target, hops))
    assert worst(found.checks) is Level.WARN, found.checks
    assert "blurred, or resized several times" in found.checks[0].detail


def test_places_are_judged_on_a_few_cells_too() -> None:
    found = verified(OPERA, (2, 2), benchmark_way(OPERA, (2, 2), "first row and column lost")[1])
    assert worst(found.checks) is Level.FAIL
    assert found.diagnosis is not None
    assert found.diagnosis.name == "displaced"


@pytest.mark.parametrize("target", [(6, 7), (10, 9), (3, 2)])
def test_picked_cells_may_round_halves_up_down_or_to_even(target: Shape) -> None:
    def picked(rounded: Callable[[Wide], Wide]) -> Axis:
        def weights(old: int, new: int) -> Wide:
            chosen = rounded(centres(old, new)).clip(0, old - 1).astype(int)
            return np.asarray(np.eye(old)[chosen])

        return weights

    for rounded in (np.round, lambda x: np.floor(x + 0.5), lambda x: np.ceil(x - 0.5)):
        found = verified(OPERA, target, made(OPERA, target, picked(rounded)))
        assert worst(found.checks) is Level.OK, found.checks


@pytest.mark.parametrize("how", ["blurred, resized by hf", "blurred, resized by lanczos"])
@pytest.mark.parametrize("name", ["opera_v0_4x4", "opera_v1_4x4", "opera_year_4x4"])
def test_a_slight_blur_of_four_lines_is_a_warning(name: str, how: str) -> None:
    known = next(table for table in known_tables() if table.name == name)
    target = (6, 7)
    _, table = benchmark_way(known, target, how)
    found = explain(step_for(known, target), known.rows, table)
    assert worst(found.checks) is not Level.OK


@pytest.mark.parametrize("how", [*ways.LIBRARIES, *ways.OTHERS])
@pytest.mark.parametrize("target", [(6, 7), (3, 2), (10, 9)])
def test_no_proper_kernel_blurs_four_lines(target: tuple[int, int], how: str) -> None:
    known = next(table for table in known_tables() if table.name == "opera_v0_4x4")
    _, table = benchmark_way(known, target, how)
    found = explain(step_for(known, target), known.rows, table)
    assert worst(found.checks) is Level.OK
