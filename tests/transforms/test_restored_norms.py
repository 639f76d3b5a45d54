"""`--restore-norms`: each new vector has the interpolated norm; everything else is as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from resize_pos.api import resize_checkpoint, resize_table, verify_checkpoint
from resize_pos.core.axes import Layout
from resize_pos.core.geometry import Grid
from resize_pos.core.request import choose_resampling
from resize_pos.report.json import report_document
from resize_pos.report.report import Report
from resize_pos.transforms import device as device_module
from resize_pos.transforms.absolute import resize_absolute, resize_grid
from resize_pos.transforms.kernels import operator
from resize_pos.verify.against_source import Verification
from tests.support.builders import raw_tensors, vit, write_safetensors

GRIDS = (((9, 6), (5, 4)), ((5, 4), (8, 11)), ((12, 7), (3, 9)))


def rough(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(height, width, channels))


def interpolated(
    cells: np.ndarray, target: tuple[int, int], like: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the norm of each new cell, and which lie between their neighbours' by themselves."""
    norms = np.linalg.norm(cells, axis=-1)
    resampling = choose_resampling(like=like)
    plain = resize_grid(norms[None, ..., None], Grid(*target), resampling)[0, ..., 0]
    down, across = (
        operator(n, m, resampling).matrix for n, m in zip(norms.shape, target, strict=True)
    )
    around = [[norms[np.ix_(row != 0, column != 0)] for column in across] for row in down]
    shortest = np.array([[part.min() for part in row] for row in around])
    longest = np.array([[part.max() for part in row] for row in around])
    return np.clip(plain, shortest, longest), (plain >= shortest) & (plain <= longest)


def uneven(height: int, width: int, channels: int) -> np.ndarray:
    """Make cells of which a few are a thousand times shorter than the others."""
    short = np.random.default_rng(7).random((height, width, 1)) < 0.3
    return rough(height, width, channels) * np.where(short, 1e-3, 1.0)


@pytest.mark.parametrize(("source", "target"), GRIDS)
@pytest.mark.parametrize("like", ["timm", "hf", "siglip2", "jax"])
def test_new_vectors_have_the_interpolated_norm_and_the_same_direction(
    source: tuple[int, int], target: tuple[int, int], like: str
) -> None:
    cells = rough(*source, 16)
    plain = resize_table(cells, source, target, axes="h w d", like=like)
    made = resize_table(cells, source, target, axes="h w d", like=like, restore_norms=True)
    wanted, _ = interpolated(cells, target, like)
    assert np.allclose(np.linalg.norm(made, axis=-1), wanted, rtol=1e-9)
    cosine = np.sum(made * plain, -1) / np.linalg.norm(made, axis=-1)
    assert np.allclose(cosine, np.linalg.norm(plain, axis=-1), rtol=1e-9)


def test_large_tables_are_computed_in_bands_with_the_same_result() -> None:
    cells = rough(30, 41, 300).astype(np.float32)
    whole = resize_table(cells, (30, 41), (57, 70), axes="h w d", restore_norms=True)
    part = resize_table(cells[..., :8], (30, 41), (57, 70), axes="h w d", restore_norms=True)
    norms = np.linalg.norm(whole.astype(np.float64), axis=-1)
    expected, _ = interpolated(cells.astype(np.float64), (57, 70), "timm")
    assert np.allclose(norms, expected, rtol=1e-5)
    assert part.shape == (57, 70, 8)


@pytest.mark.parametrize("target", [(24, 18), (8, 5), (6, 4), (12, 18)])
@pytest.mark.parametrize("like", ["timm", "hf", "siglip2", "jax"])
def test_no_vector_is_shorter_or_longer_than_all_around_it(
    target: tuple[int, int], like: str
) -> None:
    """Beside short vectors a bicubic kernel gives norms below zero, which wrote cells of zeros."""
    cells = uneven(12, 9, 16)
    made = resize_table(cells, (12, 9), target, axes="h w d", like=like, restore_norms=True)
    wanted, _ = interpolated(cells, target, like)
    assert np.allclose(np.linalg.norm(made, axis=-1), wanted, rtol=1e-9)
    assert wanted.min() > 0


