"""A store on this machine and a small zoo in it, for the tests of batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resize_pos.containers.remote import store
from tests.support.bucket import Buckets, make_buckets
from tests.support.builders import vit, write_safetensors
from tests.support.object_stores import ObjectServer, program, seaweed


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    if program("weed") is None:
        pytest.skip("the program weed is not installed")
    with seaweed(tmp_path_factory.mktemp("weed")) as running:
        yield running


@pytest.fixture
def buckets(
    store_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Buckets]:
    monkeypatch.chdir(tmp_path)
    made = make_buckets(store_server, tmp_path, monkeypatch)
    yield made
    made.client.close()
    store.disconnect()


def small_zoo(folder: Path) -> Path:
    """Make three single files in two folders, a model folder, and files that are no checkpoints."""
    folder.mkdir()
    (folder / "sub").mkdir()
    for number, name in enumerate(("a", "sub/b", "sub/c")):
        values = vit(4, 4, channels=8 + 4 * number)
        write_safetensors(folder / f"{name}.safetensors", values, {"format": "pt"})
    model = folder / "model"
    model.mkdir()
    write_safetensors(model / "model.safetensors", vit(4, 4), {"format": "pt"})
    (model / "config.json").write_text('{"architecture": "vit", "notes": "kept"}')
    (model / "nested").mkdir()
    (model / "nested" / "more.txt").write_text("kept")
    (folder / "optimizer.pt").write_bytes(b"no checkpoint")
    (folder / ".hidden.safetensors").write_bytes(b"no checkpoint")
    (folder / "README.md").write_text("no checkpoint")
    return folder


@pytest.fixture
def stored_zoo(buckets: Buckets, tmp_path: Path) -> Path:
    folder = small_zoo(tmp_path / "zoo")
    buckets.put_tree(folder)
    return folder
