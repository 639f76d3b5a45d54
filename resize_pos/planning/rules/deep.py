"""Windows with a time axis: tables of (2t − 1)·(2h − 1)·(2w − 1) offsets. The time axis is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from resize_pos.core.axes import Layout, Unfolded
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DeepLayout(Layout):
    """`(t h w) d` with a known number of offsets in time; there is one grid per offset."""

    depth: int = 1

    def grid(self, shape: tuple[int, ...]) -> Grid | None:  # noqa: ARG002
        """Return None: the row count alone does not determine height and width."""
        return None

    def rows(self, shape: tuple[int, ...]) -> int:
        """Return the number of stored rows."""
        return shape[0]

    def shape(
        self,
        source: tuple[int, ...],
        prefix: int,  # noqa: ARG002
        grid: Grid,
        suffix: int,  # noqa: ARG002
        frames: int = 1,  # noqa: ARG002
    ) -> tuple[int, ...]:
        """Return the stored shape for the new grid `grid`."""
        return (self.depth * grid.cells, *source[1:])

    def unfold(
        self,
        array: NDArray[Any],
        prefix: int,
        grid: Grid,
        suffix: int,
        frames: int = 1,  # noqa: ARG002
    ) -> Unfolded:
        """Split a stored array into its parts."""
        assert prefix == suffix == 0, (prefix, suffix)
        cells = array.reshape(self.depth, grid.height, grid.width, array.shape[-1])
        rows = cells.reshape(self.depth, -1, array.shape[-1])[:, :0]
        return Unfolded(rows, cells, rows)

    def fold(self, parts: Unfolded, source: tuple[int, ...]) -> NDArray[Any]:
        """Join the parts into a stored array."""
        return parts.grid.reshape(-1, source[-1])


def deep_window(
    tensor: TensorInfo, layout: Layout, index: TensorInfo | None
) -> tuple[Layout, Grid]:
    """Determine depth, height and width from the row count and the size of the index buffer."""
    if index is None:
        raise GeometryError(
            f"{tensor} has a depth, and without its relative_position_index the three sides cannot "
            "be told apart."
        )
    rows, tokens = tensor.shape[0], index.shape[0]
    answers = []
    for depth in range(1, tokens + 1):
        if tokens % depth or rows % (2 * depth - 1):
            continue
        cells, offsets = tokens // depth, rows // (2 * depth - 1)
        total, odd = divmod(4 * cells + 1 - offsets, 2)  # height + width
        root = math.isqrt(max(total * total - 4 * cells, 0))
        height, width = (total - root) // 2, (total + root) // 2
        exact = height * width == cells and (2 * height - 1) * (2 * width - 1) == offsets
        if not odd and exact and height > 0:
            answers.append((depth, Grid(height, width)))
    square = [answer for answer in answers if answer[1].is_square]
    if len(square) != 1:
        raise GeometryError(
            f"{tensor.name} has {rows} offsets between {tokens} cells, which "
            f"{len(answers)} windows with a depth have."
        )
    depth, window = square[0]
    return DeepLayout(f"({depth} h w) d", layout.terms, depth=2 * depth - 1), window
