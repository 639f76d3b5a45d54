"""The sample checkpoint is what its README says: trained, strict in timm, honest numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

FOLDER = Path(__file__).resolve().parents[2] / "sample_checkpoints"
SAMPLE = FOLDER / "digits_vit_224.safetensors"
SUBSET = 150

pytest.importorskip("sklearn")
sys.path.insert(0, str(FOLDER))
import digits  # noqa: E402
import evaluate  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = load_file(SAMPLE)
    return tensors


@pytest.fixture(scope="module")
def metadata() -> dict[str, str]:
    with safe_open(SAMPLE, framework="pt") as file:
        found: dict[str, str] = file.metadata()
    return found


def accuracy(state: dict[str, Tensor], height: int, width: int) -> float:
    _, _, images, labels = digits.load_split()
    model = digits.model_from_state(state, height, width)
    right = digits.count_correct(model, images[:SUBSET], labels[:SUBSET], height, width)
    return right / SUBSET


def resized(table: Tensor, height: int, width: int) -> Tensor:
    digits.build_model()  # declares what timm's import may need
    from timm.layers import resample_abs_pos_embed

    result: Tensor = resample_abs_pos_embed(
        table, [height, width], [14, 14], num_prefix_tokens=1
    ).contiguous()
    return result


@pytest.fixture
def wide(state: dict[str, Tensor], tmp_path: Path) -> Path:
    path = tmp_path / "digits_vit_256x192.safetensors"
    save_file({**state, "pos_embed": resized(state["pos_embed"], 16, 12)}, path, {"format": "pt"})
    return path


def test_file_is_small_and_says_what_it_is(metadata: dict[str, str]) -> None:
    assert SAMPLE.stat().st_size < 1_000_000
    assert metadata["format"] == "pt"
    assert "digits" in metadata["task"]


def test_loads_strictly_into_timm(state: dict[str, Tensor]) -> None:
    digits.build_model()  # declares what timm's import may need
    import timm

    model = timm.create_model(
        "vit_tiny_patch16_224", in_chans=1, num_classes=10, embed_dim=48, depth=4, num_heads=4
    )
    model.load_state_dict(state, strict=True)
    assert state["pos_embed"].shape == (1, 197, 48)
    assert all(tensor.dtype == torch.float32 for tensor in state.values())


def claims() -> dict[str, float]:
    """Size → accuracy in per cent, from the README's table of honest sizes."""
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+(?:×\d+)?) \| \d+×\d+ \| (\d+\.\d) % \|", readme, re.M)
    return {size: float(percent) for size, percent in rows}


def test_the_code_of_the_readme_runs(state: dict[str, Tensor]) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    digits.build_model()  # declares what timm's import may need
    import timm

    eval(code.strip(), {"timm": timm}).load_state_dict(state)
    (command,) = re.findall(r"^\$ .*", text, re.M)  # tests/docs/test_docs.py runs it
    assert command in (FOLDER.parent / "README.md").read_text(encoding="utf-8")


def test_readme_accuracy_is_the_recorded_one(metadata: dict[str, str]) -> None:
    assert claims()["224"] == pytest.approx(100 * float(metadata["test_accuracy"]), abs=0.06)


@pytest.mark.parametrize("size", ["160", "224", "288", "384", "256×192"])
def test_accuracy_without_fine_tuning(state: dict[str, Tensor], size: str) -> None:
    table = state["pos_embed"]
    edges = [int(edge) for edge in size.split("×")]
    height, width = edges[0], edges[-1]
    if size != "224":
        table = resized(table, height // 16, width // 16)
    found = 100 * accuracy({**state, "pos_embed": table}, height, width)
    assert found == pytest.approx(claims()[size], abs=3.0)


def test_split_holds_the_test_digits_out() -> None:
    train_x, train_y, test_x, test_y = digits.load_split()
    assert (len(train_x), len(test_x)) == (1347, 450)
    seen = {image.numpy().tobytes() for image in train_x}
    assert not any(image.numpy().tobytes() in seen for image in test_x)
    assert torch.bincount(test_y).min() >= 40
    assert train_y.dtype == torch.int64


def test_table_is_learned(state: dict[str, Tensor]) -> None:
    table = state["pos_embed"]
    assert digits.neighbour_cosine(table, 14, 14) > 0.5
    cells = table[0, 1:].double()
    cells = cells - cells.mean(0)
    spectrum = torch.linalg.eigvalsh(cells.T @ cells)
    rows, width = cells.shape
    participation = spectrum.sum() ** 2 / spectrum.square().sum() / (rows * width / (rows + width))
    assert participation < 0.3


@pytest.mark.parametrize("damage", ["zeroed", "shuffled", "swapped"])
def test_model_needs_its_table(state: dict[str, Tensor], damage: str) -> None:
    table = state["pos_embed"]
    if damage == "zeroed":
        broken = torch.zeros_like(table)
    else:
        cells = torch.arange(196)
        order = (
            cells.reshape(14, 14).T.flatten()
            if damage == "swapped"
            else torch.randperm(196, generator=torch.Generator().manual_seed(0))
        )
        broken = torch.cat([table[:, :1], table[:, 1:][:, order]], dim=1)
    assert accuracy({**state, "pos_embed": broken}, 224, 224) < 0.5


def test_evaluate_prints_the_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main([str(SAMPLE), "--limit", "50"]) == 0
    assert re.fullmatch(
        r"digits_vit_224\.safetensors: 224 px, 14×14 patches: "
        r"accuracy \d+\.\d % \(\d+ of 50 test digits\)\n",
        capsys.readouterr().out,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "192 cells, not a square grid; pass --size HxW"),
        (["--size", "256x208"], "256×208 px at patch 16 is a grid of 16×13; pos_embed has 192"),
    ],
)
def test_evaluate_refuses_an_unclear_grid(
    options: list[str], message: str, wide: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([str(wide), *options]) == 1
    assert message in capsys.readouterr().err


def test_evaluate_as_a_script_at_another_size(wide: Path) -> None:
    options = ["--size", "256x192", "--json", "--limit", "50", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "evaluate.py"), str(wide), *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["grid"] == [16, 12]
    assert result["total"] == 50
    assert result["accuracy"] == result["correct"] / 50 > 0.9
