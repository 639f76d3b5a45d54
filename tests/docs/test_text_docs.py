"""docs/text.md: its commands are run, and its answers are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from resize_pos.core.geometry import Grid
from tests.docs.test_docs import ROOT, commands, shell, trimmed
from tests.planning.test_sincos import mae, whisper
from tests.support.builders import smooth, write_safetensors
from tests.transforms.test_sequence import bert, clip

TEXT = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")


@pytest.fixture
def playground(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "bert.safetensors", bert(512, "bert."))
    write_safetensors(tmp_path / "roberta.safetensors", bert(514))
    write_safetensors(tmp_path / "clip.safetensors", clip())
    write_safetensors(tmp_path / "mae.safetensors", mae(Grid(14, 14)))
    sound = whisper(1500, 16)
    sound["model.decoder.embed_positions.weight"] = smooth(1, 448, 16)[0]
    write_safetensors(tmp_path / "whisper.safetensors", sound)
    return tmp_path


def test_the_commands_do_what_the_page_shows(playground: Path) -> None:
    found = commands(TEXT)
    assert len(found) >= 10
    for command, shown in found:
        done = shell(command, playground)
        assert done.returncode == (1 if shown.startswith("error:") else 0), (command, done.stderr)
        if shown.strip():
            assert trimmed(done.stdout + done.stderr) == trimmed(shown), command
        for output in playground.glob("*-*.safetensors"):
            output.unlink()  # two examples may share a target


def test_every_recipe_and_mode_is_on_the_page() -> None:
    from resize_pos.core.operations import Fill, LengthMethod, SinCosMode

    for word in (*LengthMethod, *Fill, *SinCosMode):
        assert word in TEXT
