"""The first words that people type: a folder, a hub name, `help`, a tab; and errors as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import run
from tests.support.builders import vit, write_safetensors

__all__ = ["run"]  # the fixture is used by its name


def folder_model(name: str) -> None:
    Path(name).mkdir()
    write_safetensors(Path(name, "model.safetensors"), vit(4, 6))


def test_an_existing_folder_needs_no_dot_and_no_slash(run: Any) -> None:
    folder_model("clip-hf")
    done = run("clip-hf", "--from", "64x96", "--to", "96x64")
    assert done.code == 0, done.err
    assert Path("clip-hf-96x64", "model.safetensors").is_file()


def test_a_command_stays_a_command_beside_a_folder_of_its_name(run: Any, vit_file: Path) -> None:
    folder_model("inspect")
    assert "pos_embed" in run("inspect", "vit.safetensors").out
    missing = run("inspect")
    assert missing.code == 2
    assert "to convert the checkpoint inspect, write ./inspect" in missing.err
    assert run("./inspect", "--from", "64x96", "--to", "96x64").code == 0


@pytest.mark.parametrize("command", [[], ["inspect"]])
def test_the_name_of_a_hub_model_is_answered_with_its_address(command: list[str], run: Any) -> None:
    done = run(*command, "google/vit-base-patch16-224")
    assert done.code == 1
    assert "write hf://google/vit-base-patch16-224" in done.err
    path = run(*command, "google/vit.safetensors")
    assert "hf://" not in path.err
    unknown = run("vit-base", "--to", "384")
    assert unknown.code == 2
    assert "no file or folder of that name" in unknown.err


def test_help_is_a_word_too(run: Any) -> None:
    assert run("help").out == run("--help").out
    assert run("help", "batch").out == run("batch", "--help").out


ALIASES = {
    "pixels": (["--to", "96px"], ["--to", "96"]),
    "a comma": (["--to", "96,160"], ["--to", "96x160"]),
    "spaces": (["--to", "96 x 160"], ["--to", "96x160"]),
    "a library": (["--to", "96", "--like", "transformers"], ["--to", "96", "--like", "hf"]),
}


@pytest.mark.parametrize("case", ALIASES)
def test_what_people_type_means_what_they_mean(case: str, run: Any, vit_file: Path) -> None:
    typed, meant = ALIASES[case]
    done = run("vit.safetensors", *typed, "-q", "-o", "a.safetensors")
    assert done.code == 0, done.err
    assert run("vit.safetensors", *meant, "-q", "-o", "b.safetensors").code == 0
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()


def test_a_grid_is_not_counted_in_pixels(run: Any, vit_file: Path) -> None:
    assert run("vit.safetensors", "--to-grid", "6px").code == 2


WRONG = ("--from", "128", "--to", "96")

# words, the exit code, a part of the message
JSON_ERRORS: dict[str, tuple[list[str], int, str]] = {
    "an error": (["vit.safetensors", *WRONG, "--json"], 1, "pos_embed has 17 rows"),
    "usage": (["vit.safetensors", "--too", "96", "--json"], 2, "--too"),
    "the other flag": (["vit.safetensors", *WRONG, "--format", "json"], 1, "pos_embed has 17 rows"),
    "inspect": (["inspect", "none.safetensors", "--json"], 1, "no such file"),
    "verify": (["verify", "vit.safetensors", "--json"], 2, "nothing to verify against"),
    "no command": (["nothing", "--json"], 2, "No such command"),
}


@pytest.mark.parametrize("case", JSON_ERRORS)
def test_with_json_an_error_is_a_document(case: str, run: Any, vit_file: Path) -> None:
    words, code, text = JSON_ERRORS[case]
    done = run(*words)
    document = json.loads(done.out)
    assert document["code"] == done.code == code
    assert text in document["error"]
    assert document["schema"] == "resize-pos/error/1"
    assert text in done.err
    if case == "an error":
        assert document["hint"].startswith("17 = 1 + 4×4 is a 64 px / patch 16 checkpoint")


def test_a_batch_writes_its_error_on_one_line(run: Any) -> None:
    done = run("batch", "--to", "96", "-o", "out", "--json")
    assert json.loads(done.out)["code"] == 2
    assert done.out.count("\n") == 1


def test_without_json_stdout_stays_empty(run: Any, vit_file: Path) -> None:
    assert run("vit.safetensors", *WRONG).out == ""
    assert run("vit.safetensors", *WRONG, "--", "--json").out == ""


def completed(folder: Path, shell: str, *words: str) -> list[str]:
    """Ask for completions as the script of a shell does."""
    typed = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        typed["COMP_CWORD"] = words[-1]
    done = subprocess.run(
        [sys.executable, "-c", "from resize_pos.cli.app import main; main()"],
        cwd=folder,
        env={**os.environ, **typed, "_RESIZE_POS_COMPLETE": f"{shell}_complete"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@pytest.mark.parametrize(("shell", "answer"), [("bash", "file,vit"), ("fish", "file,vit")])
def test_the_first_word_completes_files(shell: str, answer: str, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "vit.safetensors", vit())
    assert completed(tmp_path, shell, "resize-pos", "vit")[0] == answer


def test_zsh_completes_files_too(tmp_path: Path) -> None:
    assert completed(tmp_path, "zsh", "resize-pos", "vit")[:2] == ["file", "vit"]


def test_commands_options_and_choices_are_completed(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "best.safetensors", vit())
    (tmp_path / "backup").mkdir()
    first = completed(tmp_path, "bash", "resize-pos", "b")
    assert {"plain,batch", "plain,best.safetensors", "plain,backup/"} <= set(first)
    options = completed(tmp_path, "bash", "resize-pos", "best.safetensors", "--to-g")
    assert options[0] == "plain,--to-grid"
    likes = completed(tmp_path, "bash", "resize-pos", "best.safetensors", "--like", "d")
    assert {"plain,dinov2", "plain,deit", "plain,dpt"} <= set(likes)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_of_the_readme_exist(shell: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from resize_pos.cli.app import main; main()"],
        cwd=tmp_path,
        env={**os.environ, "_RESIZE_POS_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_RESIZE_POS_COMPLETE" in done.stdout
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"_RESIZE_POS_COMPLETE={shell}_source resize-pos" in readme


def test_what_the_model_s_own_library_would_do_is_said_plainly(run: Any) -> None:
    tensors = {
        "embeddings.cls_token": vit()["cls_token"],
        "embeddings.position_embeddings": vit(4, 6)["pos_embed"],
        "embeddings.patch_embeddings.projection.weight": vit()["patch_embed.proj.weight"],
    }
    Path("vit-hf").mkdir()
    write_safetensors(Path("vit-hf/model.safetensors"), tensors)
    Path("vit-hf/config.json").write_text('{"model_type": "vit", "image_size": [64, 96]}')
    sentence = (
        "transformers would use plain bicubic; this run used antialiased bicubic; add --like hf to "
        "match."
    )
    done = run("vit-hf", "--to", "96x64")
    assert done.code == 0, done.err
    assert sentence in " ".join(done.out.split())
    planned = run("vit-hf", "--to", "96x64", "-f", "-n")
    assert sentence.replace("used", "would use") in " ".join(planned.out.split())
    same = run("vit-hf", "--to", "96x64", "-f", "--like", "hf")
    assert "would use" not in same.out
