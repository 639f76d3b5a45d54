"""Bytes that are copied while the tables are computed: the same file, and nothing half done."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from resize_pos import resize_checkpoint
from resize_pos.containers.base import Promised
from resize_pos.containers.detect import open_container
from resize_pos.containers.io.splice import PAGE, STRIDE
from resize_pos.containers.pickle import walk as pickle_walk
from resize_pos.containers.pickle.walk import Walked
from resize_pos.containers.torch import archive
from resize_pos.core.background import Beside
from resize_pos.core.errors import TableError
from tests.support.torch_files import save, state_dict


def tied() -> dict[str, Any]:
    tensors = state_dict()
    return {"model": tensors, "ema": {"pos_embed": tensors["pos_embed"]}}


FILES: dict[str, Any] = {
    "plain.safetensors": lambda path: save_file(state_dict(), path),
    "plain.pth": lambda path: save(path, state_dict()),
    "tied.pth": lambda path: save(path, tied()),
    "protocol4.pth": lambda path: save(path, {"model": state_dict()}, protocol=4),
}


def changes(path: Path) -> dict[str, Any]:
    """Every position table of a file, one row longer."""
    container = open_container(path)
    names = [name for name in container.tensors if name.endswith("pos_embed")]
    assert names
    return {name: np.pad(container.read(name), ((0, 0), (0, 1), (0, 0))) for name in names}


@pytest.mark.parametrize("name", FILES)
def test_an_early_writer_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    container, new = open_container(tmp_path / name), changes(tmp_path / name)
    container.write(tmp_path / "plain", new, {"note": "x"})
    gate = threading.Event()

    def wait() -> dict[str, Any]:
        gate.wait()
        return new

    shapes = {key: array.shape for key, array in new.items()}
    with Beside(wait) as awaited:
        threading.Timer(0.01, gate.set).start()
        promised = Promised(shapes, awaited.result, lambda: awaited.failed)
        container.write_early(tmp_path / "early", promised, {"note": "x"})
    assert (tmp_path / "early").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_a_table_that_cannot_be_computed_stops_the_copy(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    container, new = open_container(tmp_path / name), changes(tmp_path / name)

    def wait() -> dict[str, Any]:
        raise TableError("pos_embed holds 1 values that are NaN.")

    promised = Promised({key: array.shape for key, array in new.items()}, wait, lambda: True)
    with pytest.raises(TableError, match="NaN"):
        container.write_early(tmp_path / "early", promised, {})


@pytest.mark.parametrize("name", FILES)
def test_a_table_of_another_type_is_refused(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    container = open_container(tmp_path / name)
    new = {key: array.astype(np.float16) for key, array in changes(tmp_path / name).items()}
    with pytest.raises(TableError, match="stored as F32"):
        container.write_early(tmp_path / "early", Promised.kept(new), {})


def test_a_torch_file_written_early_is_sound(tmp_path: Path) -> None:
    FILES["plain.pth"](tmp_path / "a.pth")
    container, new = open_container(tmp_path / "a.pth"), changes(tmp_path / "a.pth")
    container.write_early(tmp_path / "b.pth", Promised.kept(new), {})
    torch._C.PyTorchFileReader(str(tmp_path / "b.pth"))  # checks the archive's directory
    loaded = torch.load(tmp_path / "b.pth", weights_only=True)
    np.testing.assert_array_equal(loaded["pos_embed"].numpy(), new["pos_embed"])


@pytest.mark.parametrize("name", ["plain.safetensors", "plain.pth"])
def test_a_conversion_does_not_wait_for_its_tables(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FILES[name](tmp_path / name)

    def late(*_: object) -> None:
        raise AssertionError("the copy waited for the tables")

    monkeypatch.setattr(type(open_container(tmp_path / name)), "write", late)
    report = resize_checkpoint(tmp_path / name, to_grid="6x10", from_grid="3x5")
    assert report.output is not None and report.output.exists()


def test_the_pickle_of_the_copy_is_taken_apart_while_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FILES["plain.pth"](tmp_path / "plain.pth")
    threads: list[threading.Thread] = []

    def walk(pickle: bytes, file_size: int | None = None) -> Walked:
        threads.append(threading.current_thread())
        return pickle_walk.walk(pickle, file_size)

    archive.parsed_pickle.cache_clear()
    monkeypatch.setattr(archive, "walk", walk)
    resize_checkpoint(tmp_path / "plain.pth", to_grid="6x10", from_grid="3x5")
    source, copy = threads
    assert source is threading.main_thread()
    assert copy is not source


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize(("size", "unit"), [(2**20, PAGE), (2**24 + 2**20, STRIDE)])
def test_the_bulk_keeps_its_place_within_a_page_or_a_stride(
    suffix: str, size: int, unit: int, tmp_path: Path
) -> None:
    bulk = bytes(range(251)) * (size // 251)
    tensors = {"bulk": torch.frombuffer(bytearray(bulk), dtype=torch.uint8), **state_dict()}
    path = tmp_path / f"model{suffix}"
    save_file(tensors, path) if suffix == ".safetensors" else save(path, tensors)
    report = resize_checkpoint(path, to_grid="6x10", from_grid="3x5")
    assert report.output is not None
    before, after = (file.read_bytes().index(bulk) for file in (path, report.output))
    assert (after - before) % unit == 0


def test_work_beside_gives_its_result_or_raises_what_it_raised() -> None:
    assert Beside(lambda: 3).result() == 3
    failing = Beside(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing.result()
    assert failing.failed


def test_leaving_waits_for_the_work() -> None:
    gate, done = threading.Event(), list[int]()

    def work() -> None:
        gate.wait()
        done.append(1)

    with pytest.raises(KeyError), Beside(work):
        gate.set()
        raise KeyError
    assert done == [1]
