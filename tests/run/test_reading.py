"""What a run reads: every config file once, every table that changes once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from resize_pos import resize_checkpoint
from resize_pos.configs import read as configs_read
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.containers.torch.stored_tensors import TorchContainer
from resize_pos.run import job
from tests.support.builders import vit, write_safetensors


def model_folder(folder: Path) -> Path:
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", vit(4, 6))
    config = {"model_type": "vit", "image_size": [64, 96], "patch_size": 16}
    (folder / "config.json").write_text(json.dumps(config))
    processor = {"size": {"height": 64, "width": 96}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.mark.parametrize("lone", [False, True])
def test_a_run_parses_every_config_file_once(
    lone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "model")
    parsed: Counter[str] = Counter()
    original = configs_read._read_object

    def counting(path: Path) -> Any:
        if path.is_file():
            parsed[f"{'source' if path.parent == folder else 'output'} {path.name}"] += 1
        return original(path)

    monkeypatch.setattr(configs_read, "_read_object", counting)
    source = folder / "model.safetensors" if lone else folder
    output = tmp_path / ("new.safetensors" if lone else "new")
    resize_checkpoint(source, to="96x64", output=output)
    expected = {"source config.json": 1, "source preprocessor_config.json": 1}
    if not lone:  # the new configs are read back, for the check
        expected |= {"output config.json": 1, "output preprocessor_config.json": 1}
    assert parsed == expected


def test_a_table_that_was_read_for_the_digest_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_safetensors(tmp_path / "source.safetensors", vit(4, 6))
    read: Counter[str] = Counter()
    original = SafetensorsFile.read

    def counting(self: SafetensorsFile, name: str) -> Any:
        read[f"{self.path.name == source.name} {name}"] += 1
        return original(self, name)

    monkeypatch.setattr(SafetensorsFile, "read", counting)
    resize_checkpoint(source, to="96x64", from_="64x96", output=tmp_path / "new.safetensors")
    assert read["True pos_embed"] == 0
    assert read["False pos_embed"] == 1  # the output's, for the check


def test_optimizer_state_is_not_searched_for_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training checkpoint holds two copies of every weight; reading them takes seconds."""
    model = {name: torch.from_numpy(values) for name, values in vit(4, 6).items()}
    model |= {"foo.weight": torch.randn(97, model["pos_embed"].shape[-1])}  # not a layer's shape
    state = {
        number: {"step": torch.tensor(9.0), "exp_avg": each.clone(), "exp_avg_sq": each.square()}
        for number, each in enumerate(model.values())
    }
    groups = [{"lr": 1e-4, "params": list(state)}]
    source = tmp_path / "training.pth"
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": groups}}, source)
    read: set[str] = set()
    original = TorchContainer.read

    def noting(self: TorchContainer, name: str) -> Any:
        read.add(name)
        return original(self, name)

    monkeypatch.setattr(TorchContainer, "read", noting)
    new, leave = tmp_path / "new.pth", r"foo\.weight$"
    resize_checkpoint(source, to="96x64", from_="64x96", leave=leave, output=new)
    number = list(model).index("pos_embed")
    states = {f"optimizer.state.{number}.{name}" for name in ("exp_avg", "exp_avg_sq")}
    assert {name for name in read if name.startswith("optimizer")} == states


@pytest.mark.parametrize("broken", ["measured", "_sha256", "check_output"])
def test_nothing_that_can_fail_runs_after_the_rename(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_safetensors(tmp_path / "source.safetensors", vit(4, 6))
    output = tmp_path / "new.safetensors"
    output.write_bytes(b"the old target")

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError(f"{broken} is broken")

    from resize_pos.run import compute
    from resize_pos.verify import output_check

    owners: dict[str, Any] = {
        "measured": compute,
        "_sha256": job,
        "check_output": output_check,
    }
    monkeypatch.setattr(owners[broken], broken, fail)
    with pytest.raises(ValueError, match="is broken"):
        resize_checkpoint(source, to="96x64", from_="64x96", output=output, force=True)
    assert output.read_bytes() == b"the old target"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.safetensors", "source.safetensors"]


def test_the_digest_is_that_of_the_stored_bytes(tmp_path: Path) -> None:
    tensors = vit(4, 6)
    source = write_safetensors(tmp_path / "source.safetensors", tensors)
    report = resize_checkpoint(
        source, to="96x64", from_="64x96", output=tmp_path / "new.safetensors"
    )
    import hashlib

    from resize_pos.containers.detect import open_container

    table = tensors["pos_embed"]
    named = f"pos_embed\0F32\0{table.shape}\0".encode()
    digest = hashlib.sha256(named + np.ascontiguousarray(table).tobytes()).hexdigest()
    assert report.output is not None
    note = json.loads(open_container(report.output).metadata["resize_pos"])
    assert note["source"] == f"sha256:{digest}"
