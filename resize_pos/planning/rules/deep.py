"""Windows with a depth: tables of (2t − 1)·(2h − 1)·(2w − 1) offsets, of video and of volumes."""

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

_MOST_LISTED = 6


@dataclass(frozen=True, slots=True)
class DeepLayout(Layout):
    """`(t h w) d`, where rows count offsets; there is one grid per offset in time or depth."""

    @property
    def has_time(self) -> bool:
        """Whether the table has frames or slices: always."""
        return True

    def frames(self, shape: tuple[int, ...]) -> int | None:  # noqa: ARG002
        """Return None: the row count alone does not determine the depth."""
        return None

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
        frames: int = 1,
    ) -> tuple[int, ...]:
        """Return the stored shape for the new grid `grid`."""
        return (frames * grid.cells, *source[1:])

    def unfold(
        self, array: NDArray[Any], prefix: int, grid: Grid, suffix: int, frames: int = 1
    ) -> Unfolded:
        """Split a stored array into its parts."""
        assert prefix == suffix == 0, (prefix, suffix)
        cells = array.reshape(frames, grid.height, grid.width, array.shape[-1])
        rows = cells.reshape(frames, -1, array.shape[-1])[:, :0]
        return Unfolded(rows, cells, rows)

    def fold(self, parts: Unfolded, source: tuple[int, ...]) -> NDArray[Any]:
        """Join the parts into a stored array."""
        return parts.grid.reshape(-1, source[-1])


def deep_window(
    tensor: TensorInfo, layout: Layout, index: TensorInfo | None, stated: Grid | None = None
) -> tuple[Layout, Grid, int]:
    """Determine layout, window and depth from the row count and the size of the index buffer.

    `stated` is what the user says; a window of three sides is checked against the file.
    """
    deep = DeepLayout("(t h w) d", layout.terms)
    rows = tensor.shape[0]
    if stated is not None and stated.depth:
        offsets = (2 * stated.depth - 1) * (2 * stated.height - 1) * (2 * stated.width - 1)
        if offsets != rows:
            raise GeometryError(
                f"{tensor.name} has {rows} offsets; a window of {stated} would have {offsets}.",
                hint="correct --from-window, or drop it.",
            )
        return deep, stated.plane, stated.depth
    answers = list(_windows(rows, None if index is None else index.shape[0]))
    likely = [answer for answer in answers if answer[1].is_square]
    cubes = [answer for answer in likely if answer[0] == answer[1].height]
    if index is None:
        likely = cubes
    if len(likely) != 1:
        shown = ", ".join(f"{depth}×{grid}" for depth, grid in answers[:_MOST_LISTED])
        raise GeometryError(
            f"{tensor.name} has {rows} offsets of a window with a depth, which can be "
            f"{shown or 'no window'}.",
            hint="state it with --from-window DxHxW, for example --from-window 7x7x7.",
        )
    depth, window = likely[0]
    return deep, window, depth


def _windows(rows: int, tokens: int | None) -> list[tuple[int, Grid]]:
    """List the windows that have so many offsets and, where it is known, so many cells."""
    answers = []
    for deep in _odd_divisors(rows):
        plane, depth = rows // deep, (deep + 1) // 2
        for tall in _odd_divisors(plane):
            grid = Grid((tall + 1) // 2, (plane // tall + 1) // 2)
            fits = tokens is None or depth * grid.cells == tokens
            if fits and grid.height <= grid.width:
                answers.append((depth, grid))
    return answers


def _odd_divisors(number: int) -> list[int]:
    """List the divisors of an odd number; none of an even one, which counts no offsets."""
    if number % 2 == 0:
        return []
    small = [n for n in range(1, math.isqrt(number) + 1, 2) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
