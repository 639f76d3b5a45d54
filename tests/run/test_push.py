"""Uploads to the hub: what is sent, what is refused, and what a model card becomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import constants

from resize_pos.api import resize_checkpoint
from resize_pos.cli.app import main
from resize_pos.containers.remote import store
from resize_pos.core.errors import OutputError, ResizePosError, UsageError
from resize_pos.report.model_card import merged_card
from tests.support.builders import vit, write_safetensors
from tests.support.folder_builders import files
from tests.support.hub_server import COMMIT, Hub, hub_server

CARD = """---
license: apache-2.0
base_model:
- org/older
- org/oldest
tags: [vision]  # kept
---

# A model

Words about it.
"""
SECRET = "hf_very_secret"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as server:
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", SECRET)
        monkeypatch.chdir(tmp_path)
        store.disconnect()
        folder = tmp_path / "remote"
        folder.mkdir()
        write_safetensors(folder / "model.safetensors", vit(6, 9))
        (folder / "config.json").write_text('{"image_size": [96, 144], "patch_size": 16}')
        (folder / "README.md").write_text(CARD)
        server.repositories["org/vit"] = folder
        yield server
        store.disconnect()


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = capfd.readouterr()
        assert SECRET not in printed.out + printed.err
        return int(str(ended.value.code)), printed.out

    return call


WORDS = ("hf://org/vit", "--to", "128x192", "-o", "wide", "--push", "org/wide")


def sent(hub: Hub) -> dict[str, Any]:
    (commit,) = hub.commits
    return commit


def test_the_folder_becomes_a_commit_of_a_new_private_model(
    hub: Hub, run: Run, tmp_path: Path
) -> None:
    code, output = run(*WORDS)
    assert code == 0, output
    assert f"{hub.url}/org/wide/commit/{COMMIT}" in output.replace("\n", "")
    assert [(one["name"], one["organization"]) for one in hub.created] == [("wide", "org")]
    assert hub.created[0].get("visibility", hub.created[0].get("private")) in ("private", True)
    commit = sent(hub)
    card = commit["files"].pop("README.md").decode()
    local = files(tmp_path / "wide")
    assert local.pop("README.md").decode() == CARD  # the folder does not depend on the upload
    assert commit["files"] == local
    metadata = yaml.safe_load(card.split("---")[1])
    assert metadata == {
        "license": "apache-2.0",
        "base_model": "org/vit",
        "tags": ["vision"],
    }
    for word in (
        "## Resized from 96x144 to 128x192 px",
        "[org/vit](https://huggingface.co/org/vit)",
        "`pos_embed`",
        "Verdict: **ok**",
        "$ resize-pos hf://org/vit --to 128x192 -o wide --push org/wide",
        "# A model",
        "Words about it.",
        "# kept",
    ):
        assert word in card, (word, card)


def test_a_dry_run_uploads_nothing(hub: Hub, run: Run, tmp_path: Path) -> None:
    code, output = run(*WORDS, "-n")
    assert code == 0, output
    assert "would upload: wide" in output
    assert "a new private repository" in " ".join(output.split())
    assert not hub.commits and not hub.created
    assert not any(word.startswith("POST") for word in hub.asked)
    assert not (tmp_path / "wide").exists()


def test_without_the_option_nothing_is_uploaded(hub: Hub) -> None:
    report = resize_checkpoint("hf://org/vit", to="128x192", output="wide")
    assert report.upload is None
    assert not any(word.startswith("POST") for word in hub.asked)


def test_a_pull_request_keeps_the_card_of_its_repository(
    hub: Hub, run: Run, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.safetensors").write_bytes(b"older")
    (own / "README.md").write_text("---\nbase_model: other/base\n---\nOur words.\n")
    hub.repositories["org/wide"] = own
    code, output = run(*WORDS, "--push-pr", "--json")
    assert code == 0, output
    upload = json.loads(output)["upload"]
    assert upload["url"] == f"{hub.url}/org/wide/discussions/7"
    assert upload["files"] == ["README.md", "config.json", "model.safetensors"]
    commit = sent(hub)
    assert "create_pr=1" in commit["query"]
    assert commit["header"]["parentCommit"] == COMMIT
    card = commit["files"]["README.md"].decode()
    assert card.startswith("---\nbase_model: other/base\n---\n")
    assert card.endswith("Our words.\n")
    assert not hub.created


def test_what_may_not_be_written_is_refused_before_any_work(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/taken"] = hub.repositories["org/vit"]
    refused: list[tuple[dict[str, Any], type[ResizePosError], str]] = [
        ({"push": "org/taken"}, OutputError, "already holds model.safetensors"),
        ({"push": "org/vit"}, OutputError, "the target is the source"),
        ({"push": "org/none", "push_pr": True}, UsageError, "there is no such repository"),
        ({"push": "no model"}, UsageError, "is not the name of a model"),
        ({"push": "org/new", "output": "s3://zoo/x"}, UsageError, "not on this machine"),
        ({"output": "hf://org/new"}, UsageError, "uploaded to the hub after"),
    ]
    for options, kind, words in refused:
        with pytest.raises(kind, match=words):
            resize_checkpoint("hf://org/vit", to="128x192", **{"output": "wide", **options})
    assert not hub.commits and not (tmp_path / "wide").exists()
    forced = resize_checkpoint("hf://org/vit", to="128x192", push="org/taken", force=True)
    assert forced.upload is not None and forced.upload.url


def test_a_hub_that_cannot_be_reached_is_found_before_any_work(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    source = write_safetensors(tmp_path / "vit.safetensors", vit(6, 9))
    with pytest.raises(ResizePosError, match=r"the hub cannot be reached\.\n"):
        resize_checkpoint(source, to="128x192", output="wide.safetensors", push="org/wide")
    assert not (tmp_path / "wide.safetensors").exists()


def test_a_bad_verdict_is_not_uploaded(hub: Hub, run: Run) -> None:
    code, output = run(*WORDS, "--max", "norm_ratio=0.0001")
    assert code == 3
    assert "nothing was uploaded, because the verdict is fail" in " ".join(output.split())
    assert not hub.commits and not hub.created


def test_a_refused_upload_keeps_the_output(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(OutputError, match="does not let you write") as refused:
        resize_checkpoint("hf://org/vit", to="128x192", output="wide", push="org/wide")
    assert "hf upload org/wide wide" in (refused.value.hint or "")
    assert (tmp_path / "wide" / "model.safetensors").exists()


SECTION = "<!-- resize-pos: begin -->\nnew\n<!-- resize-pos: end -->\n"
# card, base model, whether a stated one stays → the merged card
MERGED: list[tuple[str, str | None, bool, str]] = [
    ("", "a/b", False, f"---\nbase_model: a/b\n---\n\n{SECTION}"),
    ("", None, False, SECTION),
    ("# T\n\nwords\n", None, False, f"# T\n\n{SECTION}\nwords\n"),
    ("words\n", "a/b", False, f"---\nbase_model: a/b\n---\n\n{SECTION}\nwords\n"),
    (
        "---\nx: 1\n---\n# T\n",
        "a/b",
        False,
        f"---\nx: 1\nbase_model: a/b\n---\n# T\n\n{SECTION}",
    ),
    (
        "---\nbase_model: c/d\nx: 1\n---\nwords\n",
        "a/b",
        True,
        f"---\nbase_model: c/d\nx: 1\n---\n{SECTION}\nwords\n",
    ),
    (
        f"# T\n\n{SECTION.replace('new', 'old')}\nwords\n\n---\n\nmore\n",
        None,
        False,
        f"# T\n\n{SECTION}\nwords\n\n---\n\nmore\n",
    ),
    (
        "---\r\nx: 1\r\n---\r\nwords\r\n",
        "a/b",
        False,
        "---\r\nx: 1\r\nbase_model: a/b\r\n---\r\n"
        + SECTION.replace("\n", "\r\n")
        + "\r\nwords\r\n",
    ),
]


@pytest.mark.parametrize(("card", "base", "keep", "expected"), MERGED)
def test_a_section_is_merged_into_a_card(
    card: str, base: str | None, keep: bool, expected: str
) -> None:
    merged = merged_card(card, SECTION, base, keep_base=keep)
    assert merged == expected
    again = merged_card(merged, SECTION, base, keep_base=keep)
    assert again == merged
