"""Every family of docs/vlm.md: converted, loaded strictly, and run on an image and a text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from resize_pos.api import resize_checkpoint
from resize_pos.core.errors import GeometryError
from resize_pos.verify.folder import check_folder
from tests.vlm.apart import APART, Apart
from tests.vlm.page import PAGE, row, row_apart, rows_of
from tests.vlm.seen import FILES, Seen, keys, read, run, split_processor
from tests.vlm.zoo import Vlm
from tests.vlm.zoo_more import ALL

pytestmark = pytest.mark.filterwarnings("ignore")
BY_NAME = {family.name: family for family in ALL}
NAMES = [
    pytest.param(family.name, marks=[pytest.mark.slow] * family.slow, id=family.name)
    for family in ALL
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that were built, by family; each is built when it is first asked for."""
    made: dict[str, Path] = {"": tmp_path_factory.mktemp("vlm")}
    return made


def source_of(family: Vlm, sources: dict[str, Path]) -> Path:
    if family.name not in sources:
        sources[family.name] = family.save(sources[""] / family.name)
    return sources[family.name]


def converted(family: Vlm, source: Path, to: int, output: Path) -> Seen:
    report = resize_checkpoint(source, to=to, output=output, **family.options)
    call = {advice.key: advice.after for advice in report.config_advice}
    return Seen(report, *run(family, output, **call))


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_runs_at_the_new_size(name: str, sources: dict[str, Path], tmp_path: Path) -> None:
    family = BY_NAME[name]
    source = source_of(family, sources)
    before, _ = run(family, source)
    seen = converted(family, source, family.to[0], tmp_path / "new")
    for file in FILES:
        if (source / file).exists():
            assert list(keys(read(source, file))) == list(keys(read(tmp_path / "new", file)))
    assert row(family, source, seen, before) == rows_of(PAGE.read_text(encoding="utf-8"))[name]
    for folder in (source, tmp_path / "new"):
        answer = check_folder(folder)
        assert answer.agrees, answer.disagreements


@pytest.mark.parametrize("name", NAMES)
def test_a_processor_in_files_of_its_own_follows_too(
    name: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    """At another size than above, so that each family is seen at two."""
    family = BY_NAME[name]
    source = shutil.copytree(source_of(family, sources), tmp_path / "old")
    split_processor(source)
    seen = converted(family, source, family.to[1], tmp_path / "new")
    assert list(keys(read(source, "config.json"))) == list(
        keys(read(tmp_path / "new", "config.json"))
    )
    if family.fed and seen.edits:
        assert family.to[1] in seen.pixels
    assert check_folder(tmp_path / "new").agrees


@pytest.mark.parametrize(
    ("name", "to", "nearest"),
    [(family.name, *case) for family in ALL for case in family.impossible],
)
def test_a_size_that_the_model_cannot_run_is_refused_with_the_nearest(
    name: str, to: int, nearest: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    source = source_of(BY_NAME[name], sources)
    with pytest.raises(GeometryError) as refusal:
        resize_checkpoint(source, to=to, output=tmp_path / "new")
    assert nearest in str(refusal.value.hint)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("model", APART, ids=lambda model: model.name)
def test_the_row_of_a_model_with_a_test_of_its_own(model: Apart, tmp_path: Path) -> None:
    source = tmp_path / "old"
    model.save(source)
    assert row_apart(model, source) == rows_of(PAGE.read_text(encoding="utf-8"))[model.name]


def test_the_page_has_a_row_for_each_model_and_no_other() -> None:
    names = [family.name for family in ALL] + [model.name for model in APART]
    assert list(rows_of(PAGE.read_text(encoding="utf-8"))) == names
