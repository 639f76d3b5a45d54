"""`verify` with models of three libraries, on images, and with the record in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import resize_pos
from resize_pos.core.errors import UsageError
from resize_pos.verify.models import ModelSpec
from tests.cli.test_cli import run
from tests.support.builders import flat, smooth, vit, write_safetensors
from tests.verify.test_images import _one_thread, images

__all__ = ["_one_thread", "images", "run"]  # fixtures are used by their names


@pytest.fixture
def hf_folder(tmp_path: Path) -> Path:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        image_size=[64, 96],
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=4,
    )
    folder = tmp_path / "vit-hf"
    model = ViTForImageClassification(config)
    with torch.no_grad():
        table = torch.from_numpy(flat(4, 6, channels=16))
        model.vit.embeddings.position_embeddings.copy_(table)
    model.save_pretrained(folder)
    return folder


def test_a_folder_of_transformers_loads_strictly_and_runs(
    hf_folder: Path, images: Path, run: Any
) -> None:
    made = run(hf_folder, "--to", "96x160", "-q").out.strip()
    done = run("verify", made, "--against", hf_folder, "--model", f"hf:{made}", "--images", images)
    assert done.code == 0, done.err
    assert "loads it strictly at 96x160 px and gives [1, 4]" in done.out
    assert "on 6 images the features keep a cosine of" in done.out
    assert "top-1 answers agree" in done.out


def test_weights_that_do_not_fit_the_config_are_refused(
    hf_folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # transformers logs to the stream that stderr was when it was imported, maybe in another test.
    monkeypatch.setattr("logging.raiseExceptions", False)
    config = json.loads((hf_folder / "config.json").read_text())
    (hf_folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    done = run("verify", hf_folder, "--model", f"hf:{hf_folder}")
    assert done.code == 1
    assert "does not load into" in done.err and "missing keys" in done.err
    other = run("verify", hf_folder, "--model", "hf:google/vit-base")
    assert other.code == 2
    assert "there is no config.json in this folder" in other.err


def test_open_clip_models_load_strictly_and_see_images(
    tmp_path: Path, images: Path, run: Any
) -> None:
    import open_clip
    from safetensors.torch import save_file

    shape = {"layers": 1, "width": 64, "patch_size": 16, "image_size": 64, "head_width": 32}
    text = {"context_length": 12, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1}
    config = {"embed_dim": 16, "vision_cfg": shape, "text_cfg": text}
    (tmp_path / "tiny-clip.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-clip", load_weights=False, pretrained_text=False)
    with torch.no_grad():
        table = torch.from_numpy(flat(4, 4, channels=64)[0])
        model.visual.positional_embedding.copy_(table)
    source = tmp_path / "clip.safetensors"
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, source)
    made = run(source, "--to", "96", "-q").out.strip()
    done = run(
        *("verify", made, "--against", source, "--model", "open_clip:tiny-clip"),
        *("--images", images),
    )
    assert done.code == 0, done.err
    assert "loads it strictly at 96 px and gives [1, 16]" in done.out
    assert "the features keep a cosine" in done.out
    refused = run("verify", made, "--model", "open_clip:hf-hub:org/model")
    assert refused.code == 2 and "would download" in refused.err


@pytest.mark.parametrize("argument", ["img_size=96", "img_size=(96,96)", "image_size=96"])
def test_a_model_argument_states_the_size(argument: str) -> None:
    spec = ModelSpec.parse("timm:x", [argument, "depth=1"])
    assert str(spec.size) == "96"
    assert spec.arguments == {"depth": 1}


def test_the_stated_size_is_that_of_the_output_not_of_the_source(
    tmp_path: Path, images: Path, run: Any
) -> None:
    """Without a patch kernel of a known name, nothing but the argument tells the pixels."""
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    small = {"embed_dim": 48, "depth": 1, "num_heads": 4, "num_classes": 3}
    model = timm.create_model("vit_tiny_patch16_224", img_size=(64, 96), **small)
    with torch.no_grad():
        model.pos_embed.copy_(torch.from_numpy(flat(4, 6, channels=48)))
    source = tmp_path / "vit.safetensors"
    save_file(model.state_dict(), source)
    made = run(source, "--from", "64x96", "--to", "96x160", "-q").out.strip()
    flags = [w for k, v in small.items() if k != "num_classes" for w in ("--model-arg", f"{k}={v}")]
    done = run(
        *("verify", made, "--against", source, "--from", "64x96", "--images", images),
        *("--model", "timm:vit_tiny_patch16_224", *flags, "--model-arg", "img_size=(96, 160)"),
    )
    assert done.code == 0, done.err
    assert "loads it strictly at 96x160 px" in done.out


def test_a_model_needs_a_known_library() -> None:
    for wrong in ("vit_base", "keras:vit", "timm:", "hf:"):
        with pytest.raises(UsageError, match="does not name a library and a model"):
            ModelSpec.parse(wrong)


def test_the_record_states_both_geometries(tmp_path: Path, run: Any) -> None:
    """36 rows of the source look like 6×6, and are 4×9; nothing but the record tells."""
    source = write_safetensors(tmp_path / "wide.safetensors", vit(4, 9))
    assert run(source, "--from", "64x144", "--to", "96x160").code == 0
    done = run("verify", tmp_path / "wide-96x160.safetensors", "--against", source)
    assert done.code == 0, done.out
    assert "pos_embed  4×9 → 6×10" in done.out
    assert "made by timm" in done.out


def test_the_record_names_the_table_that_no_family_knows(tmp_path: Path, run: Any) -> None:
    table = smooth(8, 12, 8).reshape(1, 96, 8)
    source = write_safetensors(tmp_path / "odd.safetensors", {"my_pos": table})
    words = ("--pattern", "my_pos$", "--axes", "1 (p h w s) d", "--from-grid", "8x12")
    assert run(source, *words, "--to-grid", "8x6", "-o", "out.safetensors").code == 0
    done = run("verify", "out.safetensors", "--against", source)
    assert done.code == 0, done.err
    assert "my_pos  8×12 → 8×6" in done.out


def test_a_record_of_another_source_says_nothing(tmp_path: Path, run: Any) -> None:
    source = write_safetensors(tmp_path / "wide.safetensors", vit(4, 9))
    assert run(source, "--from", "64x144", "--to", "96x160", "-o", "out.safetensors").code == 0
    tensors = vit(4, 9)
    tensors["pos_embed"] = np.asarray(tensors["pos_embed"] + 1, np.float32)
    other = write_safetensors(tmp_path / "other.safetensors", tensors)
    done = run("verify", "out.safetensors", "--against", other)
    assert "4×9" not in done.out
    stated = run("verify", "out.safetensors", "--against", other, "--from", "64x144")
    assert stated.code == 3 and "4×9 → 6×10" in stated.out


def test_what_the_user_states_takes_precedence(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "wide.safetensors", vit(4, 9))
    made = resize_pos.resize_checkpoint(source, from_="64x144", to="96x160").output
    assert made is not None
    assert resize_pos.verify_checkpoint(made, source).verdict == "ok"
    assert resize_pos.verify_checkpoint(made, source, to=112).verdict == "fail"
