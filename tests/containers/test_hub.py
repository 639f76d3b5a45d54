"""Models of the hub, from a small server on this machine that speaks its endpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resize_pos.containers.hub import HubModel, parse_hub
from resize_pos.containers.hub_files import choose_others, choose_weights, shard_names
from resize_pos.core.errors import ContainerError
from tests.containers.test_sharded import FIRST, INDEX, SECOND, shards
from tests.support.builders import vit, write_safetensors
from tests.support.hub_server import Hub, hub_server


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as server:
        yield server


def repository(folder: Path) -> Path:
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", vit())
    (folder / "pytorch_model.bin").write_bytes(b"not needed")
    (folder / "tf_model.h5").write_bytes(b"not needed")
    (folder / "config.json").write_text('{"image_size": 64}')
    (folder / "preprocessor_config.json").write_text('{"size": 64}')
    (folder / "README.md").write_text("a model")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"not needed")
    return folder


def command(
    hub: Hub,
    here: Path,
    *words: str,
    code: str = "from resize_pos.cli.app import main; main()",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    here.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(here.parent / "cache"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            **environment,
        },
    )


def download(hub: Hub, here: Path, *names: str) -> None:
    """Put files into the cache with huggingface_hub itself."""
    code = (
        "import huggingface_hub, sys\n"
        "for name in sys.argv[1:]: huggingface_hub.hf_hub_download('org/vit', name)"
    )
    done = command(hub, here, *names, code=code)
    assert done.returncode == 0, done.stderr


def test_just_the_files_needed_are_fetched_and_converted(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/vit"] = repository(tmp_path / "remote")
    done = command(hub, tmp_path / "here", "hf://org/vit", "--to", "96", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["source"], report["output"]) == ("hf://org/vit", "vit-96")
    output = tmp_path / "here" / "vit-96"
    assert json.loads((output / "config.json").read_text()) == {"image_size": 96}
    assert json.loads((output / "preprocessor_config.json").read_text()) == {"size": 96}
    assert {path.name for path in output.iterdir()} == {
        "model.safetensors",
        "config.json",
        "preprocessor_config.json",
        "README.md",
    }
    assert not any(path.is_symlink() for path in output.iterdir())
    fetched = {word.rpartition("/")[2] for word in hub.asked if word.startswith("GET org/vit")}
    assert fetched == {path.name for path in output.iterdir()}


def test_files_in_the_cache_are_read_there(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/vit"] = repository(tmp_path / "remote")
    download(hub, tmp_path / "here", "config.json", "preprocessor_config.json")
    hub.clear()
    done = command(hub, tmp_path / "here", "inspect", "hf://org/vit")
    assert done.returncode == 0, done.stderr
    asked = {word.rpartition("/")[2] for word in hub.asked if word.startswith("GET org/vit")}
    assert asked == {"model.safetensors"}

    download(hub, tmp_path / "here", "model.safetensors", "README.md")
    hub.clear()
    again = command(hub, tmp_path / "here", "inspect", "hf://org/vit")
    assert again.returncode == 0, again.stderr
    assert "pos_embed" in again.stdout
    assert hub.asked == ["GET api/models/org/vit/revision/main"]
    assert hub.storage.asked == []

    hub.clear()
    words = ("hf://org/vit", "--to", "128")
    offline = command(hub, tmp_path / "here", *words, HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr
    assert (tmp_path / "here" / "vit-128" / "config.json").read_text() == '{"image_size": 128}'
    assert hub.asked == []


def test_verify_and_compare_take_models_on_the_hub(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/vit"] = repository(tmp_path / "remote")
    here = tmp_path / "here"
    assert command(hub, here, "hf://org/vit", "--to", "96x128").returncode == 0
    for words in (
        ("verify", "vit-96x128", "--against", "hf://org/vit"),
        ("verify", "hf://org/vit", "--size", "64"),
        ("compare", "hf://org/vit", "--to", "96x128"),
        ("compare", "hf://org/vit", "vit-96x128"),
    ):
        done = command(hub, here, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_shards_are_fetched_with_their_index(hub: Hub, tmp_path: Path) -> None:
    folder = shards(tmp_path / "remote")
    (folder / "config.json").write_text('{"image_size": 64}')
    hub.repositories["org/vit"] = folder
    done = command(hub, tmp_path / "here", "hf://org/vit@v1", "--to", "96")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "here" / "vit-96").iterdir()}
    assert names == {FIRST, SECOND, INDEX, "config.json"}


# repository asked for, what the server says, environment, words of the answer
REFUSED: list[tuple[str, tuple[int, str] | None, dict[str, str], list[str]]] = [
    ("hf://org/none", None, {}, ["hf://org/none: there is no such repository", "HF_TOKEN"]),
    (
        "hf://org/private",
        (401, "RepoNotFound"),
        {},
        ["no such repository, or it is private", "login"],
    ),
    ("hf://org/gated", (403, "GatedRepo"), {}, ["restricted (403)", "Ask for access"]),
    ("hf://org/closed", (403, ""), {}, ["does not let you read it (403)", "HF_TOKEN"]),
    ("hf://org/broken", (500, ""), {}, ["the download failed"]),
    ("hf://org/vit@nowhere", None, {}, ["no such revision (404)", "after the @"]),
    ("hf://org/vit", None, {"HF_HUB_OFFLINE": "1"}, ["offline mode is on", "HF_HUB_OFFLINE"]),
    (
        "hf://org/vit",
        None,
        {"HF_ENDPOINT": "http://127.0.0.1:9"},
        ["cannot be reached", "HF_ENDPOINT"],
    ),
    ("hf://org/vit/below/file", None, {}, ["the repository has no such file", "config.json"]),
    ("hf://org/vit/../other", None, {}, ["is not a model on the hub", "hf://ORG/NAME"]),
    ("hf://org/empty", None, {}, ["holds no weights", "README.md"]),
]


@pytest.mark.parametrize(("given", "answer", "environment", "words"), REFUSED)
def test_a_refusal_is_explained(
    given: str,
    answer: tuple[int, str] | None,
    environment: dict[str, str],
    words: list[str],
    hub: Hub,
    tmp_path: Path,
) -> None:
    hub.repositories["org/vit"] = repository(tmp_path / "remote")
    hub.repositories["org/empty"] = tmp_path / "empty"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("soon")
    if answer is not None:
        hub.refused[given.removeprefix("hf://")] = answer
    done = command(hub, tmp_path / "here", given, "--to", "96", **environment)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert list((tmp_path / "here").iterdir()) == []


PARSED = {
    "hf://org/name": HubModel("org/name"),
    "hf://gpt2": HubModel("gpt2"),
    "hf://org/name.v1@refs/pr/3": HubModel("org/name.v1", "refs/pr/3"),
    "hf://org/name@a%2Fb": HubModel("org/name", "a/b"),
    "hf://org/name/model.safetensors": HubModel("org/name", "main", "model.safetensors"),
    "hf://org/name@v1/sub/x.bin": HubModel("org/name", "v1", "sub/x.bin"),
    "hf://org/name@refs/pr/3/sub": HubModel("org/name", "refs/pr/3", "sub"),
    "folder/model.safetensors": None,
    "./hf/name": None,
}


@pytest.mark.parametrize(("text", "model"), PARSED.items())
def test_a_hub_name_survives_being_a_path(text: str, model: HubModel | None) -> None:
    assert parse_hub(Path(text)) == model
    if model is not None:
        assert str(model) == text


CHOICES: list[tuple[list[str], str | None]] = [
    (["pytorch_model.bin", "model.safetensors"], "model.safetensors"),
    (["pytorch_model.bin", "model.safetensors.index.json"], "model.safetensors.index.json"),
    (["open_clip_pytorch_model.bin", "pytorch_model.bin"], "pytorch_model.bin"),
    (["b.safetensors", "a.safetensors", "x.bin"], "a.safetensors"),
    (["ViT-B_16.npz", "README.md"], "ViT-B_16.npz"),
    (["below/model.safetensors", "tf_model.h5"], None),
]


@pytest.mark.parametrize(("files", "weights"), CHOICES)
def test_one_set_of_weights_is_chosen(files: list[str], weights: str | None) -> None:
    assert choose_weights(files) == weights


def test_only_small_files_at_the_top_go_along() -> None:
    files = ["config.json", "a/config.json", "x.index.json", "merges.txt", "model.onnx", "LICENSE"]
    assert choose_others(files) == ["LICENSE", "config.json", "merges.txt"]


@pytest.mark.parametrize("home", ["../x", "/etc/passwd", "elsewhere.safetensors"])
def test_an_index_of_the_hub_cannot_ask_for_anything(home: str, tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(json.dumps({"weight_map": {"a": home}}))
    with pytest.raises(ContainerError, match=r"leads out|not in the repository"):
        shard_names(index, ["model.safetensors"])
