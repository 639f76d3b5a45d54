"""Interpolation at uneven places as a matrix: linear, and the cubic spline that FITPACK gives.

The spline is the not-a-knot interpolant (knots at every site but the second and the last but one),
so it agrees with scipy's RectBivariateSpline(s=0) along each axis, and with the interp2d that BEiT
used. Its matrix is found by elimination in a fixed order, without BLAS: the same bytes everywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from resize_pos.transforms.kernels import Operator

_CUBIC = 3


def linear_at(sites: Sequence[float], places: Sequence[float]) -> Operator:
    """Interpolate linearly between `sites`; outside of them the last value is kept."""
    last = len(sites) - 1
    indices = np.zeros((len(places), 2), np.intp)
    weights = np.zeros((len(places), 2))
    for row, place in enumerate(places):
        right = min(max(bisect_right(sites, place), 1), last) if last else 0
        left = max(right - 1, 0)
        width = sites[right] - sites[left]
        share = min(max((place - sites[left]) / width, 0.0), 1.0) if width else 0.0
        indices[row] = left, right
        weights[row] = 1 - share, share
    return Operator(len(sites), indices, weights)


def spline_at(sites: Sequence[float], places: Sequence[float], *, extrapolate: bool) -> Operator:
    """Interpolate by a cubic spline; outside, go on with it or keep the last value.

    Three sites carry a parabola and one a constant, which the libraries refuse.
    """
    degree = min(_CUBIC, len(sites) - 1)
    inner = sites[2:-2] if degree == _CUBIC else ()
    knots = [sites[0]] * (degree + 1) + list(inner) + [sites[-1]] * (degree + 1)
    if not extrapolate:
        places = [min(max(place, sites[0]), sites[-1]) for place in places]
    fit, look = (_basis(knots, degree, at) for at in (sites, places))
    weights = _solve_transposed(fit, look)
    for row, place in enumerate(places):
        if place in sites:  # exactly, not up to rounding: offset zero is one of these
            weights[row] = np.arange(len(sites)) == sites.index(place)
    indices = np.tile(np.arange(len(sites), dtype=np.intp), (len(places), 1))
    return Operator(len(sites), indices, weights)


def _basis(knots: Sequence[float], degree: int, places: Sequence[float]) -> NDArray[np.float64]:
    """Evaluate every B-spline at every place, by the Cox-de Boor recursion."""
    count = len(knots) - degree - 1
    values = np.zeros((len(places), count))
    for row, place in enumerate(places):
        span = min(max(bisect_right(knots, place) - 1, degree), count - 1)
        active = [1.0]
        for order in range(1, degree + 1):
            grown = [0.0] * (order + 1)
            for index, value in enumerate(active):
                left = knots[span - order + 1 + index]
                right = knots[span + 1 + index]
                grown[index] += value * (right - place) / (right - left)
                grown[index + 1] += value * (place - left) / (right - left)
            active = grown
        values[row, span - degree : span + 1] = active
    return values


def _solve_transposed(fit: NDArray[np.float64], look: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return look · fit⁻¹. `fit` is banded and totally positive, so no pivots are needed."""
    matrix, right = fit.T.copy(), look.T.copy()
    size = len(matrix)
    for pivot in range(size):
        for below in range(pivot + 1, min(pivot + _CUBIC + 1, size)):
            factor = matrix[below, pivot] / matrix[pivot, pivot]
            if factor:
                matrix[below] -= factor * matrix[pivot]
                right[below] -= factor * right[pivot]
    for pivot in reversed(range(size)):
        for beyond in range(pivot + 1, min(pivot + _CUBIC + 1, size)):
            right[pivot] -= matrix[pivot, beyond] * right[beyond]
        right[pivot] /= matrix[pivot, pivot]
    return np.ascontiguousarray(right.T)