@pytest.mark.parametrize("target", [(24, 18), (11, 7)])
def test_norms_between_their_neighbours_are_what_they_were_without_limits(
    target: tuple[int, int],
) -> None:
    cells = uneven(12, 9, 16)
    made = resize_table(cells, (12, 9), target, axes="h w d", restore_norms=True)

    def lengths(vectors: np.ndarray) -> np.ndarray:
        largest = np.abs(vectors).max(axis=-1, keepdims=True)
        parts = vectors / largest
        scaled: np.ndarray = largest * np.sqrt(np.einsum("...d,...d->...", parts, parts)[..., None])
        return scaled

    both = np.concatenate([cells, lengths(cells)], axis=-1)[None]
    plain = resize_grid(both, Grid(*target), choose_resampling())[0]
    vectors, wanted = plain[..., :-1], plain[..., -1:]
    unlimited = vectors * (wanted / lengths(vectors))
    _, inside = interpolated(cells, target, "timm")
    assert 0.5 < inside.mean() < 1
    assert made[inside].tobytes() == unlimited[inside].tobytes()


def test_norms_have_the_same_limits_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(device_module, "resolve_device", lambda _: torch.device("cpu"))
    film = np.stack([uneven(12, 9, 8), 3 * uneven(12, 9, 8)]).reshape(1, 216, 8)
    layout = Layout.parse("1 (t h w) d")
    geometry = (layout, 0, Grid(12, 9), 0, Grid(24, 18), choose_resampling())
    here, there = (
        resize_absolute(film, *geometry, device, frames=(2, 5), restore_norms=True)
        for device in ("cpu", "cuda:3")
    )
    assert here.shape == (1, 5 * 24 * 18, 8)
    assert np.allclose(here, there, rtol=1e-9, atol=1e-12)
    norms = np.linalg.norm(here, axis=-1)
    assert norms.min() >= np.linalg.norm(film, axis=-1).min() * (1 - 1e-9)
    assert norms.max() <= np.linalg.norm(film, axis=-1).max() * (1 + 1e-9)


def test_zero_vectors_stay_zero_and_huge_ones_do_not_overflow() -> None:
    zero = resize_table(np.zeros((9, 6, 4)), (9, 6), (5, 4), axes="h w d", restore_norms=True)
    assert not zero.any()
    huge = resize_table(rough(9, 6, 4) * 1e200, (9, 6), (5, 4), axes="h w d", restore_norms=True)
    assert np.isfinite(huge).all() and np.abs(huge).max() > 1e199


