"""Where `--report` may write: never over a source, over nobody else's file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from resize_pos.cli.app import main
from resize_pos.report.files import SUFFIXES
from tests.support.builders import vit, write_safetensors

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    write_safetensors(Path("model/vit.safetensors"), vit())
    write_safetensors(Path("made.safetensors"), vit())

    def call(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        assert isinstance(caught.value.code, int)
        return caught.value.code, capfd.readouterr().err

    return call


SOURCE = "model/vit.safetensors"
COMMANDS = {
    "resize": ["resize", SOURCE, "--to", "96x160", "-o", "out.safetensors"],
    "verify": ["verify", "made.safetensors", "--against", SOURCE],
    "batch": ["batch", "model", "--to", "96x160", "-o", "out", "-j", "1"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_somebody_else_is_kept_and_our_own_is_replaced(
    command: str, suffix: str, run: Run
) -> None:
    path = Path(f"README{suffix}")
    path.write_text("# my model\n", encoding="utf-8")
    words = [*COMMANDS[command], "--report", str(path)]
    code, err = run(*words)
    assert code == 1 and "exists and is not a report of resize-pos" in err
    assert path.read_text(encoding="utf-8") == "# my model\n"
    assert not any(Path(name).exists() for name in ("out", "out.safetensors"))
    assert run(*words, "--force")[0] == 0
    first = path.read_text(encoding="utf-8")
    assert "resize-pos" in first
    for name in ("out.safetensors", "out/vit.safetensors", "out/.resize-pos-batch.jsonl"):
        Path(name).unlink(missing_ok=True)
    assert run(*words)[0] == 0  # it is ours now
    assert not list(Path().glob(".*resize-pos-part"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["model/config.json", "model/link.json", "model/copy.json"])
def test_a_file_of_the_source_is_never_replaced(command: str, name: str, run: Run) -> None:
    if name.endswith("config.json"):
        Path(name).write_text("{}", encoding="utf-8")
    elif name.endswith("link.json"):
        Path(name).symlink_to("vit.safetensors")
    else:
        os.link(SOURCE, name)
    before = Path(name).read_bytes()
    code, err = run(*COMMANDS[command], "--force", "--report", name)
    assert code == 1 and "never modified" in err
    assert Path(name).read_bytes() == before


def test_a_file_in_a_source_folder_is_never_replaced(run: Run) -> None:
    Path("model/config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    Path("model/README.md").write_text("# card\n", encoding="utf-8")
    code, err = run("resize", "./model", "--to", "96", "-f", "--report", "model/README.md")
    assert code == 1 and "is a file of the source" in err


# what is at the place → what the refusal says
PLACES: dict[str, tuple[str, str]] = {
    "a name that is too long": ("x" * 300 + ".html", "the name is too long"),
    "a folder": ("model.html", "is a folder"),
    "no folder": ("nowhere/a.html", "does not exist"),
    "a file as a folder": ("made.safetensors/a.html", "does not exist"),
    "a read-only file system": ("/proc/a.html", "/proc/a.html"),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_place_that_cannot_be_written_is_found_before_the_work(case: str, run: Run) -> None:
    name, message = PLACES[case]
    Path("model.html").mkdir()
    code, err = run(*COMMANDS["resize"], "--report", name)
    assert code == 1 and message in err and "bug" not in err
    assert not Path("out.safetensors").exists()


def test_a_failure_after_the_conversion_names_what_was_written(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    code, err = run(*COMMANDS["resize"], "--report", "a.md")
    assert code == 1
    assert "--report a.md: cannot be written: no space left on the device" in err
    assert "already complete and in place: out.safetensors" in err
    assert not Path("a.md").exists()
