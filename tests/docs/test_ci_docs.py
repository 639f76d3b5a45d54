"""The pages about zoos and CI: their commands, manifests, recipes and scripts are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_docs import blocks, commands, shell, trimmed
from tests.support.builders import vit, write_safetensors

ROOT = Path(__file__).parents[2]
SCALE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


@pytest.fixture
def playground(tmp_path: Path) -> Path:
    """The files that the pages talk about."""
    clip = {
        "visual.class_embedding": vit()["cls_token"][0, 0],
        "visual.positional_embedding": vit(14, 14)["pos_embed"][0],
        "visual.conv1.weight": vit()["patch_embed.proj.weight"],
    }
    for name in ("vit.safetensors", "zoo/vit.safetensors", "more/vit-b.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_safetensors(tmp_path / name, vit(14, 14), {"format": "pt"})
    (tmp_path / "zoo" / "clip").mkdir()
    write_safetensors(tmp_path / "zoo" / "clip" / "a.safetensors", clip)
    (tmp_path / "jobs.toml").write_text(blocks(SCALE, "toml")[0], encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("page", [SCALE, CI], ids=["scale", "ci"])
def test_the_commands_do_what_the_page_shows(page: str, playground: Path) -> None:
    assert commands(page)
    for command, shown in commands(page):
        if "s3://" in command or "hf://" in command:  # run against servers by other tests
            continue
        done = shell(command, playground)
        assert done.returncode == 0, (command, done.stderr)
        if shown.strip():
            assert trimmed(done.stdout) == trimmed(shown)


def test_the_manifest_converts_what_it_names(playground: Path) -> None:
    done = shell("resize-pos batch --manifest jobs.toml -o new -q", playground)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"new/vit.safetensors", "new/clip/a.safetensors"}


def test_the_training_script_runs(playground: Path) -> None:
    (script,) = blocks(CI, "python")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=playground, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (playground / "init.safetensors").is_file()


def test_the_recipes_of_the_makefile_run(playground: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    (text,) = blocks(CI, "make")
    (playground / "Makefile").write_text(text, encoding="utf-8")
    program = playground / "bin" / "resize-pos"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m resize_pos "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    for target in ("vit-384.safetensors", "out/.done"):
        done = subprocess.run(
            ["make", target],
            cwd=playground,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (playground / target).exists()


def test_the_workflows_use_what_there_is() -> None:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    workflow, _, gitlab, hooks = (yaml.safe_load(text) for text in blocks(CI, "yaml"))
    (step,) = [s for s in workflow["jobs"]["prepare"]["steps"] if s.get("id") == "resize"]
    assert set(step["with"]) <= set(action["inputs"])
    used = re.findall(r"steps\.resize\.outputs\.(\w+)", CI)
    assert set(used) <= set(action["outputs"])
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hooks["repos"][0]["hooks"][0]["id"] == offered["id"]
    assert "script" in gitlab["resize"]


@pytest.mark.parametrize("text", blocks(SCALE, "sh"), ids=["local", "slurm"])
def test_the_shell_scripts_parse(text: str) -> None:
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
