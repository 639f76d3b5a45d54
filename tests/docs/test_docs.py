"""Every claim in the documents is produced by a command, and the commands are run here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.planning.test_plan import plan_for, read_case
from tests.support.builders import smooth, vit, write_safetensors

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
    return tmp_path


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
    (first, _), (test, _), *others = commands(README)
    assert install.match(test)
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
