from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from resize_pos.core.axes import Layout
from resize_pos.core.conventions import CONVENTIONS, Method, Resampling
from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import DTYPES, numpy_dtype
from resize_pos.transforms import absolute
from resize_pos.transforms.absolute import resize_absolute, resize_grid, round_once
from tests.oracle import interpolate
from tests.support.strategies import LAW, RESAMPLINGS, grids, resamplings

FLOATING = [name for name, dtype in DTYPES.items() if dtype.floating]
NARROW = [name for name in FLOATING if DTYPES[name].bits <= 16]


@dataclass(frozen=True)
class Case:
    """A table and what to make of it. Grids are not square, so that mistaking them shows."""

    pattern: str
    source: Grid
    target: Grid
    prefix: int = 0
    suffix: int = 0
    dtype: str = "F32"
    resampling: Resampling = CONVENTIONS["timm"].resampling

    def __str__(self) -> str:
        rows = f"{self.prefix}+{self.source}+{self.suffix} to {self.target}"
        return f"{self.pattern}, {rows}, {self.dtype}, {self.resampling}"

    @property
    def layout(self) -> Layout:
        return Layout.parse(self.pattern)

    def table(self) -> NDArray[Any]:
        """Draw a table of the source grid, in the stored dtype."""
        known = {"1": 1, "d": 6, "n": 3, "h": self.source.height, "w": self.source.width}
        rows = self.prefix + self.source.cells + self.suffix
        shape = [rows if isinstance(term, tuple) else known[term] for term in self.layout.terms]
        drawn = np.random.default_rng(rows).normal(size=shape)
        return drawn.astype(numpy_dtype(self.dtype))


_CLS = Case("1 (p h w s) d", Grid(5, 9), Grid(8, 6), prefix=1)
CASES = [
    _CLS,
    replace(_CLS, target=Grid(3, 17)),
    replace(_CLS, source=Grid(2, 8), target=Grid(4, 4)),  # as many cells, and still another grid
    replace(_CLS, source=Grid(9, 4), target=Grid(4, 9), prefix=2, suffix=3),
    replace(_CLS, source=Grid(4, 7), target=Grid(4, 11), prefix=5),
    Case("(p h w s) d", Grid(6, 3), Grid(9, 13), prefix=1, suffix=1),
    Case("(h w) d", Grid(7, 3), Grid(3, 5)),
    Case("1 n (p h w s) d", Grid(3, 7), Grid(5, 10), prefix=1, suffix=4),
    Case("1 h w d", Grid(6, 10), Grid(9, 7)),
    Case("1 d h w", Grid(10, 6), Grid(7, 8)),
    *(replace(_CLS, resampling=resampling) for resampling in RESAMPLINGS),
    *(replace(_CLS, dtype=dtype, suffix=2) for dtype in FLOATING),
]

Resizer = Callable[..., NDArray[Any]]
Rounder = Callable[[NDArray[np.float64], "np.dtype[Any]"], NDArray[Any]]


def check_resizer(resize: Resizer, case: Case) -> None:
    """Hold a resizer with the arguments of `resize_absolute` against torch in float64."""
    table, layout = case.table(), case.layout
    before = layout.unfold(table, case.prefix, case.source, case.suffix)
    result = resize(
        table, layout, case.prefix, case.source, case.suffix, case.target, case.resampling
    )
    assert result.dtype == table.dtype, "the dtype changed"
    expected_shape = layout.shape(table.shape, case.prefix, case.target, case.suffix)
    assert result.shape == expected_shape, "the shape is wrong"
    after = layout.unfold(result, case.prefix, case.target, case.suffix)
    assert after.prefix.tobytes() == before.prefix.tobytes(), "prefix rows changed"
    assert after.suffix.tobytes() == before.suffix.tobytes(), "suffix rows changed"
    exact = interpolate(before.grid.astype(np.float64), case.target, case.resampling)
    distance = np.abs(after.grid.astype(np.float64) - exact)
    assert np.all(distance <= least_distance(exact, table.dtype) + 1e-12), "grid values are off"


