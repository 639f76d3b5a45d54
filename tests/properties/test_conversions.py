"""Laws of whole conversions: any layout, container, type and pair of grids.

Expected values come from dense matrices, not from the code that applies them.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import safe_open

import resize_pos
from resize_pos.core.conventions import Method, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.transforms.kernels import operator
from tests.support.builders import smooth, write_safetensors

LAW = settings(deadline=None, max_examples=25)  # no deadline: a slow machine breaks no law

CONTAINERS = ("safetensors", "torch", "npz", "sharded")
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
EPSILON = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
OTHERS: dict[str, NDArray[Any]] = {
    "head.weight": np.arange(7 * 3, dtype=np.int64).reshape(7, 3),
    "norm.bias": np.linspace(-1, 1, 5, dtype=np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
# How the rows of a table (before, grid, after, channels) lie in the file.
AXES = ("1 (p h w s) d", "(p h w s) d", "1 h w d", "1 d h w")


class Table(NamedTuple):
    """A table that hypothesis invented."""

    axes: str
    grid: Grid
    prefix: int
    suffix: int
    dtype: str

    @property
    def rows(self) -> bool:
        """Whether the layout has room for rows before and after the grid."""
        return "p" in self.axes

    def array(self, channels: int = 3, seed: int = 0) -> NDArray[Any]:
        rng = np.random.default_rng(seed)
        cells = smooth(self.grid.height, self.grid.width, channels, seed)
        if not self.rows:
            laid = cells[None] if self.axes.endswith("d") else cells.transpose(2, 0, 1)[None]
        else:
            before, after = (rng.normal(size=(n, channels)) for n in (self.prefix, self.suffix))
            laid = np.concatenate([before, cells.reshape(-1, channels), after])
            laid = laid[None] if self.axes.startswith("1") else laid
        return np.ascontiguousarray(laid.astype(DTYPES[self.dtype]))

    def cells(self, array: NDArray[Any], grid: Grid) -> NDArray[np.float64]:
        """Return the grid of a table as height × width × channels."""
        values: NDArray[np.float64] = array.astype(np.float64)
        if not self.rows:
            inner: NDArray[np.float64] = values[0]
            return inner if self.axes.endswith("d") else inner.transpose(1, 2, 0)
        flat = values.reshape(-1, values.shape[-1])
        flat = flat[self.prefix : len(flat) - self.suffix]
        return flat.reshape(grid.height, grid.width, -1)

    def rest(self, array: NDArray[Any]) -> bytes:
        """Return the bytes of the rows around the grid."""
        if not self.rows:
            return b""
        flat = array.reshape(-1, array.shape[-1])
        return flat[: self.prefix].tobytes() + flat[len(flat) - self.suffix :].tobytes()

    def options(self, target: Grid) -> dict[str, Any]:
        rows = {"prefix": self.prefix, "suffix": self.suffix} if self.rows else {}
        return {
            "pattern": r"my_table$",
            "axes": self.axes,
            "from_grid": str(self.grid).replace("×", "x"),
            "to_grid": str(target).replace("×", "x"),
            **rows,
        }


def grids() -> st.SearchStrategy[Grid]:
    return st.builds(Grid, st.integers(2, 9), st.integers(2, 9)).filter(
        lambda grid: grid.height != grid.width
    )


tables = st.builds(
    Table,
    st.sampled_from(AXES),
    grids(),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(sorted(DTYPES)),
)


def write(container: str, folder: Path, table: NDArray[Any]) -> Path:
    arrays: dict[str, NDArray[Any]] = {
        "first": OTHERS["norm.bias"],
        "model.my_table": table,
        **OTHERS,
    }
    if container == "safetensors":
        return write_safetensors(folder / "a.safetensors", arrays, {"format": "pt"})
    if container == "npz":
        named: Any = arrays
        np.savez(folder / "a.npz", **named)
        return folder / "a.npz"
    if container == "torch":
        torch.save({name: _tensor(array) for name, array in arrays.items()}, folder / "a.pth")
        return folder / "a.pth"
    path = folder / "a"
    path.mkdir()
    homes = {name: f"model-{n:05}-of-00005.safetensors" for n, name in enumerate(arrays, 1)}
    for name, home in homes.items():
        write_safetensors(path / home, {name: arrays[name]})
    index = {"metadata": {}, "weight_map": homes}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Load an output with the library that it belongs to."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    if path.suffix == ".pth":
        loaded = torch.load(path, weights_only=True)
        return {name: _array(tensor) for name, tensor in loaded.items()}
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found: dict[str, NDArray[Any]] = {}
    for file in files:
        with safe_open(file, "pt") as opened:
            found |= {name: _array(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
    return found


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype is torch.bfloat16:
        words: NDArray[Any] = tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return words
    array: NDArray[Any] = tensor.numpy()
    return array


def dense(source: int, target: int, resampling: Resampling) -> NDArray[np.float64]:
    built = operator(source, target, resampling)
    matrix = np.zeros((target, source))
    for row, (indices, weights) in enumerate(zip(built.indices, built.weights, strict=True)):
        np.add.at(matrix[row], indices, weights)
    return matrix


def resampled(cells: NDArray[np.float64], target: Grid, how: Resampling) -> NDArray[np.float64]:
    tall = dense(cells.shape[0], target.height, how)
    wide = dense(cells.shape[1], target.width, how)
    values: NDArray[np.float64] = np.einsum("ij,jkc,lk->ilc", tall, cells, wide)
    return values


def container_for(table: Table, wanted: str) -> str:
    """NumPy's archives have no bfloat16."""
    return "torch" if wanted == "npz" and table.dtype == "bf16" else wanted


