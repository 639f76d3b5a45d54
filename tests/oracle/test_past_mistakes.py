"""Conversions that were once wrong, each with a model that its own library built and loads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from resize_pos import resize_checkpoint
from resize_pos.cli.app import main
from resize_pos.core.errors import ResizePosError
from resize_pos.report.json import report_document
from resize_pos.report.report import Report, Status
from tests.support.builders import raw_tensors
from tests.support.folder_builders import files

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
VIT = {"embed_dim": 32, "depth": 1, "num_heads": 4, "num_classes": 3}
SWIN = {"embed_dim": 16, "depths": (2, 2), "num_heads": (2, 2), "num_classes": 3}


def cli(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def smooth(height: int, width: int, *, cls: bool = True) -> torch.Tensor:
    """A table that varies slowly over its grid, as learned positions do: [cls +] h·w rows."""
    speeds = torch.rand(2, 32, generator=torch.Generator().manual_seed(0)) * 2
    rows = torch.arange(height)[:, None, None] / height * speeds[0]
    columns = torch.arange(width)[:, None] / width * speeds[1]
    cells = torch.cos(2 * (rows + columns) + torch.arange(32)).reshape(-1, 32)
    return torch.cat([torch.ones(1, 32), cells])[None] if cls else cells


def words(report: Report) -> str:
    return " ".join(note.text for note in report.notes)


def advice(report: Report) -> dict[str, tuple[object, object]]:
    return {entry.key: (entry.before, entry.after) for entry in report.config_advice}


# A text model in a batch, and a single one that is cut.


def bert(folder: Path) -> Path:
    hf.BertModel(hf.BertConfig(**SMALL, vocab_size=99)).save_pretrained(folder)
    return folder


def test_a_batch_does_not_cut_a_text_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bert(Path("zoo/bert"))
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, **VIT)
    model.pos_embed.data = smooth(4, 4)
    save_file(model.state_dict(), "zoo/vit.safetensors")
    assert cli("batch", "zoo", "--to", "96x128", "-o", "out", "-j", "1", "--json") == 0
    jobs = {
        Path(job["source"]).name: job
        for job in map(json.loads, capfd.readouterr().out.splitlines())
    }
    assert {name: job["status"] for name, job in jobs.items()} == {
        "bert": "unchanged",
        "vit.safetensors": "resized",
    }
    (note,) = jobs["bert"]["notes"]
    assert "in a batch --to is an image size" in note["text"] and not note["warning"]
    assert files(Path("out/bert")) == files(Path("zoo/bert"))
    assert hf.BertModel.from_pretrained("out/bert").config.max_position_embeddings == 512
    # With a length, too, each model gets what it has a table for.
    assert cli("batch", "zoo", "--to", "96x128", "--to-length", "256", "-o", "both", "-j", "1") == 0
    assert hf.BertModel.from_pretrained("both/bert").config.max_position_embeddings == 256
    assert load_file("both/vit.safetensors")["pos_embed"].shape == (1, 49, 32)


def test_a_single_text_model_that_loses_positions_is_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = bert(tmp_path / "bert")
    assert cli(folder, "--to", "384", "-n") == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "warning: " in said and "the last 128 positions are removed" in said
    report = resize_checkpoint(folder, to=384)
    assert report.verdict.value == "warn"
    assert "the last 128 positions are removed" in report_document(report)["notes"][0]["text"]
    assert report.output is not None
    made = hf.BertModel.from_pretrained(report.output)
    rows = hf.BertModel.from_pretrained(folder).embeddings.position_embeddings.weight[:384]
    assert torch.equal(made.embeddings.position_embeddings.weight, rows)
    # Asked for by its own name, it is no surprise.
    assert resize_checkpoint(folder, to_length=384, output=tmp_path / "asked").verdict == "ok"


# Continuous tables: the weights stay, the config follows.


def test_the_config_of_a_swin_v2_follows_although_its_weights_do_not(tmp_path: Path) -> None:
    config = hf.Swinv2Config(
        image_size=64, window_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 2], num_labels=3
    )
    folder = tmp_path / "swin"
    hf.Swinv2ForImageClassification(config).save_pretrained(folder)
    hf.ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    report = resize_checkpoint(folder, to="96x128")
    assert report.output is not None and report.status is Status.RESIZED
    assert not report.plan.changes
    before, after = (raw_tensors(f / "model.safetensors")[0] for f in (folder, report.output))
    assert before == after
    made = hf.Swinv2ForImageClassification.from_pretrained(report.output)
    assert list(made.config.image_size) == [96, 128]
    processor = hf.ViTImageProcessor.from_pretrained(report.output)
    pixels = processor(np.zeros((70, 50, 3), np.uint8), return_tensors="pt")["pixel_values"]
    assert tuple(pixels.shape[-2:]) == (96, 128)
    made(pixels)
    assert resize_checkpoint(report.output, to="96x128").status is Status.UNCHANGED


def test_the_config_of_a_timm_swin_v2_follows_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, made = tmp_path / "swin", tmp_path / "made"
    arguments = {**SWIN, "img_size": 64, "window_size": 4}
    model = timm.create_model("swinv2_tiny_window8_256", **arguments)
    timm.models.save_for_hf(model, folder, model_args=arguments)
    assert cli(folder, "--to", "96x128", "-o", made) == 0
    assert "no table changes with the size; the configs do" in capfd.readouterr().out
    loaded = timm.create_model(f"local-dir:{made}", pretrained=True)
    loaded(torch.zeros(1, 3, 96, 128))
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


# A patch convolution that drops a remainder.


def siglip(folder: Path) -> Path:
    """90 px at patch 14: 6×6 patches, and 6 px are dropped, as in so400m-patch14-384."""
    config = hf.SiglipVisionConfig(**SMALL, image_size=90, patch_size=14)
    model = hf.SiglipVisionModel(config)
    model.embeddings.position_embedding.weight.data = smooth(6, 6, cls=False)
    model.save_pretrained(folder)
    hf.SiglipImageProcessor(size={"height": 90, "width": 90}).save_pretrained(folder)
    return folder


def test_a_size_with_a_remainder_is_accepted_where_the_model_has_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = siglip(tmp_path / "siglip")
    alone = tmp_path / "alone" / "model.safetensors"
    alone.parent.mkdir()
    alone.write_bytes((folder / "model.safetensors").read_bytes())
    for given in (["--size", "90"], ["--config", folder]):
        assert cli("verify", alone, *given) == 0
    assert cli("verify", folder, "--config") == 0
    assert cli(alone, "--to", "90") == 0
    assert resize_checkpoint(folder, to=90).status is Status.UNCHANGED
    capfd.readouterr()
    report = resize_checkpoint(folder, to=132)
    assert "the grid is 9×9 (126 px)" in words(report) and "126 px or 140 px" in words(report)
    assert report.output is not None
    made = hf.SiglipVisionModel.from_pretrained(report.output)
    assert made.config.image_size == 132
    size = json.loads((report.output / "preprocessor_config.json").read_text())["size"]
    assert size == {"height": 132, "width": 132}
    made(torch.zeros(1, 3, 132, 132))
    assert cli("verify", report.output, "--config") == 0


def test_a_remainder_by_flags_alone(tmp_path: Path) -> None:
    """A wide image of timm: 90×118 px at patch 14 are 6×8 patches."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=(90, 118), patch_size=14, **VIT)
    model.pos_embed.data = smooth(6, 8)
    path = tmp_path / "vit.safetensors"
    save_file(model.state_dict(), path)
    report = resize_checkpoint(path, to="104x132", from_="90x118")
    assert report.plan.steps[0].target.cells == 7 * 9
    assert advice(report) == {"img_size": ([90, 118], [104, 132])}
    assert report.output is not None
    larger = timm.create_model("vit_tiny_patch16_224", img_size=(104, 132), patch_size=14, **VIT)
    larger.load_state_dict(load_file(report.output), strict=True)
    larger(torch.zeros(1, 3, 104, 132))
    with pytest.raises(ResizePosError, match="not a multiple of the patch size 14") as caught:
        resize_checkpoint(path, to="104x132", from_="84x112", output=tmp_path / "b.safetensors")
    assert "floor=True" in str(caught.value.hint)
    floored = resize_checkpoint(
        path, to="104x132", from_="84x112", floor=True, output=tmp_path / "c.safetensors"
    )
    assert floored.output is not None
    assert load_file(floored.output)["pos_embed"].shape == (1, 64, 32)


