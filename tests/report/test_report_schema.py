"""docs/report.schema.json describes every document that a run prints, and every key of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from resize_pos.cli.app import main
from tests.support.builders import flat, smooth, vit, write_safetensors
from tests.support.folder_builders import save_hf, vit_model

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "report.schema.json").read_text(encoding="utf-8")
)


def closed(schema: Any) -> Any:
    """Forbid what the schema does not name; readers may ignore new keys, we may not forget them."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    properties = found.get("properties")
    is_rule = isinstance(properties, dict) and "type" in found
    return {**found, "additionalProperties": False} if is_rule else found


STRICT = Draft202012Validator(closed(SCHEMA))

CLIP = {
    "vision_model.embeddings.class_embedding": np.ones(8, np.float32),
    "vision_model.embeddings.patch_embedding.weight": np.ones((8, 3, 16, 16), np.float32),
    "vision_model.embeddings.position_embedding.weight": flat(4, 4)[0],
    "vision_model.embeddings.position_ids": np.arange(17)[None],
    "text_model.embeddings.position_embedding.weight": smooth(1, 20, 8)[0],
    "text_model.embeddings.token_embedding.weight": np.ones((30, 8), np.float32),
}


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[dict[str, Any]]]:
    """Run a command that prints JSON and read every line or document of it."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> list[dict[str, Any]]:
        with pytest.raises(SystemExit):
            main([*words, "--json"])
        text = capfd.readouterr().out
        documents = text.splitlines() if words[0] == "batch" else [text]
        return [json.loads(document) for document in documents]

    return call


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


RUNS: dict[str, tuple[list[str], str, str]] = {
    "resized": (["vit.safetensors", "--to", "96x160"], "resized", "ok"),
    "planned": (["vit.safetensors", "--to", "96x160", "-n"], "planned", "ok"),
    "unchanged": (["vit.safetensors", "--to", "64"], "unchanged", "ok"),
    "a limit is passed": (["vit.safetensors", "--to", "96", "--max", "overshoot=-1"], "", "fail"),
    "nothing to preserve": (["noise.safetensors", "--to", "192"], "resized", "warn"),
    "image and text": (["clip.safetensors", "--to", "96"], "resized", "ok"),
    "text alone": (
        ["clip.safetensors", "--to-length", "40", "--length-method", "stretch:4"],
        "resized",
        "ok",
    ),
    "another format": (["vit.safetensors", "--to", "96x160", "-o", "vit.pt"], "resized", "ok"),
}


@pytest.mark.parametrize("case", RUNS)
def test_every_outcome_is_described(case: str, run: Any, tmp_path: Path) -> None:
    words, status, verdict = RUNS[case]
    rng = np.random.default_rng(3)
    noise = vit(9, 9, channels=64) | {"pos_embed": rng.normal(size=(1, 82, 64)).astype(np.float32)}
    write_safetensors(tmp_path / "vit.safetensors", vit())
    write_safetensors(tmp_path / "noise.safetensors", noise)
    write_safetensors(tmp_path / "clip.safetensors", CLIP)
    (document,) = run(*words)
    STRICT.validate(document)
    assert document["status"] == (status or document["status"])
    assert document["verdict"] == verdict


def test_a_folder_with_configs_is_described(run: Any, tmp_path: Path) -> None:
    save_hf(vit_model(), None, tmp_path / "model")
    (document,) = run("./model", "--to", "96x160")
    STRICT.validate(document)
    assert document["config_edits"]
    assert document["copied"]["files"] + document["copied"]["linked"] > 0


def test_jobs_of_a_batch_are_described_failed_ones_too(run: Any, tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    write_safetensors(tmp_path / "zoo" / "a.safetensors", vit())
    (tmp_path / "zoo" / "b.safetensors").write_bytes(b"nothing of the kind")
    jobs = [
        document
        for document in run("batch", "zoo", "--to", "96", "-o", "out", "-j", "1")
        if document["schema"] == "resize-pos/report/1"
    ]
    assert {job["status"] for job in jobs} == {"resized", "failed"}
    for job in jobs:
        STRICT.validate(job)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["verdict"], "excellent"),
        (["status"], "done"),
        (["tables", 0, "measures", "norm_ratio"], "0.98"),
        (["tables", 0, "to"], {"rows": 1, "shape": [1]}),
        (["tables", 0, "from", "grid"], [4]),
        (["sha256"], "none"),
        (["copied", "bytes"], -1),
    ],
)
def test_a_wrong_document_is_refused(path: list[Any], value: Any, run: Any, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "vit.safetensors", vit())
    (document,) = run("vit.safetensors", "--to", "96x160")
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not Draft202012Validator(SCHEMA).is_valid(document)
