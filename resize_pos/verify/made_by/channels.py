"""A method is recognised by a sample of the channels. Do the other channels follow it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.axes import Unfolded
from resize_pos.core.conventions import Resampling
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.sampling import Wide, resample

_AT_ONCE = 64  # channels that are resampled together
# A channel is strange if it differs by so many times the tolerance, or by half of its length, and
# by more than the tolerance of a usual channel: rounding moves a channel of almost nothing far.
_TIMES, _HALF = 20, 0.5
_MOST_NAMED = 5


def strange_channels(
    old: Unfolded, new: Unfolded, target: Grid, resampling: Resampling, tolerance: float
) -> NDArray[np.intp]:
    """Return the channels of a table that a convention does not make of the source."""
    errors, lengths = [], []
    for first in range(0, old.grid.shape[-1], _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        made = resample(old.grid[..., some].astype(np.float64), target, resampling)
        table = new.grid[..., some].astype(np.float64).reshape(made.shape)
        errors.append(channel_lengths(table - made))
        lengths.append(np.maximum(channel_lengths(table), channel_lengths(made)))
    return far_channels(np.concatenate(errors), np.concatenate(lengths), tolerance)


def far_channels(errors: Wide, lengths: Wide, tolerance: float) -> NDArray[np.intp]:
    """Return the channels that differ from what a method makes by more than rounding does."""
    usual = float(np.sqrt((lengths**2).mean()))
    far = errors > min(_TIMES * tolerance, _HALF) * lengths
    return np.flatnonzero(far & (errors > tolerance * usual))


def in_words(strange: NDArray[np.intp], channels: int) -> str:
    """Say how many channels differ, and name the first ones."""
    names = ", ".join(str(index) for index in strange[:_MOST_NAMED])
    more = " …" if len(strange) > _MOST_NAMED else ""
    verb = "differs" if len(strange) == 1 else "differ"
    return f"{len(strange)} of {channels} channels {verb} from that ({names}{more})"


def channel_lengths(table: Wide) -> Wide:
    """Return the length of each channel, the last axis."""
    flat = table.reshape(-1, table.shape[-1])
    lengths: Wide = np.sqrt(np.einsum("nd,nd->d", flat, flat))
    return lengths