# Names of outputs.


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A torch checkpoint, 48×64 px at patch 16."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=(48, 64), **VIT)
    model.pos_embed.data = smooth(3, 4)
    path = tmp_path / "vit.pth"
    torch.save(model.state_dict(), path)
    return path


TO: dict[str, Any] = {"from_": "48x64", "to": "96x128"}
FLAGS = ("--from", "48x64", "--to", "96x128")


@pytest.mark.parametrize("name", ["out.onnx", "out.h5", "out.gguf", "out.tar"])
def test_a_suffix_that_names_another_format_is_refused(checkpoint: Path, name: str) -> None:
    target = checkpoint.with_name(name)
    with pytest.raises(ResizePosError, match=r"names a file format|is not converted to"):
        resize_checkpoint(checkpoint, output=target, **TO)
    assert not target.exists()


def test_a_stream_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    assert cli(checkpoint, *FLAGS, "-o", "-") == 2
    assert "cannot be a stream" in capfd.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["vit.pth"]


def test_a_directory_is_a_directory(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint.parent
    assert cli(checkpoint, *FLAGS, "-o", f"{folder}/new/deep/", "-n", "-q") == 0
    assert capfd.readouterr().out.strip() == f"{folder}/new/deep/vit-96x128.pth"
    assert not (folder / "new").exists()
    for target in (f"{folder}/new/deep/", folder / "there"):
        (folder / "there").mkdir(exist_ok=True)
        report = resize_checkpoint(checkpoint, output=target, **TO)
        assert report.output == Path(target) / "vit-96x128.pth"
        assert torch.load(report.output)["pos_embed"].shape == (1, 49, 32)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("x.safetensors", "x-96x128.pth"),
        ("last.pth.tar", "last-96x128.pth.tar"),
        ("model.weights", "model-96x128.weights"),
        ("v1.2.ckpt", "v1.2-96x128.ckpt"),
    ],
)
def test_the_content_decides_the_suffix_of_a_default_name(
    checkpoint: Path, name: str, made: str
) -> None:
    source = checkpoint.rename(checkpoint.with_name(name))
    report = resize_checkpoint(source, **TO)
    assert report.output is not None and report.output.name == made
    assert torch.load(report.output)["pos_embed"].shape == (1, 49, 32)