def least_distance(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Tell how far the nearest number of a dtype is from each value."""
    if dtype.itemsize > 2:
        spacing: NDArray[np.float64] = np.spacing(values.astype(dtype)).astype(np.float64)
        return np.abs(spacing) / 2
    stored = numbers(dtype).astype(np.float64)
    above = np.clip(np.searchsorted(stored, values), 1, len(stored) - 1)
    return np.minimum(np.abs(values - stored[above - 1]), np.abs(values - stored[above]))


def numbers(dtype: np.dtype[Any]) -> NDArray[Any]:
    """List all finite numbers of a dtype of at most 16 bits, ascending, zero once."""
    width = np.dtype(f"uint{8 * dtype.itemsize}")
    every = np.arange(2 ** (8 * dtype.itemsize), dtype=width).view(dtype)
    with np.errstate(invalid="ignore"):  # some are signalling NaNs
        wide = every.astype(np.float64)
    negative_zero = (wide == 0) & (every.view(width) != 0)
    kept = np.flatnonzero(np.isfinite(wide) & ~negative_zero)
    return every[kept[np.argsort(wide[kept], kind="stable")]]


def check_rounding(rounder: Rounder, dtype: np.dtype[Any]) -> None:
    """Try the middle between any two neighbours of a dtype, and what lies just beside it."""
    every = numbers(dtype)
    wide = every.astype(np.float64)
    middle = (wide[:-1] + wide[1:]) / 2
    odd = every.view(f"uint{8 * dtype.itemsize}")[:-1] & 1
    assert np.array_equal(rounder(wide, dtype).astype(np.float64), wide), "a number changed"
    tied = rounder(middle, dtype).astype(np.float64)
    assert np.array_equal(tied, np.where(odd, wide[1:], wide[:-1])), "a tie went to the odd one"
    for towards, side in ((-np.inf, wide[:-1]), (np.inf, wide[1:])):
        beside = rounder(np.nextafter(middle, towards), dtype).astype(np.float64)
        assert np.array_equal(beside, side), "rounded twice"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_resized_tables_are_the_nearest_to_the_exact_answer(case: Case) -> None:
    check_resizer(resize_absolute, case)


@pytest.mark.parametrize("name", NARROW)
def test_rounding_to_narrow_dtypes_happens_once(name: str) -> None:
    check_rounding(round_once, numpy_dtype(name))


@LAW
@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([-1, 0, 1]))
def test_rounding_to_float32_happens_once(low: float, side: int) -> None:
    assume(low < float(np.finfo(np.float32).max))
    high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
    middle = low / 2 + high / 2
    value = middle if side == 0 else float(np.nextafter(middle, side * np.inf))
    rounded = float(round_once(np.array([value]), np.dtype(np.float32))[0])
    even = low if np.float32(low).view(np.uint32) % 2 == 0 else high
    assert rounded == {-1: low, 0: even, 1: high}[side]


def call(case: Case, table: NDArray[Any]) -> NDArray[Any]:
    geometry = (case.prefix, case.source, case.suffix, case.target)
    return resize_absolute(table, case.layout, *geometry, case.resampling)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_grid_is_the_same_array(case: Case) -> None:
    table = case.table()
    assert call(replace(case, target=case.source), table) is table


def test_equal_cell_counts_are_still_two_grids() -> None:
    case = replace(_CLS, source=Grid(2, 8), target=Grid(4, 4))
    table = case.table()
    result = call(case, table)
    assert result.shape == table.shape
    assert not np.array_equal(result[:, 1:], table[:, 1:])


@LAW
@given(
    grids(), grids(), resamplings(), st.sampled_from([0.02, -1.5, 3e-5]), st.sampled_from(NARROW)
)
def test_a_constant_stays_constant(
    source: Grid, target: Grid, resampling: Resampling, value: float, dtype: str
) -> None:
    table = np.full((source.cells, 2), value).astype(numpy_dtype(dtype))
    result = resize_absolute(table, Layout.parse("(h w) d"), 0, source, 0, target, resampling)
    assert np.all(result == table[0, 0])


@LAW
@given(grids(), grids(), resamplings())
def test_a_transposed_grid_gives_the_transposed_result(a: Grid, b: Grid, r: Resampling) -> None:
    grid = np.random.default_rng(a.cells).normal(size=(1, a.height, a.width, 3))
    turned = resize_grid(grid.swapaxes(1, 2), Grid(b.width, b.height), r)
    np.testing.assert_allclose(turned.swapaxes(1, 2), resize_grid(grid, b, r), rtol=0, atol=1e-13)


@LAW
@given(grids(), grids(), resamplings())
def test_channels_and_copies_do_not_mix(source: Grid, target: Grid, r: Resampling) -> None:
    grid = np.random.default_rng(source.cells).normal(size=(3, source.height, source.width, 4))
    whole = resize_grid(grid, target, r)
    assert np.array_equal(resize_grid(grid[1:2, ..., 2:3], target, r), whole[1:2, ..., 2:3])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_request_gives_the_same_bytes(case: Case) -> None:
    assert call(case, case.table()).tobytes() == call(case, case.table()).tobytes()


def test_the_source_is_not_touched() -> None:
    table = _CLS.table()
    table.flags.writeable = False
    before = table.tobytes()
    result = call(_CLS, table)
    assert table.tobytes() == before
    assert result.flags.c_contiguous and not np.shares_memory(result, table)


def test_byte_order_and_strides_of_the_source_are_honoured() -> None:
    table = _CLS.table()
    expected = call(_CLS, table)
    swapped = call(_CLS, table.astype(">f4"))
    assert swapped.dtype == np.dtype(">f4")
    assert np.array_equal(swapped, expected)
    assert np.array_equal(call(_CLS, np.asfortranarray(table)), expected)


@pytest.mark.parametrize("dtype", FLOATING)
def test_prefix_rows_may_hold_any_bits(dtype: str) -> None:
    case = replace(_CLS, dtype=dtype)
    table = case.table()
    bits = table[0, 0].view(f"u{table.itemsize}")
    bits[:3] = [1 << (8 * table.itemsize - 1), np.iinfo(bits.dtype).max, 0]  # −0 or NaN; NaN; 0
    bits[3] = 0x7F81 << (8 * table.itemsize - 16) if table.itemsize > 1 else 0x7D  # signalling
    assert call(case, table)[0, 0].tobytes() == table[0, 0].tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "complex64"])
def test_what_cannot_be_interpolated_is_refused(dtype: str) -> None:
    with pytest.raises(TableError, match=f"a table of {dtype} cannot be interpolated"):
        call(_CLS, np.ones((1, 46, 6), dtype))


def test_broken_values_are_refused_with_their_count() -> None:
    table = _CLS.table()
    table[0, 5, :2] = [np.nan, np.inf]
    with pytest.raises(TableError, match="2 of 270 values are NaN or infinite"):
        call(_CLS, table)


def test_signalling_nans_are_counted_without_a_warning() -> None:
    case = replace(_CLS, dtype="BF16")
    table = case.table()
    table.view(np.uint16)[0, 7, 3] = 0x7F81
    with pytest.raises(TableError, match="1 of 270 values"):
        call(case, table)


OVERFLOWING = [
    ("float16", np.finfo(np.float16).max, "±65504 of float16"),
    ("float32", np.finfo(np.float32).max, r"±3\.40282e\+38 of float32"),
    ("float64", np.finfo(np.float64).max, r"±1\.79769e\+308 of float64"),
    ("bfloat16", ml_dtypes.finfo(ml_dtypes.bfloat16).max, r"±3\.38953e\+38 of bfloat16"),
    ("float8_e4m3fn", 448, "±448 of float8_e4m3fn"),
    ("float8_e5m2", 57344, "±57344 of float8_e5m2"),
    ("float8_e4m3fnuz", 240, "±240 of float8_e4m3fnuz"),
    ("float8_e5m2fnuz", 57344, "±57344 of float8_e5m2fnuz"),
]


@pytest.mark.parametrize(("name", "largest", "words"), OVERFLOWING)
def test_overshoot_beyond_the_dtype_is_refused(name: str, largest: Any, words: str) -> None:
    dtype = np.dtype(name)  # known to numpy once ml_dtypes is imported
    steps = np.where(np.arange(9) % 4 < 2, float(largest), -float(largest))
    table = np.broadcast_to(steps[None, :, None], (5, 9, 2)).reshape(45, 2).astype(dtype)
    layout, source, target = Layout.parse("(h w) d"), Grid(5, 9), Grid(5, 36)
    with pytest.raises(TableError, match=words) as caught:
        resize_absolute(table, layout, 0, source, 0, target, Resampling())
    assert "bilinear" in (caught.value.hint or "")
    bounded = resize_absolute(table, layout, 0, source, 0, target, Resampling(Method.BILINEAR))
    assert np.abs(bounded.astype(np.float64)).max() <= float(largest)


@pytest.mark.parametrize(
    ("shape", "pattern", "prefix", "words"),
    [
        ((1, 46, 6), "1 (p h w) d", 2, r"46 rows, not 2 \+ 5·9 \+ 0"),
        ((46, 6), "1 (p h w) d", 1, "2 axes where"),
        ((1, 9, 5, 6), "1 h w d", 0, "states the grid 9×5, not 5×9"),
        ((1, 2, 23, 6), "1 h w d", 1, "states the grid 2×23, not 5×9"),
    ],
)
def test_geometry_that_does_not_fit_is_refused(
    shape: tuple[int, ...], pattern: str, prefix: int, words: str
) -> None:
    case = replace(_CLS, pattern=pattern, prefix=prefix)
    with pytest.raises(GeometryError, match=words):
        call(case, np.ones(shape, np.float32))


def test_torch_is_not_imported() -> None:
    modules = ", ".join(
        f"resize_pos.transforms.{name}" for name in ("kernels", "absolute", "device")
    )
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'ml_dtypes' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("like", ["timm", "hf", "nearest"])
@pytest.mark.parametrize("target", [Grid(9, 8), Grid(8, 13), Grid(5, 9), Grid(3, 7), Grid(2, 4)])
def test_a_large_table_is_resized_row_by_row_to_the_same_bits(
    target: Grid, like: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.parse("(p t h w) d")
    how = Resampling(Method.NEAREST) if like == "nearest" else CONVENTIONS[like].resampling
    table = np.random.default_rng(0).normal(size=(2 + 3 * 35, 10)).astype(np.dtype(dtype))
    given = (table, layout, 2, Grid(5, 7), 0, target, how, "cpu")
    for frames in ((3, 3), (3, 4)):
        monkeypatch.setattr(absolute, "_BAND", 1 << 18)
        whole = resize_absolute(*given, frames)
        for band in (1, 2 * 3 * target.width * 10):  # one row at a time, and two
            monkeypatch.setattr(absolute, "_BAND", band)
            assert resize_absolute(*given, frames).tobytes() == whole.tobytes()


def test_an_overflow_in_a_large_table_is_counted_over_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout, how = Layout.parse("1 h w d"), CONVENTIONS["timm"].resampling
    table = np.full((1, 5, 7, 50), 65504, np.float16)
    table[:, ::2] = -65504
    messages = []
    for band in (1 << 18, 1):
        monkeypatch.setattr(absolute, "_BAND", band)
        with pytest.raises(TableError) as caught:
            resize_absolute(table, layout, 0, Grid(5, 7), 0, Grid(9, 8), how)
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
