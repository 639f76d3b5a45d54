"""Norms that are restored: each new vector is as long as its neighbours' norms say.

A norm is interpolated by the kernel of the values. A bicubic kernel overshoots: beside short
vectors it gives norms of zero or less, beside long ones norms above all of them. So a norm never
leaves the range of those that it is interpolated from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NormLimits:
    """The shortest and the longest norm that each new cell is interpolated from.

    Both are arrays of (copies, h, w, 1).
    """

    shortest: NDArray[np.float64]
    longest: NDArray[np.float64]

    def along(self, axis: int, matrix: Matrix) -> NormLimits:
        """Return the limits of what a (target, source) matrix makes of one axis."""
        return NormLimits(
            _reached(self.shortest, axis, matrix, np.minimum),
            _reached(self.longest, axis, matrix, np.maximum),
        )

    def in_time(self, matrix: Matrix) -> NormLimits:
        """Return the limits after the frames, which lie in the copies, were resampled, too."""
        frames, cell = matrix.shape[1], self.shortest.shape[1:]
        films = NormLimits(
            self.shortest.reshape(-1, frames, *cell), self.longest.reshape(-1, frames, *cell)
        ).along(1, matrix)
        return NormLimits(films.shortest.reshape(-1, *cell), films.longest.reshape(-1, *cell))

    def of_rows(self, rows: slice) -> NormLimits:
        """Return the limits of some rows of the new grid."""
        return NormLimits(self.shortest[:, rows], self.longest[:, rows])


def with_norms(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Append the norm of each vector as one more channel, so that it is resampled alike."""
    return np.concatenate([grid, _norms(grid)], axis=-1)


def norm_limits(norms: NDArray[np.float64], down: Matrix, across: Matrix) -> NormLimits:
    """Say between which norms (copies, h, w, 1) each new cell lies.

    `down` and `across` are the (target, source) matrices of the rows and of the columns. Only cells
    count to which both give a weight.
    """
    return NormLimits(norms, norms).along(1, down).along(2, across)


def restored(grid: NDArray[np.float64], limits: NormLimits) -> NDArray[np.float64]:
    """Rescale each vector to the norm in the last channel; a zero vector stays zero."""
    vectors = grid[..., :-1]
    wanted = np.clip(grid[..., -1:], limits.shortest, limits.longest)
    norms = _norms(vectors)
    factors = np.divide(wanted, norms, out=np.ones_like(norms), where=norms > 0)
    rescaled: NDArray[np.float64] = vectors * factors
    return rescaled


def _reached(
    norms: NDArray[np.float64], axis: int, matrix: Matrix, choose: np.ufunc
) -> NDArray[np.float64]:
    parts = [choose.reduce(norms.compress(row != 0, axis), axis) for row in matrix]
    return np.stack(parts, axis)


def _norms(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.max(np.abs(vectors), axis=-1, keepdims=True)
    parts = np.divide(vectors, largest, out=np.zeros_like(vectors), where=largest > 0)
    norms: NDArray[np.float64] = largest * np.sqrt(
        np.einsum("...d,...d->...", parts, parts)[..., None]
    )
    return norms