def test_the_suffix_of_a_named_output_is_its_format(checkpoint: Path) -> None:
    source = checkpoint.rename(checkpoint.with_name("x.safetensors"))
    report = resize_checkpoint(source, output=checkpoint.with_name("y.safetensors"), **TO)
    assert report.output is not None
    assert load_file(report.output)["pos_embed"].shape == (1, 49, 32)


# TorchScript.


@pytest.mark.filterwarnings("ignore")
def test_a_torchscript_archive_becomes_a_state_dict_and_this_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=(48, 64), **VIT).eval()
    model.pos_embed.data = smooth(3, 4)
    path = tmp_path / "clip.pt"
    jit: Any = torch.jit
    jit.trace(model, torch.zeros(1, 3, 48, 64)).save(str(path))
    assert cli(path, *FLAGS, "-n") == 0
    assert "TorchScript" in capfd.readouterr().out
    report = resize_checkpoint(path, **TO)
    assert "plain state dict" in words(report)
    assert "plain state dict" in report_document(report)["notes"][0]["text"]
    assert report.output is not None and report.output.name == "clip-96x128-state-dict.pt"
    larger = timm.create_model("vit_tiny_patch16_224", img_size=(96, 128), **VIT)
    larger.load_state_dict(torch.load(report.output), strict=True)


# What is still to change.


