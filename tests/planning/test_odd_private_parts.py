"""Parts of private models that were passed over once, or read in a wrong way.

Maps over the image, anchors, coordinates, boards of games, lines of text, heat maps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.outside.cases import pasted_flags
from tests.outside.cases import smooth as waves
from tests.planning.test_by_value import D, Tensors, convert, convert_with, refused, result, rows
from tests.planning.test_neutral_names import GRID, leave, noise, transformer
from tests.planning.test_shown_cells import cnn

TO = "--to 192x288"
Array = NDArray[np.float32]


def pasted(hint: str | None, size: str) -> list[str]:
    """Return the first command of a hint, with the size that only the user knows."""
    return pasted_flags((hint or "").replace("SIZE", size))


@pytest.mark.parametrize("last", [False, True])
def test_a_map_over_the_pixels_is_not_passed_over(last: bool, tmp_path: Path) -> None:
    plane = rows(20, 28, 4, noise=0.02).reshape(1, 20, 28, 4)
    values = plane if last else np.ascontiguousarray(plane.transpose(0, 3, 1, 2))
    tensors = cnn() | {"prior": values}
    error = refused(tmp_path, tensors, "--to 24x36")
    assert "varies smoothly over 20×28 cells or pixels" in error.message
    flags = ["--to", "24x36", *pasted(error.hint, "20x28")]
    _, output = convert_with(tmp_path, tensors, flags)
    new = result(output, "prior")
    assert new.shape == ((1, 24, 36, 4) if last else (1, 4, 24, 36))
    found = new.reshape(24 * 36, 4) if last else new.reshape(4, 24 * 36).T
    true = waves(24, 36, 4).reshape(found.shape)
    assert np.corrcoef(found.ravel(), true.ravel())[0, 1] > 0.97


@pytest.mark.parametrize(
    "values",
    [
        noise(np.empty((1, 4, 20, 28))),
        np.tril(np.ones((1, 1, 24, 24), np.float32)),
        np.broadcast_to(np.arange(8, dtype=np.float32)[:, None], (8, 20)).copy(),
    ],
    ids=["noise", "mask", "steps"],
)
def test_planes_without_an_image_are_no_maps(values: Array, tmp_path: Path) -> None:
    report, _ = convert(tmp_path, cnn() | {"net.prior_scale": values}, "--to 24x36")
    assert not report.plan.changes


@pytest.mark.parametrize("shape", [(10, 14), (1, 10, 14)])
def test_one_number_per_cell_is_resized_with_the_table(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    plane = rows(10, 14, 1, noise=0.02).reshape(shape)
    tensors = transformer("my_pos", GRID[None]) | {"cell_bias": plane}
    error = refused(tmp_path, tensors, TO)
    assert "has one number per cell of my_pos" in error.message
    flags = [*TO.split(), *pasted(error.hint, "160x224")]
    _, output = convert_with(tmp_path, tensors, flags)
    assert result(output, "cell_bias").shape == (*shape[:-2], 12, 18)
    assert result(output, "my_pos").shape == (1, 12 * 18, D)


def test_a_layer_from_cells_to_columns_of_the_image_is_not_left(tmp_path: Path) -> None:
    """9×16 cells are three times 48 features, which a layer may read for another reason."""
    tensors = transformer("my_pos", rows(9, 16)[None])
    for layer, size in {"along_x": 2 * 256, "along_y": 2 * 144}.items():
        tensors[f"{layer}.weight"] = noise(np.empty((size, 144)))
        tensors[f"{layer}.bias"] = noise(np.empty(size))
    for number in range(2):  # what else puts out 144 has another width now
        tensors[f"blk.{number}.qkv.weight"] = noise(np.empty((D, D)))
        tensors[f"blk.{number}.qkv.bias"] = noise(np.empty(D))
    error = refused(tmp_path, tensors, TO)
    assert "along_x.weight F32 [512, 144] has an axis of 144, as my_pos has" in error.message


@pytest.mark.parametrize("name", ["heat", "top.heatmap", "net.per_cell"])
def test_a_heat_map_may_have_a_round_number_of_cells(name: str, tmp_path: Path) -> None:
    tensors = transformer("my_pos", rows(8, 16)[None])
    tensors |= {f"{name}.weight": noise(np.empty((128, D))), f"{name}.bias": noise(np.empty(128))}
    error = refused(tmp_path, tensors, TO)
    assert "has 128 outputs, as many as my_pos has cells" in error.message
    report, _ = convert_with(tmp_path, tensors, [*TO.split(), *leave(error.hint)])
    assert [step.name for step in report.plan.changes] == ["my_pos"]


def boxes(*grids: tuple[int, int, int]) -> Array:
    found = []
    for height, width, step in grids:
        y, x = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
        for size in (1, 2):
            side = np.full(y.size, size * step)
            found.append(np.stack([x.ravel() * step, y.ravel() * step, side, side], 1))
    return np.concatenate(found).astype(np.float32)


def test_anchors_of_several_grids_depend_on_the_image(tmp_path: Path) -> None:
    tensors = cnn() | {"default_boxes": boxes((12, 16, 8), (6, 8, 16))}
    error = refused(tmp_path, tensors, TO)
    assert "holds 480 points or boxes of several grids" in error.message
    report, _ = convert_with(tmp_path, tensors, [*TO.split(), *leave(error.hint)])
    assert not report.plan.changes


def test_numbers_by_threes_are_no_points(tmp_path: Path) -> None:
    report, _ = convert(tmp_path, cnn() | {"affine": noise(np.empty((480, 3)))}, TO)
    assert not report.plan.changes


def board(cells: int) -> Tensors:
    """Make a player of a game: two heads read what a kernel of one cell leaves of the board."""
    layers: dict[str, tuple[int, ...]] = {
        "c.weight": (32, 17, 3, 3),
        "p_conv.weight": (2, 32, 1, 1),
        "p_fc.weight": (cells + 1, 2 * cells),
        "v_conv.weight": (1, 32, 1, 1),
        "v_fc.weight": (64, cells),
        "w_fc.weight": (1, 64),
    }
    tensors = {name: noise(np.empty(shape)) for name, shape in layers.items()}
    vectors = {n.replace("weight", "bias"): noise(np.empty(s[0])) for n, s in layers.items()}
    return tensors | vectors


def test_the_heads_of_a_board_depend_on_it(tmp_path: Path) -> None:
    error = refused(tmp_path, board(9 * 9), "--to 13")
    assert "p_fc.weight F32 [82, 162] reads 81 cells of 2 channels at once" in error.message
    assert "v_fc" in (error.hint or "")


@pytest.mark.parametrize("name", ["encoder_pos.grid", "pos", "net.places"])
def test_coordinates_are_not_resampled_as_a_table(name: str, tmp_path: Path) -> None:
    """Slot attention keeps y, x, 1 - y and 1 - x of each pixel; 64 columns are a width, too."""
    y, x = np.meshgrid(np.linspace(0, 1, 28), np.linspace(0, 1, 64), indexing="ij")
    grid = np.stack([y, x, 1 - y, 1 - x], -1)[None].astype(np.float32)
    error = refused(tmp_path, cnn() | {name: grid}, "--from 28x64 --to 40x64")
    assert "holds the coordinates of 1792 cells" in error.message
    assert "--pattern" not in (error.hint or "")


def test_the_rows_of_a_line_of_text_are_columns_of_the_image(tmp_path: Path) -> None:
    line = rows(1, 32, noise=0.02).reshape(1, 32, D)
    tensors = transformer("pos", line, kernel=False)
    error = refused(tmp_path, tensors, "--to 32x256")
    assert "one row per column of cells, or one per row" in error.message
    along, down, *_ = (error.hint or "").split(";")
    for flags, length in ((along, 64), (down, 32)):
        asked = ["--to", "32x256", *pasted(flags, "32x128")]
        _, output = convert_with(tmp_path, tensors, asked)
        assert result(output, "pos").shape == (1, length, D)


def test_tokens_may_be_called_tok(tmp_path: Path) -> None:
    tokens = {n: noise(np.empty((1, 1, D))) for n in ("cls_tok", "dist_tok")}
    table = np.concatenate([rows(1, 2, noise=1.0).reshape(2, D), GRID])[None]
    report, output = convert(tmp_path, transformer("my_pos", table) | tokens, TO)
    assert [step.table.prefix for step in report.plan.changes] == [2]
    assert np.array_equal(result(output, "my_pos")[0, :2], table[0, :2])


def test_codes_of_a_quantizer_are_no_cells(tmp_path: Path) -> None:
    """A codebook that is averaged while training holds its codes twice, by columns."""
    codes = {f"quant.{n}": noise(np.empty((64, 512))) for n in ("embed", "embed_avg")}
    report, _ = convert(tmp_path, cnn() | codes | {"quant.size": noise(np.empty(512))}, TO)
    assert not report.plan.changes


def test_the_rows_before_a_grid_may_fill_whole_rows_of_cells(tmp_path: Path) -> None:
    """42 words and 10×14 cells look like 13×14 cells."""
    words = np.random.default_rng(4).standard_normal((42, D)).astype(np.float32)
    tensors = transformer("joint_pos", np.concatenate([words, GRID])[None])
    error = refused(tmp_path, tensors, TO)
    assert "its first 42 rows do not, so they may belong to tokens" in error.message
    _, output = convert_with(tmp_path, tensors, [*TO.split(), *pasted_flags(error.hint or "")])
    new = result(output, "joint_pos")[0]
    assert np.array_equal(new[:42], words)
    assert new.shape == (42 + 12 * 18, D)


def latent_model() -> Tensors:
    """Make a DiT with a decoder: a known name and a kernel over latents of 8 pixels each."""
    tensors = transformer("pos_embed", rows(10, 10)[None], kernel=False)
    tensors["decoder_pos_embed"] = rows(10, 10)[None]
    tensors["x_embedder.proj.weight"] = noise(np.empty((D, 4, 2, 2)))
    return tensors | {"mask_token": noise(np.empty((1, 1, D)))}


def test_a_table_that_follows_has_cells_of_the_same_size(tmp_path: Path) -> None:
    _, output = convert(tmp_path, latent_model(), "--to 192x288")
    for name in ("pos_embed", "decoder_pos_embed"):
        assert result(output, name).shape == (1, 12 * 18, D)


def test_a_size_that_counts_latents_is_not_cut_down(tmp_path: Path) -> None:
    error = refused(tmp_path, latent_model(), "--to 24x36")
    assert "made of latents, 8 px each" in error.message
    assert "pass --to 192x288 if 24x36 counts latents" in (error.hint or "")
    _, output = convert(tmp_path, latent_model(), "--to 24x36 --floor")
    assert result(output, "pos_embed").shape == (1, 2, D)


def test_numbered_tables_over_rows_and_columns_are_named_together(tmp_path: Path) -> None:
    line = rows(1, 14, noise=0.02).reshape(14, D)
    tensors = transformer("axes.weights_0", line[:10].reshape(1, 10, 1, D).copy(), kernel=False)
    tensors["axes.weights_1"] = line.reshape(1, 1, 14, D)
    error = refused(tmp_path, tensors, TO)
    flags = [*TO.split(), *pasted(error.hint, "160x224")]
    _, output = convert_with(tmp_path, tensors, flags)
    assert result(output, "axes.weights_0").shape == (1, 12, 1, D)
    assert result(output, "axes.weights_1").shape == (1, 1, 18, D)


def test_a_command_names_no_table_of_another_length(tmp_path: Path) -> None:
    """Three axes: d_0 counts frames, and the others rows and columns of a square."""
    tensors = transformer("axes.d_0", noise(np.empty((4, D))), kernel=False)
    for name in ("axes.d_1", "axes.d_2"):
        tensors[name] = rows(1, 16, noise=0.02).reshape(16, D)
    error = refused(tmp_path, tensors, "--to 96")
    _, output = convert_with(tmp_path, tensors, ["--to", "96", *pasted(error.hint, "64")])
    lengths = [result(output, f"axes.d_{number}").shape[0] for number in range(3)]
    assert lengths == [4, 24, 24]


@pytest.mark.parametrize("name", ["my_pos", None])
def test_layers_over_rows_and_over_columns_are_not_passed_over(
    name: str | None, tmp_path: Path
) -> None:
    tensors = transformer(name or "spare", GRID[None] if name else noise(np.empty((1, 1, D))))
    for axis, length in (("h", 10), ("w", 14)):
        tensors[f"mix.proj_{axis}.weight"] = noise(np.empty((length, length, 1, 1)))
        tensors[f"mix.proj_{axis}.bias"] = noise(np.empty(length))
    tensors["head.weight"], tensors["head.bias"] = noise(np.empty((5, D))), noise(np.empty(5))
    error = refused(tmp_path, tensors, TO)
    assert "mixes rows or columns of" in error.message


def test_a_table_that_fits_no_grid_can_be_left(tmp_path: Path) -> None:
    """The decoder of a detector by words has positions of its own, under the name of MAE's."""
    tensors = transformer("pos_embed", rows(12, 12)[None])
    tensors["patch_embed.proj.weight"] = tensors.pop("cut.weight")
    tensors["decoder_pos_embed"] = noise(np.empty((1, 293, D)))
    error = refused(tmp_path, tensors, TO)
    report, _ = convert_with(tmp_path, tensors, [*TO.split(), *leave(error.hint)])
    assert [step.name for step in report.plan.changes] == ["pos_embed"]


