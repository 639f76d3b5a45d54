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
from tests.vlm.zoo import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")
BY_NAME = {family.name: family for family in FAMILIES}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("agreement")
    names = ("internvl", "gemma3", "llava_onevision", "deepseek_vl_hybrid")
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