def test_advice_with_another_patch_size(checkpoint: Path) -> None:
    report = resize_checkpoint(checkpoint, to_patch=8)
    assert advice(report) == {"patch_size": (16, 8)}
    assert report.output is not None
    model = timm.create_model("vit_tiny_patch16_224", img_size=(48, 64), patch_size=8, **VIT)
    model.load_state_dict(torch.load(report.output), strict=True)


def test_advice_with_another_patch_size_and_image(tmp_path: Path) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=128, **VIT)
    model.pos_embed.data = smooth(8, 8)
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    report = resize_checkpoint(tmp_path / "vit.safetensors", to=256, to_patch=32)
    assert advice(report) == {"img_size": (128, 256), "patch_size": (16, 32)}
    assert report.output is not None
    larger = timm.create_model("vit_tiny_patch16_224", img_size=256, patch_size=32, **VIT)
    larger.load_state_dict(load_file(report.output), strict=True)


def test_advice_for_a_bare_roberta_counts_its_reserved_rows(tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "vocab_size": 99, "type_vocab_size": 1}
    model = hf.RobertaModel(hf.RobertaConfig(max_position_embeddings=514, **options))
    path = tmp_path / "roberta.safetensors"
    save_file(model.state_dict(), path)
    report = resize_checkpoint(path, to=1024, length_method="tile")
    assert advice(report) == {
        "max_position_embeddings": (514, 1026),
        "model_max_length": (512, 1024),
    }
    assert report.output is not None
    longer = hf.RobertaModel(hf.RobertaConfig(max_position_embeddings=1026, **options))
    longer.load_state_dict(load_file(report.output), strict=True)


def test_advice_for_a_bare_whisper_names_its_own_key(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "vocab_size": 99,
        "pad_token_id": 1,
        "max_target_positions": 48,
    }
    model = hf.WhisperModel(hf.WhisperConfig(max_source_positions=100, **options))
    path = tmp_path / "whisper.safetensors"
    save_file(model.state_dict(), path)
    report = resize_checkpoint(path, to_length=60, from_length=100)
    assert advice(report) == {"max_source_positions": (100, 60)}
    assert report.output is not None
    shorter = hf.WhisperModel(hf.WhisperConfig(max_source_positions=60, **options))
    shorter.load_state_dict(load_file(report.output), strict=True)


def test_advice_for_a_bare_clip_names_the_sections(tmp_path: Path) -> None:
    towers = {
        "vision_config": {**SMALL, "image_size": 64, "patch_size": 16},
        "text_config": {**SMALL, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}
        | {"max_position_embeddings": 16},
    }
    model = hf.CLIPModel(hf.CLIPConfig(**towers))
    table = model.vision_model.embeddings.position_embedding.weight
    table.data = smooth(4, 4)[0]
    path = tmp_path / "clip.safetensors"
    save_file({n: t for n, t in model.state_dict().items() if "position_ids" not in n}, path)
    report = resize_checkpoint(path, to=96, to_length=12)
    assert advice(report) == {
        "vision_config.image_size": (64, 96),
        "size": (64, 96),
        "text_config.max_position_embeddings": (16, 12),
        "model_max_length": (16, 12),
    }


def swin(path: Path, size: int, window: int) -> Path:
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=size, window_size=window, **SWIN
    )
    save_file(model.state_dict(), path)
    return path


def test_advice_for_a_swin_with_another_window(tmp_path: Path) -> None:
    path = swin(tmp_path / "swin.safetensors", 128, 4)
    report = resize_checkpoint(path, to=192, to_window=6)
    assert advice(report) == {"img_size": (None, 192), "window_size": (4, 6)}
    assert report.output is not None
    larger = timm.create_model("swin_tiny_patch4_window7_224", img_size=192, window_size=6, **SWIN)
    larger.load_state_dict(load_file(report.output), strict=True)


