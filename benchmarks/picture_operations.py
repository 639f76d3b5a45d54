"""Pairs of a fine and a broken case for tables that are not images: relative bias, layers over
patches, windows, text, sines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from benchmarks.picture_scenes import (
    HERE,
    SMALL,
    SOURCE,
    TARGET,
    Scene,
    Shape,
    Side,
    Wide,
    cells,
    noise,
    scene,
    similarity,
    source,
)
from benchmarks.verdict.offsets import honest as honest_offsets
from benchmarks.ways.damage import Table
from resize_pos.core.conventions import DEFAULT
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import (
    Lengthen,
    LengthMethod,
    Mixing,
    Operation,
    ResampleMixing,
    ResampleTiled,
    SinCos,
    SinCosMode,
    SinCosTable,
)
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role, custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.measures.direct import measure_direct
from resize_pos.quality.measures.relative import measure_relative
from resize_pos.report.colours import COSINES, Scale
from resize_pos.transforms.absolute import resize_grid
from resize_pos.transforms.execute import transform
from resize_pos.transforms.sincos import FORMULAS
from resize_pos.transforms.tiled import tile

WINDOW = (7, 7)  # of the relative table of MobileSAM's first windows,
WIDER = (9, 12)  # and the one that it is resized to


def _offsets(table: Table, window: Shape) -> Wide:
    return table.reshape(1, 2 * window[0] - 1, 2 * window[1] - 1, -1).astype(np.float64)


def _relative() -> Table:
    table: Table = np.load(HERE / "tables" / "offsets.npz")["mobile_sam 1.blocks.0"]
    return table


def offsets(broken: Callable[[Table], Table], like: str = "swin") -> Scene:
    """Draw one head's bias for each offset, resized by a library and then changed."""
    table = _relative()
    before = _offsets(table, WINDOW)
    fine = _offsets(honest_offsets(table, WINDOW, WIDER, like), WIDER)
    changed = _offsets(broken(table), WIDER)
    sides = [Side(made[0, :, :, 0], measure_relative(before, made)) for made in (fine, changed)]
    return scene(sides)


def rolled(table: Table) -> Table:
    """Resize, and read the offsets from one row and column too early."""
    made = honest_offsets(table, WINDOW, WIDER, "swin")
    grid = _offsets(made, WIDER)[0]
    moved: Table = np.roll(grid, (1, 1), axis=(0, 1)).reshape(made.shape).astype(np.float32)
    return moved


