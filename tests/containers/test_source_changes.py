"""A source that changes while it is copied is refused, on every path by which bytes are copied."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos import resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.containers.io import splice
from resize_pos.containers.io.link_or_copy import LINK_FROM, link_or_copy
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.core.errors import ContainerError
from tests.containers.test_dcp import in_two_files, state
from tests.containers.test_dcp import save as save_distributed
from tests.containers.test_sharded import INDEX, SECOND, shards
from tests.containers.test_torch_legacy import Clip, save_legacy, save_script
from tests.support.builders import vit, write_safetensors
from tests.support.folder_builders import files
from tests.support.torch_files import save, state_dict

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

Build = Callable[[Path], tuple[Path, Path]]  # the source, and the file of it that changes


def single(name: str, make: Callable[[Path], object]) -> Build:
    def build(folder: Path) -> tuple[Path, Path]:
        make(folder / name)
        return folder / name, folder / name

    return build


def model_folder(changing: str) -> Build:
    def build(folder: Path) -> tuple[Path, Path]:
        source = folder / "model"
        (source / "below").mkdir(parents=True)
        write_safetensors(source / "model.safetensors", vit())
        write_safetensors(source / "model.other.safetensors", {"w": np.ones(5, np.float32)})
        (source / "config.json").write_text('{"model_type": "vit", "image_size": 64}')
        (source / "README.md").write_text("words")
        (source / "below" / "tokens.txt").write_text("words")
        return source, source / changing

    return build


def sharded(folder: Path) -> tuple[Path, Path]:
    source = shards(folder / "model")
    return source / INDEX, source / SECOND


def distributed(changing: str, make: Callable[[Path], Path] = in_two_files) -> Build:
    def build(folder: Path) -> tuple[Path, Path]:
        source = make(folder / "model")
        (source / "notes.txt").write_text("words")
        return source, source / changing

    return build


def save_npz(path: Path) -> None:
    arrays: dict[str, Any] = vit()
    np.savez(path, **arrays)


SMALL = {"to_grid": "6x10", "from_grid": "3x5"}
VIT = {"to": "96x128"}
# what is copied → source, options of the request, suffix of the output
PATHS: dict[str, tuple[Build, dict[str, Any], str]] = {
    "safetensors": (single("a.safetensors", lambda p: write_safetensors(p, vit())), VIT, ".sft"),
    "torch zip": (single("a.pth", lambda p: save(p, state_dict())), SMALL, ".x"),
    "legacy": (single("a.pth", lambda p: save_legacy(p, state_dict())), SMALL, ".x"),
    "TorchScript": (
        single("a.pt", lambda p: save_script(p, Clip())),
        {"to": 96, "from_": 64},
        ".x",
    ),
    "npz": (single("a.npz", save_npz), VIT, ".x"),
    "torch to safetensors": (
        single("a.pth", lambda p: save(p, state_dict())),
        SMALL,
        ".safetensors",
    ),
    "safetensors to torch": (
        single("a.safetensors", lambda p: write_safetensors(p, vit())),
        VIT,
        ".pth",
    ),
    "whole file, unchanged": (
        single("a.safetensors", lambda p: write_safetensors(p, vit())),
        {"to": "64"},
        ".x",
    ),
    "folder: the weights": (model_folder("model.safetensors"), VIT, ""),
    "folder: weights that do not change": (model_folder("model.other.safetensors"), VIT, ""),
    "folder: another file": (model_folder("README.md"), VIT, ""),
    "folder: a file below": (model_folder("below/tokens.txt"), VIT, ""),
    "shard that does not change": (sharded, VIT, ""),
    "distributed: a piece that changes": (
        distributed("__0_0.distcp", lambda path: save_distributed(path, state())),
        VIT,
        "",
    ),
    "distributed: a piece that does not": (distributed("__0_0.distcp"), VIT, ""),
    "distributed: another file": (distributed("notes.txt"), VIT, ""),
}


def touch(path: Path) -> None:
    """Change one byte in place, and the time as a program that writes for a second would."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


