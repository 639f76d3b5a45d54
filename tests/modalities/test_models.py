"""Every model of docs/modalities.md is converted by its command and loads strictly at two sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from resize_pos.cli.resize import command
from tests.modalities.models import MODELS, Model, State, text
from tests.modalities.page import HEAD, PAGE, row

BY_NAME = {model.name: model for model in MODELS}


def stored(state: State) -> torch.nn.Module:
    """Make a module that stores these tensors, so that torch itself compares names and shapes."""
    root = torch.nn.Module()
    for name, tensor in state.items():
        *path, last = name.split(".")
        at = root
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, torch.nn.Module())
            at = getattr(at, part)
        at.register_buffer(last, torch.empty_like(tensor))
    return root


@pytest.mark.parametrize("name", BY_NAME)
def test_it_loads_strictly_at_two_sizes(name: str, tmp_path: Path) -> None:
    model, source = BY_NAME[name], tmp_path / "model.safetensors"
    before = model.state(model.sizes[0])
    save_file(before, source)
    for target in model.sizes[1:]:
        expected, output = model.state(target), tmp_path / f"{text(target)}.safetensors"
        flags = [*model.flags(model.sizes[0], target), "-o", str(output)]
        said = CliRunner().invoke(command, [str(source), *flags])
        assert said.exit_code == 0, said.output
        changed = {key for key, tensor in expected.items() if tensor.shape != before[key].shape}
        assert ("nothing to do" in said.output) == (not changed), said.output
        after = load_file(output)  # a file without anything to do is copied
        stored(expected).load_state_dict(after, strict=True)
        kept = [key for key in before if key not in changed and not key.endswith("_index")]
        assert all(torch.equal(before[key], after[key]) for key in kept)
    assert row(model) in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_lists_each_model_once() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEAD.splitlines()[1]) + 1
    assert lines[start : start + len(MODELS)] == [row(model) for model in MODELS]


def test_dasheng_keeps_its_mel_bins(tmp_path: Path) -> None:
    """Its mel filters do not depend on the length; a norm has one value for each mel bin."""
    model = BY_NAME["Dasheng"]
    filters = {"front_end.0.spectrogram.window": torch.rand(512)}
    filters["front_end.0.mel_scale.fb"] = torch.rand(257, 64)
    source, output = tmp_path / "model.safetensors", tmp_path / "new.safetensors"
    save_file(model.state(model.sizes[0]) | filters, source)
    said = CliRunner().invoke(command, [str(source), "--to-time", "504", "-o", str(output)])
    assert said.exit_code == 0, said.output
    after = load_file(output)
    assert all(torch.equal(after[name], value) for name, value in filters.items())
    more = [
        str(source),
        "--to-time",
        "504",
        "--to-mel",
        "96",
        "-o",
        str(tmp_path / "no.safetensors"),
    ]
    said = CliRunner().invoke(command, more)
    assert said.exit_code == 1
    assert "one value for each of 64 mel bins" in str(said.exception)
    assert not (tmp_path / "no.safetensors").exists()


def test_a_computed_index_is_the_library_s_own(tmp_path: Path) -> None:
    """FasterViT's offsets and index at the new size, held against those that it built itself."""
    model: Model = BY_NAME["FasterViT"]
    source, target = model.sizes[0], model.sizes[1]
    save_file(model.state(source), tmp_path / "f.safetensors")
    output = tmp_path / "new.safetensors"
    flags = [*model.flags(source, target), "-o", str(output)]
    assert CliRunner().invoke(command, [str(tmp_path / "f.safetensors"), *flags]).exit_code == 0
    expected, after = model.state(target), load_file(output)
    computed = [name for name in expected if name.endswith(("coords_table", "position_index"))]
    assert len(computed) == 10
    for name in computed:
        torch.testing.assert_close(after[name], expected[name], rtol=0, atol=1e-6)
    caches = [name for name in after if "hat_" in name and name.endswith("relative_bias")]
    assert caches and not any(after[name].any() for name in caches)
