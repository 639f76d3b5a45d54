"""The arrays that a page would draw: small, plain, and right."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from resize_pos.core.conventions import Resampling
from resize_pos.core.geometry import Grid
from resize_pos.quality.pictures import picture_grid, picture_step, similarity_map
from resize_pos.transforms.absolute import resize_grid
from tests.quality.test_damage import explained, source_table, step
from tests.support.builders import smooth

TABLE = smooth(9, 14, 32)[None].astype(np.float64)


def test_a_cell_is_most_similar_to_itself() -> None:
    found = similarity_map(TABLE, 0.3, 0.8)
    values = np.array(found.values)
    assert values.shape == (9, 14)
    assert divmod(int(values.argmax()), 14) == (found.row, found.column)
    assert values.max() == pytest.approx(1)


def test_reference_cells_lie_at_the_same_places_after_a_resize() -> None:
    before = picture_grid(TABLE)
    after = picture_grid(resize_grid(TABLE, Grid(18, 28), Resampling()))
    for old, new in zip(before.similarity, after.similarity, strict=True):
        assert abs((old.row + 0.5) / 9 - (new.row + 0.5) / 18) < 1 / 9
        assert abs((old.column + 0.5) / 14 - (new.column + 0.5) / 28) < 1 / 14


def test_similarity_falls_with_distance() -> None:
    curve = picture_grid(TABLE).distance
    assert curve.y[0] > 0.8 > curve.y[len(curve.y) // 2]
    assert list(curve.x) == sorted(curve.x)


def test_a_spectrum_adds_up_to_one_and_a_smooth_table_is_low() -> None:
    spectrum = picture_grid(TABLE).spectrum
    assert sum(spectrum.y) == pytest.approx(1, abs=1e-3)
    assert sum(spectrum.y[:4]) > 0.9
    assert len(spectrum.x) == 13


def test_norms_are_the_norms() -> None:
    assert np.allclose(picture_grid(TABLE).norms, np.linalg.norm(TABLE[0], axis=-1), rtol=1e-4)


def test_both_sides_of_a_step_become_a_small_document() -> None:
    table = source_table("digits")
    planned = step(table, (14, 14), (16, 21))
    made = explained("digits", (16, 21), "timm")
    assert made.step.target == planned.target
    after = resize_grid(
        table[1:].reshape(1, 14, 14, -1).astype(np.float64), Grid(16, 21), Resampling()
    )
    rows = np.concatenate([table[:1], after.reshape(16 * 21, -1)]).astype(np.float32)
    pictures = picture_step(planned, table, rows)
    text = json.dumps(asdict(pictures))
    assert len(text) < 40_000
    assert len(pictures.after.norms) == 16
    assert len(pictures.before.prefix_norms) == 1


def test_a_constant_table_has_nothing_to_draw_but_draws() -> None:
    found = picture_grid(np.ones((1, 3, 4, 5)))
    assert set(found.spectrum.y) == {0.0}
    assert np.all(np.array(found.similarity[0].values) == 0)
