"""Layers over patches on trained models: accuracy, the verdict, and optimizer state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.mixing import BEGIN, END, MODELS, RESULTS, accuracy, checkpoint, digits, report
from resize_pos import ResizePosError, resize_checkpoint

ARTIFACTS = Path(__file__).parents[2] / "docs" / "artifacts.md"


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_still_reads_digits_on_a_larger_grid(name: str, tmp_path: Path) -> None:
    _, _, images, labels = digits().load_split()
    images, labels = images[:150], labels[:150]
    before = accuracy(name, load_file(checkpoint(name)), (64, 64), images, labels)
    made = resize_checkpoint(checkpoint(name), to=(96, 80), output=tmp_path / "m.safetensors")
    assert made.verdict == "ok"
    assert made.output is not None
    after = accuracy(name, load_file(made.output), (96, 80), images, labels)
    assert before > 0.9
    assert after > before - 0.06


@pytest.mark.parametrize("name", MODELS)
def test_a_smaller_grid_is_a_warning_that_says_what_is_lost(name: str, tmp_path: Path) -> None:
    made = resize_checkpoint(checkpoint(name), to=(48, 64), output=tmp_path / "m.safetensors")
    assert made.verdict == "warn"
    losses = [table.measures["mixing_loss"] for table in made.tables if table.measures]
    assert max(losses) > 0.05
    assert any("shrinks to ×0.75" in check.detail for t in made.tables for check in t.checks)


def test_the_page_shows_the_results_of_the_experiment() -> None:
    inside = ARTIFACTS.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert report(json.loads(RESULTS.read_text(encoding="utf-8"))) == inside.strip()


def trained(path: Path) -> None:
    """Write a training checkpoint: a ResMLP and an Adam that has made one step."""
    state = load_file(checkpoint("ResMLP"))
    parameters = {key: torch.nn.Parameter(value) for key, value in state.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3)
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    model = {key: value.detach() for key, value in parameters.items()}
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, path)


def test_the_optimizer_s_state_of_such_a_layer_is_removed_and_stated(tmp_path: Path) -> None:
    trained(tmp_path / "last.pth")
    made = resize_checkpoint(tmp_path / "last.pth", to=(96, 80))
    assert made.output is not None
    after: Any = torch.load(made.output, weights_only=True)
    changed = [n for n, key in enumerate(after["model"]) if "linear_tokens" in key]
    assert changed and not set(changed) & set(after["optimizer"]["state"])
    others = set(range(len(after["model"]))) - set(changed)
    assert others == set(after["optimizer"]["state"])
    dropped = [step for step in made.plan.steps if step.action == "drop"]
    assert dropped
    assert all("removed; the optimizer initialises it again" in step.reason for step in dropped)


def test_resizing_that_state_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "last.pth")
    with pytest.raises(ResizePosError, match="moments of such a layer cannot be interpolated"):
        resize_checkpoint(tmp_path / "last.pth", to=(96, 80), optimizer="resize")
    assert [path.name for path in tmp_path.iterdir()] == ["last.pth"]
