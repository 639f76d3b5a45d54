"""A model takes the file: strict loading, one forward pass, and the user's own images."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos.api import verify_checkpoint
from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.verify.images import describe
from resize_pos.verify.models import ModelSpec
from tests.cli.test_cli import run

__all__ = ["run"]  # the fixture is used by its name
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_checkpoints" / "digits_vit_224.safetensors"
MODEL = ("--model", "timm:vit_tiny_patch16_224")
ARGUMENTS = ("embed_dim=48", "depth=4", "num_heads=4")
FLAGS = [word for argument in ARGUMENTS for word in ("--model-arg", argument)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def output(tmp_path: Path, run: Any) -> Path:
    path = tmp_path / "out.safetensors"
    assert run(str(SAMPLE), "--to", "160", "-o", str(path)).code == 0
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    from PIL import Image
    from sklearn.datasets import load_digits

    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for index, picture in enumerate(load_digits().images[:6]):
        pixels = Image.fromarray((picture * 15.9).astype(np.uint8)).resize((96, 96))
        pixels.save(folder / ("more" if index % 2 else ".") / f"{index}.png")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_the_output_loads_strictly_and_runs(output: Path, run: Any) -> None:
    done = run("verify", str(output), *MODEL, *FLAGS)
    assert done.code == 0, done.err
    assert "loads it strictly at 160 px and gives [1, 10]" in done.out


def test_a_model_that_does_not_fit_is_refused_in_words(output: Path, run: Any) -> None:
    done = run("verify", str(output), *MODEL, "--model-arg", "embed_dim=48")
    assert done.code == 1
    assert "does not load into vit_tiny_patch16_224 at 160 px" in done.err
    assert "--model-arg" in done.err
    unknown = run("verify", str(output), "--model", "timm:no_such_model")
    assert unknown.code == 1
    assert "timm could not build no_such_model" in unknown.err


def test_images_compare_source_and_output(output: Path, images: Path) -> None:
    found = verify_checkpoint(
        output, SAMPLE, model="timm:vit_tiny_patch16_224", model_args=ARGUMENTS, images=images
    )
    assert found.probe is not None
    assert found.probe.images == 6
    assert found.probe.feature_cosine > 0.8
    assert any("top-1 answers agree" in line for line in describe(found.probe))
    assert found.probe.feature_cosine_worst <= found.probe.feature_cosine
    assert found.probe.top1_agreement is not None
    assert found.probe.top1_agreement >= 0.75
    before, after = found.probe.attention_entropy_before, found.probe.attention_entropy_after
    assert before is not None
    assert after is not None
    assert 0 < before < 1
    assert abs(before - after) < 0.2


def test_the_probe_sees_a_model_that_lost_its_positions(
    output: Path, images: Path, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(output)
    tensors["pos_embed"][:, 1:] = 0
    broken = tmp_path / "broken.safetensors"
    save_file(tensors, broken)
    lost = verify_checkpoint(
        broken, SAMPLE, model="timm:vit_tiny_patch16_224", model_args=ARGUMENTS, images=images
    )
    assert lost.probe is not None
    assert lost.probe.feature_cosine < 0.7


def test_the_same_file_agrees_with_itself(images: Path) -> None:
    found = verify_checkpoint(
        SAMPLE, SAMPLE, model="timm:vit_tiny_patch16_224", model_args=ARGUMENTS, images=images
    )
    assert found.probe is not None
    assert found.probe.feature_cosine == pytest.approx(1)
    assert found.probe.top1_agreement == 1


def test_images_need_a_model_and_a_source(output: Path, images: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        verify_checkpoint(output, SAMPLE, images=images)
    with pytest.raises(ResizePosError, match="no such folder"):
        verify_checkpoint(
            output, SAMPLE, model="timm:vit_tiny_patch16_224", images=tmp_path / "none"
        )
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResizePosError, match="holds no images"):
        verify_checkpoint(
            output, SAMPLE, model="timm:vit_tiny_patch16_224", images=tmp_path / "empty"
        )


def test_constructor_arguments_are_python_literals() -> None:
    spec = ModelSpec.parse("timm:x", ["depth=4", "pos_embed='none'", "act_layer=gelu"])
    assert spec.arguments == {"depth": 4, "pos_embed": "none", "act_layer": "gelu"}
    for wrong in ("depth", "1x=3"):
        with pytest.raises(UsageError):
            ModelSpec.parse("timm:x", [wrong])


def test_timm_is_imported_in_one_place_only() -> None:
    """So is the guard for torchvision's operators."""
    for path in (ROOT / "resize_pos").rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
        allowed = path == ROOT / "resize_pos" / "verify" / "timm.py"
        assert allowed or not names & {"timm", "torchvision"}, path
