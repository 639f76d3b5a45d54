"""A training checkpoint that was resized is verified with the state of its optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from resize_pos import resize_checkpoint, verify_checkpoint
from resize_pos.quality.checks import Level
from resize_pos.verify.against_source import Verification
from tests.support.builders import vit

GRIDS: dict[str, Any] = {"from_grid": (6, 4), "to_grid": (9, 5)}


def trained(path: Path) -> Path:
    """Store a model, and the state that AdamW has of it, as torch would."""
    model = {name: torch.from_numpy(values.copy()) for name, values in vit(6, 4).items()}
    state = {
        index: {"step": torch.tensor(3.0), "exp_avg": values * 0.1, "exp_avg_sq": values**2}
        for index, values in enumerate(model.values())
    }
    group = {"lr": 1e-3, "params": list(state)}
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": [group]}}, path)
    return path


def verified(output: Path, source: Path) -> Verification:
    found = verify_checkpoint(output, against=source, **GRIDS).against
    assert isinstance(found, Verification)
    return found


@pytest.mark.parametrize(
    ("choice", "words"), [("resize", "resized with"), ("drop", "removed with")]
)
def test_the_state_follows_its_table(tmp_path: Path, choice: str, words: str) -> None:
    source = trained(tmp_path / "train.pt")
    output = tmp_path / "out.pt"
    resize_checkpoint(source, output=output, optimizer=choice, **GRIDS)
    found = verified(output, source)
    assert found.verdict is Level.OK, found.checks
    (note,) = [check for check in found.checks if check.name == "optimizer"]
    assert words in note.detail


def test_state_with_other_values_is_not_the_resized_one(tmp_path: Path) -> None:
    source = trained(tmp_path / "train.pt")
    output = tmp_path / "out.pt"
    resize_checkpoint(source, output=output, **GRIDS)
    whole = torch.load(output, weights_only=True)
    index = list(whole["model"]).index("pos_embed")
    whole["optimizer"]["state"][index]["exp_avg"] *= 2
    torch.save(whole, output)
    found = verified(output, source)
    assert found.verdict is Level.FAIL
    assert any("exp_avg" in name for name in found.untouched.retyped)
