"""Stores that are reached through fsspec: its file system in memory stands for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from resize_pos.api import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.remote import fsspec_store, store
from resize_pos.core.errors import ContainerError, OutputError
from tests.support.builders import vit, write_safetensors


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkpoint in a store, and on this disk."""
    monkeypatch.setitem(fsspec_store._PACKAGES, "gs", ("memory", "fsspec", "gcs"))
    store.disconnect()
    path = write_safetensors(tmp_path / "vit.safetensors", vit(6, 9), {"format": "pt"})
    memory = fsspec.filesystem("memory")
    memory.pipe("zoo/vit.safetensors", path.read_bytes())
    yield path
    memory.rm("/", recursive=True)
    store.disconnect()


def test_a_store_behind_fsspec_is_read_and_written(bucket: Path) -> None:
    there = inspect_checkpoint("gs://zoo/vit.safetensors", from_grid="6x9")
    assert there.tensors == inspect_checkpoint(bucket, from_grid="6x9").tensors
    here = bucket.with_name("wide.safetensors")
    resize_checkpoint(bucket, output=here, from_grid="6x9", to_grid="8x12")
    report = resize_checkpoint(
        "gs://zoo/vit.safetensors",
        output="gs://zoo/wide.safetensors",
        from_grid="6x9",
        to_grid="8x12",
    )
    memory = fsspec.filesystem("memory")
    assert memory.cat("zoo/wide.safetensors") == here.read_bytes()
    assert report.traffic is not None
    assert "went through this machine" in report.traffic.notes[0]
    with pytest.raises(OutputError, match="already exists"):
        resize_checkpoint(
            "gs://zoo/vit.safetensors",
            output="gs://zoo/wide.safetensors",
            from_grid="6x9",
            to_grid="8x12",
        )


def test_an_object_that_somebody_else_creates_meanwhile_is_kept(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = fsspec.filesystem("memory")
    look = fsspec_store.FsspecStore.info
    finish = fsspec_store.FsspecUpload.complete

    def look_then_lose(self: fsspec_store.FsspecStore, path: RemotePath) -> Any:
        found = look(self, path)
        memory.pipe("zoo/taken.safetensors", b"of another program")
        return found

    def complete(self: fsspec_store.FsspecUpload, before: store.ObjectInfo | None) -> None:
        monkeypatch.setattr(fsspec_store.FsspecStore, "info", look_then_lose)
        finish(self, before)

    monkeypatch.setattr(fsspec_store.FsspecUpload, "complete", complete)
    with pytest.raises(OutputError, match="written by another program"):
        resize_checkpoint(
            bucket, output="gs://zoo/taken.safetensors", from_grid="6x9", to_grid="8x12"
        )
    assert memory.cat("zoo/taken.safetensors") == b"of another program"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    store.disconnect()
    with pytest.raises(ContainerError, match="needs the package") as refused:
        inspect_checkpoint("az://zoo/vit.safetensors")
    assert refused.value.hint == 'pip install "resize-pos[azure]"'
