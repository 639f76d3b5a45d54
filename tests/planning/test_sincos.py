"""Fixed sin-cos tables: recognised by value with a margin, and computed anew at the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos import inspect_checkpoint, resize_checkpoint, verify_checkpoint
from resize_pos.core.axes import Layout
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.errors import TableError, UsageError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import SinCos, SinCosMode, SinCosTable
from resize_pos.core.request import Request
from resize_pos.families.tables import Action
from resize_pos.transforms.absolute import resize_absolute
from resize_pos.transforms.sincos import FORMULAS, recognise, regenerate
from tests.laws.test_imports import loaded_after
from tests.support.builders import raw_tensors, smooth, vit, write_safetensors

GRID, WIDE, CHANNELS = Grid(7, 12), Grid(13, 9), 96
DTYPES = ["float64", "float32", "float16", "bfloat16"]
FLAT = Layout.parse("1 (p h w s) d")


def by_hand(
    name: str, t: float, y: float, x: float, grid: Grid, channels: int
) -> NDArray[np.float64]:
    """Write one row of a formula down the long way, channel by channel."""

    def block(position: float, width: int, last: int = 0) -> list[float]:
        half = width // 2
        phases = [position / 10000 ** (k / (half - last)) for k in range(half)]
        return [*map(math.sin, phases), *map(math.cos, phases)]

    half, line = channels // 2, (t * grid.height + y) * grid.width + x
    third = -(-channels // 6) * 2
    formulas: dict[str, Callable[[], list[float]]] = {
        "mae": lambda: block(x, half) + block(y, half),
        "moco-v3": lambda: block(y, half) + block(x, half),
        "big-vision": lambda: block(x, half, 1) + block(y, half, 1),
        "vjepa-video": lambda: block(t, half) + block(y, half // 2) + block(x, half // 2),
        "vjepa-video-uniform": lambda: block(t, third) + block(y, third) + block(x, third),
        "whisper": lambda: block(line, channels, 1),
        "marian": lambda: block(line, channels),
        "interleaved": lambda: [
            f(line / 10000 ** (2 * k / channels)) for k in range(half) for f in (math.sin, math.cos)
        ],
    }
    return np.array(formulas[name]()[:channels])


def cells(name: str, grid: Grid, channels: int = CHANNELS) -> NDArray[np.float64]:
    copies = 3 if FORMULAS[name].dimensions == 3 else 1
    shape = (copies, grid.height, grid.width)
    rows = [by_hand(name, t, y, x, grid, channels) for t, y, x in np.ndindex(shape)]
    return np.stack(rows).reshape(*shape, channels)


def stored(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    return values.astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_is_recognised_by_its_values(name: str, dtype: str) -> None:
    found = recognise(stored(cells(name, GRID), dtype))
    assert found is not None
    assert found.table == SinCosTable(name, FORMULAS[name].dimensions, 0)
    assert found.runner_up_difference > 4 * found.difference
    assert name in found.evidence


@pytest.mark.parametrize("channels", [192, 384, 768, 1280])
@pytest.mark.parametrize("name", ["mae", "moco-v3", "big-vision"])
def test_the_margin_holds_at_published_widths(name: str, channels: int) -> None:
    for dtype in DTYPES:
        found = recognise(stored(cells(name, Grid(14, 16), channels), dtype))
        assert found is not None
        assert found.table.formula == name


def test_phases_computed_in_float32_are_recognised() -> None:
    """Whisper and MoCo-v3 multiply in float32, which shifts far positions by 1e-4."""
    half = CHANNELS // 2
    omega = np.exp(-np.log(np.float32(10000)) / (half - 1) * np.arange(half, dtype=np.float32))
    phase = np.arange(1500, dtype=np.float32)[:, None] * omega.astype(np.float32)
    table = np.concatenate([np.sin(phase), np.cos(phase)], axis=1).astype(np.float32)
    found = recognise(table.reshape(1, 1, 1500, CHANNELS))
    assert found is not None
    assert found.table.formula == "whisper"
    assert found.difference > 1e-6


def learned(height: int, width: int) -> NDArray[np.float32]:
    return smooth(height, width, CHANNELS)[None]


@pytest.mark.parametrize(
    "table",
    [
        learned(7, 12),
        np.zeros((1, 7, 12, CHANNELS), np.float32),
        np.random.default_rng(0).normal(size=(1, 7, 12, CHANNELS)).astype(np.float32),
        cells("mae", GRID).astype(np.float32) * 1.01,
        cells("mae", GRID).astype(np.float32) + learned(7, 12) * 1e-3,
        cells("mae", GRID).astype(np.float32)[:, ::-1],
        cells("mae", Grid(1, 1)).astype(np.float32),
        np.full((1, 7, 12, CHANNELS), np.nan, np.float32),
        cells("mae", GRID)[..., :95],
    ],
    ids=["learned", "zeros", "noise", "scaled", "tuned", "flipped", "one cell", "nan", "odd width"],
)
def test_what_is_not_a_formula_is_not_recognised(table: NDArray[Any]) -> None:
    assert recognise(table) is None


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_absolute_coordinates_give_the_formula_s_own_table(name: str, dtype: str) -> None:
    copies = 3 if FORMULAS[name].dimensions == 3 else 1
    layout = Layout.parse("1 (p t h w s) d") if copies > 1 else FLAT
    source = stored(cells(name, GRID), dtype).reshape(1, -1, CHANNELS)
    how = SinCos(SinCosTable(name, FORMULAS[name].dimensions), SinCosMode.ABSOLUTE)
    result = regenerate(source, layout, (0, 0), GRID, WIDE, how, (copies, copies))
    expected = stored(cells(name, WIDE), dtype).reshape(1, -1, CHANNELS)
    assert result.dtype == source.dtype
    difference = np.abs(result.astype(np.float64) - expected.astype(np.float64)).max()
    # A power that differs in the last place moves a phase, and then perhaps one rounding.
    assert difference <= float(ml_dtypes.finfo(source.dtype).eps) / 2 + 1e-12


@pytest.mark.parametrize("name", ["mae", "moco-v3", "big-vision"])
def test_rescaled_coordinates_sample_the_same_picture(name: str) -> None:
    source = cells(name, GRID).reshape(1, -1, CHANNELS)
    how = SinCos(SinCosTable(name, 2), SinCosMode.RESCALED)
    result = regenerate(source, FLAT, (0, 0), GRID, WIDE, how).reshape(13, 9, CHANNELS)
    for row, column in np.ndindex(13, 9):
        y, x = (row + 0.5) * 7 / 13 - 0.5, (column + 0.5) * 12 / 9 - 0.5
        expected = by_hand(name, 0, y, x, GRID, CHANNELS)
        np.testing.assert_allclose(result[row, column], expected, rtol=0, atol=1e-12)


def test_interpolation_is_a_percent_off_and_the_formula_is_not() -> None:
    source = cells("mae", Grid(14, 14), 768).reshape(1, -1, 768)
    how = SinCos(SinCosTable("mae", 2), SinCosMode.RESCALED)
    target = Grid(24, 20)
    exact = regenerate(source, FLAT, (0, 0), Grid(14, 14), target, how)
    for convention in ("timm", "deit"):
        resampling = CONVENTIONS[convention].resampling
        usual = resize_absolute(source, FLAT, 0, Grid(14, 14), 0, target, resampling)
        assert 0.003 < np.linalg.norm(usual - exact) / np.linalg.norm(exact) < 0.02


def test_kept_rows_and_old_positions_keep_their_bits() -> None:
    rng = np.random.default_rng(3)
    extra = rng.normal(size=(1, 3, CHANNELS)).astype(np.float32)
    grid = cells("mae", GRID).astype(np.float32).reshape(1, -1, CHANNELS)
    noisy = grid + np.float32(1e-7)  # rounding of another library, which is not ours to change
    source = np.concatenate([extra[:, :2], noisy, extra[:, 2:]], axis=1)
    for mode in (SinCosMode.RESCALED, SinCosMode.ABSOLUTE):
        how = SinCos(SinCosTable("mae", 2), mode)
        result = regenerate(source, FLAT, (2, 1), GRID, Grid(9, 13), how)
        assert result[:, :2].tobytes() == source[:, :2].tobytes()
        assert result[:, -1:].tobytes() == source[:, -1:].tobytes()
    new = result[:, 2:-1].reshape(9, 13, CHANNELS)[:7, :12]
    assert np.ascontiguousarray(new).tobytes() == noisy.tobytes()


@pytest.mark.parametrize("name", ["vjepa-video", "vjepa-video-uniform"])
def test_time_is_an_axis_like_the_others(name: str) -> None:
    layout = Layout.parse("1 (p t h w s) d")
    source = cells(name, GRID).reshape(1, -1, CHANNELS)
    for mode, step in ((SinCosMode.ABSOLUTE, 1.0), (SinCosMode.RESCALED, 3 / 5)):
        how = SinCos(SinCosTable(name, 3), mode)
        result = regenerate(source, layout, (0, 0), GRID, GRID, how, (3, 5))
        start = (step - 1) / 2
        for t, y, x in np.ndindex(5, GRID.height, GRID.width):
            expected = by_hand(name, start + step * t, y, x, GRID, CHANNELS)
            row = result[0, (t * GRID.height + y) * GRID.width + x]
            np.testing.assert_allclose(row, expected, rtol=0, atol=1e-12)


def test_a_video_s_table_is_recognised_and_regenerated(tmp_path: Path) -> None:
    values = cells("vjepa-video", Grid(4, 6)).reshape(1, -1, CHANNELS).astype(np.float32)
    path = write_safetensors(tmp_path / "video.safetensors", {"my_pos": values})
    options = {"pattern": "my_pos$", "axes": "1 (t=3 h w) d", "from_grid": "4x6"}
    report = resize_checkpoint(path, to_grid="8x5", **options)  # type: ignore[arg-type]
    (step,) = report.plan.steps
    assert step.table.fixed == SinCosTable("vjepa-video", 3)
    assert step.action is Action.REGENERATE
    assert step.target_shape == (1, 3 * 8 * 5, CHANNELS)


# Files


def mae(grid: Grid, name: str = "mae", prefix: int = 1, dtype: str = "float32") -> dict[str, Any]:
    tensors = vit(grid.height, grid.width, channels=CHANNELS, prefix=prefix)
    values = cells(name, grid).reshape(1, -1, CHANNELS)
    zeros = np.zeros((1, prefix, CHANNELS))
    tensors["pos_embed"] = stored(np.concatenate([zeros, values], axis=1), dtype)
    return tensors


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_file_is_regenerated_and_says_so(tmp_path: Path, dtype: str) -> None:
    path = write_safetensors(tmp_path / "mae.safetensors", mae(Grid(6, 8), dtype=dtype))
    report = resize_checkpoint(path, to="160x112", from_="96x128")
    (step,) = report.plan.steps
    assert step.action is Action.REGENERATE
    assert str(step.operation) == "sin-cos (mae), rescaled coordinates"
    assert "fixed sin-cos" in step.reason
    assert any("follow the sin-cos formula mae" in line for line in step.table.evidence)
    assert report.tables[0].measures["interpolation_difference"] < 0.1
    assert report.output is not None
    before, after = raw_tensors(path)[0], raw_tensors(report.output)[0]
    assert [name for name in before if before[name] != after[name]] == ["pos_embed"]
    width = CHANNELS * np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize
    assert after["pos_embed"][1][:width] == bytes(width)


def test_a_table_without_a_class_row_is_recognised(tmp_path: Path) -> None:
    """I-JEPA's formula is MAE's, and nothing stands before the grid."""
    tensors = mae(Grid(6, 8), prefix=0)
    del tensors["cls_token"]
    path = write_safetensors(tmp_path / "ijepa.safetensors", tensors)
    (step,) = resize_checkpoint(path, to="160x112", from_="96x128").plan.steps
    assert (step.action, step.table.prefix) == (Action.REGENERATE, 0)


def test_the_dry_run_shows_the_regeneration_that_the_run_does(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "mae.safetensors", mae(Grid(6, 6)))
    planned = resize_checkpoint(path, to=160, dry_run=True)
    assert planned.plan == resize_checkpoint(path, to=160).plan


@pytest.mark.parametrize(
    ("options", "action", "words"),
    [
        ({}, Action.REGENERATE, "sincos-rescaled"),
        ({"sincos": "rescaled"}, Action.REGENERATE, "sincos-rescaled"),
        ({"sincos": "absolute"}, Action.REGENERATE, "sincos-absolute"),
        ({"sincos": "interpolate"}, Action.RESIZE, "bicubic"),
        ({"like": "hf"}, Action.RESIZE, "bicubic"),
        ({"like": "hf", "sincos": "rescaled"}, Action.REGENERATE, "sincos-rescaled"),
    ],
)
def test_the_flag_decides(
    tmp_path: Path, options: dict[str, Any], action: Action, words: str
) -> None:
    path = write_safetensors(tmp_path / "mae.safetensors", mae(Grid(6, 6)))
    (step,) = resize_checkpoint(path, to=160, dry_run=True, **options).plan.steps
    assert step.action is action
    assert step.operation is not None
    assert step.operation.method_name == words


def test_a_table_over_the_flattened_index_cannot_be_rescaled(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "flat.safetensors", mae(Grid(6, 6), "interleaved"))
    with pytest.raises(TableError, match="flattened index"):
        resize_checkpoint(path, to=160, sincos="rescaled")
    (step,) = resize_checkpoint(path, to=160, dry_run=True).plan.steps
    assert step.operation is not None
    assert step.operation.method_name == "sincos-absolute"


def test_an_unknown_mode_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--sincos"):
        Request.make(to=64, sincos="maybe")


def test_a_plain_vit_is_planned_without_reading_it(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "vit.safetensors", vit(6, 6, channels=CHANNELS))
    assert "numpy" not in loaded_after("inspect", str(path), "--from", "96")
    assert "numpy" not in loaded_after(str(path), "--from", "96", "--to", "160", "-n")


def whisper(length: int, channels: int = CHANNELS) -> dict[str, NDArray[Any]]:
    positions = cells("whisper", Grid(1, length), channels).reshape(length, channels)
    return {
        "model.encoder.conv1.weight": np.zeros((channels, 8, 3), np.float32),
        "model.encoder.conv2.weight": np.zeros((channels, channels, 3), np.float32),
        "model.encoder.embed_positions.weight": positions.astype(np.float32),
        "model.decoder.embed_positions.weight": smooth(1, 44, channels)[0],
    }


def test_whisper_s_encoder_needs_no_recipe(tmp_path: Path) -> None:
    """A fixed sinusoid counts steps of 20 ms: more of them go on where the old ones end."""
    path = write_safetensors(tmp_path / "whisper.safetensors", whisper(150))
    name = "model.encoder.embed_positions.weight"
    for target in (300, 77):
        report = resize_checkpoint(path, to=target, from_=150)
        (step,) = report.plan.changes
        assert (step.table.name, step.action) == (name, Action.REGENERATE)
        assert report.output is not None
        values = np.frombuffer(raw_tensors(report.output)[0][name][1], np.float32)
        expected = whisper(target)[name]
        np.testing.assert_allclose(values.reshape(expected.shape), expected, rtol=0, atol=1e-7)
    chosen = resize_checkpoint(path, to=301, from_=150, length_method="linear", dry_run=True)
    assert [step.action for step in chosen.plan.changes] == [Action.RESIZE]
    with pytest.raises(TableError, match="no method is right"):
        resize_checkpoint(path, to=400, from_=150, sincos="interpolate")


def test_fairseq_s_sinusoid_goes_on_from_its_reserved_rows(tmp_path: Path) -> None:
    rows = cells("whisper", Grid(1, 66)).reshape(66, CHANNELS).astype(np.float32)
    rows[1] = 0  # the padding row
    path = write_safetensors(
        tmp_path / "fairseq.safetensors", {"decoder.embed_positions.weight": rows}
    )
    (table,) = inspect_checkpoint(path).located.tables
    assert table.prefix == 2
    assert table.fixed == SinCosTable("whisper", 1, start=2)
    report = resize_checkpoint(path, to=128)
    assert report.output is not None
    new = np.frombuffer(raw_tensors(report.output)[0][table.name][1], np.float32)
    expected = cells("whisper", Grid(1, 130)).reshape(130, CHANNELS).astype(np.float32)
    expected[1] = 0
    np.testing.assert_allclose(new.reshape(130, CHANNELS), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "rescaled coordinates"), ({"sincos": "absolute"}, "absolute"), ({"like": "hf"}, "hf")],
)
def test_verify_tells_a_formula_from_an_interpolation(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    path = write_safetensors(tmp_path / "mae.safetensors", mae(Grid(6, 6)))
    report = resize_checkpoint(path, to=160, **options)
    assert report.output is not None
    held = verify_checkpoint(report.output, against=path).against
    assert held is not None
    origin = held.tables[0].checks[0]
    assert (origin.name, origin.level.value) == ("origin", "ok")
    assert words in origin.detail


def test_a_plain_folder_and_a_plain_torch_file_are_planned_without_reading_them(
    tmp_path: Path,
) -> None:
    import torch

    folder = tmp_path / "model"
    folder.mkdir()
    tensors = vit(6, 6, channels=CHANNELS)
    write_safetensors(folder / "model.safetensors", tensors)
    torch.save(
        {name: torch.from_numpy(array) for name, array in tensors.items()}, tmp_path / "v.pt"
    )
    for path in (folder, tmp_path / "v.pt"):
        assert "numpy" not in loaded_after(f"{path}", "--from", "96", "--to", "160", "-n")


def test_a_fixed_table_is_found_in_a_folder_and_out_of_order_in_a_torch_file(
    tmp_path: Path,
) -> None:
    import torch

    folder = tmp_path / "model"
    folder.mkdir()
    tensors = mae(Grid(6, 6))
    write_safetensors(folder / "model.safetensors", tensors)
    turned = {name: torch.from_numpy(array) for name, array in tensors.items()}
    turned["pos_embed"] = turned["pos_embed"].transpose(1, 2).contiguous().transpose(1, 2)
    torch.save(turned, tmp_path / "v.pt")
    for path in (folder, tmp_path / "v.pt"):
        (step,) = resize_checkpoint(path, to=160, dry_run=True).plan.steps
        assert step.action is Action.REGENERATE
