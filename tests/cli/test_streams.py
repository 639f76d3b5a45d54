"""Streams that are full, closed, or cannot write every character: an error in words, or silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders import vit, write_safetensors


def run(folder: Path, words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `resize-pos` is this tree's command."""
    line = words.replace("resize-pos", f"{sys.executable} -m resize_pos", 1)
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        capture_output=True,
        encoding="latin-1",
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "vit.safetensors", vit())
    return tmp_path


COMMANDS = [
    "vit.safetensors --to 96x160",
    "vit.safetensors --to 96x160 --json",
    "inspect vit.safetensors",
    "families",
    "--help",
    "batch vit.safetensors --to 96x160 -o out -j 1",
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_under_stdout_is_an_error_in_words(words: str, folder: Path) -> None:
    done = run(folder, f"resize-pos {words} > /dev/full")
    assert done.returncode == 1
    assert "no space left on the device" in done.stderr
    assert "bug" not in done.stderr and "Traceback" not in done.stderr
    if words.startswith("vit"):
        assert "already complete and in place: vit-96x160.safetensors" in done.stderr


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_and_no_file_takes_its_number(
    words: str, closed: str, folder: Path
) -> None:
    before = (folder / "vit.safetensors").read_bytes()
    done = run(folder, f"resize-pos {words} {closed}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "vit.safetensors").read_bytes() == before


def test_characters_that_a_stream_cannot_write_are_escaped(folder: Path) -> None:
    done = run(folder, "resize-pos vit.safetensors --to 96x160", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert r"4×4 \u2192 6×10" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_the_step_summary_is_an_error_with_its_name(folder: Path) -> None:
    words = "resize-pos vit.safetensors --to 96x160 --format github"
    done = run(folder, words, GITHUB_STEP_SUMMARY="/dev/full")
    assert done.returncode == 1
    assert "the step summary /dev/full: cannot be written: no space left" in done.stderr
