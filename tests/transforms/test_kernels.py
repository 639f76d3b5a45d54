from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from resize_pos.core.conventions import Coordinates, Method, Resampling
from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.core.geometry import Grid
from resize_pos.transforms import kernels
from resize_pos.transforms.kernels import apply, check_resampling, operator
from tests.oracle import interpolate
from tests.support.strategies import EVERY_RESAMPLING, LAW, RESAMPLINGS, lengths, resamplings

SHIFTING = Coordinates.OFFSET


def some_pairs() -> list[tuple[Grid, Grid]]:
    """At least 200 pairs: every way of growing and shrinking, and the degenerate grids."""
    known = ["14x14 24x24", "14x14 7x7", "16x64 12x48", "16x64 16x48", "37x37 16x16", "8x8 8x16"]
    known += [
        "2x8 4x4",
        "4x4 2x8",
        "1x1 3x5",
        "3x5 1x1",
        "1x9 4x2",
        "9x1 2x7",
        "6x4 5x1",
        "5x7 1x9",
    ]
    pairs = [tuple(Grid.parse(word) for word in text.split()) for text in known]
    rng = np.random.default_rng(1)
    sides = rng.integers(1, 33, size=(240, 4)).tolist()
    pairs += [(Grid(a, b), Grid(c, d)) for a, b, c, d in sides]
    return [(source, target) for source, target in pairs]


PAIRS = some_pairs()


def values(*shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def test_the_pairs_cover_every_direction() -> None:
    assert len(set(PAIRS)) >= 200
    for axis in ("height", "width"):
        signs = {np.sign(getattr(b, axis) - getattr(a, axis)) for a, b in PAIRS}
        assert signs == {-1, 0, 1}
    assert sum(not a.is_square and not b.is_square for a, b in PAIRS) >= 200


@pytest.mark.parametrize("resampling", RESAMPLINGS, ids=str)
def test_agrees_with_torch_in_float64(resampling: Resampling) -> None:
    for source, target in PAIRS:
        grid = values(2, source.height, source.width, 3)
        along = operator(source.height, target.height, resampling)
        across = operator(source.width, target.width, resampling)
        ours = apply(across, apply(along, grid, 1), 2)
        theirs = interpolate(grid, target, resampling)
        assert np.abs(ours - theirs).max() <= 1e-12, f"{source} → {target}"


def test_nearest_is_the_one_of_torch_for_every_pair_up_to_128() -> None:
    resampling = Resampling(Method.NEAREST, antialias=False)
    exact = 0
    for source in range(1, 129):
        positions = torch.arange(source, dtype=torch.float32)[None, None]
        for target in range(1, 129):
            theirs = torch.nn.functional.interpolate(positions, size=target, mode="nearest")
            ours = operator(source, target, resampling).indices[:, 0]
            assert np.array_equal(ours, theirs[0, 0].numpy()), f"{source} → {target}"
            exact += np.array_equal(ours, np.arange(target) * source // target)
    assert exact == 128 * 128 - 193  # the pairs for which torch's float32 scale shows


@LAW
@given(lengths(), lengths(), resamplings())
def test_rows_sum_to_one(source: int, target: int, resampling: Resampling) -> None:
    found = operator(source, target, resampling)
    assert found.matrix.shape == (target, source)
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1, rtol=0, atol=1e-14)


@LAW
@given(lengths(64), resamplings().filter(lambda r: r.coordinates is not SHIFTING))
def test_the_same_size_is_the_identity(length: int, resampling: Resampling) -> None:
    found = operator(length, length, resampling)
    assert found.is_identity
    assert np.array_equal(found.matrix, np.eye(length))


def test_the_offset_moves_even_an_axis_that_keeps_its_size() -> None:
    cubic = Resampling(Method.BICUBIC, antialias=False, coordinates=SHIFTING)
    assert not operator(7, 7, cubic).is_identity
    linear = Resampling(Method.BILINEAR, antialias=False, coordinates=SHIFTING)
    assert operator(7, 7, linear).is_identity  # as torch has it


@LAW
@given(lengths(), lengths(), resamplings().filter(lambda r: r.coordinates is Coordinates.CORNERS))
def test_corners_keep_the_corners(source: int, target: int, resampling: Resampling) -> None:
    matrix = operator(source, target, resampling).matrix
    assert matrix[0, 0] == 1 and np.count_nonzero(matrix[0]) == 1
    if target > 1:
        assert matrix[-1, -1] == 1 and np.count_nonzero(matrix[-1]) == 1


@LAW
@given(lengths(), lengths(), resamplings())
def test_reversing_the_source_reverses_the_target(n: int, m: int, resampling: Resampling) -> None:
    one_sided = resampling.coordinates is SHIFTING or resampling.method is Method.NEAREST
    if one_sided or (resampling.coordinates is Coordinates.CORNERS and m == 1):
        return
    matrix = operator(n, m, resampling).matrix
    np.testing.assert_allclose(matrix[::-1, ::-1], matrix, rtol=0, atol=1e-14)


@LAW
@given(lengths(), lengths(), resamplings().filter(lambda r: r.method is not Method.BICUBIC))
def test_only_bicubic_overshoots(source: int, target: int, resampling: Resampling) -> None:
    assert operator(source, target, resampling).matrix.min() >= 0


@LAW
@given(lengths(), lengths(), resamplings(), st.integers(-3, 2))
def test_apply_is_the_matrix_along_any_axis(n: int, m: int, r: Resampling, axis: int) -> None:
    shape = [2, 3, 5]
    shape[axis] = n
    array = values(*shape)
    found = operator(n, m, r)
    expected = np.moveaxis(np.tensordot(found.matrix, array, axes=(1, axis)), 0, axis)
    result = apply(found, array, axis)
    assert result.flags.c_contiguous
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13)


