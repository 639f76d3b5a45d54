"""On the command line: what is left alone, refused, forced, or changed besides the grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from resize_pos.cli.app import main
from resize_pos.cli.inspect import command as inspect
from resize_pos.cli.resize import command as resize
from tests.support.builders import flat, raw_tensors, smooth, vit, write_safetensors
from tests.support.report_cases import GRIDS, write_case

Tensors = dict[str, Any]


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


CONVOLUTIONAL: Tensors = {"conv1.weight": zeros(8, 3, 7, 7), "fc.weight": zeros(10, 8)}
DECOYS: Tensors = {
    "pos_embed.token_projection.weight": zeros(8, 64, 1, 1),
    "pos_block.0.proj.0.weight": zeros(8, 1, 3, 3),
}
REFERENCE: Tensors = {
    "visual.pos_embed.weight": smooth(8, 8, 16).reshape(64, 16),
    "visual.patch_embed.proj.weight": zeros(16, 3, 2, 16, 16),
}
MIXER: Tensors = {
    "stem.proj.weight": zeros(8, 3, 16, 16),
    "blocks.0.mlp_tokens.fc1.weight": zeros(4, 16),
    "blocks.0.mlp_tokens.fc2.weight": zeros(16, 4),
}
HIERA: Tensors = {
    "pos_embed": smooth(16, 16, 8).reshape(1, 256, 8),
    "patch_embed.proj.weight": zeros(8, 3, 7, 7),
    "blocks.1.proj.weight": zeros(16, 8),
}
VIDEO: Tensors = {
    "pos_embed_spatial": smooth(4, 4, 8).reshape(1, 16, 8),
    "pos_embed_temporal": smooth(1, 8, 8).reshape(1, 8, 8),
    "pos_embed_class": zeros(1, 1, 8),
    "patch_embed.proj.weight": zeros(8, 3, 2, 16, 16),
}
ROWS: Tensors = {"row_embedder.weight": smooth(1, 60, 8).reshape(60, 8)}


def run(tmp_path: Path, tensors: Tensors, *words: str) -> tuple[Result, Path]:
    source = write_safetensors(tmp_path / "model.safetensors", tensors)
    return CliRunner().invoke(resize, [str(source), *words]), source


def shapes(path: Path) -> dict[str, list[int]]:
    return {name: entry["shape"] for name, (entry, _) in raw_tensors(path)[0].items()}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (CONVOLUTIONAL, "nothing in this file depends on the resolution"),
        (DECOYS, "nothing in this file depends on the resolution"),
        (REFERENCE, "the model interpolates in this grid for every image"),
        (ROWS, "never interpolated"),
    ],
)
def test_a_model_that_fits_every_size_is_a_success_and_writes_nothing(
    tensors: Tensors, words: str, tmp_path: Path
) -> None:
    result, source = run(tmp_path, tensors, "--to", "384x256")
    assert result.exit_code == 0, result.output
    assert words in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == [source]


def test_a_named_output_is_written_all_the_same(tmp_path: Path) -> None:
    target = tmp_path / "same.safetensors"
    result, source = run(tmp_path, CONVOLUTIONAL, "--to", "384", "-o", str(target))
    assert result.exit_code == 0
    assert target.read_bytes() == source.read_bytes()


def test_a_grid_without_whole_windows_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    result, source = run(tmp_path, HIERA, "--to", "128x80")
    assert result.exit_code == 1
    assert "windows of 8×8 cells" in str(result.exception)
    assert list(tmp_path.iterdir()) == [source]


CHANGES = {
    "windows": (HIERA, ["--to", "128x96"], {"pos_embed": [1, 768, 8]}),
    "layers over patches": (
        MIXER,
        ["--to", "128x96"],
        {"blocks.0.mlp_tokens.fc1.weight": [4, 48], "blocks.0.mlp_tokens.fc2.weight": [48, 4]},
    ),
    "forced": (HIERA, ["--to", "128x96", "--force-interpolate"], {"pos_embed": [1, 768, 8]}),
    "reference": (
        REFERENCE,
        ["--to", "192x256", "--reference-grids", "resize"],
        {"visual.pos_embed.weight": [192, 16]},
    ),
    "frames": (
        VIDEO,
        ["--to", "96x128", "--to-frames", "32"],
        {"pos_embed_spatial": [1, 48, 8], "pos_embed_temporal": [1, 16, 8]},
    ),
    "time is kept": (VIDEO, ["--to", "96x128"], {"pos_embed_spatial": [1, 48, 8]}),
    "rows": (ROWS, ["--to-rows", "70"], {"row_embedder.weight": [70, 8]}),
    "patch": (
        vit(4, 6),
        ["--from", "64x96", "--to-patch", "8"],
        {"pos_embed": [1, 97, 8], "patch_embed.proj.weight": [8, 3, 8, 8]},
    ),
    "patch and size": (
        vit(4, 6),
        ["--from", "64x96", "--to", "48x64", "--to-patch", "8"],
        {"pos_embed": [1, 49, 8], "patch_embed.proj.weight": [8, 3, 8, 8]},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_exactly_what_was_asked_for_changes(name: str, tmp_path: Path) -> None:
    tensors, words, expected = CHANGES[name]
    target = tmp_path / "new.safetensors"
    result, source = run(tmp_path, tensors, *words, "-o", str(target))
    assert result.exit_code in (0, 3), (result.output, result.exception)
    before, after = raw_tensors(source)[0], raw_tensors(target)[0]
    assert {k: v for k, v in shapes(target).items() if before[k] != after[k]} == expected


def test_rows_that_are_looked_up_stay_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "new.safetensors"
    result, source = run(tmp_path, ROWS, "--to-rows", "70", "-o", str(target))
    assert result.exit_code == 0, result.output
    old = np.frombuffer(raw_tensors(source)[0]["row_embedder.weight"][1], np.float32)
    new = np.frombuffer(raw_tensors(target)[0]["row_embedder.weight"][1], np.float32)
    np.testing.assert_array_equal(new.reshape(70, 8)[:60], old.reshape(60, 8))
    assert (new.reshape(70, 8)[60:] == old.reshape(60, 8)[-1]).all()


def test_a_wide_table_is_refused_as_a_square_and_nothing_is_written(tmp_path: Path) -> None:
    tensors = vit(4, 4) | {"pos_embed": flat(8, 32, 8)}
    result, source = run(tmp_path, tensors, "--to", "128")
    assert result.exit_code == 1
    assert "smoothly over 8×32 instead" in str(result.exception)
    assert list(tmp_path.iterdir()) == [source]


def test_a_square_that_takes_the_class_row_for_a_cell_is_not_read(tmp_path: Path) -> None:
    """121 = 11 × 11 is the only square, but 1 + 6 × 20 is what the table holds."""
    tensors = vit(4, 4, channels=32) | {"pos_embed": flat(6, 20, 32)}
    result, _ = run(tmp_path, tensors, "--to", "128", "--json")
    assert result.exit_code in (0, 3), (result.output, result.exception)
    (table,) = json.loads(result.output)["tables"]
    assert table["from"]["grid"] == [6, 20]
    assert any("vary smoothly over 6×20" in line for line in table["evidence"])


def test_readings_that_compete_are_settled_by_the_values(tmp_path: Path) -> None:
    tensors = vit(4, 4, channels=32) | {"pos_embed": flat(6, 21, 32)}
    result, _ = run(tmp_path, tensors, "--to", "128", "--json")
    assert result.exit_code in (0, 3), (result.output, result.exception)
    (table,) = json.loads(result.output)["tables"]
    assert table["from"]["grid"] == [6, 21]
    assert any("vary smoothly over 6×21" in line for line in table["evidence"])


def test_the_report_and_the_inspection_list_what_is_left_alone(tmp_path: Path) -> None:
    result, source = run(tmp_path, vit(4, 6) | DECOYS, "--from", "64x96", "--to", "96", "--json")
    assert result.exit_code in (0, 3), (result.output, result.exception)
    tables = json.loads(result.output)["tables"]
    decoys = [table for table in tables if table["kind"] == "inert"]
    assert {table["name"] for table in decoys} == set(DECOYS)
    assert all(table["action"] == "keep" and table["reason"] for table in decoys)
    shown = CliRunner().invoke(inspect, [str(source), "--json", "--from", "64x96"])
    document = json.loads(shown.output)
    assert {entry["name"] for entry in document["left_alone"]} == set(DECOYS)
    assert document["near_misses"] == []


@pytest.mark.parametrize("words", [["x.pt", "-n"], ["x.pt"], ["batch", "x.pt", "-o", "out", "-n"]])
def test_a_device_that_nobody_knows_is_a_mistake_even_in_a_dry_run(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*words, "--to", "96", "--device", "tpu"])
    assert caught.value.code == 2
    assert "--device 'tpu' is not a known device" in capfd.readouterr().err


def test_a_missing_device_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Relative tables are computed on the CPU in any case; the flag is checked all the same."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    write_case("sam", tmp_path)
    words = [str(tmp_path / "sam.safetensors"), *GRIDS["sam"], "--device", "cuda:1"]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 1
    assert "device cuda:1 is not available" in capfd.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(SystemExit) as caught:
        main([*words, "-n"])
    assert caught.value.code == 0