def test_a_swin_at_another_size_keeps_its_window_and_says_how_to_change_it(tmp_path: Path) -> None:
    path = swin(tmp_path / "swin.safetensors", 128, 4)
    report = resize_checkpoint(path, to=192, from_=128)
    assert report.status is Status.UNCHANGED
    assert "the windows stay 4×4, as timm and transformers keep them" in words(report)
    assert "--to 192 --to-window 6 changes them" in words(report)
    assert advice(report) == {"img_size": (128, 192)}
    same = timm.create_model("swin_tiny_patch4_window7_224", img_size=192, window_size=4, **SWIN)
    same.load_state_dict(load_file(path), strict=True)
    assert resize_checkpoint(path, to=128, from_=128).notes == ()


def test_a_swin_folder_keeps_its_window_and_its_config_follows(tmp_path: Path) -> None:
    config = hf.SwinConfig(
        image_size=64, window_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 2]
    )
    hf.SwinModel(config).save_pretrained(tmp_path / "swin")
    report = resize_checkpoint(tmp_path / "swin", to=96)
    assert "--to 96 --to-window 6 changes them" in words(report)
    assert report.output is not None
    made = hf.SwinModel.from_pretrained(report.output)
    assert (made.config.image_size, made.config.window_size) == (96, 4)
    made(torch.zeros(1, 3, 96, 96))


# Formats and copies.


def test_a_conversion_without_a_resize(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = checkpoint.with_name("x.safetensors")
    assert cli(checkpoint, "-o", target, "-n") == 0
    assert not target.exists()
    assert cli(checkpoint, "-o", target) == 0
    assert "no table changes" in capfd.readouterr().out
    before, after = torch.load(checkpoint), load_file(target)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert cli(checkpoint, "-o", checkpoint.with_name("y.pth")) == 2
    assert "no target is given" in capfd.readouterr().err


def training(path: Path) -> dict[str, Any]:
    """What timm's and DeiT's training code save."""
    copies = []
    for _ in range(2):
        model = timm.create_model("vit_tiny_patch16_224", img_size=(48, 64), **VIT)
        model.pos_embed.data = smooth(3, 4) * torch.rand(())
        copies.append(model.state_dict())
    saved = {
        "epoch": 3,
        "model": copies[0],
        "model_ema": copies[1],
        "args": argparse.Namespace(img_size=[48, 64], lr=0.1, input_size=224),
        "hyper_parameters": {"image_size": (48, 64), "name": "vit"},
        "param_shapes": [{"pos_embed": torch.Size([1, 13, 32])}],
    }
    torch.save(saved, path)
    return saved


@pytest.mark.parametrize("name", ["ema.pth", "ema.safetensors", None])
def test_one_of_several_copies_is_written(tmp_path: Path, name: str | None) -> None:
    path = tmp_path / "last.pth"
    saved = training(path)
    output = None if name is None else tmp_path / name
    report = resize_checkpoint(path, select="model_ema", output=output, **TO)
    assert report.output is not None
    assert name is not None or report.output.name == "last-96x128-model_ema.pth"
    made = load_file(report.output) if name == "ema.safetensors" else torch.load(report.output)
    larger = timm.create_model("vit_tiny_patch16_224", img_size=(96, 128), **VIT)
    larger.load_state_dict(made, strict=True)
    for key, tensor in saved["model_ema"].items():
        assert key == "pos_embed" or torch.equal(made[key], tensor)
    assert report.conversion is not None
    assert set(report.conversion.dropped) >= {"model", "args", "epoch"}


def test_an_unknown_copy_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    training(tmp_path / "last.pth")
    with pytest.raises(ResizePosError, match="select teacher") as caught:
        resize_checkpoint(tmp_path / "last.pth", select="teacher", **TO)
    assert "model, model_ema" in str(caught.value.hint)


def test_sizes_inside_a_checkpoint_are_named(tmp_path: Path) -> None:
    training(tmp_path / "last.pth")
    report = resize_checkpoint(tmp_path / "last.pth", **TO)
    inside = {a.key: a.after for a in report.config_advice if a.file == "the checkpoint"}
    assert inside == {
        "args.img_size": [96, 128],
        "hyper_parameters.image_size": [96, 128],
        "param_shapes.0.pos_embed": [1, 49, 32],
    }
