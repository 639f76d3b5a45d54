"""Audio models: the frames and mel bins of a spectrogram."""

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


def ast(folder: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.ASTConfig(**SMALL, num_mel_bins=48, max_length=136)
    transformers.ASTModel(config).save_pretrained(folder)
    extractor = {"num_mel_bins": 48, "max_length": 136, "sampling_rate": 16000}
    extractor["feature_extractor_type"] = "ASTFeatureExtractor"  # type: ignore[assignment]
    text = json.dumps(extractor)
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("flags", "mel", "time"),
    [
        ({"to_time": 256}, 48, 256),
        ({"to_mel": 64, "to_time": 96}, 64, 96),
        ({"to_mel": 32}, 32, 136),
    ],
)
def test_ast_loads_strictly_and_its_configs_follow(
    flags: dict[str, Any], mel: int, time: int, tmp_path: Path
) -> None:
    report = resize_checkpoint(ast(tmp_path / "ast"), **flags)
    assert report.output is not None
    for name in ("config.json", "preprocessor_config.json"):
        written = json.loads((report.output / name).read_text(encoding="utf-8"))
        assert (written["num_mel_bins"], written["max_length"]) == (mel, time)
    model, loading = transformers.ASTModel.from_pretrained(report.output, output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        model(torch.zeros(1, time, mel))


def whisper(folder: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=40,
        max_source_positions=150, max_target_positions=24, num_mel_bins=20,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    transformers.WhisperModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("frames", [200, 480])
def test_whisper_s_encoder_follows_the_frames(frames: int, tmp_path: Path) -> None:
    source = whisper(tmp_path / "whisper")
    report = resize_checkpoint(source, to_time=frames)
    assert report.output is not None
    config = json.loads((report.output / "config.json").read_text(encoding="utf-8"))
    assert (config["max_source_positions"], config["max_target_positions"]) == (frames // 2, 24)
    model, loading = transformers.WhisperModel.from_pretrained(
        report.output, output_loading_info=True
    )
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        model(torch.zeros(1, 20, frames), decoder_input_ids=torch.ones(1, 2, dtype=torch.long))


def test_what_whisper_cannot_have_is_refused(tmp_path: Path) -> None:
    source = whisper(tmp_path / "whisper")
    with pytest.raises(ResizePosError, match="input channels of this model's first convolution"):
        resize_checkpoint(source, to_mel=40)
    with pytest.raises(ResizePosError, match="stands for 2 frames"):
        resize_checkpoint(source, to_time=201)
    with pytest.raises(ResizePosError, match="exclude each other"):
        resize_checkpoint(source, to=128, to_time=200)


def passt(path: Path, *, rows: int, columns: int) -> Path:
    """Write PaSST's tables: one over time, one over frequency, rows of two tokens apart."""
    random = torch.Generator().manual_seed(0)
    shapes = {
        "time_new_pos_embed": (1, 8, 1, columns),
        "freq_new_pos_embed": (1, 8, rows, 1),
        "new_pos_embed": (1, 2, 8),
        "cls_token": (1, 1, 8),
        "dist_token": (1, 1, 8),
        "patch_embed.proj.weight": (8, 1, 16, 16),
    }
    tensors = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    save_file(tensors, path)
    return path


def test_passt_s_two_tables_follow(tmp_path: Path) -> None:
    path = passt(tmp_path / "passt.safetensors", rows=12, columns=99)
    report = resize_checkpoint(path, to_time=498, to_mel=96, method="bilinear", antialias=False)
    assert report.output is not None
    before, after = load_file(path), load_file(report.output)
    for name, size in (("time_new_pos_embed", (1, 49)), ("freq_new_pos_embed", (9, 1))):
        wanted = torch.nn.functional.interpolate(before[name].double(), size=size, mode="bilinear")
        torch.testing.assert_close(after[name].double(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(before["new_pos_embed"], after["new_pos_embed"])


def test_passt_s_table_has_a_row_per_step_not_per_patch(tmp_path: Path) -> None:
    """Its constructor divides by the step: 500 // 10 rows, and only 49 patches to add them to."""
    path = passt(tmp_path / "passt.safetensors", rows=12, columns=99)
    with pytest.raises(ResizePosError, match="49 patches, and a table of 50 rows") as refusal:
        resize_checkpoint(path, to_time=500)
    assert "499 and 506" in str(refusal.value.hint)


def test_another_step_of_passt_is_asked_for_and_read(tmp_path: Path) -> None:
    path = passt(tmp_path / "s16.safetensors", rows=8, columns=62)
    with pytest.raises(ResizePosError, match="the step is not in the file") as refusal:
        resize_checkpoint(path, to_time=480)
    assert 'from_="MELxTIME"' in str(refusal.value.hint)
    report = resize_checkpoint(path, from_="128x992", to_time=480)
    assert report.output is not None
    after = load_file(report.output)
    assert after["time_new_pos_embed"].shape == (1, 8, 1, 30)
    assert after["freq_new_pos_embed"].shape == (1, 8, 8, 1)


def test_a_picture_has_no_frames(tmp_path: Path) -> None:
    tensors = {"pos_embed": torch.randn(1, 17, 8), "cls_token": torch.randn(1, 1, 8)}
    save_file(
        {**tensors, "patch_embed.proj.weight": torch.randn(8, 3, 16, 16)},
        tmp_path / "v.safetensors",
    )
    with pytest.raises(ResizePosError, match="no table in this file belongs to a spectrogram"):
        resize_checkpoint(tmp_path / "v.safetensors", to_time=100)


def test_the_recipe_s_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "recipes" / "audio.md"
    words = page.read_text(encoding="utf-8").split("```console\n$ ")[1].split("```")[0].split()
    monkeypatch.chdir(tmp_path)
    ast(tmp_path / "ast")
    assert words[:2] == ["resize-pos", "ast/"]
    said = CliRunner().invoke(command, words[1:])
    assert said.exit_code == 0, said.output
    written = json.loads((tmp_path / "ast-48x512" / "config.json").read_text(encoding="utf-8"))
    assert (written["num_mel_bins"], written["max_length"]) == (48, 512)


@pytest.mark.parametrize("time", [512, 2048])
def test_eat_s_table_is_stored_frame_by_frame(time: int, tmp_path: Path) -> None:
    """Its formula at the new size, in coordinates as EAT computes them (models/mae.py)."""

    def table(frames: int) -> torch.Tensor:
        rates = 1.0 / 10000 ** (torch.arange(6, dtype=torch.float64) / 6)
        rows, columns = torch.arange(frames * 8) // 8, torch.arange(frames * 8) % 8
        halves = [torch.outer(places.double(), rates) for places in (columns, rows)]
        return torch.cat([f(half) for half in halves for f in (torch.sin, torch.cos)], dim=1)[None]

    stem = "modality_encoders.IMAGE."
    tensors = {
        f"{stem}fixed_positional_encoder.positions": table(64).float(),
        f"{stem}local_encoder.proj.weight": torch.randn(24, 1, 16, 16),
    }
    save_file(tensors, tmp_path / "eat.safetensors")
    report = resize_checkpoint(
        tmp_path / "eat.safetensors", from_="128x1024", to_time=time, sincos="absolute"
    )
    assert report.output is not None
    after = load_file(report.output)[f"{stem}fixed_positional_encoder.positions"]
    torch.testing.assert_close(after, table(time // 16).float(), rtol=0, atol=1e-4)
