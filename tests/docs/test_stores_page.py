"""docs/scale.md on stores: its commands run as written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from huggingface_hub import constants

from benchmarks.store import PAGE
from resize_pos.cli.app import main
from resize_pos.containers.remote import store
from tests.support.builders import vit, write_safetensors
from tests.support.hub_server import hub_server
from tests.support.object_stores import moto


def commands() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## One checkpoint in a store")[2]
    section = section.partition("### What a zoo costs")[0]
    lines = [line.removeprefix("$ ") for line in section.splitlines() if line.startswith("$ ")]
    assert len(lines) > 10
    return lines


def test_the_commands_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    folder = tmp_path / "remote"
    folder.mkdir()
    weights = write_safetensors(folder / "model.safetensors", vit(14, 14))
    (folder / "config.json").write_text('{"image_size": 224, "patch_size": 16}')
    (tmp_path / "server").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with moto(tmp_path / "server") as server, hub_server() as hub:
        hub.repositories["org/vit"] = folder
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        store.disconnect()
        client = server.client()
        client.create_bucket(Bucket="zoo")
        client.put_object(Bucket="zoo", Key="vit.safetensors", Body=weights.read_bytes())
        for line in commands():
            with pytest.raises(SystemExit) as ended:
                main(shlex.split(line)[1:])
            assert ended.value.code == 0, line
        found = client.list_objects_v2(Bucket="zoo")["Contents"]
        names = ["vit-384.safetensors", "vit-448.safetensors", "vit.safetensors"]
        assert [one["Key"] for one in found] == names
        assert [commit["repo"] for commit in hub.commits] == ["org/vit-384"]
        client.close()
        store.disconnect()