@LAW
@given(tables, grids(), st.sampled_from(CONTAINERS), st.sampled_from(list(Method)), st.booleans())
def test_a_conversion(
    table: Table, target: Grid, wanted: str, method: Method, antialias: bool
) -> None:
    """The dry run's plan is the real one's; untouched bytes stay; values are the operator's."""
    antialias = antialias and method is not Method.NEAREST  # where it is refused
    with tempfile.TemporaryDirectory() as folder:
        source = write(container_for(table, wanted), Path(folder), table.array())
        options = {**table.options(target), "method": method.value, "antialias": antialias}
        planned = resize_pos.resize_checkpoint(source, dry_run=True, **options)
        done = resize_pos.resize_checkpoint(source, **options)
        assert planned.plan == done.plan
        if target == table.grid:
            assert done.output is None
            return
        assert planned.output == done.output is not None
        before, after = read(source), read(done.output)
    assert list(before) == list(after)
    for name in before.keys() - {"model.my_table"}:
        assert before[name].dtype == after[name].dtype
        assert before[name].tobytes() == after[name].tobytes()
    old, new = before["model.my_table"], after["model.my_table"]
    assert new.dtype == old.dtype
    assert table.rest(new) == table.rest(old)
    expected = resampled(table.cells(old, table.grid), target, Resampling(method, antialias))
    largest = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(
        table.cells(new, target), expected, rtol=0, atol=1.01 * EPSILON[table.dtype] * largest
    )


@LAW
@given(tables, st.sampled_from(CONTAINERS))
def test_the_same_size_is_the_identity(table: Table, wanted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = write(container_for(table, wanted), Path(folder), table.array())
        out = Path(folder) / f"out{source.suffix}"
        report = resize_pos.resize_checkpoint(source, output=out, **table.options(table.grid))
        assert report.output == out
        files = [(p, out / p.relative_to(source)) for p in source.rglob("*") if p.is_file()]
        for one, other in files or [(source, out)]:
            assert one.read_bytes() == other.read_bytes()


@LAW
@given(tables, grids(), st.sampled_from(CONTAINERS))
def test_there_and_back_is_within_the_operators_bound(
    table: Table, target: Grid, wanted: str
) -> None:
    """A→B→A moves a table by ‖(R_BA·R_AB − I)·x‖ and the two roundings, not by more."""
    how = Resampling()
    with tempfile.TemporaryDirectory() as folder:
        source = write(container_for(table, wanted), Path(folder), table.array())
        if target == table.grid:
            return
        there = resize_pos.resize_checkpoint(source, **table.options(target))
        assert there.output is not None
        back = Path(folder) / f"back{source.suffix}"
        options = table._replace(grid=target).options(table.grid)
        resize_pos.resize_checkpoint(there.output, output=back, **options)
        before, after = read(source)["model.my_table"], read(back)["model.my_table"]
    x, y = table.cells(before, table.grid), table.cells(after, table.grid)
    middle = resampled(x, target, how)
    bound = np.abs(resampled(middle, table.grid, how) - x).max()
    gain = np.prod(
        [
            np.abs(dense(b, a, how)).sum(1).max()
            for a, b in zip(
                (table.grid.height, table.grid.width), (target.height, target.width), strict=True
            )
        ]
    )
    rounding = EPSILON[table.dtype] * (np.abs(middle).max() * gain + np.abs(y).max())
    assert np.abs(y - x).max() <= bound + 1.01 * rounding + 1e-12
    assert table.rest(after) == table.rest(before)
