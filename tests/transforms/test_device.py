from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given

from resize_pos.core.axes import Layout
from resize_pos.core.conventions import Resampling
from resize_pos.core.devices import check_device
from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.core.geometry import Grid
from resize_pos.transforms import device as module
from resize_pos.transforms.absolute import resize_absolute, resize_grid
from resize_pos.transforms.device import (
    available_devices,
    precision_of,
    resize_grid_on,
    resolve_device,
)
from tests.support.strategies import LAW, grids, resamplings

CPU = torch.device("cpu")


@LAW
@given(grids(), grids(), resamplings())
def test_torch_gives_what_numpy_gives(source: Grid, target: Grid, resampling: Resampling) -> None:
    grid = np.random.default_rng(source.cells).normal(size=(2, source.height, source.width, 3))
    there = resize_grid_on(grid, target, resampling, CPU)
    assert there.dtype == np.float64
    assert there.flags.c_contiguous
    np.testing.assert_allclose(there, resize_grid(grid, target, resampling), rtol=0, atol=1e-12)


def test_single_precision_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "precision_of", lambda _: torch.float32)
    grid = np.random.default_rng(0).normal(size=(1, 5, 9, 4))
    there = resize_grid_on(grid, Grid(8, 6), Resampling(), CPU)
    deviation = np.abs(there - resize_grid(grid, Grid(8, 6), Resampling())).max()
    assert 1e-12 < deviation < 1e-5


def test_a_table_goes_through_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def resolve(text: str) -> torch.device:
        asked.append(text)
        return CPU

    monkeypatch.setattr(module, "resolve_device", resolve)
    table = np.random.default_rng(0).normal(size=(1, 46, 4)).astype(np.float32)
    geometry = (Layout.parse("1 (p h w s) d"), 1, Grid(5, 9), 0, Grid(8, 6), Resampling())
    there = resize_absolute(table, *geometry, device="cuda:3")
    assert asked == ["cuda:3"]
    assert there.dtype == np.float32
    np.testing.assert_allclose(there, resize_absolute(table, *geometry), rtol=1e-6, atol=1e-7)


def test_only_metal_is_short_of_float64() -> None:
    precisions = {name: precision_of(torch.device(name)) for name in ("cpu", "cuda:1", "mps")}
    assert precisions == {"cpu": torch.float64, "cuda:1": torch.float64, "mps": torch.float32}


@pytest.mark.parametrize("text", ["cpu", "cuda", "cuda:0", "cuda:12", "mps"])
def test_device_names(text: str) -> None:
    check_device(text)


@pytest.mark.parametrize(
    "text", ["", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "mps:0", "cuda:1 ", "cuda\n"]
)
def test_malformed_devices_are_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a known device") as caught:
        resolve_device(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint == "use cpu, cuda, cuda:N or mps."


@pytest.mark.parametrize("text", ["cuda:2", "mps"])
def test_an_absent_device_is_named_with_what_there_is(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert available_devices() == ["cpu", "cuda:0", "cuda:1"]
    with pytest.raises(ResizePosError, match=r"sees cpu, cuda:0, cuda:1\.") as caught:
        resolve_device(text)
    assert caught.value.exit_code == 1
    assert caught.value.message.startswith(f"device {text} is not available")
    assert [str(resolve_device(present)) for present in ("cuda", "cuda:1")] == ["cuda", "cuda:1"]


def test_without_a_gpu_cuda_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ResizePosError, match="device cuda is not available"):
        resize_grid(np.ones((1, 2, 3, 1)), Grid(3, 2), Resampling(), device="cuda")


def test_running_out_of_memory_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> NoReturn:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "einsum", fail)
    with pytest.raises(ResizePosError, match=r"too little free memory .* \[1, 5, 9, 4\] to 8×6"):
        resize_grid_on(np.ones((1, 5, 9, 4)), Grid(8, 6), Resampling(), CPU)
