"""Video models: frames and image size change together, and config.json says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from resize_pos import ResizePosError, resize_checkpoint
from resize_pos.cli.resize import command

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "timesformer": ("TimesformerModel", "TimesformerConfig", {"patch_size": 8, "num_frames": 4}),
    "vivit": ("VivitModel", "VivitConfig", {"tubelet_size": [2, 8, 8], "num_frames": 4}),
}


def build(name: str, **changed: Any) -> Any:
    model, config, options = CLASSES[name]
    torch.manual_seed(0)
    made = getattr(transformers, config)(**{**SMALL, **options, **changed})
    return getattr(transformers, model)(made)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("size", "frames"), [(48, 8), (16, 2)])
def test_a_folder_follows_and_loads_strictly(
    name: str, size: int, frames: int, tmp_path: Path
) -> None:
    source = tmp_path / name
    build(name, image_size=32).save_pretrained(source)
    report = resize_checkpoint(source, to=size, to_frames=frames)
    assert report.output is not None
    config = json.loads((report.output / "config.json").read_text(encoding="utf-8"))
    assert config["num_frames"] == frames
    assert config["image_size"] == size
    model, loading = getattr(transformers, CLASSES[name][0]).from_pretrained(
        report.output, output_loading_info=True
    )
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        model(torch.zeros(1, frames, 3, size, size))


def test_frames_alone_leave_the_image_size(tmp_path: Path) -> None:
    source = tmp_path / "vivit"
    build("vivit", image_size=32).save_pretrained(source)
    report = resize_checkpoint(source, to_frames=8)
    assert [str(edit) for edit in report.plan.config_edits] == ["config.json: num_frames 4 → 8"]


def test_a_default_that_the_config_does_not_state_is_added(tmp_path: Path) -> None:
    source = tmp_path / "timesformer"
    build("timesformer", image_size=32, num_frames=8).save_pretrained(source)
    path = source / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    del config["num_frames"]  # 8 is the default of transformers
    path.write_text(json.dumps(config), encoding="utf-8")
    report = resize_checkpoint(source, to_frames=4)
    assert report.output is not None
    written = json.loads((report.output / "config.json").read_text(encoding="utf-8"))
    assert written == {**config, "num_frames": 4}


def test_a_config_that_contradicts_the_table_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "timesformer"
    build("timesformer", image_size=32).save_pretrained(source)
    path = source / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"num_frames": 4', '"num_frames": 16'))
    with pytest.raises(ResizePosError, match="says num_frames 16, but the table has 4"):
        resize_checkpoint(source, to_frames=8)
    assert [each.name for each in tmp_path.iterdir()] == ["timesformer"]


def test_a_lone_file_says_what_is_left_to_change(tmp_path: Path) -> None:
    source = tmp_path / "vivit"
    build("vivit", image_size=32).save_pretrained(source)
    (source / "config.json").unlink()
    report = resize_checkpoint(
        source / "model.safetensors",
        from_=32,
        to=48,
        to_frames=8,
        output=tmp_path / "v.safetensors",
    )
    assert "transformers config.json: num_frames 4 → 8" in map(str, report.config_advice)


def tubes(path: Path, *, frames: int, grid: tuple[int, int], names: tuple[str, str]) -> Path:
    """Write a learned table of tubes: two frames and 16×16 pixels per cell, a class token first."""
    table, kernel = names
    rows = 1 + frames // 2 * grid[0] * grid[1]
    random = torch.Generator().manual_seed(0)
    tensors = {
        table: torch.randn(1, rows, 8, generator=random),
        kernel: torch.randn(8, 3, 2, 16, 16, generator=random),
        "cls_token": torch.randn(1, 1, 8, generator=random),
    }
    save_file(tensors, path)
    return path


def test_the_recipe_s_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "recipes" / "video.md"
    words = page.read_text(encoding="utf-8").split("```console\n$ ")[1].split("```")[0].split()
    monkeypatch.chdir(tmp_path)
    build("vivit", image_size=32, num_frames=16).save_pretrained(tmp_path / "vivit")
    assert words[:2] == ["resize-pos", "vivit/"]
    said = CliRunner().invoke(command, words[1:])
    assert said.exit_code == 0, said.output
    written = json.loads((tmp_path / "vivit-64-frames32" / "config.json").read_text())
    assert (written["num_frames"], written["image_size"]) == (32, 64)


def test_a_table_of_tubes_is_resampled_in_time_and_space(tmp_path: Path) -> None:
    names = ("pos_embed", "patch_embed.proj.weight")
    path = tubes(tmp_path / "v.safetensors", frames=8, grid=(2, 3), names=names)
    report = resize_checkpoint(
        path, from_="32x48", to="64x80", to_frames=12, method="bilinear", antialias=False
    )
    assert report.output is not None
    before, after = load_file(path), load_file(report.output)
    cells = before["pos_embed"][0, 1:].double().reshape(4, 2, 3, 8).permute(3, 0, 1, 2)[None]
    wanted = torch.nn.functional.interpolate(cells, size=(6, 4, 5), mode="trilinear")
    rows = wanted[0].permute(1, 2, 3, 0).reshape(-1, 8)
    torch.testing.assert_close(after["pos_embed"][0, 1:].double(), rows, rtol=0, atol=1e-6)
    assert torch.equal(after["pos_embed"][:, :1], before["pos_embed"][:, :1])
