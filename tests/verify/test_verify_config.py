"""`verify --config` and `--format github`: the questions that CI asks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resize_pos.cli.app import main
from tests.laws.test_imports import HEAVY, loaded_after
from tests.support.builders import vit, write_safetensors
from tests.support.zoo import sam

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `verify` where `wide.safetensors` is 96×128 px at patch 16."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write_safetensors(Path("wide.safetensors"), sam(8, 6, 8))
    write_safetensors(Path("vit.safetensors"), vit())
    Path("model").mkdir()

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["verify", *words])
        captured = capfd.readouterr()
        assert isinstance(caught.value.code, int)
        assert "Traceback" not in captured.err
        return caught.value.code, captured.out, captured.err

    return call


# config.json, exit code, what the one line must say
CONFIGS: dict[str, tuple[dict[str, Any], int, str]] = {
    "fits": ({"image_size": [96, 128], "patch_size": 16}, 0, "wide.safetensors fits config.json"),
    "swapped": ({"image_size": [128, 96]}, 1, "pos_embed is 6×8 .* not 8×6, as config.json"),
    "patch": ({"image_size": [96, 128], "patch_size": 8}, 1, "pos_embed has patch 16, not 8"),
    "nested": ({"vision_config": {"image_size": [96, 128]}}, 0, "vision_config.image_size"),
    "timm": ({"architecture": "x", "pretrained_cfg": {"input_size": [3, 96, 128]}}, 0, "fits"),
    "one of two": (
        {"pretrained_cfg": {"input_size": [3, 96, 128]}, "model_args": {"img_size": [64, 96]}},
        1,
        "does not fit 64x96",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_checkpoint_is_held_against_a_config(case: str, run: Run) -> None:
    config, code, words = CONFIGS[case]
    Path("model/config.json").write_text(json.dumps(config), encoding="utf-8")
    ended, out, err = run("wide.safetensors", "--config", "model")
    assert (ended, err) == (code, "")
    assert len(out.splitlines()) == 1
    assert re.search(words, out)


def test_a_folder_without_a_size_is_no_answer(run: Run) -> None:
    Path("model/config.json").write_text("{}", encoding="utf-8")
    code, out, err = run("wide.safetensors", "--config", "model")
    assert (code, out) == (1, "")
    assert "model: no config there states an image size" in err


@pytest.mark.parametrize("words", [["--against", "vit.safetensors"], ["--size", "96"]])
def test_a_config_excludes_the_other_checks(words: list[str], run: Run) -> None:
    code, _, err = run("wide.safetensors", "--config", "model", *words)
    assert code == 2
    assert "excludes the other checks" in err


def test_several_checkpoints_get_a_line_each_and_one_code(run: Run) -> None:
    code, out, _ = run("vit.safetensors", "wide.safetensors", "--size", "64")
    assert code == 1
    first, second = out.splitlines()
    assert first.startswith("vit.safetensors fits 64")
    assert second.startswith("wide.safetensors does not fit 64")
    assert run("vit.safetensors", "vit.safetensors", "--size", "64")[0] == 0


def test_only_a_look_takes_several_checkpoints(run: Run) -> None:
    code, _, err = run("vit.safetensors", "wide.safetensors", "--against", "vit.safetensors")
    assert code == 2
    assert "only --size and --config take several" in err


def test_an_answer_is_an_annotation(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    code, out, _ = run("wide.safetensors", "--size", "64", "--format", "github")
    assert code == 1
    assert out.startswith("::error file=wide.safetensors,title=resize-pos verify::wide.safetensors")
    assert Path("summary.md").read_text(encoding="utf-8").startswith("- wide.safetensors does not")


def test_a_verification_is_annotated(run: Run) -> None:
    with pytest.raises(SystemExit):
        main(["vit.safetensors", "--to", "96x128", "-o", "out.safetensors", "-q"])
    code, out, _ = run("out.safetensors", "--against", "vit.safetensors", "--format", "github")
    assert code == 0
    assert out.splitlines()[-1].startswith("::")
    code, out, _ = run("wide.safetensors", "--against", "no.safetensors", "--format", "github")
    assert code == 1
    assert "::error file=wide.safetensors,title=resize-pos::no.safetensors" in out


def test_a_look_at_a_config_imports_neither_torch_nor_numpy(run: Run) -> None:
    Path("model/config.json").write_text('{"image_size": [96, 128]}', encoding="utf-8")
    names = loaded_after("verify", "wide.safetensors", "--config", "model")
    assert not names & (HEAVY | {"numpy"})
