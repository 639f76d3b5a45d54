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
        lines = output.read_text(encoding="utf-8").splitlines()
        return done, dict(line.split("=", 1) for line in lines)

    return call


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
