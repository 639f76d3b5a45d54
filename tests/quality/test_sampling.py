"""Products of samples, in blocks that are too small for BLAS to start threads on."""

from __future__ import annotations

import numpy as np
import pytest

from resize_pos.quality.measures.sampling import products


@pytest.mark.parametrize("channels", [0, 1, 16, 47, 48, 255, 256, 257, 600])
def test_products_are_those_of_the_whole_matrices(channels: int) -> None:
    random = np.random.default_rng(7)
    left = random.standard_normal((45, channels)).astype(np.float32)
    right = random.standard_normal((33, channels)).astype(np.float32)
    wanted = left.astype(np.float64) @ right.astype(np.float64).T
    found = products(left, right)
    assert found.shape == (45, 33)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