def spectrogram(rows_of_table: Array) -> Tensors:
    tensors = transformer("v.pos_embed", rows_of_table, kernel=False)
    tensors |= {f"v.{token}_token": noise(np.empty((1, 1, D))) for token in ("cls", "dist")}
    tensors["v.patch_embed.proj.weight"] = noise(np.empty((D, 1, 16, 16)))
    tensors["mlp_head.0.weight"] = np.ones(D, np.float32)
    return tensors


def test_patches_of_a_spectrogram_may_lie_side_by_side(tmp_path: Path) -> None:
    """8×30 patches of 16 are 128×480 side by side, and 86×306 every 10: no usual spectrogram."""
    grid = np.concatenate([noise(np.empty((2, D))), rows(8, 30)])[None]
    error = refused(tmp_path, spectrogram(grid), "--to 128x256")
    assert "the step is not in the file" in error.message
    _, output = convert(tmp_path, spectrogram(grid), "--from 128x480 --to 128x256")
    assert result(output, "v.pos_embed").shape == (1, 2 + 8 * 16, D)


def test_one_number_per_head_and_cell_in_every_block(tmp_path: Path) -> None:
    tensors = transformer("my_pos", GRID[None])
    for number in range(2):
        tensors[f"blk.{number}.logit_bias"] = noise(np.empty((4, 10 * 14)))
    error = refused(tmp_path, tensors, TO)
    assert "blk.0.logit_bias F32 [4, 140] has an axis of 140, as my_pos has" in error.message


