"""Streams that are full, closed, or cannot write every character: an error in words."""

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


MISMATCH = (
    "'size mismatch for pos_embed: copying a param with shape torch.Size([1, 197, 768]) from "
    "checkpoint, the shape in current model is torch.Size([1, 577, 768])'"
)
COMMANDS = [
    "vit.safetensors --to 96x160",
    "vit.safetensors --to 96x160 -q",
    "vit.safetensors --to 96x160 -n",
    "vit.safetensors --to 96x160 --json",
    "inspect vit.safetensors",
    "inspect vit.safetensors --json",
    "verify vit.safetensors --size 64",
    "compare vit.safetensors --to 96x160",
    f"explain {MISMATCH}",
    "families",
    "families --json",
    "--help",
    "--version",
    "inspect --help",
    "batch vit.safetensors --to 96x160 -o out -j 1",
    "batch vit.safetensors --to 96x160 -o out -j 1 -q",
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_under_stdout_is_an_error_in_words(words: str, folder: Path) -> None:
    done = run(folder, f"resize-pos {words} > /dev/full")
    assert done.returncode == 1
    assert "standard output: cannot be written: no space left on the device" in done.stderr
    assert "bug" not in done.stderr and "Traceback" not in done.stderr
    if words.startswith("vit") and "-n" not in words:
        assert "already complete and in place: vit-96x160.safetensors" in done.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_input_and_errors_are_no_trouble_and_no_file_takes_their_number(
    words: str, folder: Path
) -> None:
    before = (folder / "vit.safetensors").read_bytes()
    done = run(folder, f"resize-pos {words} <&- 2>&-")
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert (folder / "vit.safetensors").read_bytes() == before


@pytest.mark.parametrize("words", COMMANDS)
def test_a_closed_stdout_is_an_error_before_anything_is_done(words: str, folder: Path) -> None:
    done = run(folder, f"resize-pos {words} >&-")
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output is closed, so the result cannot be printed.\n"
        "hint: to run without output, write > /dev/null instead of >&-.\n"
    )
    assert [path.name for path in folder.iterdir()] == ["vit.safetensors"]


def test_with_every_stream_closed_only_the_exit_code_is_left(folder: Path) -> None:
    done = run(folder, "resize-pos vit.safetensors --to 96x160 <&- >&- 2>&-")
    assert done.returncode == 1
    assert [path.name for path in folder.iterdir()] == ["vit.safetensors"]


@pytest.mark.parametrize("stdin", ["<&-", "</dev/null"])
def test_explain_without_a_message_says_how_to_pass_one(stdin: str, folder: Path) -> None:
    done = run(folder, f"resize-pos explain {stdin}")
    assert done.returncode == 2
    assert "pass the message in quotes, or a log on stdin" in done.stderr
    assert "bug" not in done.stderr


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
