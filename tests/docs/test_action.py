"""The GitHub Action and the pre-commit hook, without GitHub: their shell lines are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders import vit, write_safetensors

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"]}

Run = Callable[..., tuple[subprocess.CompletedProcess[str], dict[str, str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the `resize` step as a runner does: bash with its flags, inputs in the environment."""
    write_safetensors(tmp_path / "my vit.safetensors", vit())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)

    def call(**inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
        given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
        script = tmp_path / "step.sh"
        script.write_text(STEPS["resize"]["run"], encoding="utf-8")
        output = tmp_path / "output"
        output.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                **{key: _filled(text, given) for key, text in STEPS["resize"]["env"].items()},
                "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "RUNNER_TEMP": str(tmp_path),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            },
        )
        return done, _outputs(output.read_text(encoding="utf-8"))

    return call


def _outputs(text: str) -> dict[str, str]:
    """Read the file of outputs as a runner does: NAME=VALUE, or NAME<<END, lines, END."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        heredoc = re.match(r"([^=<]+)<<(.+)", line)
        if heredoc is None:
            name, _, found[name] = line.partition("=")
            continue
        value: list[str] = []
        for part in lines:
            if part == heredoc[2]:
                break
            value.append(part)
        else:
            pytest.fail(f"{heredoc[1]}: no line {heredoc[2]!r} ends the value")
        found[heredoc[1]] = "\n".join(value)
    return found


def _filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], text)


def test_the_outputs_are_the_path_and_the_verdict(run: Run, tmp_path: Path) -> None:
    done, outputs = run(checkpoint="my vit.safetensors", to="96x128")
    assert done.returncode == 0, done.stderr
    assert set(outputs) == set(ACTION["outputs"]) == {"path", "verdict"}
    assert outputs["path"] == "my vit-96x128.safetensors"
    assert outputs["verdict"] in ("ok", "warn")
    assert (tmp_path / outputs["path"]).is_file()
    assert "::" in done.stdout
    assert "4×4 → 6×8" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_arguments_are_split_as_a_shell_would_and_not_run(run: Run, tmp_path: Path) -> None:
    done, outputs = run(
        checkpoint="my vit.safetensors", to="96x128", args="-o 'a $(touch owned) b.safetensors'"
    )
    assert done.returncode == 0, done.stderr
    assert outputs["path"] == "a $(touch owned) b.safetensors"
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("args", ["--strict '", '-o "a b', "--strict \\"])
def test_arguments_that_cannot_be_split_fail_the_step(args: str, run: Run, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    done, outputs = run(checkpoint="my vit.safetensors", to="96x128", args=args)
    assert done.returncode == 1
    assert outputs == {}
    assert "::error title=resize-pos::args cannot be split into words: No" in done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == before


def test_an_argument_may_hold_a_line_break(run: Run, tmp_path: Path) -> None:
    done, outputs = run(
        checkpoint="my vit.safetensors", to="96x128", args="-o 'a\nverdict=ok\nb.safetensors'"
    )
    assert done.returncode == 0, done.stderr
    assert outputs["path"] == "a\nverdict=ok\nb.safetensors"
    assert set(outputs) == {"path", "verdict"}
    assert (tmp_path / outputs["path"]).is_file()


@pytest.mark.parametrize("name", ["--help", "--version", "-o"])
def test_a_checkpoint_is_never_taken_for_a_flag(name: str, run: Run) -> None:
    done, outputs = run(checkpoint=name, to="96x128")
    assert done.returncode == 1
    assert outputs == {}
    assert "::error" in done.stdout
    assert name in done.stdout


def test_a_size_is_never_taken_for_a_flag(run: Run) -> None:
    done, outputs = run(checkpoint="my vit.safetensors", to="--help")
    assert done.returncode == 2
    assert outputs == {}
    done, outputs = run(checkpoint="my vit.safetensors", to="96x128", **{"from": "--help"})
    assert done.returncode == 2
    assert outputs == {}


def test_a_step_without_a_result_fails(run: Run) -> None:
    done, outputs = run(checkpoint="my vit.safetensors", to="96x128", args="--help")
    assert done.returncode == 1
    assert outputs == {}
    assert "::error title=resize-pos::the run wrote no report" in done.stdout


def test_modules_in_the_checkout_are_not_imported(run: Run, tmp_path: Path) -> None:
    for name in ("json.py", "shlex.py", "uuid.py", "click.py"):
        (tmp_path / name).write_text("open('owned', 'w')\n", encoding="utf-8")
    done, outputs = run(checkpoint="my vit.safetensors", to="96x128")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "owned").exists()
    assert outputs["path"] == "my vit-96x128.safetensors"


def test_a_stated_size_is_cross_checked(run: Run) -> None:
    done, outputs = run(checkpoint="my vit.safetensors", to="96", **{"from": "128"})
    assert done.returncode == 1
    assert outputs == {}
    assert "::error file=my vit.safetensors" in done.stdout


def test_a_check_that_fails_fails_the_step_and_still_tells_the_verdict(run: Run) -> None:
    done, outputs = run(
        checkpoint="my vit.safetensors", to="96x128", args="--max norm_change=0.0001"
    )
    assert done.returncode == 3
    assert outputs["verdict"] == "fail"


def test_a_checkpoint_at_the_target_is_its_own_result(run: Run) -> None:
    done, outputs = run(checkpoint="my vit.safetensors", to="64")
    assert done.returncode == 0
    assert outputs["path"] == "my vit.safetensors"


def test_every_step_names_its_shell_and_takes_inputs_through_the_environment() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS.values():
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # an input must not become a piece of script


def test_the_hook_runs_verify_on_the_files_it_is_given(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    names = ["small.safetensors", "large.safetensors"]
    write_safetensors(tmp_path / names[0], vit())
    write_safetensors(tmp_path / names[1], vit(6, 6))
    assert all(re.search(hook["files"], name) for name in names)
    program, *words = hook["entry"].split()
    assert program == "resize-pos"
    for files, code in ((names[:1], 0), (names, 1)):
        done = subprocess.run(
            [sys.executable, "-m", "resize_pos", *words, "--size", "64", *files],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == code, done.stderr
        assert len(done.stdout.splitlines()) == len(files)
