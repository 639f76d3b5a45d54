"""`verify` on tables with a time axis: shared prefix rows, and another number of frames."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import Level, worst
from resize_pos.transforms.execute import transform
from resize_pos.verify.against_source import explain
from tests.support.builders import smooth

FRAMES, HEIGHT, WIDTH, CHANNELS = 4, 9, 6, 32
TIMM, HF = CONVENTIONS["timm"].resampling, CONVENTIONS["hf"].resampling


def film(prefix: int) -> NDArray[np.float32]:
    cells = np.stack([smooth(HEIGHT, WIDTH, CHANNELS, seed) for seed in range(FRAMES)])
    rows = np.random.default_rng(9).normal(size=(prefix, CHANNELS)).astype(np.float32)
    return np.concatenate([rows, cells.reshape(-1, CHANNELS)])[None]


def step(prefix: int, frames: int, operation: Resample) -> Step:
    family = custom_family("pos_embed", "1 (p t h w s) d")
    info = TensorInfo("pos_embed", (1, prefix + FRAMES * HEIGHT * WIDTH, CHANNELS), "F32")
    grid, target = Grid(HEIGHT, WIDTH), Grid(5, 4)
    table = PositionTable(info, family, "", family.axes[0], grid, prefix=prefix, frames=FRAMES)
    shape = (1, prefix + frames * target.cells, CHANNELS)
    return Step(table, Action.RESIZE, target, shape, operation, "", frames=frames)


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("frames", [2, FRAMES, 7])
def test_the_maker_of_a_film_is_named(prefix: int, frames: int) -> None:
    table = film(prefix)
    made = transform(step(prefix, frames, Resample(HF)), table)
    found = explain(step(prefix, frames, Resample(TIMM)), table, made)
    assert worst(found.checks) is Level.OK, found.checks
    assert found.made_by is not None and "hf" in found.made_by.names


@pytest.mark.parametrize("prefix", [0, 2])
def test_restored_norms_of_a_film_are_named(prefix: int) -> None:
    table = film(prefix)
    made = transform(step(prefix, FRAMES, Resample(TIMM, restore_norms=True)), table)
    found = explain(step(prefix, FRAMES, Resample(TIMM)), table, made)
    assert found.checks[0].detail == "made by bicubic, antialias, norms restored"


@pytest.mark.parametrize("frames", [FRAMES, 7])
def test_a_damaged_film_is_not_ok(frames: int) -> None:
    table = film(1)
    made = transform(step(1, frames, Resample(TIMM)), table).copy()
    made[:, 1:] = made[:, :0:-1].copy()
    assert worst(explain(step(1, frames, Resample(TIMM)), table, made).checks) is not Level.OK
