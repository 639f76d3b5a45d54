"""Sharded checkpoints: the index and the shards agree, or nothing is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resize_pos import resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.core.errors import ContainerError
from tests.support.builders import Tensors, raw_tensors, vit, write_safetensors
from tests.support.folder_builders import files, peak_memory

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def shards(folder: Path, tensors: Tensors | None = None) -> Path:
    """Two shards with an oddly formatted index."""
    folder.mkdir(exist_ok=True)
    tensors = tensors or vit()
    names = list(tensors)
    homes = {name: FIRST if i < len(names) // 2 else SECOND for i, name in enumerate(names)}
    for home in (FIRST, SECOND):
        write_safetensors(folder / home, {n: tensors[n] for n in names if homes[n] == home})
    total = sum(array.nbytes for array in tensors.values())
    metadata = {"total_parameters": 17, "note": "kept", "total_size": total}
    text = json.dumps({"metadata": metadata, "weight_map": homes}, indent=1)
    (folder / INDEX).write_text(text + "\n\n")
    return folder


def test_only_the_shard_with_the_table_is_rewritten(tmp_path: Path) -> None:
    source = shards(tmp_path / "model")
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    before, after = files(source), files(report.output)
    assert before.keys() == after.keys()
    assert before[SECOND] == after[SECOND]
    old, _ = raw_tensors(source / FIRST)
    new, metadata = raw_tensors(report.output / FIRST)
    assert {name for name in old if old[name] != new[name]} == {"pos_embed"}
    assert "resize_pos" in metadata


def test_only_the_totals_of_the_index_change(tmp_path: Path) -> None:
    source = shards(tmp_path / "model")
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    old, new = (source / INDEX).read_text(), (report.output / INDEX).read_text()
    grown = (49 - 17) * 8
    total = json.loads(old)["metadata"]["total_size"]
    expected = old.replace(f": {total}", f": {total + grown * 4}").replace(
        ": 17", f": {17 + grown}"
    )
    assert new == expected
    assert json.loads(new)["metadata"]["total_size"] == sum(
        info.nbytes for info in open_container(report.output).tensors.values()
    )


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads((folder / INDEX).read_text())
    change(document)
    (folder / INDEX).write_text(json.dumps(document))


def renamed(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit(folder, lambda d: d["weight_map"].update(cls_token=name))

    return change


def linked_outside(folder: Path) -> None:
    (folder / SECOND).rename(folder.parent / "elsewhere.safetensors")
    (folder / SECOND).symlink_to(folder.parent / "elsewhere.safetensors")


def stray(folder: Path) -> None:
    write_safetensors(folder / "model-00003-of-00003.safetensors", {})


def unknown_tensor(folder: Path) -> None:
    edit(folder, lambda d: d["weight_map"].update(ghost=FIRST))


def unlisted_tensor(folder: Path) -> None:
    edit(folder, lambda d: d["weight_map"].pop("cls_token"))


def pointer(folder: Path) -> None:
    (folder / SECOND).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (renamed("../x.safetensors"), "leads out of the folder"),
    (renamed("/etc/passwd"), "leads out of the folder"),
    (renamed("below/x.safetensors"), "leads out of the folder"),
    (renamed("..\\x.safetensors"), "leads out of the folder"),
    (renamed("C:x.safetensors"), "leads out of the folder"),
    (renamed(".."), "leads out of the folder"),
    (renamed(""), "is not a file name"),
    (lambda f: edit(f, lambda d: d["weight_map"].update(cls_token=3)), "3 is not a file name"),
    (linked_outside, "is a link to .*, out of the folder"),
    (lambda f: (f / SECOND).unlink(), f"1 of 2 shards are missing, the first is {SECOND}"),
    (stray, "does not name model-00003-of-00003"),
    (unknown_tensor, f"says that ghost is in {FIRST}, which does not hold it"),
    (unlisted_tensor, f"does not say that cls_token is in {FIRST}, which holds it"),
    (pointer, "git-LFS pointer"),
    (lambda f: edit(f, lambda d: d.pop("weight_map")), "has no weight_map"),
    (lambda f: edit(f, lambda d: d.update(weight_map=[])), "has no weight_map"),
    (lambda f: (f / INDEX).write_text("{"), "is not JSON"),
    (lambda f: (f / INDEX).write_bytes(b"\xff"), "is not JSON"),
    (lambda f: (f / INDEX).write_text("[" * 100_000), "is not JSON"),
]


@pytest.mark.parametrize("given", ["folder", "index"])
@pytest.mark.parametrize(("damage", "words"), REFUSED)
def test_a_disagreement_is_refused(
    damage: Callable[[Path], object], words: str, given: str, tmp_path: Path
) -> None:
    source = shards(tmp_path / "model")
    damage(source)
    before = files(tmp_path)
    with pytest.raises(ContainerError, match=words):
        resize_checkpoint(source if given == "folder" else source / INDEX, to=96)
    assert files(tmp_path) == before


def test_a_missing_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="no such file"):
        resize_checkpoint(tmp_path / INDEX, to=96)


def test_a_variant_s_index_is_known(tmp_path: Path) -> None:
    source = shards(tmp_path / "model")
    (source / INDEX).rename(source / "model.safetensors.index.fp16.json")
    assert "in 2 shards" in open_container(source).format


def test_totals_that_are_not_there_are_not_added(tmp_path: Path) -> None:
    source = shards(tmp_path / "model")
    edit(source, lambda d: d.pop("metadata"))
    report = resize_checkpoint(source, to=96)
    assert report.output is not None
    assert files(report.output)[INDEX] == files(source)[INDEX]


def test_a_total_written_as_a_float_stays_one(tmp_path: Path) -> None:
    source = shards(tmp_path / "model")
    edit(source, lambda d: d["metadata"].update(total_size=100.0))
    report = resize_checkpoint(source, to=96)
    assert report.output is not None
    grown = (37 - 17) * 8 * 4
    assert f'"total_size": {100.0 + grown}' in (report.output / INDEX).read_text()


@pytest.mark.slow
def test_a_large_shard_takes_little_memory(tmp_path: Path) -> None:
    source = shards(tmp_path / "model")
    size = 2**31
    header = json.dumps({"large": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    third = source / "model-00003-of-00002.safetensors"
    with third.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + size)
    edit(source, lambda d: d["weight_map"].update(large=third.name))
    assert peak_memory(source, "--to", "96", "-o", tmp_path / "out") < 150e6
    assert open_container(tmp_path / "out").tensors["large"].nbytes == size
