"""The recipe for `fit_checkpoint` runs as written, its callbacks included."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import resize_pos
from tests.run.test_in_memory import Vit

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "docs" / "recipes" / "fit.md").read_text(encoding="utf-8")
PLAIN, NEW_HEAD, HF, LIGHTNING = re.findall(r"```python\n(.*?)```", RECIPE, flags=re.S)


@pytest.fixture(autouse=True)
def _beside_the_file(vit_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(vit_file.parent)


def is_loaded(model: Vit) -> bool:
    return bool(torch.any(model.pos_embed != 0))


def test_the_plain_snippets(capsys: pytest.CaptureFixture[str]) -> None:
    model = Vit(36)
    exec(PLAIN, {"model": model})
    assert is_loaded(model)
    assert capsys.readouterr().out == "ok\n"
    other = Vit(36, classes=9)
    exec(NEW_HEAD, {"model": other, "resize_pos": resize_pos})
    assert is_loaded(other)


def test_the_callback_of_transformers(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"resize_pos": resize_pos}
    exec(HF, names)
    from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

    model = Vit(36)
    handler = CallbackHandler([names["FitCheckpoint"]()], model, None, None, None)
    handler.on_train_begin(None, TrainerState(), TrainerControl())
    assert is_loaded(model)
    assert "resized pos_embed: ok" in capsys.readouterr().out


def test_the_callback_of_lightning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        import lightning.pytorch  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:  # then a class of that name stands for its hooks
        package, module = ModuleType("lightning"), ModuleType("lightning.pytorch")
        setattr(module, "Callback", type("Callback", (), {}))  # noqa: B010
        monkeypatch.setitem(sys.modules, "lightning", package)
        monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    names: dict[str, Any] = {"resize_pos": resize_pos}
    exec(LIGHTNING, names)
    module_ = torch.nn.Module()
    module_.model = Vit(36)
    names["FitCheckpoint"]().on_fit_start(None, module_)
    assert is_loaded(module_.model)
    assert "resized pos_embed: ok" in capsys.readouterr().out
