"""Models on the hub are read by range: requests and bytes are counted on both of its servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants

from resize_pos.api import (
    compare_checkpoints,
    inspect_checkpoint,
    resize_checkpoint,
)
from resize_pos.cli.app import group
from resize_pos.containers.remote import store
from resize_pos.core.errors import ContainerError
from resize_pos.report.report import Report
from tests.containers.test_sharded import FIRST, INDEX, SECOND, shards
from tests.support.builders import vit, write_safetensors
from tests.support.folder_builders import files
from tests.support.hub_server import COMMIT, Hub, hub_server

MIB = 1 << 20
ADDRESS = "hf://org/vit"
CONFIG = '{"image_size": [96, 144], "patch_size": 16}'
# The model has 6×9 patches of 16 pixels.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as server:
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
        monkeypatch.setattr(store, "pause", lambda *_: None)
        store.disconnect()
        yield server
        store.disconnect()


def weights(mib: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return vit(6, 9) | {"head.weight": rng.integers(0, 255, mib * MIB, np.uint8)}


def model(folder: Path, mib: int = 8) -> Path:
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", weights(mib), {"format": "pt"})
    (folder / "config.json").write_text(CONFIG)
    (folder / "pytorch_model.bin").write_bytes(bytes(MIB))
    (folder / "README.md").write_text("a model")
    return folder


@pytest.fixture
def published(hub: Hub, tmp_path: Path) -> Path:
    hub.repositories["org/vit"] = model(tmp_path / "remote")
    return tmp_path / "remote"


READS: dict[str, Callable[[], object]] = {
    "inspect": lambda: inspect_checkpoint(ADDRESS),
    "health": lambda: inspect_checkpoint(ADDRESS, health=True),
    "dry run": lambda: resize_checkpoint(ADDRESS, to="128x192", dry_run=True),
    "verify": lambda: group.main(["verify", ADDRESS, "--size", "96x144"], standalone_mode=False),
    "compare": lambda: compare_checkpoints(ADDRESS, to="128x192"),
}


@pytest.mark.parametrize("read", READS)
def test_only_headers_and_tables_move(hub: Hub, published: Path, read: str) -> None:
    READS[read]()
    assert hub.storage.sent < MIB
    assert not any("pytorch_model" in word for word in hub.asked)
    # The listing; the weights' address and their beginning; the config's address and the config.
    assert hub.requests <= 7, (hub.asked, hub.storage.asked)
    assert hub.storage.secrets == []


def test_requests_and_bytes_are_reported(hub: Hub, published: Path) -> None:
    used = inspect_checkpoint(ADDRESS).traffic
    assert used is not None
    assert used.requests == hub.requests
    assert used.received == hub.storage.sent + len(CONFIG)


def converted(source: str | Path, output: Path) -> Report:
    return resize_checkpoint(source, to="128x192", output=output)


def test_a_conversion_streams_what_stays(hub: Hub, published: Path, tmp_path: Path) -> None:
    (published / "pytorch_model.bin").unlink()  # only one set of weights is read
    converted(published, tmp_path / "here")
    size = (published / "model.safetensors").stat().st_size
    report = converted(ADDRESS, tmp_path / "wide")
    assert files(tmp_path / "wide") == files(tmp_path / "here")
    assert hub.storage.sent < size * 1.1
    assert report.traffic is not None
    assert not (tmp_path / "cache").exists()


def test_a_file_a_folder_and_shards_in_a_repository(
    hub: Hub, published: Path, tmp_path: Path
) -> None:
    below = published / "encoder"
    shards(below)
    wide = resize_checkpoint(f"{ADDRESS}/model.safetensors", to="128x192", dry_run=True)
    assert wide.output is not None and wide.output.name == "model-128x192.safetensors"
    for address in (f"{ADDRESS}/encoder", f"{ADDRESS}@v1/encoder/{INDEX}"):
        hub.clear()
        converted_below = tmp_path / address.rpartition("/")[2]
        resize_checkpoint(address, to=96, output=converted_below)
        assert {path.name for path in converted_below.iterdir()} == {FIRST, SECOND, INDEX}
    assert resize_checkpoint(below, to=96, output=tmp_path / "here").output
    assert files(tmp_path / "encoder") == files(tmp_path / "here")


def test_a_torch_archive_and_a_mirror_without_sizes(hub: Hub, tmp_path: Path) -> None:
    import torch

    folder = tmp_path / "remote"
    folder.mkdir()
    tensors = {name: torch.from_numpy(t) for name, t in weights().items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    hub.repositories["org/vit"] = folder
    hub.with_sizes = False
    report = resize_checkpoint(ADDRESS, from_grid="6x9", to_grid="8x12", dry_run=True)
    assert report.plan.changes
    assert hub.storage.sent < MIB


@pytest.mark.parametrize("fault", ["expired", "busy", "cut"])
def test_trouble_that_passes_is_overcome(
    hub: Hub, published: Path, tmp_path: Path, fault: str
) -> None:
    hub.storage.fault = lambda number: fault if number % 2 == 0 else None
    (published / "pytorch_model.bin").unlink()
    converted(published, tmp_path / "here")
    converted(ADDRESS, tmp_path / "wide")
    assert files(tmp_path / "wide") == files(tmp_path / "here")


def test_a_file_that_changes_is_refused(hub: Hub, published: Path, tmp_path: Path) -> None:
    other = model(tmp_path / "other", 9) / "model.safetensors"

    def replace(number: int) -> None:
        if number == 2:
            hub.storage.files["/org/vit/model.safetensors"] = other

    hub.storage.before = replace
    with pytest.raises(ContainerError, match="changed since it was opened") as refused:
        converted(ADDRESS, tmp_path / "wide")
    assert f"@{COMMIT}/model.safetensors" in refused.value.message
    assert not (tmp_path / "wide").exists()


def test_a_listing_that_disagrees_with_the_file_is_refused(
    hub: Hub, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import hub_server as module

    monkeypatch.setattr(module, "sha256", lambda _: f"{len(hub.asked)}")
    with pytest.raises(ContainerError, match="changed since it was opened"):
        inspect_checkpoint(ADDRESS)


def test_the_token_goes_to_the_hub_alone(hub: Hub, published: Path) -> None:
    hub.private["org/vit"] = "hf_very_secret"
    inspect_checkpoint(ADDRESS)
    assert hub.storage.asked
    assert hub.storage.secrets == []


def test_a_gated_model_is_explained(hub: Hub, published: Path) -> None:
    hub.gated.add("org/vit")
    with pytest.raises(ContainerError, match="access to it is restricted") as refused:
        inspect_checkpoint(ADDRESS)
    assert "hf_very_secret" not in f"{refused.value.message} {refused.value.hint}"
