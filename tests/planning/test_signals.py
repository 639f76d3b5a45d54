"""Tables of a signal: one row per step of a series. None of them is read as a grid of an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.errors import ResizePosError
from resize_pos.run.job import Job, run
from tests.outside.cases import pasted_flags, request
from tests.outside.cases import smooth as waves
from tests.support.builders import raw_tensors, write_safetensors

D = 48
Tensors = dict[str, NDArray[Any]]
KERNELS: dict[str, tuple[int, ...]] = {
    "patch_embed.weight": (D, 3, 16),  # a 1-D convolution
    "to_patch_embedding.2.weight": (D, 48),  # 16 steps of 3 channels, or 4×4 pixels of 3 colours
    "tokenizer.0.weight": (D, 3, 16),
}


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


def model(
    kernel: str,
    name: str = "pos_embed",
    *,
    steps: int = 64,
    tokens: int = 1,
    trained: bool = True,
) -> Tensors:
    """Make a model of signals of 16 · steps."""
    line = waves(1, steps, D) + 0.05 * noise(steps, D) if trained else noise(steps, D)
    table = np.concatenate([noise(tokens, D), line]).astype(np.float32)
    own = {"cls_token": noise(1, 1, D)} if tokens else {}
    return {
        **own,
        name: table[None],
        kernel: noise(*KERNELS[kernel]),
        "blocks.0.norm1.weight": np.ones(D, np.float32),
        "blocks.0.mlp.fc1.weight": noise(2 * D, D),
        "blocks.0.mlp.fc1.bias": noise(2 * D),
        "head.weight": noise(5, D),
    }


def refused(folder: Path, tensors: Tensors, flags: list[str]) -> ResizePosError:
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    with pytest.raises(ResizePosError) as caught:
        run(Job(source, request(flags), output=output, force=True))
    assert not output.exists()
    return caught.value


def converted(folder: Path, tensors: Tensors, flags: list[str]) -> dict[str, bytes]:
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    run(Job(source, request(flags), output=output, force=True))
    return {name: data for name, (_, data) in raw_tensors(output)[0].items()}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["pos_embed", "my_pos", "foo"])
@pytest.mark.parametrize("tokens", [0, 1])
def test_the_printed_command_resizes_by_steps(
    kernel: str, name: str, tokens: int, tmp_path: Path
) -> None:
    tensors = model(kernel, name, tokens=tokens)
    error = refused(tmp_path, tensors, ["--to", "1536"])
    assert "step of a signal" in error.message
    printed = pasted_flags((error.hint or "").replace("--from SIZE", "--from 1024"))
    assert printed[-2:] == ["--from", "1024"]
    after = converted(tmp_path, tensors, ["--to", "1536", *printed])
    table = np.frombuffer(after[name], np.float32).reshape(-1, D)
    assert len(table) == tokens + 96
    assert np.array_equal(table[:tokens], tensors[name][0, :tokens])
    likeness = np.corrcoef(table[tokens:].ravel(), waves(1, 96, D).ravel())[0, 1]
    assert likeness > 0.98
    others = {n: t.tobytes() for n, t in tensors.items() if n != name}
    assert {n: after[n] for n in others} == others


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("told", ["16", "32", "56", "64", "224", "256", "1024"])
def test_no_size_makes_an_image_of_it(kernel: str, told: str, tmp_path: Path) -> None:
    error = refused(tmp_path, model(kernel), ["--to", "384", "--from", told])
    assert "step of a signal" in error.message


@pytest.mark.parametrize("steps", [16, 64, 121, 196])
def test_untrained_rows_of_a_linear_layer_are_asked_about(steps: int, tmp_path: Path) -> None:
    tensors = model("to_patch_embedding.2.weight", steps=steps, trained=False)
    error = refused(tmp_path, tensors, ["--to", "512"])
    assert "its values do not tell" in error.message
    length = ["--to", "8192", "--from", str(16 * steps)]
    again = refused(tmp_path, tensors, length)
    assert "step of a signal" in again.message
    printed = pasted_flags(again.hint or "")
    after = converted(tmp_path, tensors, [*length, *printed])
    assert len(after["pos_embed"]) == 4 * D * (1 + 512)


def test_a_linear_layer_of_an_image_is_still_read_as_one(tmp_path: Path) -> None:
    """3×5 patches of 4 pixels: the values jump at the ends of rows of cells."""
    tensors = model("to_patch_embedding.2.weight", steps=60)
    grid = waves(6, 10, D) + 0.05 * noise(60, D)
    tensors["pos_embed"] = np.concatenate([noise(1, D), grid]).astype(np.float32)[None]
    after = converted(tmp_path, tensors, ["--from", "24x40", "--to", "48x60"])
    assert len(after["pos_embed"]) == 4 * D * (1 + 12 * 15)


def test_steps_that_fill_no_row_are_refused(tmp_path: Path) -> None:
    flags = ["--pattern", "pos_embed", "--axes", "1 (p l) d", "--prefix", "1"]
    flags += ["--length-method", "linear", "--from", "1024"]
    error = refused(tmp_path, model("patch_embed.weight"), ["--to", "1500", *flags])
    assert "not a multiple of 16" in error.message
    assert "1488 and 1504" in (error.hint or "")


def test_a_target_without_a_source_may_count_steps_or_rows(tmp_path: Path) -> None:
    flags = ["--pattern", "pos_embed", "--axes", "1 (p l) d", "--prefix", "1"]
    flags += ["--length-method", "linear"]
    error = refused(tmp_path, model("patch_embed.weight"), ["--to", "1536", *flags])
    assert "--from SIZE" in (error.hint or "")
    assert "--to-length N" in (error.hint or "")
    after = converted(tmp_path, model("patch_embed.weight"), ["--to-length", "96", *flags])
    assert len(after["pos_embed"]) == 4 * D * 97


def test_rows_of_tokens_are_asked_for(tmp_path: Path) -> None:
    flags = ["--pattern", "pos_embed", "--axes", "1 (p l) d", "--length-method", "linear"]
    error = refused(tmp_path, model("patch_embed.weight"), ["--to-length", "96", *flags])
    assert error.hint == "pass --prefix 1 or --prefix 0."
