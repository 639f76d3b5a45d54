"""`verify` of files that hold the same weights in different entries: `state_dict.x` and `x`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.ways.damage import DAMAGE, honest
from resize_pos.api import compare_checkpoints, resize_checkpoint, verify_checkpoint
from resize_pos.quality.checks import Level
from resize_pos.report.verify_report import Verified
from tests.cli.test_cli import run
from tests.support.builders import vit, write_safetensors

__all__ = ["run"]  # the fixture is used by its name

SOURCE, TARGET = (9, 14), (12, 21)
Tensors = dict[str, NDArray[Any]]


def store(path: Path, tensors: Tensors, *entries: str, **more: Any) -> Path:
    """Store tensors below entries, such as `state_dict` and `module`."""
    import torch

    weights: dict[str, Any] = {name: torch.from_numpy(a) for name, a in tensors.items()}
    for entry in entries[1:]:
        weights = {f"{entry}.{name}": tensor for name, tensor in weights.items()}
    whole = {entries[0]: weights} if entries else weights
    torch.save({**whole, **more}, path)
    return path


def verify(output: Path, source: Path) -> Verified:
    return verify_checkpoint(output, source, from_grid="9x14", to_grid="12x21")


def resized(tensors: Tensors, how: str = "") -> Tensors:
    table = tensors["pos_embed"][0]
    made = DAMAGE[how](table, 1, SOURCE, TARGET) if how else honest(table, 1, SOURCE, TARGET)
    return {**tensors, "pos_embed": made[None]}


@pytest.fixture
def tensors() -> Tensors:
    return vit(*SOURCE, patch=8, channels=48)


@pytest.mark.parametrize("theirs", [(), ("state_dict",), ("model", "module")])
@pytest.mark.parametrize("ours", [(), ("state_dict",), ("state_dict", "module")])
def test_the_entry_makes_no_difference(
    ours: tuple[str, ...], theirs: tuple[str, ...], tensors: Tensors, tmp_path: Path
) -> None:
    source = store(tmp_path / "source.pth", tensors, *theirs)
    output = store(tmp_path / "output.pth", resized(tensors), *ours)
    found = verify(output, source)
    assert found.verdict is Level.OK, str(found)
    assert found.against is not None
    assert found.against.untouched.tensors == len(tensors) - 1
    botched = store(tmp_path / "botched.pth", resized(tensors, "swapped"), *ours)
    assert verify(botched, source).verdict is Level.FAIL


def test_the_weights_are_chosen_out_of_several_entries(tensors: Tensors, tmp_path: Path) -> None:
    import torch

    source = store(tmp_path / "source.pth", tensors)
    averaged = {name: torch.from_numpy(array) for name, array in tensors.items()}
    output = store(tmp_path / "output.pth", resized(tensors), "model", "module", ema=averaged)
    found = verify(output, source)
    assert found.against is not None
    (note,) = found.against.configs
    assert found.against.untouched.tensors == len(tensors) - 1
    assert note.detail == "output.pth: only its entry model.module was compared"


def test_the_states_of_optimizers_do_not_count(tensors: Tensors, tmp_path: Path) -> None:
    import torch

    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    state = optimizer.state_dict()
    source = store(tmp_path / "source.pth", tensors, "model", optimizer=state)
    output = store(tmp_path / "output.pth", resized(tensors), "state_dict", optimizer=state)
    assert verify(output, source).verdict is Level.OK


def test_a_part_of_the_model_is_no_entry(tensors: Tensors, tmp_path: Path) -> None:
    made = {f"encoder_{name}": array for name, array in resized(tensors).items()}
    found = verify(
        write_safetensors(tmp_path / "output.safetensors", made),
        write_safetensors(tmp_path / "source.safetensors", tensors),
    )
    assert found.verdict is Level.FAIL


def test_a_changed_tensor_is_found_in_an_entry(tensors: Tensors, tmp_path: Path) -> None:
    source = store(tmp_path / "source.pth", tensors, "state_dict")
    tensors["norm.bias"] = tensors["norm.bias"] + np.float16(1)
    output = write_safetensors(tmp_path / "output.safetensors", resized(tensors))
    found = verify(output, source)
    assert found.against is not None
    assert found.against.untouched.differing == ("norm.bias",)


def test_what_this_tool_made_in_another_format_is_sound(tensors: Tensors, tmp_path: Path) -> None:
    source = store(tmp_path / "source.pth", tensors, "state_dict", epoch=3)
    output = tmp_path / "output.safetensors"
    resize_checkpoint(source, output=output, from_grid="9x14", to_grid="12x21", drop_extras=True)
    found = verify_checkpoint(output, source)
    assert found.verdict is Level.OK, str(found)
    assert found.against is not None
    words = [check.detail for check in found.against.configs]
    assert words == ["source.pth: only its entry state_dict was compared"]


def test_a_report_shows_the_table_of_an_entry(tensors: Tensors, tmp_path: Path, run: Any) -> None:
    source = store(tmp_path / "source.pth", tensors, "state_dict")
    output = write_safetensors(tmp_path / "output.safetensors", resized(tensors))
    page = tmp_path / "page.html"
    grids = ("--from-grid", "9x14", "--to-grid", "12x21")
    done = run("verify", str(output), "--against", str(source), *grids, "--report", str(page))
    assert done.code == 0, done.out
    assert page.read_text(encoding="utf-8").count("<svg") >= 1


def test_files_with_other_entries_are_compared(tensors: Tensors, tmp_path: Path) -> None:
    source = store(tmp_path / "source.pth", tensors, "state_dict")
    plain = write_safetensors(tmp_path / "plain.safetensors", resized(tensors))
    nested = store(tmp_path / "nested.pth", resized(tensors, "swapped"), "model", "module")
    found = compare_checkpoints(source, plain, nested, from_grid="9x14", to_grid="12x21")
    (table,) = found.tables
    assert [side.verdict for side in table.sides] == [Level.OK, Level.FAIL]


def test_weights_of_another_model_fail(tensors: Tensors, tmp_path: Path) -> None:
    source = store(tmp_path / "source.pth", tensors, "state_dict")
    other: Tensors = {f"other_{name}": array for name, array in resized(tensors).items()}
    output = write_safetensors(tmp_path / "output.safetensors", other)
    found = verify(output, source)
    assert found.against is not None
    assert set(found.against.untouched.missing) == {f"state_dict.{name}" for name in tensors}
    assert found.verdict is Level.FAIL