@pytest.mark.parametrize(("build", "options", "suffix"), PATHS.values(), ids=PATHS)
def test_a_change_during_the_copy_is_refused(
    build: Build,
    options: dict[str, Any],
    suffix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, changing = build(tmp_path)
    original = splice._Splicer._copy
    changed: list[object] = []

    def copy(self: Any, offset: int, end: int) -> None:
        original(self, offset, end)
        if self._path.samefile(changing) and not changed:
            touch(changing)
            changed.append(files(tmp_path))

    monkeypatch.setattr(splice._Splicer, "_copy", copy)
    with pytest.raises(ContainerError, match=f"{changing.name}: changed since it was opened"):
        resize_checkpoint(source, output=tmp_path / f"out{suffix}", **options)
    assert changed, "the file was not copied at all"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {source.name if source.parent == tmp_path else source.parent.name}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_change_after_the_look_and_before_the_copy_is_refused(name: str, tmp_path: Path) -> None:
    source, changing = model_folder(name)(tmp_path)
    container = open_container(source).with_configs({"config.json": "{}"}, link=False)
    touch(changing)
    with pytest.raises(ContainerError, match=f"{name}: changed since it was opened"):
        container.write(tmp_path / "out", {}, {})


def test_a_changed_index_is_refused(tmp_path: Path) -> None:
    source, _ = sharded(tmp_path)
    container = open_container(source)
    source.write_text(source.read_text() + "\n")
    with pytest.raises(ContainerError, match="changed since it was opened"):
        container.write(tmp_path / "out", {}, {})


def test_a_file_that_was_replaced_is_another_file(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", vit())
    container = open_container(path)
    status = path.stat()
    other = write_safetensors(
        tmp_path / "b.safetensors", {name: array + 1 for name, array in vit().items()}
    )
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    for attempt in (
        lambda: container.read("pos_embed"),
        lambda: container.peek("pos_embed", 0, 4),
        lambda: container.write_unchanged(tmp_path / "out"),
    ):
        with pytest.raises(ContainerError, match="changed since it was opened"):
            attempt()


def test_a_changed_file_is_not_linked(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(bytes(LINK_FROM))
    source = SourceFile.of(path)
    touch(path)
    with pytest.raises(ContainerError, match="changed since it was opened"):
        link_or_copy(source, tmp_path / "out", link=True)
    assert not (tmp_path / "out").exists()


def test_a_source_is_a_range_of_bytes_with_an_identity(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(bytes(range(100)))
    source = SourceFile.of(path)
    assert (source.size, source.read(10, 5)) == (100, bytes(range(10, 15)))
    assert source.identity == SourceFile.of(path).identity
    with pytest.raises(ContainerError, match="blob: 20 bytes expected at 90, 10 read"):
        source.read(90, 20)


PIPES: dict[str, Callable[[Path], tuple[Path, Path]]] = {
    "as the source": lambda folder: (folder / "a.safetensors", folder / "a.safetensors"),
    "in a model folder": lambda folder: model_folder("README.md")(folder),
    "as weights in a folder": lambda folder: model_folder("model.other.safetensors")(folder),
    "as a shard": sharded,
    "as an index": lambda folder: (sharded(folder)[0],) * 2,
    "in a distributed checkpoint": distributed("notes.txt"),
    "as a piece": distributed("__0_0.distcp"),
}


@pytest.mark.parametrize("build", PIPES.values(), ids=PIPES)
def test_a_pipe_is_refused_and_does_not_hang(build: Any, tmp_path: Path) -> None:
    source, pipe = build(tmp_path)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(
        ContainerError, match=r"not a regular file|neither a file nor a folder|missing"
    ):
        resize_checkpoint(source, to="96x128", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="zero: is not a regular file"):
        resize_checkpoint("/dev/zero", to=96, output=tmp_path / "out.safetensors")
