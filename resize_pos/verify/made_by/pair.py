"""A source table and its resized version, prepared for finding out how the one became the other."""

from __future__ import annotations

import numpy as np

from resize_pos.core.axes import Unfolded
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.energy import norm_map
from resize_pos.quality.measures.sampling import Wide, spread
from resize_pos.verify.made_by.proper import Norms

_CHANNELS = 24
_WHOLE = 1 << 23  # up to this many numbers, all channels are used,
_MANY = 1 << 21  # … and beyond it, as many channels as have so many numbers


@dataclass(frozen=True, slots=True)
class Pair:
    """A source table and its resized version: rows × channels, and the geometry of both."""

    before: Wide
    after: Wide
    prefix: int
    suffix: int
    source: Grid
    target: Grid
    whole_before: Wide  # the cells (rows × channels) with all channels, of tables that fit
    whole_after: Wide
    many_before: Wide  # the same with as many channels as fit, of every table
    many_after: Wide
    copies: int  # grids in one table: one for each frame
    norms: Norms | None  # over all channels, of tables that fit

    @property
    def cells_before(self) -> Wide:
        """The source grid, (1, h, w, d)."""
        rows = self.before[self.prefix : self.prefix + self.source.cells]
        return rows.reshape(1, self.source.height, self.source.width, -1)

    @property
    def whole_grid(self) -> Wide:
        """The source grid with all channels, (1, h, w, d); for tables that fit."""
        return self.whole_before.reshape(1, self.source.height, self.source.width, -1)

    @property
    def many_grid(self) -> Wide:
        """The source grid with many channels, (1, h, w, d)."""
        return self.many_before.reshape(1, self.source.height, self.source.width, -1)

    @property
    def is_whole(self) -> bool:
        """Whether both tables fit, so that all channels are there."""
        return len(self.whole_before) > 0 and len(self.whole_after) > 0

    @property
    def cells_after(self) -> Wide:
        """The other grid's rows."""
        return self.after[self.prefix : self.prefix + self.target.cells]


def make_pair(old: Unfolded, new: Unfolded, source: Grid, target: Grid) -> Pair:
    """Take a sample of the channels of both tables, prefix and suffix rows included."""
    copies, _, _, channels = old.grid.shape
    chosen = spread(channels, max(1, _CHANNELS // min(copies, _CHANNELS)))

    def rows(parts: Unfolded) -> Wide:
        cells = parts.grid.reshape(copies, -1, channels)
        # The frames of a video share their prefix and suffix rows.
        around = (np.repeat(p, copies // len(p), axis=0) for p in (parts.prefix, parts.suffix))
        first, last = around
        whole = np.concatenate([first, cells, last], axis=1)[:, :, chosen]
        return np.moveaxis(whole.astype(np.float64), 0, 1).reshape(whole.shape[1], -1)

    def whole(parts: Unfolded) -> Wide:
        first = parts.grid[0].reshape(-1, channels)
        return first.astype(np.float64) if first.size <= _WHOLE else np.zeros((0, channels))

    def many(parts: Unfolded) -> Wide:
        if len(whole_before) and len(whole_after):
            return whole_before if parts is old else whole_after
        most = spread(channels, max(_CHANNELS, _MANY // max(source.cells, target.cells)))
        return np.asarray(parts.grid[0].reshape(-1, channels)[:, most], np.float64)

    whole_before, whole_after = whole(old), whole(new)
    norms = None
    if max(old.grid.size, new.grid.size) <= _WHOLE and len(new.grid) == copies:
        before, after = (norm_map(parts.grid.astype(np.float64)) for parts in (old, new))
        norms = Norms(before[..., None], after.reshape(copies, -1))
    return Pair(
        rows(old),
        rows(new),
        old.prefix.shape[1],
        old.suffix.shape[1],
        source,
        target,
        whole_before,
        whole_after,
        many(old),
        many(new),
        copies,
        norms,
    )