def half_lost(table: Table) -> Table:
    """Resize, and lose the bias of every offset that points up."""
    made = honest_offsets(table, WINDOW, WIDER, "swin").copy()
    made[: len(made) // 2] = 0
    return made


def centre_only(table: Table) -> Table:
    """Put the old offsets into the middle; what is missing is zero."""
    old = _offsets(table, WINDOW)[0]
    made = np.zeros((2 * WIDER[0] - 1, 2 * WIDER[1] - 1, old.shape[-1]), np.float32)
    top, left = WIDER[0] - WINDOW[0], WIDER[1] - WINDOW[1]
    made[top : top + old.shape[0], left : left + old.shape[1]] = old
    return made.reshape(-1, old.shape[-1])


def stretched(table: Table) -> Table:
    """Resize as an image, which moves every offset outwards."""
    return honest_offsets(table, WINDOW, WIDER, "swin")


def offsets_of_sources() -> Scene:
    """Draw a trained table, and the same after training lost every offset that points up."""
    table = _relative()
    lost = table.copy()
    lost[: len(lost) // 2] = 0
    sides = []
    for each in (table, lost):
        grid = _offsets(each, WINDOW)
        sides.append(Side(grid[0, :, :, 0], measure_relative(grid, grid)))
    return scene(sides)


def honest_only(*cases: tuple[bool, Shape]) -> Scene:
    """Draw what a library makes of a trained table, or of one with its offsets in disorder."""
    sides = []
    for disorder, window in cases:
        table = _relative()
        if disorder:
            table = np.random.default_rng(2).permutation(table)
        made = _offsets(honest_offsets(table, WINDOW, window, "swin"), window)
        sides.append(Side(made[0, :, :, 0], measure_relative(_offsets(table, WINDOW), made)))
    return scene(sides)


def _step(
    table: NDArray[np.floating],
    axes: str,
    role: Role,
    grid: Shape,
    target: Shape,
    rows: int,
    operation: Operation,
) -> Step:
    family = replace(custom_family("table", axes), role=role)
    info = TensorInfo("table", table.shape, "F32")
    place = PositionTable(info, family, "", family.axes[0], Grid(*grid))
    shape = tuple(rows if side == grid[0] * grid[1] else side for side in table.shape)
    return Step(place, Action.RESIZE, Grid(*target), shape, operation, "")


def mixers(target: Shape, as_pictures: bool) -> Scene:
    """Draw which patches one hidden unit of a mixer reads: 12×10 patches, then `target`."""
    name = "blocks.0.mlp_tokens.fc1.weight"
    weight = load_file(HERE / "mixers" / "digits_mlp_mixer_64.safetensors")[name]
    how = ResampleMixing(DEFAULT.resampling, Mixing.READS)
    sides = []
    for shape, wrong in (((12, 10), False), (target, as_pictures)):
        count = shape[0] * shape[1]
        step = _step(weight, "o (h w)", Role.MIXING, (8, 8), shape, count, how)
        if wrong:
            units = weight.reshape(-1, 8, 8, 1).astype(np.float64)
            made = resize_grid(units, Grid(*shape), DEFAULT.resampling).reshape(len(weight), count)
        else:
            made = transform(step, weight)
        drawn = made[0].reshape(shape).astype(np.float64)
        sides.append(Side(drawn, measure_direct(step, weight, made).values))
    return scene(sides)


def tiled(case: str) -> Scene:
    """Draw a table that repeats with a window of 7×7 cells, as Hiera's does."""
    window, grid = Grid(7, 7), (14, 21)
    slow = resize_grid(cells(source(), SOURCE), Grid(*grid), DEFAULT.resampling)
    repeated = (slow + 10 * tile(noise((1, 7, 7, 48)), Grid(*grid))).reshape(-1, 48)
    how = ResampleTiled(DEFAULT.resampling, window)
    sides = []
    for broken in (False, True):
        target = grid if case == "same grid" and not broken else (28, 21)
        table = slow.reshape(-1, 48) if case == "source" and broken else repeated
        step = _step(table, "(h w) d", Role.ABSOLUTE, grid, target, target[0] * target[1], how)
        before = table.reshape(1, *grid, 48)
        plain = resize_grid(before, Grid(*target), DEFAULT.resampling)
        made = plain.reshape(-1, 48) if broken and case == "result" else transform(step, table)
        drawn = {"source": before, "same grid": plain}.get(case, made.reshape(1, *target, 48))
        sides.append(Side(similarity(drawn), measure_direct(step, table, made).values))
    return scene(sides, COSINES)


def text() -> Scene:
    """Draw the norms along a text table that is made longer: neighbours agree, or they do not."""
    smooth = FORMULAS["mae"].values(dict.fromkeys("xy", np.arange(24.0)), 48)
    rough = noise((24, 48)) * 50 * np.sqrt(0.5)
    sides = []
    for table in (smooth, rough):
        how = Lengthen(LengthMethod.LINEAR)
        step = _step(table, "l d", Role.SEQUENCE, (1, 24), (1, 60), 60, how)
        made = transform(step, table)
        norms = np.linalg.norm(made, axis=1)[None]
        sides.append(Side(np.repeat(norms, 12, axis=0), measure_direct(step, table, made).values))
    return scene(sides, Scale(0.0, 6.0))


def sines() -> Scene:
    """Draw what interpolation makes of a sin-cos table: on a larger grid, and on a small one."""
    formula = FORMULAS["mae"]
    rows, columns = np.divmod(np.arange(14.0 * 14), 14)
    table = formula.values({"y": rows, "x": columns}, 48)
    how = SinCos(SinCosTable("mae", 2), SinCosMode.RESCALED)
    sides = []
    for shape in (TARGET, SMALL):
        step = _step(table, "(h w) d", Role.ABSOLUTE, SOURCE, shape, shape[0] * shape[1], how)
        made = transform(step, table)
        usual = resize_grid(table.reshape(1, *SOURCE, 48), Grid(*shape), DEFAULT.resampling)
        error = np.linalg.norm(usual - made.reshape(usual.shape), axis=-1)[0]
        sides.append(Side(error, measure_direct(step, table, made).values))
    return scene(sides)


# Measure → its scene, and what broke it.
OTHER_SCENES: Mapping[str, tuple[Callable[[], Scene], str]] = {
    "zero_offset_change": (
        partial(offsets, rolled),
        "the offsets were read from one row and column too early",
    ),
    "zero_offset_honest": (
        partial(honest_only, (False, WIDER), (False, (4, 5))),
        "the window shrinks, and averaging flattens the peak at offset zero",
    ),
    "asymmetry_honest": (
        partial(honest_only, (False, (3, 5)), (True, (3, 5))),
        "the offsets are in a random order, so opposite ones lose what they share",
    ),
    "asymmetry_before": (offsets_of_sources, "half of the source's offsets are zero"),
    "asymmetry_after": (partial(offsets, half_lost), "half of the new offsets are zero"),
    "decay_drift": (
        partial(offsets, centre_only),
        "the old offsets stand in the middle, the missing ones are zero",
    ),
    "decay_drift_cells": (
        partial(offsets, stretched, "timm"),
        "stretched as an image (Swin's way) instead of keeping near offsets (timm's)",
    ),
    "mixing_loss": (
        partial(mixers, (12, 10), True),
        "what one hidden unit reads: its weights were interpolated as an image",
    ),
    "mixing_scale": (
        partial(mixers, (4, 6), False),
        "the grid shrinks, so weights of several patches have to share one",
    ),
    "window_share": (partial(tiled, "source"), "nothing in the source repeats with the window"),
    "window_kept": (partial(tiled, "result"), "the windows were stretched with the table"),
    "window_kept_plain": (
        partial(tiled, "same grid"),
        "what plain interpolation would make of the windows",
    ),
    "length_norm_ratio": (
        text,
        "neighbouring positions have nothing in common, so their mean is short",
    ),
    "interpolation_difference": (
        sines,
        "the error of interpolating sines: on a small grid they are too fast",
    ),
}
