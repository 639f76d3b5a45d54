"""Every claim in the documents is produced by a command, and the commands are run here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from resize_pos.containers.detect import WEIGHT_SUFFIXES
from tests.planning.test_plan import plan_for, read_case
from tests.support.builders import smooth, vit, write_safetensors
from tests.support.folder_builders import save_hf

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def commands(text: str) -> list[tuple[str, str]]:
    """Split console blocks into commands and the output shown below each."""
    found: list[tuple[str, str]] = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.split("  #")[0].strip(), output))
    return found


@pytest.fixture
def playground(tmp_path: Path) -> Path:
    """A copy of the samples, and the files that the README's examples talk about."""
    shutil.copytree(ROOT / "sample_checkpoints", tmp_path / "sample_checkpoints")
    for stale in (tmp_path / "sample_checkpoints").glob("*-384.safetensors"):
        stale.unlink()
    write_safetensors(tmp_path / "vit.safetensors", vit(14, 14), {"format": "pt"})
    odd = {"my_pos": smooth(8, 64, 8).reshape(1, 512, 8)}
    write_safetensors(tmp_path / "odd.safetensors", odd)
    small_hf_vit(tmp_path / "my-vit")
    return tmp_path


def small_hf_vit(folder: Path) -> None:
    """Save a small ViT with a head and its processor, as transformers does."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64
    )
    processor = transformers.ViTImageProcessor(size={"height": 224, "width": 224})
    save_hf(transformers.ViTForImageClassification(config), processor, folder)


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    program = {"resize-pos": ["-m", "resize_pos"], "python": []}[words[0]]
    return subprocess.run(
        [sys.executable, *program, *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_readme_s_commands_do_what_it_shows(playground: Path) -> None:
    install = re.compile(r"^pip install [^&]+&& ")
    (first, _), *more = commands(README)
    others = [(command, shown) for command, shown in more if not install.match(command)]
    assert len(more) - len(others) == 1  # how to install it for development
    main = install.sub("", first)
    assert main == ("resize-pos sample_checkpoints/digits_vit_224.safetensors --from 224 --to 384")
    done = shell(main, playground)
    assert done.returncode == 0, done.stderr
    assert trimmed(done.stdout) == trimmed(blocks(README, "text")[0])
    assert len(others) >= 8
    for command, shown in others:
        done = shell(command, playground)
        expected = 1 if shown.startswith("error:") else 0
        assert done.returncode == expected, (command, done.stderr)
        if shown.strip():
            assert trimmed(done.stdout + done.stderr) == trimmed(shown), command
        for output in playground.glob("vit-*.safetensors"):
            output.unlink()  # two examples may share a target


def test_the_first_screen_has_the_error_the_command_the_output_and_the_loading_code() -> None:
    lines = README.splitlines()
    first = "\n".join(lines[:45])
    assert lines[2] == (
        "Change the image size of a vision-transformer checkpoint (224 → 384) without loading the "
        "model."
    )
    for words in (
        "size mismatch for pos_embed",
        "--from 224 --to 384",
        "verdict: ok",
        "timm.create_model(",
        "docs/right_and_wrong.png",
    ):
        assert words in first


def test_the_python_of_the_readme_runs(
    playground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from tests.run.test_in_memory import Vit

    assert shell("resize-pos sample_checkpoints/digits_vit_224.safetensors --to 384", playground)
    monkeypatch.chdir(playground)
    assert shell("resize-pos my-vit/ --to 384", playground).returncode == 0
    load, train, api = blocks(README, "python")
    names: dict[str, Any] = {}
    exec(load, names)
    assert names["model"].pos_embed.shape == (1, 577, 48)
    names = {}
    before, after = train.split("optimizer.step()")
    exec(before, names)
    table = names["model"].embeddings.position_embeddings
    untrained = table.detach().clone()
    exec(f"optimizer.step(){after}", names)
    assert table.shape == (1, 577, 32) and not torch.equal(table, untrained)
    names = {"model": Vit(24 * 24), "torch": torch}
    exec(api, names)
    assert "vit-384.safetensors" in capsys.readouterr().out
    assert names["state_dict"]["pos_embed"].shape == (1, 1 + 24 * 32, 8)


def test_the_error_of_the_readme_is_the_one_of_the_sample(playground: Path) -> None:
    import timm
    from safetensors.torch import load_file

    (load, *_), (shown,) = blocks(README, "python"), blocks(README, "pytb")
    arguments = re.sub(r",\s*checkpoint_path=[^)]*", "", load)
    names: dict[str, Any] = {"timm": timm}
    exec(arguments, names)
    state = load_file(playground / "sample_checkpoints" / "digits_vit_224.safetensors")
    with pytest.raises(RuntimeError) as caught:
        names["model"].load_state_dict(state)
    assert " ".join(shown.split()) in " ".join(str(caught.value).split())


def test_the_picture_is_what_the_script_draws(tmp_path: Path) -> None:
    target = tmp_path / "picture.png"
    done = shell(f"python {ROOT / 'sample_checkpoints' / 'draw_maps.py'} {target}", ROOT)
    assert done.returncode == 0, done.stderr
    import numpy as np
    from PIL import Image

    made, kept = (
        np.asarray(Image.open(path).convert("RGB"), dtype=int)
        for path in (target, ROOT / "docs" / "right_and_wrong.png")
    )
    assert made.shape == kept.shape
    assert np.abs(made - kept).max() <= 4  # a colour of the scale, where a sum rounds otherwise


def test_the_samples_say_in_one_line_that_they_need_scikit_learn(tmp_path: Path) -> None:
    (tmp_path / "sklearn.py").write_text("raise ModuleNotFoundError('no sklearn')")
    script = ROOT / "sample_checkpoints" / "evaluate.py"
    done = subprocess.run(
        [sys.executable, script, "x.safetensors"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "pip install scikit-learn" in done.stderr
    assert "pip install scikit-learn" in README


def test_the_family_recipe_followed_to_the_letter_passes_the_tests(tmp_path: Path) -> None:
    """In a copy of the sources: the entry, the case, then the commands of the guide."""
    for name in ("resize_pos", "tests", "docs"):
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "outside")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    entry, case = blocks(CONTRIBUTING, "toml")
    registry = tmp_path / "resize_pos" / "families" / "families.toml"
    registry.write_text(f"{registry.read_text(encoding='utf-8')}\n{entry}", encoding="utf-8")
    (tmp_path / "tests" / "cases" / "gridformer.toml").write_text(case, encoding="utf-8")
    guide = CONTRIBUTING.split("## Add a family")[1]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command, _ in commands(guide):
        if command.startswith("pytest -m slow"):
            continue
        words = command.replace("resize-pos", f"{sys.executable} -m resize_pos", 1)
        words = words.replace("pytest -q", f"{sys.executable} -m pytest -q -p no:cacheprovider", 1)
        words = words.replace(" tests/families ", " -k 'page or gridformer or every' ")
        done = subprocess.run(
            ["sh", "-c", words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-500:]
    assert "| gridformer |" in (tmp_path / "docs" / "families.md").read_text(encoding="utf-8")


def test_the_numbers_of_the_wrong_resizes_stand_in_the_samples_table() -> None:
    table = (ROOT / "sample_checkpoints" / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in table.splitlines() if line.startswith("| 384 |")]
    for number in ("98.9 %", "65.8 %", "14.7 %"):
        assert number in row
        assert number in README


def test_the_family_of_the_guide_works_as_written(tmp_path: Path) -> None:
    from resize_pos.families.registry import Registry
    from resize_pos.planning import locate

    entry, case_text = blocks(CONTRIBUTING, "toml")
    path = tmp_path / "case.toml"
    path.write_text(case_text, encoding="utf-8")
    case, tensors = read_case(path)
    known = (ROOT / "resize_pos" / "families" / "families.toml").read_text(encoding="utf-8")
    added = Registry(entry + known)
    locate._names.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate, "registry", lambda: added)
        (step,) = plan_for(tensors, **case["request"]).steps
    locate._names.cache_clear()
    (expected,) = tomllib.loads(case_text)["plan"]
    assert step.table.family.name == "gridformer"
    assert f"{step.action} {step.table.grid} → {step.target}" == expected["step"]
    assert list(step.target_shape) == expected["shape"]


@pytest.mark.parametrize(
    "document",
    [f"docs/{name}.md" for name in ("ci", "design", "scale", "text")]
    + ["README.md", "CONTRIBUTING.md"],
)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_attack_has_its_test() -> None:
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_every_suffix_that_a_batch_looks_for_is_listed() -> None:
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^- A file with the suffix (.*?)\. A", text.replace("\n  ", " "), re.M)
    assert set(re.findall(r"`(\.[\w.]+)`", listed)) == set(WEIGHT_SUFFIXES)