def test_frames_are_restored_one_by_one() -> None:
    cells = rough(9, 6, 8)
    film = np.stack([cells, 3 * cells])
    made = resize_table(
        film.reshape(2, 54, 8), (9, 6), (5, 4), axes="k (h w) d", restore_norms=True
    )
    assert np.allclose(made[1], 3 * made[0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_file_says_that_norms_were_restored_and_verify_names_it(
    tmp_path: Path, dtype: str
) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    tensors = vit(9, 6, channels=32)
    tensors["pos_embed"] = rough(1, 55, 32).astype(kind)
    source = write_safetensors(tmp_path / "vit.safetensors", tensors)
    output = tmp_path / "out.safetensors"
    report = resize_checkpoint(
        source, to=(80, 64), output=output, from_=(144, 96), restore_norms=True
    )
    document = report_document(report)
    assert document["request"]["restore_norms"] is True
    (table,) = document["tables"]
    assert table["norms_restored"] is True and table["convention"] is None
    assert "rounding" not in table["measures"]
    held = verify_checkpoint(output, against=source, from_=(144, 96), to=(80, 64)).against
    assert isinstance(held, Verification)
    (found,) = held.tables
    assert found.checks[0].detail == "made by bicubic, antialias, norms restored"
    before, after = raw_tensors(source), raw_tensors(output)
    note = json.loads(after[1]["resize_pos"])
    assert note["method"] == ["bicubic, antialias, norms restored"]
    assert note["request"]["restore_norms"] is True
    assert {k: v[1] for k, v in before[0].items() if k != "pos_embed"} == {
        k: v[1] for k, v in after[0].items() if k != "pos_embed"
    }


def test_without_the_flag_nothing_is_restored(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "vit.safetensors", vit(9, 6))
    output = tmp_path / "out.safetensors"
    report = resize_checkpoint(source, to=(80, 64), output=output, from_=(144, 96))
    (table,) = report_document(report)["tables"]
    assert table["norms_restored"] is False and table["convention"] == "timm"


def notes(report: Report) -> list[str]:
    return [note.text for note in report.notes if "--restore-norms" in note.text]


def test_the_flag_says_so_where_it_changes_nothing(tmp_path: Path) -> None:
    text = {"embeddings.position_embeddings.weight": rough(1, 64, 24)[0].astype(np.float32)}
    text["embeddings.word_embeddings.weight"] = rough(1, 90, 24)[0].astype(np.float32)
    offsets = {
        "layers.0.blocks.0.attn.relative_position_bias_table": rough(1, 49, 3)[0].astype("f4"),
        "layers.0.blocks.0.attn.qkv.weight": rough(1, 72, 24)[0].astype("f4"),
    }
    for tensors, options in (
        (text, {"to_length": 96, "length_method": "linear"}),
        (offsets, {"to_window": 3}),
    ):
        source = write_safetensors(tmp_path / "model.safetensors", tensors)
        output = tmp_path / "out.safetensors"
        made: Any = {**options, "output": output, "force": True}
        report = resize_checkpoint(source, restore_norms=True, **made)
        (said,) = notes(report)
        assert "changes nothing here" in said
        assert not notes(resize_checkpoint(source, **made))


def test_the_flag_names_the_tables_that_it_leaves(tmp_path: Path) -> None:
    shapes = {
        "positional_embedding": (77, 24),
        "token_embedding.weight": (90, 24),
        "visual.class_embedding": (24,),
        "visual.positional_embedding": (55, 24),
        "visual.conv1.weight": (24, 3, 16, 16),
    }
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    source = write_safetensors(tmp_path / "clip.safetensors", tensors)
    output = tmp_path / "out.safetensors"
    made: Any = {"from_": (144, 96), "to": (80, 64), "output": output, "restore_norms": True}
    assert notes(resize_checkpoint(source, **made)) == []
    longer = resize_checkpoint(source, **made, to_length=90, length_method="linear", force=True)
    (said,) = notes(longer)
    assert said.startswith("--restore-norms does not apply to positional_embedding:")


@pytest.mark.parametrize("target", [(24, 18), (8, 5), (12, 18)])
@pytest.mark.parametrize("like", ["timm", "hf"])
def test_verify_recognises_norms_that_stay_in_range(
    tmp_path: Path, target: tuple[int, int], like: str
) -> None:
    tensors = vit(12, 9, channels=32)  # smooth, with a few cells that are far shorter
    tensors["pos_embed"][0, 1:][np.random.default_rng(7).random(108) < 0.1] *= 1e-2
    source = write_safetensors(tmp_path / "vit.safetensors", tensors)
    output = tmp_path / "out.safetensors"
    made: Any = {"from_grid": (12, 9), "to_grid": target}
    resize_checkpoint(source, output=output, like=like, restore_norms=True, **made)
    held = verify_checkpoint(output, against=source, **made).against
    assert isinstance(held, Verification)
    (origin,) = [check for check in held.tables[0].checks if check.name == "origin"]
    assert origin.detail.endswith(", norms restored")