@LAW
@given(lengths(), lengths(), resamplings(), st.integers(1, 40))
def test_blocks_do_not_change_a_bit(n: int, m: int, resampling: Resampling, size: int) -> None:
    array = values(5, n, 11)
    whole = apply(operator(n, m, resampling), array, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_BLOCK", size)
        assert np.array_equal(apply(operator(n, m, resampling), array, 1), whole)


@pytest.mark.parametrize("resampling", RESAMPLINGS, ids=str)
def test_strides_of_the_input_do_not_change_a_bit(resampling: Resampling) -> None:
    array = values(6, 9, 4)
    found = operator(9, 13, resampling)
    other = np.asfortranarray(array)[:, :, ::-1]
    assert np.array_equal(apply(found, other, 1), apply(found, array, 1)[:, :, ::-1])


def test_a_sequence_of_thousands_needs_no_dense_matrix() -> None:
    found = operator(8192, 32768, Resampling())
    assert found.indices.shape == found.weights.shape == (32768, 4)
    assert "matrix" not in vars(found)


def test_operators_are_shared_and_cannot_be_changed() -> None:
    found = operator(5, 7, Resampling())
    assert operator(5, 7, Resampling()) is found
    for array in (found.matrix, found.weights, found.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0


def test_antialias_means_nothing_for_nearest() -> None:
    smooth, plain = (operator(5, 3, Resampling(Method.NEAREST, flag)) for flag in (True, False))
    assert np.array_equal(smooth.matrix, plain.matrix)


def test_what_no_library_does_is_refused() -> None:
    for resampling in EVERY_RESAMPLING:
        if resampling in RESAMPLINGS:
            check_resampling(resampling)
            continue
        word = "nearest" if resampling.method is Method.NEAREST else "antialias"
        with pytest.raises(UsageError, match=f"{word} cannot be combined with") as caught:
            operator(4, 6, resampling)
        assert resampling.coordinates.value in caught.value.message
        assert caught.value.hint is not None


@pytest.mark.parametrize(("source", "target"), [(0, 3), (3, 0), (-1, 2)])
def test_empty_axes_are_refused(source: int, target: int) -> None:
    with pytest.raises(GeometryError, match=f"{source} positions to {target}"):
        operator(source, target, Resampling())
