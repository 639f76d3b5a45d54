"""`verify FOLDER --config`: each kind of disagreement is named; towers are chosen by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from resize_pos.api import resize_checkpoint
from resize_pos.cli.verify import command
from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.verify.folder import check_folder
from tests.vlm.seen import read
from tests.vlm.zoo_more import ALL

pytestmark = pytest.mark.filterwarnings("ignore")
BY_NAME = {family.name: family for family in ALL}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("agreement")
    names = ("internvl", "gemma3", "llava_onevision", "deepseek_vl_hybrid", "glm4v")
    return {name: BY_NAME[name].save(base / name) for name in names}


def tampered(folder: Path, target: Path, file: str, path: Sequence[str], value: Any) -> Path:
    shutil.copytree(folder, target)
    document = read(target, file)
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (target / file).write_text(json.dumps(document), encoding="utf-8")
    return target


@pytest.mark.parametrize(
    ("name", "file", "path", "value", "words"),
    [
        (
            "internvl",
            "processor_config.json",
            ["image_seq_length"],
            9,
            "the model makes 4 tokens",
        ),
        (
            "internvl",
            "config.json",
            ["vision_config", "image_size"],
            [48, 48],
            "vision_config.image_size is [48, 48]",
        ),
        (
            "internvl",
            "processor_config.json",
            ["image_processor", "size"],
            {"height": 48, "width": 48},
            "for which it is {'height': 32, 'width': 32}",
        ),
        (
            "internvl",
            "config.json",
            ["vision_config", "patch_size"],
            [16, 16],
            "vision_config.patch_size is 16, but",
        ),
        (
            "gemma3",
            "config.json",
            ["vision_config", "image_size"],
            "64",
            "vision_config.image_size is the text '64', not a number",
        ),
        (
            "glm4v",
            "config.json",
            ["vision_config", "image_size"],
            64,
            "vision_config.image_size is 64, but",
        ),
        ("internvl", "config.json", ["downsample_ratio"], 1 / 3, "cannot run a grid of 4×4"),
        (
            "gemma3",
            "processor_config.json",
            ["image_seq_length"],
            64,
            "image_seq_length is 64, but mm_tokens_per_image is 16",
        ),
        (
            "llava_onevision",
            "config.json",
            ["image_grid_pinpoints"],
            [[24, 48]],
            "no multiples of 30 px",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    name: str,
    file: str,
    path: list[str],
    value: Any,
    words: str,
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    folder = tampered(folders[name], tmp_path / name, file, path, value)
    answer = check_folder(folder)
    assert not answer.agrees
    assert any(words in line for line in answer.disagreements), answer.disagreements
    said = CliRunner().invoke(command, [str(folder), "--config"])
    assert said.exit_code == 1
    assert words in said.output
    assert CliRunner().invoke(command, [str(folders[name]), "--config"]).exit_code == 0


def test_a_file_that_is_no_json_is_not_passed_over(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["gemma3"], tmp_path / "broken")
    (folder / "processor_config.json").write_text("{not json", encoding="utf-8")
    said = CliRunner().invoke(command, [str(folder), "--config"])
    assert said.exit_code == 1
    assert "processor_config.json: cannot be read as a JSON object" in said.output
    (folder / "config.json").write_text("[1, 2]", encoding="utf-8")
    said = CliRunner().invoke(command, [str(folder), "--config"])
    assert said.exit_code == 1
    assert "config.json: cannot be read as a JSON object" in str(said.exception or said.output)


def test_a_folder_without_a_processor_says_so(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["gemma3"], tmp_path / "alone")
    (folder / "processor_config.json").unlink()
    said = CliRunner().invoke(command, [str(folder), "--config"])
    assert said.exit_code == 0
    assert "no processor file was found" in said.output


@pytest.mark.parametrize(
    ("tower", "to", "section", "key"),
    [
        ("high_res", 96, "high_res_vision_config", "high_res_size"),
        ("vision_model.embeddings", 48, "vision_config", "size"),
    ],
)
def test_one_of_two_towers_is_chosen_by_name(
    tower: str, to: int, section: str, key: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    from tests.vlm.seen import run

    source, family = folders["deepseek_vl_hybrid"], BY_NAME["deepseek_vl_hybrid"]
    with pytest.raises(GeometryError, match="different sizes") as refusal:
        resize_checkpoint(source, to=to)
    assert 'tower="high_res_vision_model"' in str(refusal.value.hint)
    resize_checkpoint(source, to=to, tower=tower, output=tmp_path / "new")
    before, after = read(source, "config.json"), read(tmp_path / "new", "config.json")
    assert after[section]["image_size"] == to
    others = {"vision_config", "high_res_vision_config"} - {section}
    assert all(after[other] == before[other] for other in others)
    processor = read(tmp_path / "new", "processor_config.json")
    assert processor["image_processor"][key] == {"height": to, "width": to}
    assert processor["num_image_tokens"] == (36 if section == "vision_config" else 16)
    run(family, tmp_path / "new")
    assert check_folder(tmp_path / "new").agrees


def test_a_tower_that_is_not_there_is_a_mistake(folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="no position table has this in its name"):
        resize_checkpoint(folders["gemma3"], to=96, tower="audio")