def test_an_order_of_cells_depends_on_the_image(tmp_path: Path) -> None:
    by_columns = np.arange(70).reshape(7, 10).T.ravel().copy()
    error = refused(tmp_path, cnn() | {"scan": by_columns}, TO)
    assert "scan I64 [70] holds an order of 70 cells" in error.message


@pytest.mark.parametrize("values", [np.arange(70), np.arange(64)[::-1].copy(), np.arange(70) // 2])
def test_other_numbers_are_no_order_of_cells(values: NDArray[np.int64], tmp_path: Path) -> None:
    """Numbers of rows, an order of 64 features, and classes of something."""
    report, _ = convert(tmp_path, cnn() | {"scan": values}, TO)
    assert not report.plan.changes


def test_one_number_per_row_of_pixels_is_not_left(tmp_path: Path) -> None:
    """The weights of the latitudes of a weather model: nothing else is 160 long."""
    tensors = transformer("my_pos", GRID[None]) | {"lat_weights": np.ones((160, 1), np.float32)}
    error = refused(tmp_path, tensors, TO)
    assert (
        "lat_weights F32 [160, 1] has one number for each row or column of pixels" in error.message
    )


def test_a_map_over_the_pixels_is_resized_with_the_table(tmp_path: Path) -> None:
    fields = rows(160, 224, 3).T.reshape(3, 160, 224).copy()
    tensors = transformer("my_pos", GRID[None]) | {"fields": fields}
    error = refused(tmp_path, tensors, TO)
    flags = [*TO.split(), *pasted(error.hint, "160x224")]
    _, output = convert_with(tmp_path, tensors, flags)
    assert result(output, "fields").shape == (3, 192, 288)
    assert result(output, "my_pos").shape == (1, 12 * 18, D)


def test_tables_of_several_cameras_in_one_tensor(tmp_path: Path) -> None:
    tensors = transformer("pos", np.stack([rows(10, 14) + number for number in range(6)]))
    error = refused(tmp_path, tensors, TO)
    _, output = convert_with(tmp_path, tensors, [*TO.split(), *pasted(error.hint, "160x224")])
    assert result(output, "pos").shape == (6, 12 * 18, D)
